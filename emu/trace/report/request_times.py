"""The requests of ranks: when all members had arrived at each, and from when a rank stands still for it.

X events of all ranks, M calls; C requests of a rank, E its events. A member arrives at a request when its program, its stream
and the requests before it in its queue let it enter. The members of a collective, or both ends of a message, have met when the
last of them has arrived: until then a rank waits for a rank, and only the time after that is communication.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64, Bool
from emu.compiled.function import I64_OUT, compiled
from emu.fabric.graph import Timeline
from emu.trace.replay.replay_graph import ReplayGraph
from emu.trace.report.spans import Spans
from emu.trace.steps import computes, order_of
from emu.trace.trace import Events, Kind, Trace


class Arrivals(NamedTuple):
    """The ticks at which members come to all requests of a trace: each request, and the last member of each call."""

    came: I64  # [X] when each request's rank could enter it
    met: I64  # [M] when the last member had come
    last: I64  # [M] the request of the member that came last; of several, that of the lowest rank

    @staticmethod
    def of(replayed: ReplayGraph, timeline: Timeline) -> "Arrivals":
        """Return the arrival times at all requests of a trace, from its graph and timeline."""
        came = np.asarray(timeline.start_fs[replayed.begins])
        came[replayed.entries.event] = replayed.entries.entry_times(timeline)
        asked = np.flatnonzero(replayed.call >= 0)
        return Arrivals(came, *_last_arrivals(replayed.call[asked], came, asked))


class RequestTimes(NamedTuple):
    """The requests of a rank without those of set-up, in the order of issue, with their times in ticks.

    The times are when the rank could enter, when the last member had come, and when the rank may leave.
    """

    came: I64  # [C] when the rank could enter
    met: I64  # [C] when the last member had come
    left: I64  # [C] when the rank may leave
    since: I64  # [C] from when the rank stands still for it, if it has not left it
    last: I64  # [C] the rank that came last
    axes: np.ndarray  # [C] the axis of the group

    @property
    def spoken(self) -> Spans:
        """The spans from when all members had come to when the rank may leave."""
        return Spans(self.met, self.left)


def requests_of(trace: Trace, replayed: ReplayGraph, timeline: Timeline, coming: Arrivals, rank: int) -> RequestTimes:
    """Return the requests of a rank.

    A rank may leave a rooted operation before all members have come to it: then only the members count that came before it
    left.
    """
    first, end = replayed.first_event[rank : rank + 2].tolist()
    rows = np.flatnonzero(replayed.call[first:end] >= 0)
    left = timeline.end_fs[replayed.ends[rows + first]]
    met, last = _met(replayed, coming, rows + first, left)
    since = _idle_since(trace.events_of(rank), replayed.ends[first:end], timeline)[rows]
    of_rank = np.searchsorted(replayed.first_event, last, side="right") - 1
    axes = [trace.groups[trace.group_of[rank][g]].axis for g in trace.events_of(rank).group[rows].tolist()]
    return RequestTimes(coming.came[rows + first], met, left, since, of_rank, np.array(axes, dtype=str))


def talking(replayed: ReplayGraph, timeline: Timeline, coming: Arrivals, events: I64) -> Spans:
    """Return, for requests of one rank, the spans from the last member's arrival until the rank may leave."""
    left = timeline.end_fs[replayed.ends[events]]
    return Spans(_met(replayed, coming, events, left)[0], left)


def _met(replayed: ReplayGraph, coming: Arrivals, events: I64, left: I64) -> tuple[I64, I64]:
    """Return [C] when the last member had come to each request of a rank, and [C] the request of that member."""
    call = replayed.call[events]
    met, last = coming.met[call], coming.last[call]
    early = np.flatnonzero(met > left)
    if len(early):
        until = np.full(len(coming.met) + 1, -1)  # the last is of what is no request, to which nobody comes
        until[call[early]] = left[early]
        in_time = np.flatnonzero((coming.came <= until[replayed.call]) & (replayed.call >= 0))
        number, at = np.unique(replayed.call[in_time], return_inverse=True)
        times, requests = _last_arrivals(at, coming.came, in_time)
        met[early], last[early] = (of[np.searchsorted(number, call[early])] for of in (times, requests))
    return met, last


def _last_arrivals(call: I64 | I32, came: I64, asked: I64) -> tuple[I64, I64]:
    """Return, for each call, the tick at which its last request came, and the first of the requests that came at that tick.

    Args:
        call: The call of each request in `asked`.
        came: When each request of the step came, in ticks.
        asked: The requests that are looked at, by their numbers in `came`.
    """
    met = np.full(int(call.max(initial=-1)) + 1, -1)
    np.maximum.at(met, call, came[asked])
    of_last = np.flatnonzero(came[asked] == met[call])[::-1]
    last = np.full(len(met), -1)
    last[call[of_last]] = asked[of_last]  # of several the first is written last
    return met, last


def _idle_since(events: Events, ends: I32, timeline: Timeline) -> I64:
    """Return [E] the tick from which the rank may have stood still for each event.

    It is the end of the computation before the first one that waits for the event, or of the last computation of its step.
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
    """Return [E] the end of the last computation in the step of each event; 0 if the step computes nothing."""
    last, computed = np.zeros(int(events.step.max(initial=0)) + 1, np.int64), events.kind == Kind.COMPUTE
    np.maximum.at(last, events.step[computed], ended[computed])
    return last[events.step]


@compiled
def _pass_on(event: I64, waited: I64, asks: Bool, since: I64_OUT) -> None:
    """Give each awaited request the lowest value of the requests that wait for it."""
    for i in range(len(event)):
        if asks[waited[i]] and since[event[i]] < since[waited[i]]:
            since[waited[i]] = since[event[i]]
