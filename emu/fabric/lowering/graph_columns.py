"""The columns of a graph from a placed schedule: one task of each class in each copy that represents others.

The tasks of a class come one after another. An error about a task names the message that it carries. Letters: C classes,
R pairs, D copies that stand for all, U distinct offsets.
"""

import numpy as np

from emu.arrays import I32, I64, column
from emu.collective.schedule import Schedule
from emu.equivalence import Orbits
from emu.fabric.graph import CandidateWays, Graph
from emu.fabric.lowering.message_routes import MessageRoutes, PairWays
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.fabric.lowering.task_edges import Predecessors, copy_edges, copy_hops

_CHUNK = 2**20  # translated copies that are held at one time


def graph_of(placed: PlacedSchedule, copies: Orbits, routes: MessageRoutes) -> Graph:
    """Return the graph of a placed schedule.

    Args:
        placed: The placed schedule.
        copies: The orbits of its copies.
        routes: [R D] the routes of its pairs, over links or over orbits of links.
    """
    classes, size = placed.classes, len(copies.first)
    messages, queues, tasks = classes.messages, classes.queues, classes.tasks
    n_classes, end, queue = len(classes.start) - 1, len(messages.src), queues.message
    size_bytes, alpha, ready = (np.zeros((n_classes, size), np.int64) for _ in range(3))
    owner, origin = (np.full((n_classes, size), -1, np.int32) for _ in range(2))
    pair = np.full(n_classes, -1, np.int32)
    size_bytes[:end], pair[queue] = messages.size_bytes[:, None], queues.pair
    owner[:end], origin[:end] = placed.participants_in(column(messages.src, np.int64), copies.first), classes.origin[:, None]
    alpha[queue] = routes.head_fs.reshape(-1, size)[queues.pair]
    if len(tasks.delays):
        alpha[tasks.delays], owner[tasks.delays], origin[tasks.delays] = placed.overhead_fs, owner[queue], origin[queue]
    if placed.topology.circuits:
        alpha[tasks.turns] = placed.topology.circuits.switching_fs
    hops = copy_hops(pair, size, routes.start, routes.link, routes.weight)
    columns = (size_bytes.ravel(), alpha.ravel(), ready.ravel(), *hops, *_predecessors(placed, copies))
    ways = None if routes.ways is None else _candidates(routes.ways, pair, size)
    return Graph(routes.capacity_Bps, *columns, owner.ravel(), origin.ravel(), ways)


def _candidates(ways: PairWays, pair: I32, size: int) -> CandidateWays:
    """Return the ways among which the tasks choose, from those of pairs.

    Args:
        ways: [R D] the ways of each pair in each copy.
        pair: [C] the pair of each class; -1: it sends nothing.
        size: The number of copies, D.
    """
    of_pair = np.concatenate((ways.set_of, np.full(size, -1, np.int32))).reshape(-1, size)
    return CandidateWays(column(of_pair[pair].ravel(), np.int32), *ways[1:])


def _predecessors(placed: PlacedSchedule, copies: Orbits) -> Predecessors:
    """Return the predecessors of the tasks of all copies; a predecessor may be in another copy."""
    classes, size = placed.classes, len(copies.first)
    if classes.pred_offset is None and size == 1:
        return classes.start, classes.pred, classes.left
    if classes.pred_offset is None:
        there, kind = np.arange(size, dtype=np.int32)[None], np.zeros(len(classes.pred), np.int64)
    else:
        offset, kind = np.unique(classes.pred_offset, return_inverse=True)
        there = _copies_at_offsets(placed, copies, offset)
    begin = np.zeros((len(classes.start) - 1) * size + 1, np.int64)
    np.cumsum(np.repeat(np.diff(classes.start), size), out=begin[1:])
    begin.setflags(write=False)
    edges = classes.start, classes.pred, classes.left
    return begin, *copy_edges(edges, column(kind, np.int64), there, begin)


def _copies_at_offsets(placed: PlacedSchedule, copies: Orbits, offset: I64) -> I32:
    """Return [U, D] the copy at each offset from each copy, as the number of the copy that represents it.

    Args:
        placed: The placed schedule.
        copies: The orbits of its copies.
        offset: [U] the offsets.
    """
    step = max(1, _CHUNK // len(copies.first))
    chunks = (placed.participants_in(offset[i : i + step], copies.first) for i in range(0, len(offset), step))
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
    if schedule.by_rank:
        receiver, stored = int(schedule.translations.rank(receiver, sender)), " of rank 0's"
    src, dst = (f"rank {p}" if p < schedule.n_ranks else f"helper {p - schedule.n_ranks}" for p in (sender, receiver))
    at = f"in round {schedule.round_of(row)} (row {row}{stored})"
    if sender == receiver:
        return f"the copy within {src} {at}"
    overhead = "the send overhead of " if graph.hop_start[task] == graph.hop_start[task + 1] else ""
    return f"{overhead}the message from {src} to {dst} {at}"
