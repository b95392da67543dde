"""The bounds of candidates get tighter step by step: by requests and by least times made by hand."""

from types import SimpleNamespace
from typing import Any

import pytest

from emu.model.plan.plan_text import parse_plan
from emu.model.stack.software import MEGATRON, OVERLAPPED
from emu.model.stack.stack import Stack
from emu.study.planning.bound import candidate_bounds as room
from emu.study.planning.bound.candidate_bounds import CandidateBounds
from emu.study.planning.bound.outline import ROUNDED
from emu.study.planning.plan_request import Candidate
from emu.study.planning.request_times.ports import ports_of
from emu.study.planning.request_times.rates import LeastTime, Rates
from emu.study.planning.space import placements
from emu.study.planning.step_paths.megatron_paths import MegatronPaths
from emu.topology.catalogue import build_topology
from launch.data.devices import find_device

PLAN = parse_plan("tp=2,dp=4", global_batch=8, seq=64)
FIRST, SECOND = (Candidate(number, PLAN, ("tp", "dp")) for number in (0, 1))
LINES = ("torus:dims=4x4,bandwidth=50GB/s,latency=1us", "switch:n=8,bandwidth=25GB/s,latency=2us")
LESS = 1 - ROUNDED


class Path:
    """A path that takes known seconds at a place."""

    def __init__(self, *of_place: float) -> None:
        self.of_place = of_place

    def seconds(self, least: Any, place: int) -> float:
        """Return the seconds, a thousand times as many on the second topology, and a tenth where `dp` is on neighbours."""
        slower = 1000 if least.rates.out == 25e9 else 1
        return self.of_place[place] * slower / (10 if least.where.npus[1] != 1 else 1)


class Outline:
    """An outline by which a step takes the sum of its two requests."""

    needs = ("layers", "ends")

    def seconds(self, least: Any) -> float:
        """Return the seconds of both, of those that are not known a second each, and note those."""
        took = [least.times.get(name) for name in self.needs]
        for priority, (name, known) in enumerate(zip(self.needs, took, strict=True)):
            if known is None:
                least.missing[name] = (priority, f"request {name}")
        return sum(1.0 if each is None else each.delivered_s for each in took)


def bounds(paths: Any, **words: Any) -> CandidateBounds:
    """Return the bounds of candidates on two topologies."""
    return CandidateBounds(paths, [build_topology(line) for line in LINES], **words)


def paths(*reductions: Path) -> Any:
    """Return paths of a software with these reductions of gradients, one a place."""

    def of(plan: Any, *, last: bool) -> Any:
        assert plan is PLAN
        assert not last
        return reductions

    return SimpleNamespace(reductions=of, reduces=bool(reductions))


def test_reductions_bound_a_plan_by_its_slowest_place_in_the_best_placement_anywhere() -> None:
    own = bounds(paths(Path(3.0), Path(0.0, 7.0), Path(0.0, 0.0, 5.0)))
    assert own.reduced_s(PLAN) == pytest.approx(0.7 * LESS, rel=1e-15)
    assert own.reduces
    without = bounds(paths())
    assert (without.reduced_s(PLAN), without.reduces) == (0.0, False)


@pytest.mark.parametrize("reduced_s", [0.5, 5.0, 9.0])
def test_requests_are_timed_by_their_order_and_a_bound_is_final_when_it_is_asked_for_again_with_all_known(
    reduced_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CandidateBounds, "_outlined", lambda *_: Outline())
    own, asked = bounds(paths(Path(reduced_s))), list[Any]()

    def times(number: int, wanted: Any) -> Any:
        asked.append((number, dict(wanted)))
        return {name: LeastTime(0.0, {"layers": 3.0, "ends": 4.0}[name]) for name in wanted}

    assert own.tighter([FIRST], times) == [(max(4.0, reduced_s * LESS), False)]
    assert asked == [(0, {"layers": "request layers"}), (1, {})]
    asked.clear()
    assert own.tighter([FIRST], times) == [(max(7.0, reduced_s * LESS), False)]
    assert asked == [(0, {"ends": "request ends"}), (1, {})]
    assert own.tighter([FIRST], times) == [(max(7.0, reduced_s * LESS), True)]


def test_requests_of_several_candidates_are_timed_on_their_topologies_the_first_in_order_of_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CandidateBounds, "_outlined", lambda *_: Outline())
    own, asked = bounds(paths()), list[Any]()
    own._known[0]["layers"] = LeastTime(0.0, 30.0)

    def times(number: int, wanted: Any) -> Any:
        asked.append((number, list(wanted)))
        return dict.fromkeys(wanted, LeastTime(0.0, 6.0))

    assert own.tighter([FIRST, SECOND], times) == [(31.0, False), (7.0, False)]
    assert asked == [(0, []), (1, ["layers"])]
    assert own.tighter([SECOND, FIRST], times) == [(12.0, False), (36.0, False)]
    assert asked[2:] == [(0, ["ends"]), (1, ["ends"])]
    assert own.tighter([SECOND, FIRST], times) == [(12.0, True), (36.0, True)]
    assert own.tighter([], times) == []


@pytest.mark.parametrize(("charted_s", "least_s"), [(0.1, 2.0), (50.0, 50.0)])
def test_the_chart_of_a_pipeline_counts_at_the_second_call_where_the_software_has_charts(
    charted_s: float, least_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CandidateBounds, "_outlined", lambda *_: SimpleNamespace(seconds=lambda _: 2.0))
    monkeypatch.setattr(room, "chart_s", lambda *_: charted_s)
    charted = MegatronPaths(None, Stack(MEGATRON, dp=OVERLAPPED), find_device("h100", "bfloat16"))  # type: ignore[arg-type]
    for of, expected in ((charted, least_s), (paths(), 2.0)):
        own = bounds(of)
        assert own.tighter([FIRST], lambda *_: {}) == [(2.0, False)]
        assert own.tighter([FIRST], lambda *_: {}) == [(expected, True)]


def test_groups_are_those_of_the_placement_and_topology_and_where_a_word_names_an_algorithm_no_ports_count() -> None:
    own, named = bounds(paths()), bounds(paths(), names_algorithm=True)
    every = [Candidate(number, PLAN, axes) for number in (0, 1) for axes in placements(PLAN)]
    for each in (*every, *every):
        topology = own.topologies[each.topology]
        found = own._placed_groups(each)
        assert (found.topology is topology, found.anywhere) == (True, Rates.of(topology))
        assert found.ports is ports_of(topology, 8)
        assert found.npus[:3].tolist() == ([0, 1, 2] if each.axes[0] == "tp" else [0, 4, 1])
        assert found is own._placed_groups(each)
        assert named._placed_groups(each).ports is None
    assert len({id(own._placed_groups(each)) for each in every}) == 4
    other = own._placed_groups(FIRST._replace(plan=parse_plan("tp=4,dp=2", global_batch=8, seq=64)))
    assert other.at(0, "tp").npus.shape[1] == 4
