"""The figures of a request that has the fabric to itself: put together from its clusters, between two sizes, on average."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.study.isolated_request import IsolatedRequest, _ClusterTime, _request_time
from emu.units import TICKS_PER_S

# Ticks, ticks until ranks have left, groups, seconds and messages on each link, tasks, the first to leave, the mean.
CLUSTERS = [
    _ClusterTime(100, 60, 3, np.array([0.25, 0.0]), np.array([2.0, 0.0]), 7, 20, 70.0),
    _ClusterTime(90, 80, 2, np.array([0.5, 0.125]), np.array([1.5, 6.0]), 5, 15, 85.0),
    _ClusterTime(40, 10, 1, np.array([0.0625]), np.array([9.0]), 4, 30, 35.0),
]
LINKS = [np.array([8, 3]), np.array([5, 1]), np.array([4])]


def together(name: str, clusters: list[_ClusterTime] = CLUSTERS) -> IsolatedRequest:
    what: Any = SimpleNamespace(name=name)
    return _request_time(clusters, LINKS, what)


def test_the_last_cluster_ends_a_request_and_links_stand_in_order_without_idle_ones() -> None:
    found = together("all_reduce")
    assert (found.ticks, found.tail, found.tasks) == (100, 100 - 80, 16)
    assert found.link.tolist() == [1, 4, 5, 8]
    assert found.busy_s.tolist() == [0.125, 0.0625, 0.5, 0.25]
    assert found.flows == 1.5  # of the busiest link
    assert (found.apart, found.apart_mean) == (100 - 15, 100 - round((3 * 70 + 2 * 85 + 35) / 6))


def test_the_ranks_of_a_rooted_request_leave_in_the_mean_over_all_groups() -> None:
    found = together("broadcast")
    assert found.tail == 100 - round((3 * 60 + 2 * 80 + 10) / 6)
    assert (found.ticks, found.apart) == (100, 85)


def test_a_link_is_crossed_by_one_message_at_least_and_a_request_without_links_has_no_tail() -> None:
    few = [each._replace(flows=each.flows / 4) for each in CLUSTERS]
    assert together("all_reduce", few).flows == 1.0
    idle = together("all_reduce", [each._replace(busy_s=each.busy_s * 0) for each in CLUSTERS])
    assert (idle.ticks, idle.tail, idle.link.tolist(), idle.flows, idle.tasks) == (100, 0, [], 1.0, 16)
    assert (idle.apart, idle.apart_mean) == (0, 0)


def request(ticks: int, tail: int, busy_s: tuple[float, ...], **more: int) -> IsolatedRequest:
    return IsolatedRequest(ticks, tail, np.arange(len(busy_s)), np.array(busy_s), 3.0, 5, **more)


@pytest.mark.parametrize(
    ("busy_ticks", "goes_on"), [((10, 70), False), ((72, 1), True), ((71, 1), False), ((), False), ((0, 99), True)]
)
def test_a_request_goes_on_where_a_link_is_busy_after_its_senders_have_left(busy_ticks: tuple[int, ...], goes_on: bool) -> None:
    """They leave after 70 ticks; one tick more is rounding."""
    found = request(100, 30, tuple(ticks / TICKS_PER_S for ticks in busy_ticks))
    assert found.goes_on is goes_on


@pytest.mark.parametrize(("mean", "ticks", "tail"), [(0, 100, 30), (25, 75, 30), (80, 20, 19), (100, 0, 0)])
def test_on_average_a_request_is_shorter_and_its_tail_is_shorter_than_it(mean: int, ticks: int, tail: int) -> None:
    found = request(100, 30, (0.5,), apart=60, apart_mean=mean).left_on_average
    assert (found.ticks, found.tail, found.apart, found.apart_mean) == (ticks, tail, 0, 0)
    assert (found.busy_s.tolist(), found.flows, found.tasks) == ([0.5], 3.0, 5)


@pytest.mark.parametrize(("part", "figures"), [(0, (100, 30, 60, 20)), (1, (300, 40, 80, 28)), (0.25, (150, 32, 65, 22))])
def test_between_two_sizes_all_that_depends_on_the_size_is_interpolated(part: float, figures: tuple[int, ...]) -> None:
    small = request(100, 30, (0.5, 1.0), apart=60, apart_mean=20, messages=12)
    large = request(300, 40, (0.9, 5.0), apart=80, apart_mean=28, messages=99)._replace(flows=7.0)
    found = small.between(large, part)
    assert (found.ticks, found.tail, found.apart, found.apart_mean) == figures
    assert found.busy_s.tolist() == pytest.approx([0.5 + 0.4 * part, 1 + 4 * part])
    assert (found.flows, found.tasks, found.messages) == (3 + 4 * part, 5, 12)
