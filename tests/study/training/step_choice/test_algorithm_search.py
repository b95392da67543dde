"""How a search for the algorithms of a step ends, which choices it returns, and by which the step is timed."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from emu.study.training.step.choices import AlgorithmChange
from emu.study.training.step_choice import algorithm_search
from emu.study.training.step_choice.algorithm_search import EACH_FASTEST, AlgorithmSearch, ServedStep
from emu.study.training.step_choice.descent import NEVER, StepTime
from emu.study.training.step_choice.options import Coordinate

DP, TP = Coordinate("dp", "all_reduce", 5), Coordinate("tp", "all_gather", 3)
CHANGE = AlgorithmChange(axis="dp", operation="all_reduce", least_bytes=1, most_bytes=2, algorithm="ring", instead_of="tree")


@dataclass
class Report:
    """A report of a step."""

    step_time_s: float


@dataclass
class Timed:
    """A timed step."""

    report: Report
    name: str
    auto: Any = None


def search(**known: Any) -> AlgorithmSearch:
    """Return a search for a step that is not looked at, of which some properties are known."""
    found = AlgorithmSearch(SimpleNamespace(choice=EACH_FASTEST))  # type: ignore[arg-type]
    requests = SimpleNamespace(by_coordinate={DP: [], TP: []}, least_shares=lambda *_: {})
    found.__dict__.update({"free_requests": requests, "coordinates": [DP], "others": {}, **known})
    return found


def choices(*of: tuple[float, int]) -> list[ServedStep]:
    """Return choices with the seconds of the composed step, and how much they change."""
    return [ServedStep(i, time_s, (CHANGE,) * changes) for i, (time_s, changes) in enumerate(of)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("whole_s", "chosen"),
    [
        ([5.0, 4.0, 3.0, 1.0], 2),  # the last is not near
        ([3.0, 4.0, 3.0, 1.0], 2),  # of equal ones that which changes less
        ([3.0, 4.0, 3.5, 1.0], 0),
    ],
)
def test_of_the_choices_near_the_best_the_one_with_the_shortest_step_is_taken(whole_s: list[float], chosen: int) -> None:
    every = choices((2.0, 2), (2.0, 3), (2.06, 1), (2.07, 0))
    found: Any = search().timed_by_best(every, 1.03, lambda choice: Timed(Report(whole_s[choice]), str(choice)))  # type: ignore
    assert (found.name, found.auto.changed) == (str(chosen), every[chosen].changed)
    assert found.auto.alone_step_time_s == 2.07  # as it was composed, as it was not timed
    assert found.auto.free == ("dp all_reduce", "tp all_gather")


def test_the_time_of_what_is_fastest_alone_is_told_as_it_was_timed() -> None:
    found: Any = search().timed_by_best(choices((2.0, 1), (2.0, 0)), 1.03, lambda c: Timed(Report(7.0 + c), ""))  # type: ignore
    assert (found.auto.alone_step_time_s, found.report.step_time_s) == (8.0, 7.0)


def ended(alone_s: float, monkeypatch: pytest.MonkeyPatch, descent: Any = None, **times_s: float) -> Any:
    """Return what a search finds of a step of 1 s without shared links, and whether it descended."""
    descended: list[float] = []
    monkeypatch.setattr(algorithm_search, "_unshared_step_s", lambda *_: 1.0)
    names = {EACH_FASTEST: None, **dict.fromkeys(times_s)}
    found = search(_alone_step=StepTime(alone_s, {}), _choosers=names)
    every = {EACH_FASTEST: alone_s, **times_s}
    monkeypatch.setattr(AlgorithmSearch, "_descent_result", lambda _, s: descended.append(s) or descent)
    monkeypatch.setattr(AlgorithmSearch, "composed_s", lambda _, of: every[of[DP]] if of[DP] == of[TP] else 0.0)
    return found.find(), descended


def test_a_step_as_short_as_without_shared_links_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    alone_s = 1.00005
    assert ended(alone_s, monkeypatch, nccl=0.5) == (({}, alone_s, {EACH_FASTEST: alone_s}), [])


def test_a_step_within_half_a_per_cent_of_that_tries_other_choosers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    alone_s = 1.004
    assert ended(alone_s, monkeypatch, nccl=2.0) == (({}, alone_s, {EACH_FASTEST: alone_s, "nccl": 2.0}), [])
    both = {EACH_FASTEST: alone_s, "nccl": 1.001}
    assert ended(alone_s, monkeypatch, nccl=1.001) == (({DP: "nccl", TP: "nccl"}, 1.001, both), [])


def test_a_longer_step_descends_and_a_chooser_for_all_requests_counts_where_it_is_shorter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    descent = {DP: "ring"}, 1.5
    found, descended = ended(2.0, monkeypatch, descent, nccl=1.5)
    assert (found[:2], descended) == (descent, [pytest.approx(1.005)])
    assert found[2] == {EACH_FASTEST: 2.0, "nccl": 1.5}
    assert ended(2.0, monkeypatch, descent, nccl=1.4, other=1.45)[0][:2] == ({DP: "nccl", TP: "nccl"}, 1.4)
    assert ended(1.006, monkeypatch, descent, nccl=2.0)[1] == [pytest.approx(1.005)]
    assert ended(1.4, monkeypatch, descent, nccl=1.6)[0][:2] == ({}, 1.4)


def test_choices_that_serve_alike_are_returned_once_the_first_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice that cannot be timed is none."""
    serves = {"ring": "ring", "nccl": "ring", "tree": "tree", EACH_FASTEST: "plain", "never": "never"}
    monkeypatch.setattr(AlgorithmSearch, "choice_of", lambda _, names: names)
    monkeypatch.setattr(AlgorithmSearch, "served", lambda _, c, choice: serves[choice.get(c, EACH_FASTEST)])
    monkeypatch.setattr(AlgorithmSearch, "changes", lambda _, choice: len(choice))
    both = dict.fromkeys((DP, TP), "ring")
    times_s = {EACH_FASTEST: 3.0, "nccl": 2.5, "never": NEVER, "tree": 4.0}
    found = search()._served_steps((both, 2.0, times_s))
    assert [each.time_s for each in found] == [2.0, 3.0, 4.0]
    assert found[0].choice == both
    apart = search()._served_steps(({DP: "ring"}, 2.0, times_s))
    assert [each.time_s for each in apart] == [2.0, 3.0, 2.5, 4.0]


def test_a_change_tells_the_sizes_and_the_algorithms_of_the_requests_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (50, 10, 90, 1)
    now = {50: ["ring", "ring"], 10: ["tree", "plain"], 90: ["ring", "plain"], 1: ["plain", "plain"]}
    before = {50: ["plain", "wide"], 10: ["plain", "plain"], 90: ["plain", "plain"], 1: ["plain", "plain"]}
    monkeypatch.setattr(
        AlgorithmSearch, "algorithms_of", lambda _, q, choice: (now if choice == "new" else before)[q.size_bytes]
    )
    requests = {DP: [SimpleNamespace(size_bytes=size) for size in sizes], TP: [SimpleNamespace(size_bytes=1)]}
    found = search(free_requests=SimpleNamespace(by_coordinate=requests))
    [change] = found.changes("new")  # type: ignore[arg-type]
    assert (change.axis, change.operation, change.least_bytes, change.most_bytes) == ("dp", "all_reduce", 10, 90)
    assert (change.algorithm, change.instead_of) == ("ring or tree", "plain or wide")
