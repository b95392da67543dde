"""The requests of one rank: when all members had come to each, and from when the rank stood still for it.

C requests of the rank, E its events, X events of all ranks. A member comes to a request when its program, its stream and the
requests before it in its queue let it enter. The members of a collective, or both ends of a message, have met when the last of
them has come: what a rank waits until then it waits for a rank, and only what comes after is communication.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64, Bool
from emu.compiled.function import compiled
from emu.compiled.kinds import I64_OUT
from emu.fabric.timeline import Timeline
from emu.trace.order import computes, order_of
from emu.trace.replay.replay import Replayed
from emu.trace.report.spans import Spans
from emu.trace.trace import Events, Kind, Trace


class Requests(NamedTuple):
    """The requests of a rank, in the order of issue; times in ticks."""

    came: I64  # [C] the rank could enter
    met: I64  # [C] the last member had come
    left: I64  # [C] the rank may leave
    since: I64  # [C] the rank stands still for it from then on, if it has not left it
    last: I64  # [C] the member that came last; of several the lowest
    axes: np.ndarray  # [C] of the group

    @property
    def waiting(self) -> Spans:
        """Return from when to when the rank stands still for a member that has not come."""
        return Spans(np.minimum(np.maximum(self.came, self.since), self.met), self.met)

    @property
    def spoken(self) -> Spans:
        """Return from when all members had come to when the rank may leave."""
        return Spans(self.met, self.left)

    @property
    def standing(self) -> Spans:
        """Return the part of that in which the rank stands still for it."""
        return Spans(np.minimum(np.maximum(self.met, self.since), self.left), self.left)


def requests_of(trace: Trace, replayed: Replayed, timeline: Timeline, rank: int) -> Requests:
    """Return the requests of a rank but those of set-up.

    A rank may leave a rooted operation before all members have come to it: then those count that came before it left.
    """
    first, end = replayed.first_event[rank : rank + 2].tolist()
    rows = np.flatnonzero(replayed.meeting[first:end] >= 0)
    left = timeline.end_fs[replayed.ends[rows + first]]
    came, met, last = _meetings(replayed, timeline, rows + first, left)
    since = _since(trace.events_of(rank), replayed.ends[first:end], timeline)[rows]
    axes = [trace.groups[trace.group_of[rank][g]].axis for g in trace.events_of(rank).group[rows].tolist()]
    return Requests(came, met, left, since, last, np.array(axes, dtype=str))


def talking(replayed: Replayed, timeline: Timeline, events: I64) -> Spans:
    """Return from when all members had come to each of some requests of one rank to when that may leave it."""
    left = timeline.end_fs[replayed.ends[events]]
    return Spans(_meetings(replayed, timeline, events, left)[1], left)


def _meetings(replayed: Replayed, timeline: Timeline, events: I64, left: I64) -> tuple[I64, I64, I64]:
    """Return [C] when a rank came to each of its requests, when the last member had come, and which one that is."""
    number, until = replayed.meeting[events], np.full(int(replayed.meeting.max(initial=-1)) + 2, -1)
    np.maximum.at(until, number, left)  # the last is of what is no request, whose number is -1: nobody comes to that
    members = np.flatnonzero(until[replayed.meeting] >= 0)
    came, of = _came(replayed, timeline, members), replayed.meeting[members]
    own = came[np.searchsorted(members, events)]
    in_time = np.flatnonzero(came <= until[of])
    by_coming = in_time[np.lexsort((-members[in_time], came[in_time], of[in_time]))]
    last = by_coming[np.searchsorted(of[by_coming], number, side="right") - 1]
    return own, came[last], np.searchsorted(replayed.first_event, members[last], side="right") - 1


def _came(replayed: Replayed, timeline: Timeline, events: I64) -> I64:
    """Return when the rank of each of some requests could enter it."""
    came = timeline.start_fs[replayed.begins[events]]
    _, at, entry = np.intersect1d(events, replayed.entries.event, assume_unique=True, return_indices=True)
    came[at] = replayed.entries.came(timeline)[entry]
    return np.asarray(came)


def _since(events: Events, ends: I32, timeline: Timeline) -> I64:
    """Return [E] the end of the computation before the first one that waits for each event, or of the last one of its step.

    Until then the rank stands still, if it does, for something else.
    """
    ended, asks = np.where(ends >= 0, timeline.end_fs[ends], 0), ~computes(events)
    since = _last_of_step(events, ended)
    for stream in np.unique(events.stream).tolist():
        own = np.flatnonzero(~asks & (events.stream == stream))
        since[own] = np.append(0, ended[own])[:-1]
    event, waited = order_of(events)
    latest = np.argsort(-event, kind="stable")
    _pass_on(event[latest], waited[latest], asks, since)
    return since


def _last_of_step(events: Events, ended: I64) -> I64:
    """Return [E] when the last computation of the step that each event is of ended."""
    last, computed = np.zeros(int(events.step.max(initial=0)) + 1, np.int64), events.kind == Kind.COMPUTE
    np.maximum.at(last, events.step[computed], ended[computed])
    return np.asarray(np.maximum.accumulate(last)[events.step])


@compiled
def _pass_on(event: I64, waited: I64, asks: Bool, since: I64_OUT) -> None:
    """Let requests that are waited for have the least of what those have that wait; the latest of these come first."""
    for i in range(len(event)):
        if asks[waited[i]] and since[event[i]] < since[waited[i]]:
            since[waited[i]] = since[event[i]]
