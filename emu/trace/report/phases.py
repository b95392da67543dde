"""What a step has beside computation and communication: waiting for other stages of a pipeline, and its optimizer."""

import numpy as np

from emu.arrays import I64
from emu.fabric.timeline import Timeline
from emu.trace.order import order_of
from emu.trace.replay.replay import Replayed
from emu.trace.report.spans import Spans
from emu.trace.trace import UPDATE, Kind, Trace

STAGES = "pp"  # the axis whose groups have a rank of each stage of a pipeline, in their order


def stages_of(trace: Trace) -> dict[int, int]:
    """The stage of each rank of a pipeline."""
    return {rank: stage for group in trace.groups if group.axis == STAGES for stage, rank in enumerate(group.ranks)}


def waits_for_stages(trace: Trace, replayed: Replayed, timeline: Timeline, rank: int, rows: I64, spoken: Spans) -> Spans:
    """From when a rank could take part in a request that ranks of other stages are to come to, until its first message.

    Args:
        trace: What ran.
        replayed: The same on a fabric.
        timeline: When its tasks ran.
        rank: Whose.
        rows: [C] its requests, among its events.
        spoken: [C] from the first message of each until the rank may leave.
    """
    stages, number = stages_of(trace), trace.events_of(rank).group[rows]
    apart = {g for g in set(number.tolist()) if len({stages.get(r) for r in trace.groups[trace.group_of[rank][g]].ranks}) > 1}
    which = np.flatnonzero(np.isin(number, list(apart)))
    ready = _ready(trace, replayed, timeline, rank)[rows]
    return Spans(ready[which], np.maximum(ready, spoken.start)[which])


def _ready(trace: Trace, replayed: Replayed, timeline: Timeline, rank: int) -> I64:
    """[E] when all that each event of a rank waits for has ended."""
    first = replayed.first_event[rank]
    event, waited = order_of(trace.events_of(rank))
    task, ready = replayed.ends[waited + first], np.zeros(len(trace.events_of(rank)), np.int64)
    known = task >= 0
    np.maximum.at(ready, event[known], timeline.end_fs[task[known]])
    return ready


def optimizer_fs(trace: Trace, replayed: Replayed, timeline: Timeline, rank: int, step: int) -> int | None:
    """Ticks of what a rank computes of a step after the mark of an optimizer; None: there is no such mark."""
    events, first = trace.events_of(rank), replayed.first_event[rank]
    marks = np.flatnonzero((events.kind == Kind.MARK) & (events.step == step))
    begun = [row for row in marks.tolist() if events.name[row] == UPDATE]
    if not begun:
        return None
    rows = np.flatnonzero((events.kind == Kind.COMPUTE) & (events.step == step))
    task = replayed.begins[first + rows[rows > begun[0]]]
    return int((timeline.end_fs[task] - timeline.start_fs[task]).sum())
