"""The collectives of a profiled step: their measured times, and their times on a virtual fabric.

A rank stays in a collective from when it comes to it until it may leave it: of a GPU that is the time of NCCL's kernel. The
member that came last stays for the shortest time, which is the time of the communication; the others wait for it besides. All
members leave at nearly the same time, so that the differences of their stays give the differences of their starts, though each
host has a clock of its own. A straggler lets starts differ, and changes no time of communication.
X events of all ranks, M calls.
"""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.fabric.graph import Timeline
from emu.trace.replay.replay_graph import ReplayGraph
from emu.trace.report.request_times import Arrivals
from emu.trace.trace import Trace
from emu.units import TICKS_PER_S


class CallTimes(NamedTuple):
    """The times of equal collective calls as they were measured; the seconds are medians over the calls.

    `time_s` is how long the last member to arrive stayed, `apart_s` how much later it started than the first one. `last_rank`
    is the rank that most often came last.
    """

    time_s: float  # of the communication: how long the member stayed that came last
    apart_s: float | None  # between the first start and the last one; None: one member alone was measured
    last_rank: int | None  # the rank that most often came last; None: starts do not differ, or are not known


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTimes:
    """Equal calls of a step on all groups of one axis, with their measured and their virtual times."""

    operation: str
    axis: str
    ranks: int  # ranks of each group
    size_bytes: int  # bytes of each call, as it ran
    times: int  # how often the call is made in the step, on all groups
    measured: CallTimes
    virtual: CallTimes

    @property
    def ratio(self) -> float:
        """Return the virtual time of the communication divided by the measured one."""
        return self.virtual.time_s / (self.measured.time_s or 1.0)


class _Key(NamedTuple):
    operation: str
    axis: str
    ranks: int
    size_bytes: int


class _Members(NamedTuple):
    """The members of all calls of a step, one row for each member, in the order of their calls."""

    call: I64  # [T] the call of each member
    rank: I64  # [T] the rank of each member
    role: I64  # [T] the role of its rank: members of one role have the times of one profile
    measured_s: F64  # [T] seconds that each stayed, as measured
    virtual_s: F64  # [T] seconds that each stays on the virtual fabric
    key: tuple[_Key, ...]  # [T] what equal calls have in common


def collective_times(trace: Trace, replayed: ReplayGraph, timeline: Timeline, step: int) -> tuple[CollectiveTimes, ...]:
    """Return the measured and virtual times of each kind of call in a step, longest first.

    Args:
        trace: The trace of a profile.
        replayed: The graph of the trace on a fabric.
        timeline: The times of its tasks.
        step: The number of the step.
    """
    members = _members(trace, replayed, timeline, step)
    starts = np.flatnonzero(np.diff(members.call, prepend=-1))
    calls: dict[_Key, list[tuple[int, int]]] = {}
    for low, high in zip(starts.tolist(), [*starts[1:].tolist(), len(members.call)], strict=True):
        calls.setdefault(members.key[low], []).append((low, high))
    found = [
        CollectiveTimes(
            **key._asdict(),
            times=len(own),
            measured=_times(members, members.measured_s, own, of_profiles=True),
            virtual=_times(members, members.virtual_s, own, of_profiles=False),
        )
        for key, own in calls.items()
    ]
    return tuple(sorted(found, key=lambda each: -each.times * max(each.measured.time_s, each.virtual.time_s)))


def _members(trace: Trace, replayed: ReplayGraph, timeline: Timeline, step: int) -> _Members:
    """Return the members of all calls of a step."""
    coming, firsts = Arrivals.of(replayed, timeline), replayed.first_event
    lasts = np.concatenate([trace.events_of(rank).lasts_s for rank in range(trace.n_ranks)])
    in_step = np.concatenate([trace.events_of(rank).step == step for rank in range(trace.n_ranks)])
    event = np.flatnonzero(in_step & (replayed.call >= 0))
    event = event[np.argsort(replayed.call[event], kind="stable")]
    rank = np.searchsorted(firsts, event, side="right") - 1
    left = timeline.end_fs[replayed.ends[event]]
    keys = tuple(_key(trace, *each) for each in zip(rank.tolist(), (event - firsts[rank]).tolist(), strict=True))
    role = trace.role_of_rank[rank].astype(np.int64)
    return _Members(
        replayed.call[event].astype(np.int64), rank, role, lasts[event], (left - coming.came[event]) / TICKS_PER_S, keys
    )


def _key(trace: Trace, rank: int, row: int) -> _Key:
    """Return the key of a request that equal calls share; both ends of a message are called `send`."""
    events = trace.events_of(rank)
    group = trace.groups[trace.group_of[rank][int(events.group[row])]]
    operation = {"recv": "send"}.get(events.name[row], events.name[row])
    return _Key(operation, group.axis, len(group.ranks), int(events.bytes[row]))


def _times(members: _Members, stayed: F64, calls: list[tuple[int, int]], *, of_profiles: bool) -> CallTimes:
    """Return the times of equal calls.

    Args:
        members: The members of all calls.
        stayed: [T] how long each member stayed.
        calls: Where the members of each call begin and end.
        of_profiles: Whether members of one role share their times, so that only one of them was measured.
    """
    least, apart, last = [], [], Counter[int]()
    for low, high in calls:
        own = stayed[low:high]
        least.append(float(own.min()))
        if not of_profiles or len({*members.role[low:high].tolist()}) > 1:
            apart.append(float(own.max() - own.min()))
            last[int(members.rank[low + int(own.argmin())])] += apart[-1] > 0
    (rank, often), *_ = last.most_common(1) or [(0, 0)]
    return CallTimes(float(np.median(least)), float(np.median(apart)) if apart else None, rank if often else None)
