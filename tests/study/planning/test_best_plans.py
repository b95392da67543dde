"""The best plans of a search, held against looking at every time again after each."""

import random
from dataclasses import asdict, replace
from math import inf

import pytest

from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import parse_plan
from emu.study.planning.plan_request import Candidate
from emu.study.planning.plan_row import PlanRow
from emu.study.planning.search.best_plans import BestPlans
from emu.study.planning.search.result_cache import ResultCache
from emu.study.planning.search.search_jobs import REFUSED
from emu.study.planning.search.search_state import SearchState
from emu.trace.report.mean_parts import MeanParts

PLANS = [parse_plan(words, global_batch=16, seq=64) for words in ("dp=8", "tp=2,dp=4", "tp=4,dp=2", "pp=2,dp=4", "tp=8")]
AXES = ("tp", "dp"), ("dp", "tp")


def row(candidate: Candidate, time_s: float) -> PlanRow:
    parts = MeanParts(
        compute_s=time_s, optimizer_s=None, exposed_comm_s=0.0, exposed_comm_by_axis_s={}, idle_s=0.0, bubble_s=None
    )
    return PlanRow(
        topology=str(candidate.topology), plan=str(candidate.plan), axes=",".join(candidate.axes), step_time_s=time_s,
        tokens_per_s=1.0, mfu=0.5, hfu=0.5, mean_over_ranks=parts, peak_memory_bytes=1, memory_by_part_bytes={},
        algorithms={}, engine="composed",
    )  # fmt: skip


def best_of(top: int) -> BestPlans:
    return BestPlans(top, SearchState(ResultCache(None), "a search", str))


def timed_at_random(seed: int) -> list[tuple[Candidate, float]]:
    """Candidates in any order, many of equal times."""
    random_ = random.Random(seed)
    every = [Candidate(number, plan, axes) for number in (0, 1) for plan in PLANS for axes in AXES]
    return [(each, float(random_.randrange(1, 6))) for each in random_.sample(every, random_.randrange(1, len(every) + 1))]


@pytest.mark.parametrize("top", [1, 3, 4, 10])
@pytest.mark.parametrize("seed", range(12))
def test_the_table_has_each_plan_in_its_best_placement_the_fastest_first(seed: int, top: int) -> None:
    own, so_far = best_of(top), dict[Candidate, float]()
    for candidate, time_s in timed_at_random(seed):
        own.store(candidate, asdict(row(candidate, time_s)))
        so_far[candidate] = time_s
        best: dict[tuple[int, Plan], tuple[float, object, Candidate]] = {}
        for each, at_s in so_far.items():
            best[each[:2]] = min(best.get(each[:2], (inf, (), each)), (at_s, each.tie_key, each), key=lambda found: found[:2])
        order = sorted(best.values(), key=lambda found: found[:2])
        assert own.ranked() == [each for *_, each in order[:top]]
        assert own.lacking == max(0, top - len(order))
        assert own.worst_s == (order[top - 1][0] if len(order) >= top else inf)
        assert own.first_s == min(so_far.values())
        assert own.quick_s == so_far
        for share in (0.0, 0.5):
            assert own.within(share) == [each for each, at_s in so_far.items() if at_s <= (1 + share) * own.worst_s]
        assert own.state.best is not None
        assert own.state.best[0] == own.first_s
    assert own.rows == {each: row(each, time_s) for each, time_s in so_far.items()}


@pytest.mark.parametrize("seed", range(12))
def test_rows_of_candidates_are_each_plans_best_among_them(seed: int) -> None:
    random_, own, times = random.Random(seed), best_of(3), dict(timed_at_random(seed))
    for candidate, time_s in times.items():
        own.store(candidate, asdict(row(candidate, time_s)))
    asked = random_.sample(list(times), random_.randrange(len(times) + 1))
    unknown = Candidate(7, PLANS[0], AXES[0])
    found = own.rows_of([unknown, *asked])
    least: dict[tuple[int, Plan], tuple[float, str]] = {}
    for each in asked:
        mine = times[each], ",".join(each.axes)
        least[each[:2]] = min(mine, least.get(each[:2], mine))
    assert [(one.step_time_s, one.axes) for one in found] == list(least.values())
    order = sorted(times, key=lambda each: times[each])
    own.rank_anew(order)
    assert own.best == {each[:2]: (times[each], each) for each in reversed(order)}


def test_a_refused_step_is_no_plan_and_what_was_known_before_an_interruption_is_kept() -> None:
    own, (one, other, third) = best_of(2), [Candidate(0, plan, AXES[0]) for plan in PLANS[:3]]
    own.store(one, {REFUSED: "it does not fit"})
    assert (own.rows, own.best, own.first_s, own.state.best) == ({}, {}, inf, None)
    own.state.before = {one: row(one, 3.0), other: row(other, 1.0), third: row(third, 2.5)}
    placed = other._replace(axes=AXES[1])
    own.store(placed, asdict(row(placed, 2.0)))
    assert list(own.known()) == [other, third]
    own.store(other, asdict(row(other, 4.0)))  # timed anew, which counts
    assert own.known() == {placed: row(placed, 2.0), third: row(third, 2.5)}
    assert replace(own, top=3).known().keys() == {placed, third, one}
