"""The rungs that the bound of a plan climbs, and what is counted on the way: by bounds that are made by hand."""

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from emu.errors import InputError
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import parse_plan
from emu.study.planning.plan_request import Candidate, Work
from emu.study.planning.request_times.rates import LeastTime
from emu.study.planning.search import ladder as room
from emu.study.planning.search.frontier import ALL_PARTS, OWN_PASSES, PLACED, READY, REDUCED, SEQUENCE, Entry
from emu.study.planning.search.ladder import BoundLadder
from emu.study.planning.search.search_jobs import REFUSED
from emu.study.planning.search.search_state import quiet

TWO, ONE, DEEP = (parse_plan(words, global_batch=8, seq=64) for words in ("tp=2,dp=4", "dp=8", "pp=4,microbatch=1"))
SOME = Work(9, 9, 9)


def refuses(_: Plan) -> list[float]:
    raise InputError("it cannot be generated")


def ladder(most: Work = SOME, memory: int = 0, plans: Any = (), **bounds: Any) -> BoundLadder:
    """Return a ladder of two topologies, whose bounds are 1 s unless they are given."""
    quick = SimpleNamespace(by_sequence_s=lambda _: 1.0, by_own_passes_s=bounds.pop("own", lambda _: 1.0))
    usual = {"reduces": False, "reduced_s": lambda _: 1.0, "anywhere_s": lambda _: [1.0, 1.0], "by_ports_s": lambda _: 1.0}
    jobs = SimpleNamespace(submit=bounds.pop("submit", None), side_by_side=1)
    prepared: Any = SimpleNamespace(
        plans=plans, topologies=(0, 1), memory_bytes=memory, model=None, request=SimpleNamespace(stack=None),
        may_fit=lambda plan: plan is not DEEP, bounds=SimpleNamespace(quick=quick, **{**usual, **bounds}),
    )  # fmt: skip
    return BoundLadder(prepared, jobs, most)  # type: ignore[arg-type]


def climbed(own: BoundLadder, *entries: tuple[float, int, Candidate]) -> list[tuple[float, int, Candidate]]:
    """Return the entries that are on the frontier after some have climbed a rung."""
    own.climb([Entry(*each[:2], number, each[2]) for number, each in enumerate(entries)])
    found = ((each.bound_s, each.rung, each.candidate) for each in own.frontier.entries)
    return sorted(found, key=lambda each: (*each[:2], each[2].topology, each[2].axes))


def test_plans_that_may_fit_begin_at_the_lowest_rung_and_of_the_others_all_candidates_are_refused() -> None:
    own, advances = ladder(plans=(TWO, DEEP, ONE)), list[None]()

    @contextmanager
    def counted(*_: object) -> Any:
        yield lambda: advances.append(None)

    own.add_plans(counted)
    assert [(each.rung, each.candidate.plan) for each in sorted(own.frontier.entries)] == [(SEQUENCE, TWO), (SEQUENCE, ONE)]
    assert (own.refused, len(advances)) == ([(0.0, 2 * 1)], 3)  # two topologies, one placement of its one axis
    own.add_plans(quiet)
    assert len(own.refused) == 2


@pytest.mark.parametrize("better", [0.5, 2.0])
@pytest.mark.parametrize("reduces", [True, False])
def test_a_bound_never_gets_lower_on_its_way_up(better: float, reduces: bool) -> None:
    """Each rung is climbed once, that of reductions only where gradients are reduced during the passes."""
    own = ladder(
        reduces=reduces,
        own=lambda _: better,
        reduced_s=lambda _: better,
        anywhere_s=lambda _: [better, 4 * better],
        by_ports_s=lambda _: better,
        tighter=lambda of, _: [(better, False)] * len(of),
    )
    plan, there = Candidate(-1, TWO, ()), Candidate(1, TWO, ())
    assert climbed(own, (1.0, SEQUENCE, plan)) == [(max(1.0, better), OWN_PASSES, plan)]
    own.frontier.heaps.clear()
    found = climbed(own, (1.0, OWN_PASSES, plan))
    if reduces:
        assert found == [(max(1.0, better), REDUCED, plan)]
        own.frontier.heaps.clear()
        found = climbed(own, (1.0, REDUCED, plan))
    assert found == [(max(1.0, better), ALL_PARTS, Candidate(0, TWO, ())), (max(1.0, 4 * better), ALL_PARTS, there)]
    bounds = [(max(1.0, better), 2), (max(1.0, 4 * better), 2)]
    assert (own.generated, own.anywhere, own.refused) == (1, bounds, [])
    own.frontier.heaps.clear()
    every = [there._replace(axes=axes) for axes in (("dp", "tp"), ("tp", "dp"))]
    assert climbed(own, (1.0, ALL_PARTS, there)) == [(max(1.0, better), PLACED, each) for each in every]
    own.frontier.heaps.clear()
    assert climbed(own, (1.0, PLACED, every[0])) == [(max(1.0, better), PLACED, every[0])]


def test_a_candidate_is_ready_when_its_bound_is_final() -> None:
    own = ladder(tighter=lambda of, _: [(2.0, each.topology == 1) for each in of])
    first, second = (Candidate(number, TWO, ("tp", "dp")) for number in (0, 1))
    assert climbed(own, (1.0, PLACED, first), (3.0, PLACED, second)) == [(2.0, PLACED, first), (3.0, READY, second)]


def test_a_plan_that_cannot_be_generated_is_refused_on_every_topology() -> None:
    own = ladder(anywhere_s=refuses, tighter=lambda *_: [])
    assert climbed(own, (1.5, OWN_PASSES, Candidate(-1, TWO, ()))) == []
    assert (own.generated, own.anywhere, own.refused) == (1, [], [(1.5, 2)] * 2)


@pytest.mark.parametrize("fits", [True, False])
def test_the_first_two_places_of_a_pipeline_must_fit_before_placements_are_bounded(
    fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = list[Any]()
    monkeypatch.setattr(room, "holds", lambda _model, _stack, *asked_: looked_at.append(asked_[1:]) or fits)
    own = ladder(memory=7, tighter=lambda *_: [])
    found = [climbed(own, (1.5, ALL_PARTS, Candidate(0, plan, ()))) for plan in (DEEP, TWO)]
    assert looked_at == [(7, range(2)), (7, range(1))]
    assert own.too_large == ([] if fits else [(1.5, 1), (1.5, 2)])
    assert [len(each) for each in found] == ([1, 3] if fits else [0, 0])
    assert ladder(memory=0).fits(DEEP, range(2))


@pytest.mark.parametrize(("requests", "generated"), [(3, 0), (0, 4)])
@pytest.mark.parametrize("reduces", [True, False])
def test_beyond_a_limit_plans_that_are_not_generated_are_dropped_where_gradients_are_reduced_in_passes(
    requests: int, generated: int, reduces: bool
) -> None:
    for less in (1, 0):
        own = ladder(Work(9, 3, 4), reduces=reduces, tighter=lambda of, _: [(1.0, True)] * len(of))
        own.requests, own.generated = max(0, requests - less), max(0, generated - less)
        plan, there = Candidate(-1, TWO, ()), Candidate(1, TWO, ())
        rungs = ((2.5, SEQUENCE, plan), (2.2, OWN_PASSES, plan), (3.0, REDUCED, plan))
        climbed(own, *rungs, (1.0, ALL_PARTS, there), (1.1, PLACED, there._replace(axes=("tp", "dp"))))
        dropped = [2.5, 2.2, 3.0] if reduces and not less else []
        assert [each.bound_s for each in own.dropped] == dropped
        assert own.dropped_least_s == min(dropped, default=float("inf"))
        if dropped:  # the least of all times that entries are dropped
            climbed(own, (2.4, REDUCED, plan))
            assert own.dropped_least_s == 2.2


def test_requests_beyond_the_limit_or_refused_take_no_time() -> None:
    asked = list[Any]()

    def submit(job: Any) -> Callable[[], Mapping[str, Any]]:
        asked.append(job)
        took = {"left_s": 1.0, "delivered_s": 2.0, "is_final": True}
        return lambda: {REFUSED: "why"} if job.request == "bad" else took

    own = ladder(Work(9, 3, 9), submit=submit)
    own.requests = 1
    found = own._least_times(1, {"a": "good", "b": "bad", "c": "good"})  # type: ignore[dict-item]
    assert found == {"a": LeastTime(1.0, 2.0), "b": LeastTime(0.0, 0.0), "c": LeastTime(0.0, 0.0)}
    assert [(job.topology, job.request) for job in asked] == [(1, "good"), (1, "bad")]
    assert own.requests == 3
    assert own._least_times(0, {"d": "good"}) == {"d": LeastTime(0.0, 0.0)}  # type: ignore[dict-item]
    assert own.requests == 3
