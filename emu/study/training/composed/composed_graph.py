"""The graph of a composed step: one rank of each place and, in stretches, every rank with its messages.

An event of a place is one task for all its ranks, or one task a rank. If two events have one task a rank, each rank waits for
its own task; else an event waits for all tasks of the other.
P places, N ranks, Q distinct requests, M calls, X events of the P places, W tasks of events: one each, or one a rank.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from emu.arrays import I64, Bool, column, ramps
from emu.fabric.graph import Graph, Timeline, name_tasks
from emu.fabric.lower import LoweredSchedule
from emu.fabric.run import run_graph
from emu.study.training.composed.bodies import Bodies
from emu.study.training.composed.call_turns import CallTurns
from emu.study.training.composed.request_parts import RequestMessages
from emu.study.training.composed.requests_by_place import PlaceRequests
from emu.study.training.composed.step_frame import StepFrame
from emu.trace.matching.role_requests import MESSAGE
from emu.trace.replay.delay import Entries
from emu.trace.replay.event_builder import EventBuilder
from emu.trace.replay.replay_graph import ReplayGraph, Service, event_name


@dataclass(frozen=True, eq=False, slots=True)
class ComposedGraph:
    """A step as a graph, with the tasks of each event.

    An event has one task, which stands for all ranks of its place of the pipeline, or one for each of these ranks.
    """

    requests_by_place: PlaceRequests
    graph: Graph
    start: I64  # [X + 1] where the tasks of each event begin among the W
    begins: I64  # [W] the task of a computation, or with which a request is entered; -1: set-up
    ends: I64  # [W] the task of a computation, or with which a request is left; -1: set-up
    instance: I64  # [M] the number of each call in the graph; calls that are bodies come first
    firsts: I64  # [M] the first task of each call
    entries: Entries

    @property
    def by_rank(self) -> Bool:
        """[X] whether each rank of a place has its own task of an event; otherwise one task represents all ranks."""
        return np.diff(self.start) > 1

    def spans(self, timeline: Timeline) -> tuple[I64, I64]:
        """Return [M] the tick at which the first rank entered each call, and [M] the tick at which the last rank left it."""
        n_calls = len(self.instance)
        began, ended = np.full(n_calls, np.iinfo(np.int64).max), np.zeros(n_calls, np.int64)
        width = np.diff(self.start)[self.requests_by_place.event]
        at = ramps(self.start[self.requests_by_place.event], width)
        call = np.repeat(self.requests_by_place.call, width)
        np.minimum.at(began, call, timeline.start_fs[self.begins[at]])
        np.maximum.at(ended, call, timeline.end_fs[self.ends[at]])
        return began, ended

    def began(self, timeline: Timeline) -> I64:
        """Return [X] the tick at which the first rank began each event; -1: the event belongs to the set-up."""
        began = np.where(self.begins >= 0, timeline.start_fs[self.begins], -1)
        return np.minimum.reduceat(began, self.start[:-1]) if len(began) else began

    def replayed(self, timeline: Timeline, services: tuple[Service, ...], told: tuple[str, ...]) -> ReplayGraph:
        """Return the step as the replay of one rank of each place: the rank that ends last, if ranks have own tasks.

        Args:
            timeline: The times of all tasks.
            services: The algorithm of each request.
            told: The assumptions to report.
        """
        rank = np.repeat(self._last_ranks(timeline), np.diff(self.requests_by_place.first_event))
        return self._replay_of_tasks(self.start[:-1] + np.where(self.by_rank, rank, 0), services, told)

    def _replay_of_tasks(self, at: I64, services: tuple[Service, ...] = (), told: tuple[str, ...] = ()) -> ReplayGraph:
        """Return the step as a replay with one task for each event.

        `at` [X] is the index of that task in `begins` and `ends`.
        """
        trace, asked = self.requests_by_place.trace, self.requests_by_place
        number, call = (np.full(len(at), -1, np.int32) for _ in range(2))
        number[asked.event], call[asked.event] = self.instance[asked.call], asked.call
        ends = column(self.begins[at], np.int32), column(self.ends[at], np.int32)
        laid = asked.first_event, *ends, column(number, np.int32), column(call, np.int32)
        calls = (None,) * len(self.firsts), self.firsts
        return ReplayGraph(self.graph, *laid, *calls, services, told, trace.n_ranks, column([], np.int64), self.entries)

    def event_name(self, task: int) -> str:
        """Return the name of the event that a task belongs to."""
        return event_name(self.requests_by_place.trace, self._replay_of_tasks(self.start[:-1]), task)

    def _last_ranks(self, timeline: Timeline) -> I64:
        """Return [P] the rank of each place that ends last; 0 if ranks have no tasks of their own."""
        width, first_event = np.diff(self.start), self.requests_by_place.first_event
        found = np.zeros(len(first_event) - 1, np.int64)
        for place, (low, high) in enumerate(pairwise(first_event.tolist())):
            own = low + np.flatnonzero(width[low:high] > 1)
            if len(own):
                tasks = self.ends[ramps(self.start[own], width[own])].reshape(len(own), -1)
                found[place] = np.where(tasks >= 0, timeline.end_fs[tasks], 0).max(axis=0).argmax()
        return found


def composed_and_run(
    frame: StepFrame,
    bodies: Bodies,
    by_rank: Bool | None = None,
    sending: RequestMessages | None = None,
    turns: CallTurns | None = None,
) -> tuple[ComposedGraph, Timeline]:
    """Return the graph of a step and the times of its tasks; arguments as in `compose`."""
    composed = compose(frame, bodies, by_rank, sending, turns)
    with name_tasks("compose", composed.event_name):
        return composed, run_graph(composed.graph)


def compose(
    frame: StepFrame,
    bodies: Bodies,
    by_rank: Bool | None = None,
    sending: RequestMessages | None = None,
    turns: CallTurns | None = None,
) -> ComposedGraph:
    """Return the graph of a step.

    Args:
        frame: The computations of the representatives, and the order of their events.
        bodies: [Q] the task of each distinct request.
        by_rank: [X] whether each rank of the place has its own task of the event, equal for all ends of a call; None: no event.
        sending: The messages of requests; they are needed where `by_rank` is true.
        turns: The turns of optical switches between calls, all of which are bodies; None: no switch turns.
    """
    asked = frame.requests_by_place
    by_rank = np.zeros(asked.first_event[-1], np.bool_) if by_rank is None else by_rank
    real = sending.topology.capacity_Bps if sending is not None and by_rank.any() else bodies.capacity_Bps[:0]
    builder = EventBuilder(column(np.concatenate((real, bodies.capacity_Bps)), np.float64), _starts(asked, by_rank))
    _compute(builder, frame)
    of_bodies = np.ones(len(asked.request_of_call), np.bool_)
    of_bodies[asked.call[by_rank[asked.event]]] = False
    body, own = np.flatnonzero(of_bodies), np.flatnonzero(~of_bodies)
    instance = np.empty(len(of_bodies), np.int64)
    instance[np.concatenate((body, own))] = np.arange(len(instance))
    firsts = _add_bodies(builder, asked, bodies, instance, body, len(real))
    if turns is not None:
        _add_turns(builder, turns, firsts, firsts + bodies.has_tail[asked.request_of_call])
    if sending is not None and len(own):
        firsts = np.concatenate((firsts, _add_messages(builder, asked, sending, by_rank)[own]))
    entries = Entries.of(asked.event[~by_rank[asked.event]], *_wait(builder, frame, by_rank))
    return ComposedGraph(asked, builder.graph(), builder.start, builder.begins, builder.ends, instance, firsts, entries)


def _starts(asked: PlaceRequests, by_rank: Bool) -> I64:
    """Return [X + 1] the first task of each event, if the events of `by_rank` have one task for each rank."""
    n_ranks = np.bincount(asked.representatives.place_of_rank, minlength=len(asked.trace.events))
    return np.concatenate(([0], np.cumsum(np.where(by_rank, n_ranks[asked.place_of_event], 1))))


def _compute(builder: EventBuilder, frame: StepFrame) -> None:
    """Add the computations of all places of the pipeline to the graph."""
    width = np.diff(builder.start)
    for place, (rows, ticks) in enumerate(zip(frame.computations, frame.ticks, strict=True)):
        events = frame.requests_by_place.first_event[place] + rows
        times = width[events]
        at, taken = ramps(builder.start[events], times), column(np.repeat(ticks, times), np.int64)
        builder.compute(at, taken, place, np.repeat(rows, times))


def _equal_calls(asked: PlaceRequests, rows: I64) -> Iterator[tuple[int, I64]]:
    """Yield sets of calls that can be added to the graph together: those of one distinct request by the same places.

    Args:
        asked: The requests.
        rows: Rows of requests; those of one call follow one another.

    Yields:
        The number of the distinct request, and [k, ends] the rows of its k calls.
    """
    first = np.flatnonzero(np.append(True, np.diff(asked.call[rows]) != 0))
    size = np.diff(np.append(first, len(rows))).tolist()
    what = 2 * asked.place_of_event[asked.event[rows]] + asked.sends[rows]
    keys = dict[tuple[int, bytes], list[int]]()
    for at, n, request in zip(first.tolist(), size, asked.request_of_call[asked.call[rows[first]]].tolist(), strict=True):
        keys.setdefault((request, what[at : at + n].tobytes()), []).append(at)
    for (request, ends), starts in keys.items():
        yield request, rows[np.array(starts)[:, None] + np.arange(len(ends) // what.itemsize)]


def _add_messages(builder: EventBuilder, asked: PlaceRequests, sending: RequestMessages, by_rank: Bool) -> I64:
    """Add the calls of events with one task for each rank, message by message; return [M] the first task of each call."""
    rows = np.flatnonzero(by_rank[asked.event])
    rows = rows[np.argsort(asked.call[rows], kind="stable")]
    first = np.empty(len(asked.request_of_call), np.int64)
    for request, several in _equal_calls(asked, rows):
        parts = [_send(builder, asked, *part, request, several) for part in sending.of(request)]
        first[asked.call[several[:, 0]]] = parts[0]
    return first


def _send(builder: EventBuilder, asked: PlaceRequests, ranks: I64, piece: LoweredSchedule, request: int, rows: I64) -> I64:
    """Add the messages of k calls of one distinct request, and return [k] the first task of each call.

    A call runs on all groups of the request; this adds the messages of the G groups of P ranks that one algorithm serves.

    Args:
        builder: The builder of the graph.
        asked: The requests of all places of the pipeline.
        ranks: [G, P] the ranks of the groups.
        piece: The messages of one call on these groups.
        request: The number of the distinct request.
        rows: [k, ends] the rows of the requests of each call, one for each place that takes part.
    """
    events, member = asked.event[rows], ranks.ravel()
    places = asked.place_of_event[events[0]]
    if asked.requests[request].name == MESSAGE:  # its sender is member 0
        end = np.tile(np.argsort(~asked.sends[rows[0]]), len(ranks))
    else:
        end = (asked.representatives.place_of_rank[member][:, None] == places).argmax(axis=1)
    event, place = events[:, end], places[end]
    piece = replace(piece, graph=replace(piece.graph, capacity_Bps=builder.capacity_Bps))
    return builder.send(piece, builder.start[event] + asked.turn_in_place[member], place, event - asked.first_event[place])


def _add_bodies(builder: EventBuilder, asked: PlaceRequests, bodies: Bodies, instance: I64, calls: I64, n_links: int) -> I64:
    """Add the calls that are modelled as bodies; return the first task of each call.

    A message is one task until its sender has left it, then another until it is delivered. A rooted operation is likewise.

    Args:
        builder: The builder of the graph.
        asked: The requests.
        bodies: [Q] the task of each distinct request.
        instance: [M] the number in the graph of each call.
        calls: The calls, in the order of these numbers.
        n_links: The number of links of the topology, which come before those of the bodies.
    """
    request = asked.request_of_call[calls]
    tail = bodies.has_tail[request].astype(np.int64)
    first = np.concatenate(([0], np.cumsum(1 + tail)))
    of_task = np.repeat(np.arange(len(calls)), 1 + tail)
    later = np.arange(first[-1]) - first[of_task]
    size, alpha, hop_start, link, weight = bodies.of(request[of_task] + later * len(asked.requests))
    tasks = builder.messages(size, alpha, hop_start, column(link + n_links, np.int32), weight)
    after = np.flatnonzero(later)
    builder.wait(tasks[after], tasks[after - 1])
    rows = np.flatnonzero(instance[asked.call] < len(calls))
    which, at = instance[asked.call[rows]], builder.start[asked.event[rows]]
    builder.begins[at] = tasks[first[which]]
    builder.ends[at] = tasks[first[which] + tail[which] * ~asked.sends[rows]]
    return tasks[first[:-1]]


def _add_turns(builder: EventBuilder, turns: CallTurns, firsts: I64, lasts: I64) -> None:
    """Add the turns of optical switches; the arrays [M] are the first and the last task of each call."""
    tasks = builder.tasks(np.full(turns.total, turns.turn_fs))
    (turn, earlier), (later, awaited) = turns.before, turns.after
    builder.wait(tasks[turn], lasts[earlier])
    builder.wait(firsts[later], tasks[awaited])


def _wait(builder: EventBuilder, frame: StepFrame, by_rank: Bool) -> tuple[I64, I64]:
    """Add the waits between events.

    After a body of a rooted operation the next event of its queue begins as soon as the ranks begin to leave it.

    Args:
        builder: The builder of the graph, with all tasks.
        frame: The order of the events.
        by_rank: [X] whether an event has a task for each rank.

    Returns:
        The events that wait, and for each of these the task that it waits for.
    """
    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    until = np.where(np.repeat(frame.rooted & ~by_rank, np.diff(builder.start)), builder.begins, builder.ends)
    first_event = frame.requests_by_place.first_event[:-1].tolist()
    for first, stated, queued in zip(first_event, frame.stated, frame.queued, strict=True):
        found += [builder.follow(e + first, w + first, of) for (e, w), of in ((stated, builder.ends), (queued, until))]
    return np.concatenate([event for event, _ in found]), np.concatenate([task for _, task in found])
