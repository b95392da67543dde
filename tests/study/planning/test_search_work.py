"""When a search goes on, what it counts as work and as proved, and which promising plans it times: by entries made by hand."""

from collections.abc import Callable
from dataclasses import asdict
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import parse_plan
from emu.study.planning.plan_request import Candidate, Work
from emu.study.planning.plan_row import PlanRow
from emu.study.planning.search import search as room
from emu.study.planning.search.frontier import ALL_PARTS, OWN_PASSES, PLACED, READY
from emu.study.planning.search.result_cache import ResultCache
from emu.study.planning.search.search import Search
from emu.study.planning.search.search_jobs import FULL, QUICK, REFUSED, THOROUGH, StepJob
from emu.study.planning.search.search_state import SearchState, quiet
from emu.trace.report.mean_parts import MeanParts

WORDS = ("dp=8", "tp=2,dp=4", "tp=4,dp=2", "cp=2,dp=4", "cp=8", "cp=4,tp=2")
A, B, C, D, E, F = (Candidate(0, parse_plan(words, global_batch=16, seq=64), ("dp",)) for words in WORDS)


def row(time_s: float) -> dict[str, Any]:
    """Return the row of a step as fields."""
    parts = MeanParts(
        compute_s=time_s, optimizer_s=None, exposed_comm_s=0.0, exposed_comm_by_axis_s={}, idle_s=0.0, bubble_s=None
    )
    return asdict(
        PlanRow(
            topology="0", plan="", axes="dp", step_time_s=time_s, tokens_per_s=1.0, mfu=0.5, hfu=0.5, mean_over_ranks=parts,
            peak_memory_bytes=1, memory_by_part_bytes={}, algorithms={}, engine="composed",
        )
    )  # fmt: skip


def search(times_s: dict[Candidate, float] | None = None, *, top: int = 2, prove_all: bool = False) -> Search:
    """Return a search whose steps take known times; a step without one is refused."""
    asked = list[StepJob]()

    def submit(job: StepJob) -> Callable[[], Any]:
        asked.append(job)
        took = (times_s or {}).get(job.candidate)
        return lambda: {REFUSED: "why"} if took is None else row(took)

    request = SimpleNamespace(top=top, prove_all=prove_all, stack=None, beside=())
    prepared: Any = SimpleNamespace(request=request, plans=(), topologies=(0,), memory_bytes=0, model=None)
    state = SearchState(ResultCache(None), "a search", str)
    return Search(prepared, SimpleNamespace(state=state, submit=submit, side_by_side=1, asked=asked), quiet)  # type: ignore


def store(own: Search, **of: float) -> None:
    """Store the quick times of candidates by their letters."""
    for name, time_s in of.items():
        own.plans.store(globals()[name], row(time_s))


def under_way(own: Search, candidate: Candidate, bound_s: float) -> None:
    """Have a step of a candidate under way."""
    own.step_bounds_s[candidate] = bound_s
    own.under_way.append((candidate, lambda: row(50.0)))


@pytest.mark.parametrize(
    ("asked_s", "left_s", "dropped_s", "least_s"),
    [(3.0, 5.0, inf, 3.0), (5.0, 3.0, inf, 3.0), (5.0, 4.0, 2.0, 2.0), (inf, inf, 7.0, 7.0), (inf, inf, inf, inf)],
)
def test_no_plan_that_is_not_timed_takes_less_than_the_least_bound_of_all_that_is_left(
    asked_s: float, left_s: float, dropped_s: float, least_s: float
) -> None:
    own = search()
    if asked_s < inf:
        under_way(own, A, asked_s + 1)
        under_way(own, B, asked_s)
        own.ladder.frontier.add(left_s, PLACED, C)
    own.ladder.dropped_least_s = dropped_s
    own._note_bound()
    assert own.least_s == own.state.least_s == least_s


@pytest.mark.parametrize(("left_s", "proved"), [(4.0, False), (4.1, True), (3.9, False)])
def test_the_first_plan_is_proved_when_all_that_is_left_takes_longer_and_the_work_till_then_is_noted_once(
    left_s: float, proved: bool
) -> None:
    own = search()
    store(own, A=4.0, B=6.0)
    own.step_bounds_s |= {A: 1.0, B: 2.0}
    own.ladder.requests, own.ladder.generated, own.ladder.dropped_least_s = 30, 7, 1.0  # what is dropped counts for nothing
    own.ladder.frontier.add(left_s, PLACED, C)
    own._note_bound()
    assert own.work_when_first_proved == (Work(2, 30, 7) if proved else None)
    own.ladder.requests = 31
    own._note_bound()
    assert own.work_when_first_proved == (Work(2, 30, 7) if proved else None)
    own.work_when_first_proved, own.proof_limit_s = None, 5.0  # in full the first takes longer
    own._note_bound()
    assert own.work_when_first_proved is None


def test_a_search_goes_on_while_a_bound_is_within_the_table_and_the_work_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_WORK", Work(4, 0, 0))
    monkeypatch.setattr(room, "MOST_AFTER_FIRST", Work(2, 20, 10))
    for prove_all in (False, True):
        own = search(prove_all=prove_all)
        own.ladder.frontier.add(6.0, PLACED, C)
        assert own._goes_on()  # the table is not full
        store(own, A=4.0, B=6.0)
        assert own._goes_on()
        store(own, D=5.9)
        assert not own._goes_on()
        own.proof_limit_s = 6.0
        assert own._goes_on()
        own.step_bounds_s |= dict.fromkeys((A, B, D), 1.0)
        own.ladder.requests, own.ladder.generated = 100, 50
        for before in (Work(2, 81, 41), Work(1, 81, 41), Work(2, 80, 41), Work(2, 81, 40)):
            own.work_when_first_proved = before
            assert own._goes_on() == (prove_all or before == (2, 81, 41)), before
        own.work_when_first_proved = None
        assert own._goes_on()
        own.step_bounds_s[E] = 1.0
        assert own._goes_on() == prove_all


def test_steps_that_had_to_be_timed_are_those_whose_bound_is_within_the_limit_and_that_are_no_longer_under_way() -> None:
    own = search()
    store(own, A=4.0, B=6.0)
    own.step_bounds_s |= {A: 1.0, B: 6.0, C: 6.1}
    under_way(own, D, 6.1)
    assert not own._waits()
    under_way(own, E, 6.0)
    assert own._waits()
    assert own.needed() == [A, B]
    own.proof_limit_s = 6.1
    assert own.needed() == [A, B, C]


def test_what_is_under_way_when_a_search_ends_is_left_with_its_bound() -> None:
    own = search()
    store(own, A=4.0, B=6.0)
    under_way(own, D, 7.0)
    own.ladder.frontier.add(8.0, PLACED, C)
    own.run()
    assert [(each.bound_s, each.rung, each.candidate) for each in sorted(own.ladder.frontier.entries)] == [
        (7.0, READY, D),
        (8.0, PLACED, C),
    ]
    assert (len(own.under_way), D in own.step_bounds_s, own.least_s) == (0, False, 7.0)


def test_the_table_is_filled_by_promising_plans_then_one_more_is_timed_each_time_that_the_work_has_doubled() -> None:
    own = search({A: 4.0, B: 6.0, C: 5.0, D: 9.0, E: 3.0})
    for candidate, bound_s in zip((A, B, C, D, E, F), (1.0, 1.5, 2.0, 2.5, 5.5, 7.0), strict=True):
        own.ladder.frontier.add(bound_s, READY, candidate)
    own.ladder.requests, own.ladder.generated = 20, 12
    assert own._is_time_to_try()
    own._try_promising()
    assert (list(own.plans.rows), own.tries_at, len(own.under_way)) == ([A, B], 64, 0)
    assert [own.tried[entry.split] for entry in sorted(own.ladder.frontier.entries)] == [0] * 4
    assert not own._is_time_to_try()
    own.ladder.generated = 44
    assert own._is_time_to_try()
    own._try_promising()
    assert (list(own.plans.rows), own.tries_at) == ([A, B, C], 128)
    own._try_promising()  # of a full table only what may be the first counts
    assert list(own.plans.rows) == [A, B, C, D]
    own._try_promising()
    assert list(own.plans.rows) == [A, B, C, D]
    assert [job.effort for job in own.jobs.asked] == [QUICK] * 4  # type: ignore[attr-defined]
    assert own.step_bounds_s == {A: 1.0, B: 1.5, C: 2.0, D: 2.5}


def test_with_little_work_promising_plans_are_tried_again_after_sixteen_bounds() -> None:
    own = search()
    own.ladder.requests = 5
    own._try_promising()
    assert own.tries_at == 16


def test_a_plan_that_does_not_fit_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    own, deep = search(), Candidate(0, parse_plan("pp=8,microbatch=1", global_batch=16, seq=64), ("pp",))
    looked_at = list[Any]()
    monkeypatch.setattr(type(own.ladder), "fits", lambda _, plan, places: looked_at.append((plan, places)))
    own.ladder.frontier.add(3.5, READY, deep)
    assert own._ask_for_step(own.ladder.frontier.entries[0]) == []
    assert (own.ladder.too_large, own.step_bounds_s, looked_at) == ([(3.5, 1)], {}, [(deep.plan, range(2, 8))])


def test_candidates_are_timed_in_the_asked_detail_and_come_the_fastest_first_without_those_that_are_refused() -> None:
    own = search({A: 4.0, B: 3.0, C: 4.0, E: 1.0})
    store(own, D=2.0)
    assert own.time_all([C, D, A, B], THOROUGH) == [B, *sorted((A, C), key=lambda each: each.tie_key)]
    assert list(own.jobs.asked) == [StepJob(each, THOROUGH) for each in (C, D, A, B)]  # type: ignore[attr-defined]
    assert {each: own.plans.rows[each].step_time_s for each in own.plans.rows} == {D: 2.0, C: 4.0, A: 4.0, B: 3.0}


@pytest.mark.parametrize(
    ("prove_all", "least_s", "limit_s", "ends"),
    [(False, 4.1, 4.0, True), (False, 4.0, 4.0, False), (True, 6.1, 6.0, True), (True, 6.0, 6.0, False)],
)
def test_a_search_ends_when_what_is_to_be_proved_in_full_is_below_all_that_is_left(
    prove_all: bool, least_s: float, limit_s: float, ends: bool
) -> None:
    own = search(prove_all=prove_all)
    store(own, A=4.0, B=6.0)
    own.ladder.frontier.add(least_s, PLACED, C)
    own.least_s, own.work_when_first_proved = least_s, Work(0, 0, 0)
    assert own._ends([A, B]) == ends
    assert own.proof_limit_s == limit_s
    assert own.work_when_first_proved == (Work(0, 0, 0) if ends else None)
    own.ladder.frontier.heaps.clear()  # nothing is left to be timed
    own.ladder.frontier._firsts.clear()
    assert own._ends([A, B])


def test_plans_that_are_left_count_once_however_many_placements_they_have() -> None:
    own = search()
    store(own, A=4.0, B=6.0)
    own.ladder.requests = 1234
    entries = [
        (6.0, PLACED, C),
        (5.0, ALL_PARTS, C._replace(axes=())),
        (5.5, OWN_PASSES, D),
        (5.6, OWN_PASSES, E),
        (6.1, PLACED, F),
    ]
    for entry in entries:
        own.ladder.frontier.add(*entry)
    text = "2 steps and 1,234 requests timed; 3 plans left that may be among the best 2"
    assert own._progress_text() == f"{own.state.text()}; {text}"


def test_named_plans_are_timed_in_every_placement_and_the_fastest_of_each_in_full() -> None:
    plan: Plan = B.plan
    tp, dp = (Candidate(0, plan, axes) for axes in (("tp", "dp"), ("dp", "tp")))
    own = search({tp: 5.0, dp: 4.0})
    own.prepared.request.beside = (plan,)  # type: ignore[misc]
    assert own.time_named() == [dp]
    efforts = [(job.candidate, job.effort) for job in own.jobs.asked]  # type: ignore[attr-defined]
    assert sorted(efforts[:2]) == sorted([(tp, THOROUGH), (dp, THOROUGH)])
    assert efforts[2:] == [(dp, FULL)]
