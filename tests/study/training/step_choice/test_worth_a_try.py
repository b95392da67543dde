"""Which algorithms are worth a try for a request within its step, and which are tried for each coordinate of a step."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.collective.choice import Choice
from emu.errors import InputError
from emu.fabric.lowering.circuit_turns import TornError
from emu.study.choice.site import Requirement, Site
from emu.study.training.step_choice import algorithm_search, options
from emu.study.training.step_choice.algorithm_search import EACH_FASTEST, AlgorithmSearch
from emu.study.training.step_choice.descent import NEVER, StepTime
from emu.study.training.step_choice.options import Coordinate, Option, ServedFabric, pareto_front
from emu.topology.catalogue import build_topology

TORUS = build_topology("torus:dims=4x4,bandwidth=50GB/s,latency=1us")
DP, TP, CP, PP = (Coordinate(axis, "all_reduce", 5) for axis in ("dp", "tp", "cp", "pp"))


def test_on_the_front_is_what_no_other_beats_in_both_time_and_messages() -> None:
    every = [
        (9.0, 1.0, "i"),
        (3.0, 5.0, "c"),
        (1.0, 8.0, "a"),
        (3.0, 4.0, "b"),
        (4.0, 4.0, "d"),
        (5.0, 6.0, "e"),
        (8.0, 1.0, "h"),
    ]
    assert [name for *_, name in pareto_front(every)] == ["a", "b", "h"]


@dataclass(frozen=True, eq=False)
class Rows(ServedFabric):
    """A fabric on which each algorithm has a bound, ticks and messages on its busiest link."""

    rows: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    seen: list[float] = field(default_factory=list)

    def isolated(self, asked: Any) -> Any:
        """Return the ticks of the present algorithm."""
        return SimpleNamespace(ticks=25)

    def bounds(self, asked: Any, within_fs: float) -> Iterator[Any]:
        """Yield the algorithms."""
        self.seen.append(within_fs)
        return iter([SimpleNamespace(name=name) for name in self.rows])

    def with_algorithm(self, asked: Any, bound: Any) -> Any:
        """Return the ticks and the messages of an algorithm."""
        row = self.rows[bound.name]
        return row and SimpleNamespace(ticks=row[0], flows=row[1])

    def algorithm(self, name: str) -> Any:
        """Return a name in place of an option."""
        return name


@pytest.mark.parametrize(("fastest", "worth"), [(0, "bafe"), (1, "bafe"), (3, "bcafe"), (5, "bcadfe")])
def test_worth_a_try_are_the_front_and_the_few_fastest_of_those_within_four_times_the_present_time(
    fastest: int, worth: str
) -> None:
    rows = {"a": (40, 7), "b": (10, 9), "c": (30, 9), "d": (50, 8), "e": (90, 1), "f": (60, 3), "g": None}
    own = Rows(Choice(), TORUS, np.arange(16), 0, rows)  # type: ignore[arg-type]
    assert "".join(map(str, own.options(None, fastest))) == worth  # type: ignore[arg-type]
    assert own.seen == [100]


def distinct(choosing: list[list[int]], groups: int, size: int, elements: int) -> Any:
    """Return a request of some groups, of which some choose."""
    ranks = np.zeros((groups, len(choosing[0])), np.int64)
    return SimpleNamespace(
        name="broadcast", root=2, size_bytes=size, elements=elements, choosing=np.array(choosing), ranks=ranks
    )


@pytest.mark.parametrize(("size", "elements", "item"), [(4096, 1024, 4), (1024, 1024, 1), (0, 1024, 1), (8, 0, 8)])
def test_bounds_are_those_of_the_first_group_that_chooses_for_all_groups_up_to_a_limit(
    size: int, elements: int, item: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, plain = list[Any](), replace(TORUS, symmetry=None)

    def known(*of: Any) -> Iterator[Any]:
        asked.append(of)
        return iter([SimpleNamespace(bound_fs=ticks) for ticks in (1.0, 7.0, 9.0, 7.0)])

    monkeypatch.setattr(options, "bounds", known)
    own = ServedFabric(Choice(), plain, np.arange(16)[::-1], 0)
    found = own.bounds(distinct([[4, 5, 6], [7, 8, 9]], 5, size, elements), 7.0)
    assert [each.bound_fs for each in found] == [1.0, 7.0]
    assert asked == [(Site.of(plain, (11, 10, 9)), Requirement("broadcast", 2, elements, item, groups=5))]


@pytest.mark.parametrize(("messages", "timed"), [(2**18, True), (2**18 + 1, False)])
def test_an_algorithm_of_too_many_messages_or_that_tears_a_switch_has_no_time(
    messages: int, timed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, bound = ServedFabric(Choice(), TORUS, np.arange(16), 0), SimpleNamespace(name="ring", messages=messages)
    fabric = SimpleNamespace(isolated=lambda asked: ("timed", asked))
    monkeypatch.setattr(ServedFabric, "served_by", lambda _, __, option: fabric if option.name == "ring" else None)
    assert own.with_algorithm(7, bound) == (("timed", 7) if timed else None)  # type: ignore[arg-type]

    def torn(_: Any) -> None:
        raise TornError("torn")

    fabric.isolated = torn
    assert own.with_algorithm(7, bound) is None  # type: ignore[arg-type]


def search(**known: Any) -> AlgorithmSearch:
    """Return a search for a step of 10 s that is not looked at, of which some properties are known."""
    found = AlgorithmSearch(SimpleNamespace(choice=Choice(chooser="alone")))  # type: ignore[arg-type]
    found.__dict__.update({"_alone_step": StepTime(10.0, {"dp": 1.0}), **known})
    return found


def weighed(**more: Any) -> Any:
    """Return free requests that take 0.5 s, less, a thousandth of the step, and less."""
    weights = {DP: 0.5, TP: 0.49, CP: 0.01, PP: 0.0099}
    return SimpleNamespace(by_coordinate=dict.fromkeys(weights), weights_s=weights, **more)


def test_what_takes_a_thousandth_of_a_step_is_looked_at_and_more_is_tried_for_what_takes_a_twentieth() -> None:
    fabric = SimpleNamespace(options=lambda heaviest, n: [(heaviest, n)])
    own = search(free_requests=weighed(fabric=fabric, heaviest=lambda c: c.axis))
    assert own.coordinates == [DP, TP, CP]
    assert own._algorithms() == {DP: [("dp", 10)], TP: [("tp", 3)], CP: [("cp", 3)]}  # type: ignore[comparison-overlap]


def test_options_that_serve_all_requests_of_a_coordinate_alike_are_the_first_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    serves = {"each alone": "xy", "nccl": "xz", "ring": "xy", "tree": "xz", "direct": "zz"}
    monkeypatch.setattr(AlgorithmSearch, "choice_of", lambda _, names: names)
    monkeypatch.setattr(AlgorithmSearch, "served", lambda _, c, choice: tuple(serves[choice[c]]))
    every = [Option(name, None) for name in serves]  # type: ignore[arg-type]
    found = search()._distinct_options(DP, every)
    assert {name: of.name for name, of in found.items()} == {
        "each alone": "each alone", "nccl": "nccl", "ring": "each alone", "tree": "nccl", "direct": "direct",
    }  # fmt: skip


def descended(monkeypatch: pytest.MonkeyPatch, most_steps: int, events: int) -> tuple[Any, Any, Any]:
    """Return what a descent of a step of so many events is given, what is composed for it, and what comes of it."""
    given, composed = list[Any](), list[Any]()

    class Descent:
        """A descent that ends at once, with the last start."""

        def __init__(self, *of: Any) -> None:
            given.extend(of)

        def best(self, starts: Any) -> Any:
            """Return the last start."""
            given.append([{c: option.name for c, option in start.items()} for start in starts])
            given[2](starts[-1])
            return starts[-1], 8.0

    monkeypatch.setattr(algorithm_search, "Descent", Descent)
    monkeypatch.setattr(AlgorithmSearch, "_time_of", lambda _, names: composed.append(names) or StepTime(9.0, {}))
    monkeypatch.setattr(AlgorithmSearch, "_distinct_options", lambda _, __, every: {each.name: each for each in every})
    tried = {DP: ["ring", "tree"], TP: [], CP: ["direct"]}
    known = {c: [Option(name, None) for name in names] for c, names in tried.items()}  # type: ignore[arg-type]
    monkeypatch.setattr(AlgorithmSearch, "_algorithms", lambda _: known)
    choosers = {name: Option(name, None) for name in (EACH_FASTEST, "nccl")}  # type: ignore[arg-type]
    own = replace(search(), most_steps=most_steps)
    own.__dict__.update({"free_requests": weighed(), "_choosers": choosers})
    own.step.asked = SimpleNamespace(place_of_event=range(events))  # type: ignore[misc, assignment]
    return given, composed, own._descent_result(7.0)


def test_a_descent_starts_from_each_chooser_and_from_the_algorithms_that_are_fastest_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given, composed, found = descended(monkeypatch, 160, 2**17)
    options_, weights, _, most, good_enough_s, starts = given
    both = [EACH_FASTEST, "nccl"]
    assert {c: [each.name for each in of] for c, of in options_.items()} == {
        DP: [*both, "ring", "tree"], TP: both, CP: [*both, "direct"],
    }  # fmt: skip
    assert (weights, most, good_enough_s) == ({DP: 0.5, TP: 0.49, CP: 0.01}, 64, 7.0)
    together = {DP: "ring", TP: EACH_FASTEST, CP: "direct"}
    assert starts == [dict.fromkeys((DP, TP, CP), name) for name in both] + [together]
    assert (composed, found) == ([together], ({DP: "ring", CP: "direct"}, 8.0))


@pytest.mark.parametrize(("most_steps", "events", "most"), [(160, 2**10, 160), (50, 2**17, 50), (160, 2**22, 4), (3, 2**22, 3)])
def test_fewer_steps_are_composed_the_more_events_they_have_but_four_unless_fewer_are_asked_for(
    most_steps: int, events: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert descended(monkeypatch, most_steps, events)[0][3] == most


def test_a_step_that_cannot_be_timed_takes_for_ever_and_one_with_no_change_is_not_composed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def by(choice: Any) -> Any:
        if choice == {DP: "bad"}:
            raise InputError("no")
        return SimpleNamespace(coarse_report=lambda: SimpleNamespace(step_time_s=4.0, exposed_comm_by_axis_s={"tp": 2.0}))

    monkeypatch.setattr(AlgorithmSearch, "choice_of", lambda _, names: names)
    own = search()
    own.step.by = by  # type: ignore[method-assign]
    assert own._time_of({DP: EACH_FASTEST, TP: EACH_FASTEST}) == own._time_of({}) == StepTime(10.0, {"dp": 1.0})
    assert own._time_of({DP: EACH_FASTEST, TP: "ring"}) == StepTime(4.0, {"tp": 2.0})
    assert (own.composed_s({DP: "bad"}), own.composed_s({TP: "ring"})) == (NEVER, 4.0)
