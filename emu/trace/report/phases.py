"""The phases of a step: the stage of each rank of a pipeline, and the time of its optimizer."""

import numpy as np

from emu.fabric.timeline import Timeline
from emu.trace.replay.replay import ReplayGraph
from emu.trace.trace import UPDATE, Kind, Trace

STAGES = "pp"  # the axis whose groups have a rank of each stage of a pipeline, in their order


def stages_of(trace: Trace) -> dict[int, int]:
    """Return the stage of each rank of a pipeline."""
    return {rank: stage for group in trace.groups if group.axis == STAGES for stage, rank in enumerate(group.ranks)}


def optimizer_fs(trace: Trace, replayed: ReplayGraph, timeline: Timeline, rank: int, step: int) -> int | None:
    """Return the ticks of a rank's computation in a step after the mark of an optimizer; None: there is no such mark."""
    events, first = trace.events_of(rank), replayed.first_event[rank]
    marks = np.flatnonzero((events.kind == Kind.MARK) & (events.step == step))
    begun = [row for row in marks.tolist() if events.name[row] == UPDATE]
    if not begun:
        return None
    rows = np.flatnonzero((events.kind == Kind.COMPUTE) & (events.step == step))
    task = replayed.begins[first + rows[rows > begun[0]]]
    return int((timeline.end_fs[task] - timeline.start_fs[task]).sum())
