"""Why a row is slower, which rows are on the front, and what a search says of itself: by rows that are made by hand."""

from dataclasses import asdict, replace
from math import inf

import pytest

from emu.model.plan.plan_text import parse_plan
from emu.study.planning.plan_request import Candidate
from emu.study.planning.plan_row import PlanRow, PlanTable, parts_s, reason_of
from emu.study.planning.plan_table import front_of
from emu.study.planning.search.result_cache import ResultCache
from emu.study.planning.search.search_jobs import FULL, QUICK, THOROUGH, StepJob
from emu.study.planning.search.search_state import SearchState
from emu.trace.report.mean_parts import MeanParts

MS = 1e-3


def row(plan="dp=4", *, compute=10.0, axes=None, bubble=0.0, idle=0.0, optimizer=1.0, memory=100, mfu=0.5, placed="dp"):
    """A row whose parts are in milliseconds."""
    exposed = {axis: ms * MS for axis, ms in (axes or {}).items()}
    parts = MeanParts(
        compute_s=compute * MS,
        optimizer_s=None if optimizer is None else optimizer * MS,
        exposed_comm_s=sum(exposed.values()),
        exposed_comm_by_axis_s=exposed,
        idle_s=(idle + bubble) * MS,
        bubble_s=bubble * MS,
    )
    return PlanRow(
        topology="board", plan=plan, axes=placed, step_time_s=parts.step_time_s, tokens_per_s=1.0, mfu=mfu, hfu=mfu,
        mean_over_ranks=parts, peak_memory_bytes=memory, memory_by_part_bytes={}, algorithms={}, engine="composed",
    )  # fmt: skip


BEST = row(axes={"dp": 2.0, "tp": 1.0}, bubble=1.0, idle=0.5)


def test_the_fastest_of_a_table_is_its_first_row_that_no_reason_leaves_behind():
    """Rows that a user named beside the search may come before it in the table, each with the reason why it is slower."""
    rows = [replace(row(compute=float(i + 1)), why=why) for i, why in enumerate(("slower", "", "", "slower"))]
    kept = {"model": "m", "npus": 4, "device": "d", "memory_bytes": 0, "global_batch": 8, "seq": 64, "software": "pytorch"}
    ended = {"given": "", "not_searched": (), "plans": 4, "candidates": 4, "timed": 4, "ended": "proved", "decided": {}}
    rest = {"least_s": None, "front": (), "seen": (), "assumptions": (), "wall_s": 0.0}
    for first in range(3):
        table = PlanTable(**kept, **ended, **rest, rows=tuple(rows[first:]))
        assert table.fastest is rows[max(first, 1)]


def test_the_parts_of_a_step_add_up_to_it():
    assert parts_s(BEST) == pytest.approx({"compute": 10 * MS, "dp": 2 * MS, "tp": MS, "bubble": MS, "straggling": 0.5 * MS})
    assert sum(parts_s(BEST).values()) == pytest.approx(BEST.step_time_s)


@pytest.mark.parametrize(
    ("slower", "why"),
    [
        (
            row(axes={"dp": 5.0, "tp": 2.0}, bubble=1.5, idle=0.5),
            "4.5 ms slower: 3 ms more exposed data parallel communication (dp)",
        ),
        (
            row(axes={"tp": 3.0, "dp": 2.0}, bubble=2.0, idle=1.5),
            "4 ms slower: 2 ms more exposed tensor parallel communication (tp)",
        ),
        (
            row(axes={"dp": 2.0, "tp": 1.0, "dp_shard": 4.0}),
            "2.5 ms slower: 4 ms more exposed dp_shard communication (dp_shard)",
        ),
        (row(axes={"dp": 2.0}, bubble=6.0), "3.5 ms slower: 5 ms more waiting for other stages (bubble)"),
        (
            row(axes={"dp": 2.0}, idle=6.0),
            "3.5 ms slower: 5.5 ms more waiting for other ranks of the same stage (straggling)",
        ),
        (
            row(compute=20.0),
            "5.5 ms slower: 10 ms more computation, as its operators are smaller or more of them are whole on each rank",
        ),
        (row(axes={"cp": 4.0}), "500 us faster than the best that was found"),
        (BEST, "takes as long"),
    ],
)
def test_the_part_that_differs_most_is_told_with_its_difference(slower, why):
    assert reason_of(slower, BEST) == why


@pytest.mark.parametrize(
    ("plan", "best", "optimizer", "of_best", "why"),
    [
        ("dp=4,recompute=full", "dp=4", 9.0, 1.0, "of it what recompute=full works out again"),
        ("dp=4,recompute=full", "dp=2,recompute=selective", 1.0, 1.0, "of it what recompute=full works out again"),
        ("dp=4,recompute=selective", "dp=4,recompute=ops", 1.0, 1.0, "as its operators are smaller or more of them are whole"),
        ("recompute=full", "dp=1", 9.0, 1.0, "of it what recompute=full works out again"),
        ("dp=4", "dp=4,recompute=selective", 5.5, 1.0, "as its operators are smaller or more of them are whole on each rank"),
        ("dp=4,recompute=selective", "dp=4,recompute=selective", 6.5, 1.0, "most of it the optimizer's"),
        ("dp=4", "dp=4", 5.5, None, "most of it the optimizer's"),
        ("dp=4", "dp=4", None, 5.5, "as its operators are smaller or more of them are whole on each rank"),
    ],
)
def test_the_cause_of_more_computation_is_told_as_far_as_plans_show_it(plan, best, optimizer, of_best, why):
    """10 ms more, of which more than half is the optimizer's or not."""
    said = reason_of(row(plan, compute=20.0, optimizer=optimizer), row(best, compute=10.0, optimizer=of_best))
    assert said.startswith(f"10 ms slower: 10 ms more computation, {why}")


def test_the_front_has_the_best_mfu_of_each_size_the_least_memory_first():
    sizes = [(50, 0.3), (40, 0.2), (40, 0.25), (60, 0.3), (70, 0.5), (65, 0.29), (70, 0.4)]
    rows = [row(f"dp={i + 1}", memory=memory, mfu=mfu) for i, (memory, mfu) in enumerate(sizes)]
    assert [(each.peak_memory_bytes, each.mfu) for each in front_of(rows)] == [(40, 0.25), (50, 0.3), (70, 0.5)]
    same = [row("dp=2", placed="tp"), row("dp=2", placed="dp"), row("dp=1", placed="tp")]
    assert [(each.plan, each.axes) for each in front_of(same)] == [("dp=1", "tp")]


def candidate(words, topology=0, axes=("dp",)):
    return Candidate(topology, parse_plan(words, global_batch=8, seq=64), axes)


def state(kept, told):
    return SearchState(kept, "search x", lambda job: f"{job.effort} {job.candidate.tie_key}", lambda *each: told.extend(each))


def test_a_search_tells_its_best_when_it_improves_and_when_it_is_proved():
    told = []
    own = state(ResultCache(None), told)
    assert own.text() == "no plan that is left takes less than 0 s"
    own.note_bound(1 * MS)
    assert (own.is_proved, told) == (False, [])
    own.note_time(4 * MS, candidate("tp=2,dp=4"))
    own.note_time(5 * MS, candidate("dp=8"))
    own.note_time(4 * MS, candidate("dp=8"))  # as fast, and first by name
    own.note_time(4 * MS, candidate("tp=4,dp=2"))
    own.note_bound(0.5 * MS)  # no bound goes back
    assert own.least_s == 1 * MS
    own.note_time(3 * MS, candidate("cp=2,dp=4", 1))
    own.note_bound(3 * MS)
    assert not own.is_proved
    own.note_bound(3.5 * MS)
    own.note_bound(inf)
    assert told == [
        "so far the fastest: tp=2,dp=4 in placement dp: 4 ms; no plan that is left takes less than 1 ms",
        "so far the fastest: cp=2,dp=4 in placement dp: 3 ms; no plan that is left takes less than 1 ms",
        "proved the fastest: cp=2,dp=4 in placement dp: 3 ms; no plan that is left takes less than 3.5 ms",
    ]
    assert own.text() == "proved the fastest: cp=2,dp=4 in placement dp: 3 ms; no plan is left"


def test_what_an_interrupted_search_knew_is_believed_where_every_step_of_it_is_there():
    kept, (one, other) = ResultCache(None), (candidate("dp=8"), candidate("tp=2,dp=4"))
    before = state(kept, [])
    for how, each, ms in ((QUICK, one, 9.0), (QUICK, other, 7.0), (THOROUGH, other, 6.5), (FULL, other, 6.0)):
        kept.write(before.name_of(StepJob(each, how)), asdict(row("dp=8", compute=ms)))
    before.note_bound(2 * MS)
    before.save([other, one])
    own = state(kept, [])
    own.load()
    assert own.least_s == 2 * MS
    assert {each: found.step_time_s for each, found in own.before.items()} == pytest.approx({other: 6 * MS, one: 9 * MS})
    assert own.best == (pytest.approx(7 * MS), other)  # by the quick way, as others are compared
    before.note_bound(inf)
    before.save([one])
    again = state(kept, [])
    again.load()
    assert (again.least_s, [*again.before]) == (inf, [one])
    before.save([one, candidate("dp=4,tp=2,sp")])  # of which no step is kept
    lost = state(kept, [])
    lost.load()
    assert (lost.least_s, lost.before, lost.best) == (0.0, {}, None)
