"""The traffic on a fabric in virtual time: the state of the solver, and the request of each of its tasks.

It has no clock of its own: the caller gives the time. Letters: P members of a request, N ranks.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter

import numpy as np

from emu.arrays import F64, I64, column
from emu.errors import InputError, RunError, must_be
from emu.fabric.engine.solver.state import State
from emu.fabric.engine.state_layout import NEVER
from emu.fabric.graph import Graph
from emu.fabric.lower import LoweredSchedule, delay_entries, lower_placed
from emu.topology.fault_injection.machine_history import MachineHistory, MachineMoment
from emu.topology.fault_injection.machine_state import why_stopped
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.matching.call_batch import BatchKey, communicators
from emu.trace.replay.placed_request import place_request
from emu.trace.trace import Group

_MOST_GONE = 4096  # tasks that have left, and are still there
_KEPT = 256  # requests whose tasks are kept for the next of their kind


# A request, a member of it, and the tick at which that has received everything, and all that it sends has left.
Arrival = tuple[int, int, int]


class Traffic:
    """The requests of all ranks on one fabric, as virtual time passes.

    Args:
        course: The history of the machine whose links the requests share.
        launch_fs: The ticks that a member takes to enter a request.
        under: A function that returns a topology with the changes of the software.

    Raises:
        InputError: There are more ranks than NPUs, or messages choose their way.
    """

    def __init__(
        self, course: MachineHistory, launch_fs: int = 0, under: Callable[[Topology], Topology] = lambda as_is: as_is
    ) -> None:
        self._course, self._launch_fs, self._under = course, launch_fs, under
        self._now = course.whole
        self._topology, self._placement = self._laid_out()
        if self._topology.chooses:
            mend = "leave out --pace, or take another route="
            raise must_be("pace", "the topology", "one with fixed routes", self._topology.name, mend)
        self._state = State(self._topology.capacity_Bps)
        self.moments = list[MachineMoment]()  # that have come, and that nobody has taken notice of
        self._whats: dict[int, tuple[BatchKey, tuple[int, ...]]] = {}  # by request: what it is, and of whom
        self._of, self._row = np.zeros(0, np.int64), np.zeros(0, np.int64)  # of each task its request, and which of its it is
        self._groups: dict[tuple[str, tuple[int, ...]], int] = {}
        self._pieces: OrderedDict[tuple[BatchKey, bytes], LoweredSchedule] = OrderedDict()
        self._asked = 0
        self._enter: dict[tuple[int, int], int] = {}  # by request and member, the task that waits until it enters
        self._leave: dict[tuple[int, int], int] = {}  # and the task with which it leaves

    @property
    def next_fs(self) -> int:
        """The tick of the next event of the fabric that is known at present."""
        return min(self._state.next_fs, self._course.next_fs if self._leave else NEVER)

    def step(self, number: int, now_fs: int) -> None:
        """Begin a training step of the job; faults may be at steps.

        Args:
            number: The number of the step, from 1.
            now_fs: The tick at which it begins.
        """
        self._course.step(number, max(now_fs, self._state.now_fs))

    def communicator(self, group: Group) -> int:
        """Return the communicator number of a group; groups of one axis that share no rank have one number."""
        key = (group.axis, group.ranks)
        if key not in self._groups:
            known = [*self._groups, key]
            self._groups = dict(zip(known, communicators([Group(*each) for each in known]), strict=True))
        return self._groups[key]

    def ask(self, what: BatchKey, ranks: Sequence[int], now_fs: int, after: int | None = None) -> int:
        """Begin a request that no member has entered yet, and return its number.

        Args:
            what: The size, the algorithm and the communicator of the request.
            ranks: [P] its members.
            now_fs: The tick at which it begins, not before the last event.
            after: The request of the same members before it in their queue: each enters once it has left that one.

        Raises:
            RunError: No route joins two of the members any more.
        """
        self._move_on(now_fs)
        piece, number = self._piece_now(what, ranks), self._asked
        self._asked += 1
        members = range(what.n_ranks)
        before = {m: self._leave[after, m] for m in members if after is not None and (after, m) in self._leave}
        entry = piece.entry.astype(np.int64)
        waiting = entry[list(before)], np.array([*before.values()], np.int64)
        first = len(self._state.has_left)
        self._whats[number] = what, tuple(ranks)
        rows = np.arange(piece.graph.n_tasks)
        self._of, self._row = np.append(self._of, np.full(len(rows), number)), np.append(self._row, rows)
        self._state.admit(_graph_behind(piece.graph, first, *waiting), held=entry[list(members)])
        self._enter.update({(number, m): first + int(piece.entry[m]) for m in members})
        self._leave.update({(number, m): first + int(piece.exit[m]) for m in members})
        return number

    def enter(self, request: int, member: int, now_fs: int) -> int:
        """Let a member enter a request, so that its messages with members that have entered may start.

        Args:
            request: The number of the request.
            member: The number of the member.
            now_fs: The tick at which it enters.

        Returns:
            The ticks by which the fabric was already past that tick.
        """
        self._move_on(now_fs)
        self._state.let_go(self._enter.pop((request, member)))
        return self._state.now_fs - now_fs

    def advance(self, now_fs: int) -> list[Arrival]:
        """Process all events up to a tick, and return the members that leave, as soon as their time of leaving is known.

        Time stops at the last event, so that a member whose entry is reported late can still enter at the right tick.
        """
        while self.next_fs <= now_fs:
            self._move_on(self.next_fs + 1)
        open_, tasks = list(self._leave), np.array([*self._leave.values()], np.int64)
        ends = self._state.left_fs(tasks)
        arrived = [(*open_[i], int(ends[i])) for i in np.flatnonzero(ends >= 0).tolist()]
        for each in arrived:
            del self._leave[each[:2]]
        if arrived:
            self._forget_most()
        return sorted(arrived, key=itemgetter(2))

    def expected(self) -> list[Arrival]:
        """Return the members of open requests, each with the tick at which it will leave if no further message begins.

        Members whose tick is not known are left out.
        """
        if not self._leave:
            return []
        ends = self._state.expected_fs(np.array([*self._leave.values()], np.int64))
        return [(*each, end_fs) for each, end_fs in zip(self._leave, ends.tolist(), strict=True) if end_fs < NEVER]

    def _move_on(self, until_fs: int) -> None:
        """Move the fabric on to a tick, with all changes of the machine until then."""
        until_fs = max(until_fs, self._state.now_fs)
        while self._course.next_fs < until_fs:
            self._state.advance(max(self._course.next_fs, self._state.now_fs))
            self._turn(self._course.turn())
        self._state.advance(until_fs)

    def _turn(self, moment: MachineMoment) -> None:
        """Bring the machine to its state after a change, and move the messages under way to it."""
        before, self._now = self._now, moment
        share = before.share
        if moment.found is not before.found and not moment.stops:
            share = np.ones(len(moment.share))
            try:
                self._move_over()
            except InputError as error:  # a pair that no route joins any more
                moment = replace(moment, stops=str(error))
        self.moments.append(moment)
        whole_Bps = self._topology.capacity_Bps
        for link in np.flatnonzero(moment.share != share).tolist():
            self._state.set_capacity(link, self._state.now_fs, float(whole_Bps[link] * moment.share[link]))

    def _move_over(self) -> None:
        """Move the tasks under way to the topology and the placement that the machine has now."""
        self._topology, self._placement = self._laid_out()
        self._pieces.clear()
        self._state = self._state.moved(self._tasks_on_present_links(), np.array([*self._enter.values()], np.int64))

    def _laid_out(self) -> tuple[Topology, I64]:
        """Return the topology with the present faults, and [N] the node of each rank on it."""
        topology = self._under(self._now.found.topology)
        return topology, column(place(topology, len(self._now.speed)), np.int64)

    def _tasks_on_present_links(self) -> Graph:
        """Return the existing tasks over the links of the present topology."""
        pieces = list[tuple[Graph, I64]]()
        for number in dict.fromkeys(self._of.tolist()):
            what, ranks = self._whats[number]
            pieces.append((self._piece(what, self._placement[list(ranks)]).graph, self._row[self._of == number]))
        graph = replace(self._state.graph, ready_fs=column(self._state.start_fs, np.int64))
        return _on_other_links(graph, pieces, self._topology.capacity_Bps)

    def _forget_most(self) -> None:
        """Remove tasks that have left once there are many, so that adding new tasks stays fast."""
        gone = self._state.has_left
        if gone.sum() < max(_MOST_GONE, len(gone) / 2):
            return
        number = self._state.forget()
        self._of, self._row = self._of[number >= 0], self._row[number >= 0]
        self._whats = {request: self._whats[request] for request in dict.fromkeys(self._of.tolist())}
        for tasks in (self._enter, self._leave):
            for key, task in tasks.items():
                tasks[key] = int(number[task])

    def _piece_now(self, what: BatchKey, ranks: Sequence[int]) -> LoweredSchedule:
        """Return the tasks that a request of some ranks becomes on the machine as it is now."""
        try:
            return self._piece(what, self._placement[list(ranks)])
        except InputError as error:
            if self._now.states:
                raise RunError(why_stopped(self._now.states, str(error))) from None
            raise

    def _piece(self, what: BatchKey, nodes: I64) -> LoweredSchedule:
        """Return the tasks of a request on given nodes, from a cache of the last requests."""
        key = (what, nodes.tobytes())
        if key not in self._pieces:
            self._pieces[key] = delay_entries(lower_placed(place_request(what, self._topology, nodes[None])), self._launch_fs)
            if len(self._pieces) > _KEPT:
                self._pieces.popitem(last=False)
        self._pieces.move_to_end(key)
        return self._pieces[key]


def _graph_behind(graph: Graph, first: int, tasks: I64, preds: I64) -> Graph:
    """Return a graph that can be added to a state, in which some of its tasks also wait for tasks of that state.

    Args:
        graph: The graph.
        first: The number that its first task gets in the state.
        tasks: Tasks of the graph that wait.
        preds: The task of the state that each of them waits for.
    """
    at = graph.pred_start[tasks + 1]
    more = np.concatenate(([0], np.cumsum(np.bincount(tasks, minlength=graph.n_tasks))))
    pred = column(np.insert(graph.pred + first, at, preds), np.int32)
    left = column(np.insert(graph.pred_left, at, np.zeros(len(at), np.bool_)), np.bool_)
    return replace(graph, pred_start=column(graph.pred_start + more, np.int64), pred=pred, pred_left=left)


def _on_other_links(graph: Graph, pieces: Sequence[tuple[Graph, I64]], capacity_Bps: F64) -> Graph:
    """Return existing tasks over other links.

    Args:
        graph: The existing tasks.
        pieces: The graph of each request over the new links, and the numbers of its tasks that still exist.
        capacity_Bps: The bandwidth of each new link.
    """
    kept = [np.isin(np.arange(piece.n_tasks), rows) for piece, rows in pieces]
    counts = [np.diff(piece.hop_start) for piece, _ in pieces]
    hops = [np.repeat(*each) for each in zip(kept, counts, strict=True)]
    alpha = [piece.alpha_fs[own] for (piece, _), own in zip(pieces, kept, strict=True)]
    of_task = [n[own] for n, own in zip(counts, kept, strict=True)]
    link, weight = ([getattr(p, n)[h] for (p, _), h in zip(pieces, hops, strict=True)] for n in ("hop_link", "hop_weight"))
    return replace(
        graph,
        capacity_Bps=capacity_Bps,
        alpha_fs=column(np.concatenate([graph.alpha_fs[:0], *alpha]), np.int64),
        hop_start=column(np.concatenate(([0], *of_task)).cumsum(), np.int64),
        hop_link=column(np.concatenate([graph.hop_link[:0], *link]), np.int32),
        hop_weight=column(np.concatenate([graph.hop_weight[:0], *weight]), np.int32),
    )


def compile_solver() -> None:
    """Compile the solver, or load it compiled, before its first use."""
    none, hop, start = np.zeros(1, np.int64), np.zeros(1, np.int32), np.array([0, 1])
    free = np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.bool_)
    state = State(np.ones(1))
    state.add(Graph(np.ones(1), np.ones(1, np.int64), none, none, start, hop, hop + 1, *free, hop, hop), held=none)
    state.let_go(0)
    state.advance(1)
    state.forget()
