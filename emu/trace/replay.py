"""A trace on a fabric: one graph of every rank's computations and every group's collectives.

R roles, N ranks, X events of all ranks, rank after rank; P members of a collective.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64, Bool, column
from emu.collective.algorithm import Choice, Request, Served
from emu.collective.operation import cut, operation
from emu.collective.schedule import Schedule, Sends
from emu.errors import must_be
from emu.fabric.build import Builder
from emu.fabric.graph import Graph
from emu.fabric.lower import Piece, lower
from emu.topology.placement import with_helpers
from emu.topology.topology import Topology
from emu.trace.check import check_trace
from emu.trace.device import Device
from emu.trace.meet import MESSAGE, Meeting, meetings_of
from emu.trace.trace import Events, Kind, Trace

_ONE_MESSAGE = Schedule.build(2, 1, [Sends(0, 1, 0)])


class Service(NamedTuple):
    """What served a request of so many bytes, as timed."""

    request: Request
    size_bytes: int
    by: Served


class Instance(NamedTuple):
    """One collective, or one message between two ranks, in the graph."""

    piece: Piece
    first: int  # the number of its first task


@dataclass(frozen=True, eq=False, slots=True)
class Replayed:
    """A trace as a graph, and where its events are in it; origins are rows of the owner's role."""

    graph: Graph
    first_event: I64  # [N + 1] where the events of each rank begin among the X
    begins: I32  # [X] the task of a computation, the join with which a rank enters a request; -1: set-up
    ends: I32  # [X] the task of a computation, the join with which a rank leaves a request; -1: set-up
    instance: I32  # [X] index into `instances`; -1: no request
    member: I32  # [X] the rank's place in it
    instances: tuple[Instance, ...]
    services: tuple[Service, ...]  # each different one once
    assumptions: tuple[str, ...]


def replay(trace: Trace, choice: Choice, topology: Topology, placement: I32, device: Device, dtype: str) -> Replayed:
    """Lay a trace on a fabric.

    A computation waits for the one before it on its rank, a request for the last computation at issue and the one before it
    of its group (a message: to or from its peer), and either for what the trace says it waits for. Set-up (step 0) is left
    out, and with it what is waited for in it.

    Args:
        trace: What ran.
        choice: Which algorithms serve its collectives.
        topology: Where it runs.
        placement: [N] the node of each rank.
        device: What its computations take.
        dtype: What float32 is timed as: computation, memory traffic and messages.

    Raises:
        InputError: a trace that cannot be, a placement of other ranks, an unknown dtype, or a trace whose ranks do not meet.
    """
    check_trace(trace)
    if len(placement) != trace.n_ranks:
        raise must_be("replay", "placement", f"a node for each of {trace.n_ranks} ranks", len(placement))
    return _Replay(trace, choice, topology, placement, device, dtype).replayed()


def event_name(trace: Trace, replayed: Replayed, task: int) -> str:
    """Which event a task of a replay is of, such as `a message of event 12 of rank 3 (all_reduce of step 2)`."""
    of = bisect_right([each.first for each in replayed.instances], task) - 1
    events = np.flatnonzero(replayed.begins == task) if of < 0 else np.flatnonzero(replayed.instance == of)
    event, owner = int(events[0]), int(replayed.graph.owner[task])
    if owner >= 0:
        event = int(replayed.first_event[owner]) + int(replayed.graph.origin[task])
    rank = bisect_right(replayed.first_event.tolist(), event) - 1
    row = event - int(replayed.first_event[rank])
    ran = trace.events_of(rank)
    message = "a message of " if of >= 0 and owner >= 0 else ""
    return f"{message}event {row} of rank {rank} ({ran.name[row]} of step {ran.step[row]})"


class _Replay:
    """The builder of one Replayed."""

    def __init__(self, trace: Trace, choice: Choice, topology: Topology, placement: I32, device: Device, dtype: str) -> None:
        self.trace, self.choice, self.topology, self.placement = trace, choice, topology, placement
        self.device, self.dtype = device, dtype
        self.builder = Builder(topology.links.bandwidth_Bps)
        sizes = [len(trace.events_of(rank)) for rank in range(trace.n_ranks)]
        self.first_event = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        self.begins, self.ends, self.instance, self.member = (np.full(sum(sizes), -1, np.int32) for _ in range(4))
        self.pieces: dict[tuple[object, ...], Piece] = {}
        self.instances: list[Instance] = []
        self.services: dict[Service, None] = {}
        self.uneven: set[str] = set()

    def replayed(self) -> Replayed:
        """The whole trace."""
        self._computations()
        for meeting in meetings_of(self.trace, self.dtype):
            self._meet(meeting)
        self._waits()
        begins, ends, instance, member = (column(c, np.int32) for c in (self.begins, self.ends, self.instance, self.member))
        graph, met = self.builder.graph(), (tuple(self.instances), tuple(self.services))
        return Replayed(graph, self.first_event, begins, ends, instance, member, *met, self._assumptions())

    def _computations(self) -> None:
        ticks = [self.device.ticks(e, self.dtype) for e in self.trace.events]
        timed = [np.flatnonzero(_computes(e) & (e.step > 0)) for e in self.trace.events]
        for rank, role in enumerate(self.trace.role_of_rank.tolist()):
            tasks = self.builder.tasks(ticks[role][timed[role]], owner=rank, origin=timed[role])
            where = timed[role] + self.first_event[rank]
            self.begins[where] = self.ends[where] = tasks

    def _meet(self, meeting: Meeting) -> None:
        key = (meeting.group, meeting.request, meeting.size_bytes)
        if key not in self.pieces:
            self.pieces[key] = self._lowered(meeting)
        if not meeting.agreed:
            self.uneven.add(meeting.name)
        piece, ranks = self.pieces[key], np.array(meeting.ranks)
        n, members = len(piece.exit), np.arange(len(ranks))
        owner, origin = np.full(n, -1), np.full(n, -1)
        owner[members], origin[members] = ranks, meeting.events - self.first_event[ranks]
        first = self.builder.piece(piece, owner, origin)
        self.begins[meeting.events], self.ends[meeting.events] = first + piece.entry[members], first + piece.exit[members]
        self.instance[meeting.events], self.member[meeting.events] = len(self.instances), members
        self.instances.append(Instance(piece, first))

    def _lowered(self, meeting: Meeting) -> Piece:
        nodes = self.placement[list(meeting.ranks)]
        if meeting.name == MESSAGE:
            schedule, sizes = _ONE_MESSAGE, np.array([meeting.size_bytes])
        else:
            n, root = len(meeting.ranks), meeting.root
            schedule = self.choice.schedule(meeting.request)
            self.services[Service(meeting.request, meeting.size_bytes, self.choice.served(meeting.request))] = None
            whole = meeting.elements > 0 and meeting.size_bytes % meeting.elements == 0
            item, count = (meeting.size_bytes // meeting.elements, meeting.elements) if whole else (1, meeting.size_bytes)
            counts = operation(meeting.name, n, root).block_counts(count)
            sizes = cut(counts, schedule.n_slots, schedule.shares).count * item
        nodes = with_helpers(self.topology, nodes, schedule.helpers)
        return lower(schedule, sizes, self.topology, nodes, key=meeting.group, gated=True)

    def _waits(self) -> None:
        edges = [_order(e) for e in self.trace.events]
        for rank, role in enumerate(self.trace.role_of_rank.tolist()):
            (event, waited), first = edges[role], self.first_event[rank]
            task, pred = self.begins[event + first], self.ends[waited + first]
            known = (task >= 0) & (pred >= 0)
            self.builder.wait(task[known], pred[known])

    def _assumptions(self) -> tuple[str, ...]:
        uneven = (f"{name} with uneven splits is cut evenly, at its largest member's size" for name in sorted(self.uneven))
        return (*self.device.assumptions, *uneven)


def _computes(events: Events) -> Bool:
    """What is in the order of the program: computations, and marks between them."""
    return np.asarray((events.kind == Kind.COMPUTE) | (events.kind == Kind.MARK))


def _order(events: Events) -> tuple[I64, I64]:
    """Event and earlier event of a role that it waits for."""
    index = np.arange(len(events))
    computes = _computes(events)
    last = np.maximum.accumulate(np.append(-1, np.where(computes, index, -1)))[:-1]
    peer = np.where(events.kind == Kind.COLLECTIVE, 0, events.root)
    in_turn = np.lexsort((index, peer, events.kind, events.group))
    requests = in_turn[~computes[in_turn]]
    queue = np.stack((peer, events.kind, events.group))[:, requests]
    follows = np.flatnonzero((queue[:, 1:] == queue[:, :-1]).all(axis=0))
    waits = np.repeat(index, np.diff(events.wait_start))
    event = np.concatenate((index[last >= 0], requests[follows + 1], waits))
    return event, np.concatenate((last[last >= 0], requests[follows], events.wait)).astype(np.int64)
