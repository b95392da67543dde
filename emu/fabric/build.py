"""The builder that joins lowered schedules and single tasks into one graph on the links of one topology.

Letters: V tasks, P participants of a lowered schedule, k tasks added at one time.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import F64, I32, I64, column
from emu.errors import InputError
from emu.fabric.graph import Graph, joined_column, joined_ways
from emu.fabric.lower import LoweredSchedule
from emu.fabric.lowering.task_edges import Edges, EdgeSink, Predecessors, columns_of, wait_for_columns

_NONE = np.empty(0, np.int32)
_JOINED = ("size_bytes", "alpha_fs", "ready_fs", "hop_start", "hop_link", "hop_weight", "owner", "origin")


def _repeated(graph: Graph, times: int) -> Graph:
    """Return the tasks of a graph a number of times; no copy waits for another."""
    if times == 1:
        return graph
    number = np.arange(times)[:, None]

    def starts(own: I64) -> I64:
        return np.append((own[:-1] + number * own[-1]).ravel(), times * own[-1])

    again = ("size_bytes", "alpha_fs", "ready_fs", "hop_link", "hop_weight", "pred_left", "owner", "origin")
    columns = {name: np.tile(getattr(graph, name), times) for name in again}
    columns |= {name: starts(getattr(graph, name)) for name in ("hop_start", "pred_start")}
    pred = column((graph.pred + number * graph.n_tasks).ravel(), np.int32)
    ways = graph.ways and replace(graph.ways, set_of=column(np.tile(graph.ways.set_of, times), np.int32))
    return replace(graph, pred=pred, ways=ways, **columns)


class Builder:
    """A graph under construction: methods append tasks and add waits between them, and `graph` returns the result.

    Args:
        capacity_Bps: The bandwidth of each link of the topology on which the schedules were lowered.
    """

    def __init__(self, capacity_Bps: F64) -> None:
        self.n_tasks = 0
        self.capacity_Bps = capacity_Bps
        self._graphs = [Graph.free(capacity_Bps, np.empty(0, np.int64), _NONE, _NONE)]
        self._waits: list[Edges] = [Edges.of(_NONE, _NONE)]

    def tasks(self, alpha_fs: I64, owner: int = -1, origin: ArrayLike = -1) -> I64:
        """Add tasks without hops (computations, delays, joins), and return their numbers.

        Args:
            alpha_fs: [k] ticks that each takes.
            owner: The participant that they are charged to; -1: nobody.
            origin: The event or row that each comes from; -1: none.
        """
        who, where = (column(np.broadcast_to(c, len(alpha_fs)), np.int32) for c in (owner, origin))
        return self._append(Graph.free(self.capacity_Bps, alpha_fs, who, where))

    def messages(self, size_bytes: I64, alpha_fs: I64, hop_start: I64, hop_link: I32, hop_weight: I32) -> I64:
        """Append messages that no participant owns, and return their task numbers; the arguments are columns of a `Graph`."""
        nobody = np.full(len(alpha_fs), -1, np.int32)
        free = Graph.free(self.capacity_Bps, alpha_fs, nobody, nobody)
        return self._append(replace(free, size_bytes=size_bytes, hop_start=hop_start, hop_link=hop_link, hop_weight=hop_weight))

    def piece(self, piece: LoweredSchedule, owner: ArrayLike, origin: ArrayLike) -> int:
        """Add a lowered schedule, and return the number of its first task.

        Args:
            piece: The lowered schedule; it may be added several times.
            owner: [P] the rank of each participant; -1 is nobody.
            origin: [P] the event that the messages of each participant come from.

        Raises:
            InputError: It was lowered on other links.
        """
        return int(self.pieces(piece, np.asarray(owner)[None], np.asarray(origin)[None])[0])

    def pieces(self, piece: LoweredSchedule, owners: I64 | I32, origins: I64 | I32) -> I64:
        """Add a lowered schedule k times, and return the numbers [k] of the first task of each.

        Args:
            piece: The lowered schedule, on the links of the builder.
            owners: [k, P] the ranks of the participants of each copy; -1 is nobody.
            origins: [k, P] the events that the messages of each participant come from.

        Raises:
            InputError: It was lowered on other links.
        """
        graph, times = piece.graph, len(owners)
        if graph.n_links != len(self.capacity_Bps):
            raise InputError(
                f"builder: a graph on {graph.n_links} links cannot be added to one on {len(self.capacity_Bps)}; "
                "take equal links"
            )
        nobody = np.full((times, 1), -1)  # a join's owner is -1: it takes the last entry
        columns = (np.hstack((who, nobody))[:, graph.owner].ravel() for who in (owners, origins))
        owner, origin = (column(each, np.int32) for each in columns)
        return self._append(replace(_repeated(graph, times), owner=owner, origin=origin))[:: max(graph.n_tasks, 1)]

    def add(self, graph: Graph) -> I64:
        """Add all tasks of a graph on the links of the builder, and return their numbers."""
        return self._append(graph)

    def wait(self, task: I32 | I64, pred: I32 | I64) -> None:
        """Make each task wait for the end of the predecessor at the same index."""
        self._waits.append(Edges.of(task, pred))

    def graph(self) -> Graph:
        """Return the graph of all tasks and waits that were added so far."""
        start, pred, left = self._predecessors()
        columns = {name: joined_column(self._graphs, name) for name in _JOINED}
        ways = joined_ways(self._graphs)
        return Graph(self.capacity_Bps, pred_start=start, pred=pred, pred_left=left, ways=ways, **columns)

    def _predecessors(self) -> Predecessors:
        """Return the predecessors of all tasks: the waits within each appended graph and those added between graphs."""
        waits = Edges.joined(self._waits)
        first = np.cumsum([0, *(g.n_tasks for g in self._graphs)])
        own = np.concatenate([g.pred + np.int32(f) for g, f in zip(self._graphs, first, strict=False)])
        start, left = joined_column(self._graphs, "pred_start"), joined_column(self._graphs, "pred_left")

        def write(out: EdgeSink) -> None:
            wait_for_columns(column(start, np.int64), column(own, np.int32), column(left, np.bool_), out)
            waits.write(out)

        return columns_of(write, self.n_tasks)

    def _append(self, graph: Graph) -> I64:
        """Append the tasks of a graph, and return their numbers."""
        first = self.n_tasks
        self._graphs.append(graph)
        self.n_tasks += graph.n_tasks
        return np.arange(first, self.n_tasks)
