"""Placed schedules (a schedule on the nodes of one group or of several equal groups), and the columns of their graphs.

Letters: G groups, P participants and N ranks of each, R pairs that need a route, D copies that stand for all.

Also here: the columns of a graph: a task of each class in each copy that stands for others, the tasks of a class one after
another.

Letters: C classes, R pairs, D copies that stand for all, U distinct distances.

Also here: the names of the tasks of a lowered schedule, for error messages.
"""

from dataclasses import dataclass

import numpy as np

from emu.arrays import I32, I64, column, digest
from emu.collective.schedule import Schedule
from emu.equivalence import Orbits
from emu.fabric.graph import Graph
from emu.fabric.lowering.classes import Classes, Domain
from emu.fabric.lowering.dependencies import Predecessors, spread_edges, spread_hops
from emu.fabric.lowering.message_routes import MessageRoutes, RoutePairs
from emu.topology.topology import CHANNELS, Topology


@dataclass(frozen=True, eq=False, slots=True)
class PlacedSchedule:
    """A schedule on the nodes of one group, or of several equal groups, with its classes of tasks.

    A copy is one instance of the classes. If the schedule declares translations, each copy belongs to a rank: its classes are
    what that rank does. Else each copy belongs to a group. Participants and copies are counted group after group. No two groups
    have the same first participant.
    """

    schedule: Schedule
    classes: Classes
    topology: Topology
    nodes: I64  # [G, P] node of each participant
    key: int  # number of the communicator, for topologies that spread routes
    overhead_fs: int  # ticks that a sender spends on each message
    name: str  # name in errors

    @property
    def by_rank(self) -> bool:
        """True if each copy belongs to a rank, not to a group."""
        return bool(self.schedule.translate)

    @property
    def npus(self) -> I64:
        """The NPU of each rank of each group, [G, N]."""
        return self.nodes[:, : self.schedule.n_ranks]

    @property
    def participants(self) -> tuple[I64, I64]:
        """The number of each participant within its copy, and its copy, both [G P]."""
        group, who = np.divmod(np.arange(self.nodes.size), self.schedule.n_participants)
        return (0 * who, group * self.schedule.n_participants + who) if self.by_rank else (who, group)

    def copies(self, domain: Domain | None) -> Orbits:
        """Return the orbits of copies in a domain; without a domain each copy stands for itself alone."""
        of_copy = self.npus.ravel() if self.by_rank else self.npus[:, 0]
        return Orbits.each(len(of_copy)) if domain is None else Orbits.equal(domain.nodes.number[of_copy])

    def who(self, called: I64, copies: I64) -> I64:
        """Return [any, D] the participants with given numbers within given copies.

        Args:
            called: [any] the numbers within a copy.
            copies: [D] the copies.
        """
        n = self.schedule.n_participants
        if not self.by_rank:
            return np.asarray(called[:, None] + copies * n)
        if not called.any():  # each copy's own rank
            return np.broadcast_to(copies, (len(called), len(copies)))
        if len(self.nodes) == 1:
            return np.asarray(self.schedule.translations.rank(called[:, None], copies))
        group, by = np.divmod(copies, n)
        return np.asarray(self.schedule.translations.rank(called[:, None], by) + group * n)

    def route_pairs(self, copies: I64) -> RoutePairs:
        """Return the source, the destination and the key [R D] of each pair in each of the given copies [D]."""
        src, dst, channel = self.classes.pairs
        ends = (column(self.nodes.ravel()[self.who(end, copies)], np.int64) for end in (src, dst))
        key = np.broadcast_to(self.key * CHANNELS + channel[:, None], (len(src), len(copies)))
        return next(ends), next(ends), column(key, np.int64)

    @property
    def pairs_name(self) -> str:
        """A digest of the pairs; it is equal for schedules that send between the same pairs, whatever their messages are."""
        shape = self.schedule.translate, self.schedule.n_ranks, self.schedule.n_participants
        return digest((*self.classes.pairs, self.nodes, self.key, *shape))

    def keeps(self, node: I64) -> bool:
        """Return whether a permutation of nodes maps the schedule on each group onto the schedule on a group.

        Helpers must go to helpers.
        """
        at = np.full(len(node), -1)
        if not self.by_rank:
            at[self.nodes[:, 0]] = np.arange(len(self.nodes))
            group = at[node[self.nodes[:, 0]]]
            return bool((group >= 0).all() and np.array_equal(self.nodes[group], node[self.nodes]))
        at[self.nodes.ravel()] = np.arange(self.nodes.size)
        image, n = at[node[self.nodes]], self.schedule.n_ranks
        group, member = np.divmod(image, n)
        moved = self.schedule.translations.rank(np.arange(n), member[:, :1])
        return bool((image >= 0).all() and (group == group[:, :1]).all() and np.array_equal(member, moved))


_CHUNK = 2**20  # translated copies that are held at one time


def graph_of(placed: PlacedSchedule, copies: Orbits, ways: MessageRoutes) -> Graph:
    """Return the graph of a placed schedule.

    Args:
        placed: The placed schedule.
        copies: The orbits of its copies.
        ways: [R D] the routes of its pairs, over links or over orbits of links.
    """
    classes, size = placed.classes, len(copies.first)
    messages, queues, tasks = classes.messages, classes.queues, classes.tasks
    n_classes, end, queue = len(classes.start) - 1, len(messages.src), queues.message
    size_bytes, alpha, ready = (np.zeros((n_classes, size), np.int64) for _ in range(3))
    owner, origin = (np.full((n_classes, size), -1, np.int32) for _ in range(2))
    pair = np.full(n_classes, -1, np.int32)
    size_bytes[:end], pair[queue] = messages.size_bytes[:, None], queues.pair
    owner[:end], origin[:end] = placed.who(column(messages.src, np.int64), copies.first), classes.origin[:, None]
    alpha[queue] = ways.head_fs.reshape(-1, size)[queues.pair]
    if len(tasks.delays):
        alpha[tasks.delays], owner[tasks.delays], origin[tasks.delays] = placed.overhead_fs, owner[queue], origin[queue]
    if placed.topology.circuits:
        alpha[tasks.turns] = placed.topology.circuits.switching_fs
    hops = spread_hops(pair, size, ways.start, ways.link, ways.weight)
    columns = (size_bytes.ravel(), alpha.ravel(), ready.ravel(), *hops, *_predecessors(placed, copies))
    return Graph(ways.capacity_Bps, *columns, owner.ravel(), origin.ravel())


def _predecessors(placed: PlacedSchedule, copies: Orbits) -> Predecessors:
    """Return the predecessors of the tasks of all copies; a predecessor may be in another copy."""
    classes, size = placed.classes, len(copies.first)
    if classes.away is None and size == 1:
        return classes.start, classes.pred, classes.left
    if classes.away is None:
        there, kind = np.arange(size, dtype=np.int32)[None], np.zeros(len(classes.pred), np.int64)
    else:
        away, kind = np.unique(classes.away, return_inverse=True)
        there = _copies_away(placed, copies, away)
    begin = np.zeros((len(classes.start) - 1) * size + 1, np.int64)
    np.cumsum(np.repeat(np.diff(classes.start), size), out=begin[1:])
    begin.setflags(write=False)
    edges = classes.start, classes.pred, classes.left
    return begin, *spread_edges(edges, column(kind, np.int64), there, begin)


def _copies_away(placed: PlacedSchedule, copies: Orbits, away: I64) -> I32:
    """Return [U, D] the copies at each distance from each copy, as the copies that stand for them.

    Args:
        placed: The placed schedule.
        copies: The orbits of its copies.
        away: [U] the distances.
    """
    step = max(1, _CHUNK // len(copies.first))
    chunks = (placed.who(away[i : i + step], copies.first) for i in range(0, len(away), step))
    there = [np.empty((0, len(copies.first)), np.int32), *(copies.number[chunk].astype(np.int32) for chunk in chunks)]
    table = np.concatenate(there)
    table.setflags(write=False)
    return table


def message_name(schedule: Schedule, graph: Graph, task: int) -> str:
    """Return the name of a task, such as `the message from rank 1 to rank 2 in round 3 (row 40)`.

    Args:
        schedule: The schedule that was lowered. With translations its rows are those of rank 0, and the task's owner gives the
            rank.
        graph: The graph that it became.
        task: The number of the task in the graph.
    """
    row, sender = int(graph.origin[task]), int(graph.owner[task])
    if row < 0:
        return f"a turn of an optical switch (task {task})" if graph.alpha_fs[task] else f"task {task}, where messages meet,"
    receiver, stored = int(schedule.dst[row]), ""
    if schedule.translate:
        receiver, stored = int(schedule.translations.rank(receiver, sender)), " of rank 0's"
    src, dst = (f"rank {p}" if p < schedule.n_ranks else f"helper {p - schedule.n_ranks}" for p in (sender, receiver))
    at = f"in round {schedule.round_of(row)} (row {row}{stored})"
    if sender == receiver:
        return f"the copy within {src} {at}"
    overhead = "the send overhead of " if graph.hop_start[task] == graph.hop_start[task + 1] else ""
    return f"{overhead}the message from {src} to {dst} {at}"
