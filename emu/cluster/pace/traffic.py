"""What is under way on a fabric at a moment of virtual time: the solver's state, and whose request each of its tasks is of.

It knows no clock: whoever drives it says how late it is. P members of a request.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, column
from emu.fabric.engine.solver.state import State
from emu.fabric.graph import Graph
from emu.fabric.lower import Piece, launched, lowered
from emu.fabric.run import CapacityEvent
from emu.topology.topology import Topology
from emu.trace.batch import What, communicators
from emu.trace.replay import lay_request
from emu.trace.trace import Group

_MOST_GONE = 4096  # tasks that have left, and are still there
_KEPT = 256  # requests whose tasks are kept for the next of their kind


class Arrival(NamedTuple):
    """A member of a request has all that comes to it, and all that it sends has left."""

    request: int
    member: int
    end_fs: int


class Traffic:
    """Requests of all ranks on one fabric.

    Args:
        topology: Whose links they share.
        placement: [N] the node of each rank.
        launch_fs: Ticks that a member takes to enter a request.
        changes: Of links' capacities, at their times.

    Raises:
        InputError: a change of a link that is not there, or to a capacity that cannot be.
    """

    def __init__(self, topology: Topology, placement: I64, launch_fs: int = 0, changes: Iterable[CapacityEvent] = ()) -> None:
        self._topology, self._placement, self._launch_fs = topology, placement, launch_fs
        self._state = State(column(topology.links.bandwidth_Bps, np.float64))
        for change in changes:
            self.set_capacity(*change)
        self._groups: dict[tuple[str, tuple[int, ...]], int] = {}
        self._pieces: OrderedDict[tuple[What, bytes], Piece] = OrderedDict()
        self._asked = 0
        self._enter: dict[tuple[int, int], int] = {}  # by request and member, the task that waits until it enters
        self._leave: dict[tuple[int, int], int] = {}  # and the task with which it leaves

    @property
    def next_fs(self) -> int:
        """When something happens next, as far as is known at present."""
        return self._state.next_fs

    def set_capacity(self, link: int, time_fs: int, capacity_Bps: float) -> None:
        """Let a link of the topology have another capacity from a time on; arguments and errors as of `State`'s."""
        self._state.set_capacity(link, time_fs, capacity_Bps)

    def communicator(self, group: Group) -> int:
        """The number of a group's communicator: groups of one axis that share no rank have one in common, in order of use."""
        key = (group.axis, group.ranks)
        if key not in self._groups:
            self._groups[key] = -1
            numbers = communicators([Group(*known) for known in self._groups])
            self._groups = dict(zip(self._groups, numbers, strict=True))
        return self._groups[key]

    def ask(self, what: What, ranks: Sequence[int], now_fs: int, after: int | None = None) -> int:
        """A request begins, which no member has entered; its number.

        Args:
            what: It is.
            ranks: [P] its members.
            now_fs: Not before what has happened already.
            after: The request of the same members before it in their queue: each enters once it has left that.
        """
        self._move_on(now_fs)
        piece, number = self._piece(what, self._placement[list(ranks)]), self._asked
        self._asked += 1
        members = range(what.n_ranks)
        before = {m: self._leave[after, m] for m in members if after is not None and (after, m) in self._leave}
        entry = piece.entry.astype(np.int64)
        waiting = entry[list(before)], np.array([*before.values()], np.int64)
        first = len(self._state.has_left)
        self._state.admit(_after(piece.graph, first, *waiting), held=entry[list(members)])
        self._enter.update({(number, m): first + int(piece.entry[m]) for m in members})
        self._leave.update({(number, m): first + int(piece.exit[m]) for m in members})
        return number

    def enter(self, request: int, member: int, now_fs: int) -> int:
        """A member enters: its messages with others that have entered may start; how many ticks later than it should have."""
        self._move_on(now_fs)
        self._state.let_go(self._enter.pop((request, member)))
        return self._state.now_fs - now_fs

    def advance(self, now_fs: int) -> list[Arrival]:
        """Let everything happen up to a time; who leaves and when, as soon as that is known, some time ahead.

        Time stands where something has happened last, so that who is heard of late can still enter when it came.
        """
        while self._state.next_fs <= now_fs:
            self._move_on(self._state.next_fs + 1)
        open_, tasks = list(self._leave), np.array([*self._leave.values()], np.int64)
        ends = self._state.left_fs(tasks)
        arrived = [Arrival(*open_[i], int(ends[i])) for i in np.flatnonzero(ends >= 0).tolist()]
        for each in arrived:
            del self._leave[each[:2]]
        if arrived:
            self._forget_most()
        return sorted(arrived, key=lambda each: each.end_fs)

    def _move_on(self, until_fs: int) -> None:
        self._state.advance(max(until_fs, self._state.now_fs))

    def _forget_most(self) -> None:
        """Keep what is added soon to few tasks, without numbering them anew each time."""
        gone = self._state.has_left
        if gone.sum() < max(_MOST_GONE, len(gone) / 2):
            return
        number = self._state.forget()
        for tasks in (self._enter, self._leave):
            for key, task in tasks.items():
                tasks[key] = int(number[task])

    def _piece(self, what: What, nodes: I64) -> Piece:
        key = (what, nodes.tobytes())
        if key not in self._pieces:
            self._pieces[key] = launched(lowered(lay_request(what, self._topology, nodes[None])), self._launch_fs)
            if len(self._pieces) > _KEPT:
                self._pieces.popitem(last=False)
        self._pieces.move_to_end(key)
        return self._pieces[key]


def _after(graph: Graph, first: int, tasks: I64, preds: I64) -> Graph:
    """A graph whose tasks are numbered from `first` on, and of which some wait for such as are there before."""
    at = graph.pred_start[tasks + 1]
    more = np.concatenate(([0], np.cumsum(np.bincount(tasks, minlength=graph.n_tasks))))
    pred = column(np.insert(graph.pred + first, at, preds), np.int32)
    left = column(np.insert(graph.pred_left, at, np.zeros(len(at), np.bool_)), np.bool_)
    return replace(graph, pred_start=column(graph.pred_start + more, np.int64), pred=pred, pred_left=left)


def warm() -> None:
    """Have ready what the solver compiles, or loads, when it is first used."""
    none, hop, start = np.zeros(1, np.int64), np.zeros(1, np.int32), np.array([0, 1])
    free = np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.bool_)
    state = State(np.ones(1))
    state.add(Graph(np.ones(1), np.ones(1, np.int64), none, none, start, hop, hop + 1, *free, hop, hop), held=none)
    state.let_go(0)
    state.advance(1)
    state.forget()
