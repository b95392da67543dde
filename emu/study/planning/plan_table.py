"""The table of a search: its rows, which of them are proved, and how all candidates were decided."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from emu.model.layer_on_rank import padding_note
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.software import NOTHING
from emu.study.planning.search.row import BY, INTERRUPTED, PROVED, WORKED, Candidate, PlanRequest, PlanRow, PlanTable, reason_of
from emu.study.planning.search.search import Search
from emu.study.planning.search.search_state import finite
from emu.study.planning.space import placements
from emu.study.training.composed import composed
from emu.study.training.step.rate import MFU_ASSUMED
from emu.study.training.step.step import shared_fields
from emu.topology.topology import Topology
from emu.trace.device.device import Device, RunKind
from emu.units import format_size


@dataclass(frozen=True, eq=False, slots=True)
class Question:
    """A request with all on which it is searched."""

    request: PlanRequest
    topologies: Sequence[Topology]
    device: Device
    plans: Sequence[Plan]
    not_searched: tuple[str, ...]  # what else the words that all plans have could say
    began_s: float  # by the clock of `time.perf_counter`


def table_of(search: Search, question: Question, ours: Sequence[Candidate], theirs: Sequence[Candidate]) -> PlanTable:
    """Return the table of a search that has ended.

    Args:
        search: The search.
        question: What was searched.
        ours: The best candidates.
        theirs: Those that the user named.
    """
    return _table(search, question, _rows(search, ours, theirs), _decided(search, question))


def known_table(search: Search, question: Question) -> PlanTable | None:
    """Return the table of what a search knows that is interrupted; None if it has no step yet."""
    best = search.interrupted()
    every = len(search.placed.topologies) * sum(len(placements(plan)) for plan in question.plans)
    timed, memory = len(search.needed()), sum(places for _, places in (*search.without, *search.large))
    decided = {**dict.fromkeys(BY, 0), "memory": memory, "composed": timed, "undecided": every - memory - timed}
    counted = {"ended": INTERRUPTED, "least_s": finite(search.least_s), "decided": decided}
    return _table(search, question, _rows(search, best, ()), counted) if best else None


def _table(search: Search, question: Question, rows: tuple[PlanRow, ...], counted: Mapping[str, Any]) -> PlanTable:
    """Return the table of rows, and of the fields that say how the search has ended."""
    request, device, seen, decided = question.request, question.device, search.seen(), counted["decided"]
    off = device.step_error(RunKind(bool(search.model.experts), request.stack.fp8 != NOTHING))
    named = {"model": search.model.name, "device": device.name, "software": request.stack.software.name}
    return PlanTable(
        **{**shared_fields(request, PlanTable), **named, **counted},
        memory_bytes=device.memory_bytes,
        either_way=off and off.share,
        either_way_by=off and off.text,
        not_searched=question.not_searched,
        plans=len(question.plans),
        candidates=sum(decided.values()) - sum(places for bound_s, places in search.without if bound_s <= search.limit_s),
        timed=decided["composed"],
        rows=rows,
        front=tuple(front_of(seen)),
        seen=tuple(sorted({(row.peak_memory_bytes, row.mfu) for row in seen})),
        assumptions=_assumptions(search, question, rows),
        wall_s=time.perf_counter() - question.began_s,
    )


def _assumptions(search: Search, question: Question, rows: Sequence[PlanRow]) -> tuple[str, ...]:
    """Return what the times of rows rest on, a sentence each."""
    stack, batch = question.request.stack, {"global_batch": question.request.global_batch, "seq": question.request.seq}
    plans = [parse_plan(row.plan, **batch) for row in rows]
    filled_up = dict.fromkeys(told for plan in plans for told in padding_note(plan, search.model, stack))
    of_topologies = dict.fromkeys(told for each in question.topologies for told in each.assumptions)
    return (*of_topologies, *question.device.assumptions, *filled_up, MFU_ASSUMED, composed.COMPOSED)


def _decided(search: Search, question: Question) -> Mapping[str, Any]:
    """Return the fields of a table that say how a search has ended, and what decides its candidates."""
    every = len(search.placed.topologies) * sum(len(placements(plan)) for plan in question.plans)
    timed, bounds = len(search.needed()), (search.without, search.anywhere, search.large)
    without, near, large = (sum(places for least_s, places in of if least_s <= search.limit_s) for of in bounds)
    of_plans, placed, least_s = search.undecided()
    bound, requests = every - without - near - of_plans, near - large - timed - placed
    by = (without + large, bound, requests, timed, of_plans + placed)
    ended = WORKED if of_plans + placed else PROVED
    return {"ended": ended, "least_s": finite(least_s), "decided": dict(zip(BY, by, strict=True))}


def _rows(search: Search, ours: Sequence[Candidate], theirs: Sequence[Candidate]) -> tuple[PlanRow, ...]:
    """Return the rows of the table, the fastest first."""
    every = sorted(dict.fromkeys((*ours, *theirs)), key=lambda each: (search.rows[each].step_time_s, each.words))
    first = search.rows[next(each for each in every if each in ours)]
    return tuple(_row(search, each, first, beside=each in theirs) for each in every)


def _row(search: Search, candidate: Candidate, first: PlanRow, *, beside: bool) -> PlanRow:
    """Return the row of a candidate, with its bound, what may come before it, and why it is slower than the first."""
    row, least_s = search.rows[candidate], search.least_s
    said = "" if row == first else reason_of(row, first)
    if search.has and row.peak_memory_bytes > search.has:
        said = f"does not fit: {format_size(row.peak_memory_bytes - search.has)} of memory are missing; if it fitted: {said}"
    untimed_s = None if row.step_time_s < least_s else least_s
    return replace(row, bound_s=search.bounds_s.get(candidate), least_untimed_s=untimed_s, beside=beside, why=said)


def front_of(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Return the rows that no other beats in both memory and MFU, the least memory first."""
    found: list[PlanRow] = []
    for row in sorted(rows, key=lambda row: (row.peak_memory_bytes, -row.mfu, row.plan, row.axes)):
        if not found or row.mfu > found[-1].mfu:
            found.append(row)
    return found
