"""Which of the requests that differ in size or root alone are timed, and what the others get; times are made up."""

from types import SimpleNamespace

import numpy as np
import pytest

from emu.study.isolated_request import LIGHT, IsolatedRequest
from emu.study.training.composed import distinct_times
from emu.study.training.composed.distinct_times import time_requests


def asked(size: int, root: int = 0, name: str = "broadcast", splits: tuple[int, ...] = ()):
    return SimpleNamespace(size_bytes=size, root=root, name=name, splits=splits, kind=0)


def timed(monkeypatch, requests, tasks, links=lambda _: (0, 1), most=2):
    """The time of each request, which is 100 ticks a byte and one for each root before it, and which were timed."""
    parts = [[SimpleNamespace(what=SimpleNamespace(served="ring"), asked=each)] for each in requests]
    seen = []

    def time(own, *_):
        one = own[0].asked
        seen.append((one.size_bytes, one.root, one.name, one.splits))
        link, busy_s = np.array(links(one.size_bytes)), np.full(2, float(one.size_bytes))
        return IsolatedRequest(100 * one.size_bytes + one.root, 0, link, busy_s, 1.0, tasks(one.size_bytes))

    monkeypatch.setattr(distinct_times, "_time_cached", time)
    found = time_requests(requests, parts, SimpleNamespace(chooses=False), np.arange(4))
    return [each.ticks for each in found], sorted({each[:most] for each in seen})


def test_of_large_requests_the_smallest_and_the_largest_are_timed_and_others_lie_between(monkeypatch):
    requests = [asked(20), asked(10), asked(40), asked(30)]
    ticks, seen = timed(monkeypatch, requests, lambda _: LIGHT + 1)
    assert seen == [(10, 0), (40, 0)]
    assert ticks == [2000, 1000, 4000, 3000]


@pytest.mark.parametrize(
    ("tasks", "links"),
    [
        (lambda _: LIGHT, lambda _: (0, 1)),
        (lambda size: LIGHT + (size > 10), lambda _: (0, 1)),
        (lambda size: LIGHT + (size < 40), lambda _: (0, 1)),
        (lambda _: LIGHT + 1, lambda size: (0, 1 + (size == 40))),
    ],
)
def test_each_size_is_timed_where_one_of_both_ends_is_small_or_crosses_other_links(monkeypatch, tasks, links):
    _, seen = timed(monkeypatch, [asked(size) for size in (10, 20, 30, 40)], tasks, links)
    assert seen == [(size, 0) for size in (10, 20, 30, 40)]


def test_each_root_of_a_small_request_has_its_own_time_and_a_large_one_has_that_of_the_first(monkeypatch):
    """Two more roots of half as many tasks are just few enough."""
    requests = [asked(10, 2), asked(10, 1), asked(10, 3), asked(10, 1)]
    ticks, seen = timed(monkeypatch, requests, lambda _: LIGHT // 2)
    assert ticks == [1002, 1001, 1003, 1001]
    assert len(seen) == 3
    ticks, seen = timed(monkeypatch, requests, lambda _: LIGHT // 2 + 1)
    assert (ticks, seen) == ([1002] * 4, [(10, 2)])


def test_requests_of_other_operations_or_with_blocks_of_their_own_share_no_time(monkeypatch):
    requests = [asked(10), asked(20), asked(40), asked(30, splits=(3, 0)), asked(30, name="reduce")]
    _, seen = timed(monkeypatch, requests, lambda _: LIGHT + 1, most=4)
    assert seen == [(10, 0, "broadcast", ()), (30, 0, "broadcast", (3, 0)), (30, 0, "reduce", ()), (40, 0, "broadcast", ())]
