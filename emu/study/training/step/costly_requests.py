"""The lines of the user's program that cause the most communication time in a step, and possible improvements."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from emu.collective.choice import Request
from emu.collective.operation import operation
from emu.errors import InputError
from emu.study.choice.site import Site
from emu.study.measure.bench import BenchRow, compare
from emu.study.measure.request import BenchRequest, PlacedBench
from emu.study.training.step.step import CostlyRequest, Step, TimedTrace
from emu.topology.placement import npu_order
from emu.trace.matching.role_requests import MESSAGE
from emu.trace.request_lines import lines_of
from emu.trace.timed_dtype import FLOAT_BYTES, timed_as, timed_bytes
from emu.trace.trace import Kind
from emu.units import format_size, seconds

MOST_LINES = 10
LARGEST = 64  # ranks of a group, up to which other algorithms are looked at
_OFTEN, _SMALL_BYTES = 8, 2**20  # requests of one line in a step, and the size of each, for which one for all is worth a hint
_EXPOSED, _SHARE = 0.9, 0.1  # limits of a hint: share of communication that is exposed, and share of the step


# The facts by which requests are equal: their line, operation, group, bytes, elements, dtype and root.
_Key = tuple[str, str, int, int, int, str, int]


def with_costliest(step: Step, timed: TimedTrace) -> Step:
    """Return the step with its costliest requests and hints added; unchanged if no request has a known line."""
    found = costliest(timed)
    return replace(step, costliest=found, hints=hints(step, found)) if found else step


def costliest(timed: TimedTrace) -> tuple[CostlyRequest, ...]:
    """Return the requests of the rank that ended last, those with the longest total time first."""
    spent = _spent(timed)
    longest = sorted(spent.items(), key=lambda each: (-sum(each[1]), each[0]))[:MOST_LINES]
    known: dict[tuple[object, ...], list[BenchRow]] = {}
    return tuple(_costly(timed, key, ticks, known) for key, ticks in longest)


def _spent(timed: TimedTrace) -> dict[_Key, list[int]]:
    """Return the ticks of each time that a request was made, by the key of the request."""
    trace, replayed, line, place = timed.trace, timed.replayed, timed.timeline, timed.report.rank
    events, lines = trace.events_of(place), lines_of(trace)[int(trace.role_of_rank[place])]
    sizes, first = timed_bytes(events, timed.dtype), int(replayed.first_event[place])
    found: defaultdict[_Key, list[int]] = defaultdict(list)
    for row in np.flatnonzero((events.step == timed.report.step) & (replayed.ends[first : first + len(events)] >= 0)).tolist():
        if row in lines and events.kind[row] not in (Kind.COMPUTE, Kind.MARK):
            name = events.name[row] if events.kind[row] == Kind.COLLECTIVE else MESSAGE
            what = (int(sizes[row]), int(events.count[row]), events.dtype[row], int(events.root[row]))
            took = line.end_fs[replayed.ends[first + row]] - line.start_fs[replayed.begins[first + row]]
            found[lines[row], name, trace.group_of[place][events.group[row]], *what].append(int(took))
    return found


def _costly(
    timed: TimedTrace, key: _Key, ticks: Sequence[int], known: dict[tuple[object, ...], list[BenchRow]]
) -> CostlyRequest:
    """Return the figures of the requests that one line of the program made with one operation, group and size.

    Args:
        timed: The timed trace.
        key: The line, operation, group and size.
        ticks: The ticks that each of these requests took.
        known: Bench rows of requests that were looked at before; new ones are added.
    """
    line, name, number, size, elements, dtype, root = key
    group, axis = timed.members(number), timed.trace.groups[number].axis
    served = None if name == MESSAGE else timed.choice.algorithm_for(Request(name, group, root, elements, dtype, axis=axis))
    rows = [] if served is None else _rows(timed, key, group, known)
    own = next((row for row in rows if served is not None and row.algorithm == served.algorithm), None)
    other = min((row for row in rows if row is not own), key=lambda row: (row.time_s, row.built), default=None)
    return CostlyRequest(
        line=line,
        operation=name,
        axis=axis,
        ranks=len(group),
        times=len(ticks),
        size_bytes=size,
        time_s=seconds(sum(ticks)),
        algorithm=None if served is None else str(served),
        alone_s=own.time_s if own else None,
        busbw_Bps=own.busbw_Bps if own else None,
        of_bound=own.of_bound if own else None,
        next_algorithm=other.built if other else None,
        next_s=other.time_s if other else None,
    )


def _rows(
    timed: TimedTrace, key: _Key, group: tuple[int, ...], known: dict[tuple[object, ...], list[BenchRow]]
) -> list[BenchRow]:
    """Return a bench row for every algorithm of a request; empty for a group or size that cannot be measured."""
    _, name, _, size, _, ran, root = key
    dtype = timed_as(ran, timed.dtype)
    if not 1 < len(group) <= LARGEST or dtype not in FLOAT_BYTES or not size:
        return []
    asked = (name, group, root, size, dtype)
    if asked not in known:
        npus = tuple(npu_order(timed.topology)[list(group)].tolist())
        request = BenchRequest(name, "auto", (size,), dtype, root=root, ranks=len(group))
        op = operation(name, len(group), root)
        try:
            rows = compare(PlacedBench(request, op, Site.of(timed.topology, npus), FLOAT_BYTES[dtype]))
            known[asked] = [row for row in rows if isinstance(row, BenchRow)]
        except InputError:  # a size that no bench takes, such as blocks of unlike sizes
            known[asked] = []
    return known[asked]


def hints(step: Step, found: Sequence[CostlyRequest]) -> tuple[str, ...]:
    """Return a sentence for each line of the program that itself costs time."""
    told = [
        f"{each.line}: {each.times} {each.operation} of {format_size(each.size_bytes)} each in a step, and each waits for the "
        f"latency of its links: ask for all at once (a larger bucket, or one call outside of the loop)"
        for each in found
        if each.times >= _OFTEN and each.size_bytes <= _SMALL_BYTES and each.operation != MESSAGE  # of a microbatch each
    ]
    exposed, share = step.exposed_comm_s, step.exposed_comm_s / (step.step_time_s or 1.0)
    if share >= _SHARE and exposed >= _EXPOSED * step.total_comm_s:
        told.append(
            f"{100 * exposed / step.total_comm_s:.0f} % of the communication is exposed, {100 * share:.0f} % of the step: let "
            f"it overlap with computation (async_op=True and a later wait, the buckets of DDP, the prefetching of FSDP2)"
        )
    return tuple(told)
