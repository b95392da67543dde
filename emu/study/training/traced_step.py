"""A traced step, on any number of ranks: timed by the whole graph if that is not too large, else composed.

N ranks, R roles.
"""

from collections.abc import Sequence

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import Choice
from emu.errors import InputError
from emu.study.training.composed.composed import composition
from emu.study.training.composed.place_requests import Axis, Representatives
from emu.study.training.estimate import DEFAULT_EFFORT
from emu.study.training.step.step import TimedTrace, time_trace
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.matching.call_batch import communicators
from emu.trace.replay.replay import SizeError
from emu.trace.trace import Trace


def time_step(
    trace: Trace, choice: Choice, topology: Topology, device: Device, dtype: str, most_events: int = DEFAULT_EFFORT.most_events
) -> TimedTrace:
    """Return a trace of one step with its times; errors as in `time_trace`.

    Args:
        trace: The trace.
        choice: The choice of algorithms.
        topology: The topology; the ranks are on its first NPUs.
        device: The device that computes.
        dtype: The dtype that float32 is timed as.
        most_events: The most events of all ranks in a whole graph; a step with more events is composed.
    """
    events = np.array([len(e) for e in trace.events])
    if int(events[trace.role_of_rank].sum()) <= most_events:
        try:
            return time_trace(trace, choice, topology, device, dtype, briefly=True)
        except SizeError:
            pass
    return composition(by_roles(trace, dtype), choice, topology, device.request_overhead_fs).timed(device)


def by_roles(trace: Trace, dtype: str) -> Representatives:
    """Return one rank of each role, which stands for all ranks of the role.

    Raises:
        InputError: The groups of one axis have different sizes.
    """
    number = communicators(trace.groups)
    axes = [Axis(trace.groups[number.index(c)].axis, _rows(trace, number, c)) for c in range(len({*number}))]
    _, first = np.unique(trace.role_of_rank, return_index=True)
    of = tuple(tuple(number[group] for group in trace.group_of[rank]) for rank in first.tolist())
    return Representatives(
        trace.events, of, tuple(axes), trace.role_of_rank.astype(np.int64), trace.meta, trace.peak_by_part, dtype
    )


def _rows(trace: Trace, number: Sequence[int], communicator: int) -> I64:
    """Return [groups, members] the ranks of the groups of a communicator."""
    groups = [group for group, of in zip(trace.groups, number, strict=True) if of == communicator]
    sizes = {len(group.ranks) for group in groups}
    if len(sizes) > 1:
        raise InputError(f"compose: groups of one axis must be of one size, got {sorted(sizes)} of {groups[0].axis or 'ranks'}")
    return np.array([group.ranks for group in groups], dtype=np.int64)
