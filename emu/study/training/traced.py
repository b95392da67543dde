"""A step that was traced, on ranks of any number: the whole graph where it is not too large, else composed.

N ranks, R roles.
"""

from collections.abc import Sequence

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import Choice
from emu.errors import InputError
from emu.study.training.composed.asked import Axis, Standing
from emu.study.training.composed.composed import composition
from emu.study.training.estimate import MOST_EVENTS
from emu.study.training.step.step import TimedTrace, time_trace
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.matching.call_batch import communicators
from emu.trace.replay.replay import SizeError
from emu.trace.trace import Trace


def time_step(
    trace: Trace, choice: Choice, topology: Topology, device: Device, dtype: str, most_events: int = MOST_EVENTS
) -> TimedTrace:
    """Time a trace of one step; arguments and errors as of `time_trace`.

    Args:
        trace: What each role does.
        choice: What serves its collectives.
        topology: Where it runs, its ranks on the first NPUs.
        device: What its computations take.
        dtype: What float32 is timed as.
        most_events: Of all ranks, of which the whole graph is made; of more, the step is composed.
    """
    events = np.array([len(e) for e in trace.events])
    if int(events[trace.role_of_rank].sum()) <= most_events:
        try:
            return time_trace(trace, choice, topology, device, dtype, briefly=True)
        except SizeError:
            pass
    return composition(by_roles(trace, dtype), choice, topology, device.request_overhead_fs).timed(device)


def by_roles(trace: Trace, dtype: str) -> Standing:
    """One rank of each role, which stands for all that play it.

    Raises:
        InputError: groups of one axis that are of different sizes.
    """
    number = communicators(trace.groups)
    axes = [Axis(trace.groups[number.index(c)].axis, _rows(trace, number, c)) for c in range(len({*number}))]
    _, first = np.unique(trace.role_of_rank, return_index=True)
    of = tuple(tuple(number[group] for group in trace.group_of[rank]) for rank in first.tolist())
    return Standing(trace.events, of, tuple(axes), trace.role_of_rank.astype(np.int64), trace.meta, trace.peak_by_part, dtype)


def _rows(trace: Trace, number: Sequence[int], communicator: int) -> I64:
    """[groups, members] the ranks of the groups of a communicator."""
    groups = [group for group, of in zip(trace.groups, number, strict=True) if of == communicator]
    sizes = {len(group.ranks) for group in groups}
    if len(sizes) > 1:
        raise InputError(f"compose: groups of one axis must be of one size, got {sorted(sizes)} of {groups[0].axis or 'ranks'}")
    return np.array([group.ranks for group in groups], dtype=np.int64)
