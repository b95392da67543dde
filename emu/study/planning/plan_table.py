"""The table that a search returns: its rows, the bounds that decide all candidates, and the assumptions."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from emu.fabric.packet_fabric import FLUID_ASSUMED
from emu.model.layer_on_rank import padding_note
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.software import NOTHING
from emu.study.planning.plan_request import Candidate
from emu.study.planning.plan_row import DECIDED_BY, INTERRUPTED, OUT_OF_WORK, PROVED, PlanRow, PlanTable, reason_of
from emu.study.planning.prepared_search import PreparedSearch
from emu.study.planning.search.frontier import ALL_PARTS
from emu.study.planning.search.search import Search
from emu.study.planning.space import placements
from emu.study.training.composed.step_on_fabric import COMPOSED_ASSUMED
from emu.study.training.step.rate import MFU_ASSUMED
from emu.study.training.step.step import shared_fields
from emu.trace.device.step_error import RunKind
from emu.units import format_size


@dataclass(frozen=True)
class SearchEnd:
    """The reason why a search has ended, and the numbers of candidates that it decided and left."""

    ended: str  # PROVED, OUT_OF_WORK or INTERRUPTED
    least_s: float  # the least that undecided candidates may take; infinite: all are decided
    decided: Mapping[str, int]  # numbers of candidates by what has decided on them: see `DECIDED_BY`


def plan_table(search: Search, found: Sequence[Candidate], named: Sequence[Candidate]) -> PlanTable:
    """Return the table of a search that has ended.

    Args:
        search: The search.
        found: The candidates that it found, the fastest first.
        named: The candidates of the plans that the user names.
    """
    return _table(search, _rows(search, found, named), _end_of(search))


def interrupted_table(search: Search) -> PlanTable | None:
    """Return the table of the results of an interrupted search so far; None if no step has a time yet."""
    best, ladder = search.adopt_known(), search.ladder
    timed, memory = len(search.needed()), sum(places for _, places in (*ladder.refused, *ladder.too_large))
    undecided = _candidates(search.prepared) - memory - timed
    decided = {**dict.fromkeys(DECIDED_BY, 0), "memory": memory, "composed": timed, "undecided": undecided}
    return _table(search, _rows(search, best, ()), SearchEnd(INTERRUPTED, search.least_s, decided)) if best else None


def front_of(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Return the rows that no other beats in both memory and MFU, the least memory first."""
    found: list[PlanRow] = []
    for row in sorted(rows, key=lambda row: (row.peak_memory_bytes, -row.mfu, row.plan, row.axes)):
        if not found or row.mfu > found[-1].mfu:
            found.append(row)
    return found


def _candidates(prepared: PreparedSearch) -> int:
    """Return the number of all candidates: each plan in each placement on each topology."""
    return len(prepared.topologies) * sum(len(placements(plan)) for plan in prepared.plans)


def _table(search: Search, rows: tuple[PlanRow, ...], end: SearchEnd) -> PlanTable:
    """Return the table of a search with its rows and its end."""
    prepared, seen, limit_s = search.prepared, search.plans.rows_of(search.needed()), search.limit_s
    off = prepared.device.step_error(RunKind(bool(prepared.model.experts), prepared.request.stack.fp8 != NOTHING))
    named = {"model": prepared.model.name, "device": prepared.device.name, "software": prepared.request.stack.software.name}
    return PlanTable(
        **{**shared_fields(prepared.request, PlanTable), **named},
        ended=end.ended,
        decided=end.decided,
        least_s=None if end.least_s == inf else end.least_s,
        memory_bytes=prepared.memory_bytes,
        **(off.told(prepared.model.flops_per_token(prepared.request.seq)) if off else {}),
        not_searched=prepared.not_searched,
        plans=len(prepared.plans),
        candidates=sum(end.decided.values()) - sum(n for bound_s, n in search.ladder.refused if bound_s <= limit_s),
        timed=end.decided["composed"],
        rows=rows,
        front=tuple(front_of(seen)),
        seen=tuple(sorted({(row.peak_memory_bytes, row.mfu) for row in seen})),
        assumptions=_assumptions(prepared, rows),
        wall_s=time.perf_counter() - prepared.began_s,
    )


def _assumptions(prepared: PreparedSearch, rows: Sequence[PlanRow]) -> tuple[str, ...]:
    """Return sentences on the assumptions on which the times of the rows rest."""
    request = prepared.request
    stack, batch = request.stack, {"global_batch": request.global_batch, "seq": request.seq}
    plans = [parse_plan(row.plan, **batch) for row in rows]
    filled_up = dict.fromkeys(told for plan in plans for told in padding_note(plan, prepared.model, stack))
    of_topologies = dict.fromkeys(told for each in prepared.topologies for told in each.assumptions)
    return (*of_topologies, *prepared.device.assumptions, *filled_up, MFU_ASSUMED, *FLUID_ASSUMED, COMPOSED_ASSUMED)


def _undecided(search: Search) -> tuple[int, int, float]:
    """Return how many candidates an ended search leaves undecided, and their least bound.

    Returns:
        The number of undecided candidates that have no placement yet, the number of those that have one, and the least
        bound of all of them, in seconds.
    """
    entries = [entry for entry in (*search.ladder.dropped, *search.ladder.frontier.entries) if entry.bound_s <= search.limit_s]
    counts = [(entry.rung, len(placements(entry.candidate.plan))) for entry in entries]
    of_plans = len(search.prepared.topologies) * sum(n for rung, n in counts if rung > ALL_PARTS)
    placed = sum(n if rung == ALL_PARTS else 1 for rung, n in counts if rung <= ALL_PARTS)
    return of_plans, placed, min((entry.bound_s for entry in entries), default=inf)


def _end_of(search: Search) -> SearchEnd:
    """Return the reason why a search ended, and the numbers of candidates by how they were decided."""
    ladder, timed = search.ladder, len(search.needed())
    bounds = (ladder.refused, ladder.anywhere, ladder.too_large)
    refused, bounded, too_large = (sum(n for bound_s, n in of if bound_s <= search.limit_s) for of in bounds)
    of_plans, placed, least_s = _undecided(search)
    bound, requests = _candidates(search.prepared) - refused - bounded - of_plans, bounded - too_large - timed - placed
    by = (refused + too_large, bound, requests, timed, of_plans + placed)
    return SearchEnd(OUT_OF_WORK if of_plans + placed else PROVED, least_s, dict(zip(DECIDED_BY, by, strict=True)))


def _rows(search: Search, found: Sequence[Candidate], named: Sequence[Candidate]) -> tuple[PlanRow, ...]:
    """Return the rows of the table, the fastest first; the arguments are those of `plan_table`."""
    rows = search.plans.rows
    every = sorted(dict.fromkeys((*found, *named)), key=lambda each: (rows[each].step_time_s, each.tie_key))
    first = rows[next(each for each in every if each in found)]
    return tuple(_row(search, each, first, beside=each in named) for each in every)


def _row(search: Search, candidate: Candidate, first: PlanRow, *, beside: bool) -> PlanRow:
    """Return the row of a candidate with its bound, and the reason why it is slower than the first row."""
    row, least_s, has = search.plans.rows[candidate], search.least_s, search.prepared.memory_bytes
    said = "" if row == first else reason_of(row, first)
    if has and row.peak_memory_bytes > has:
        said = f"does not fit: {format_size(row.peak_memory_bytes - has)} of memory are missing; if it fitted: {said}"
    untimed_s = None if row.step_time_s < least_s else least_s
    return replace(row, bound_s=search.step_bounds_s.get(candidate), least_untimed_s=untimed_s, beside=beside, why=said)
