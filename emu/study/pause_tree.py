"""The trees of pauses: which full port held up which ports, and the messages that were held up though they did not go there.

A pause has a cause: the queue that the last packet before it went to. If a pause held up that queue, it is the cause of the
later one. So causes lead to a port that was full although nothing held it up: the root of a tree, whose branches are the paused
ports upstream. M pauses, V tasks.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.fabric.engine.packets.packet_run import PacketRun
from emu.fabric.graph import Graph, Timeline
from emu.topology.topology import Topology
from emu.units import TICKS_PER_S

LATE = 1.05  # a message that took less of its time in the fluid fabric was not held up
_NO_CAUSE = -1
_Path = tuple[int, ...]  # queues, from a full port upstream


@dataclass(frozen=True, slots=True)
class PauseTree:
    """A port, and the ports upstream that paused because of it."""

    queue: int
    pauses: int  # of this port; 0 for the root, which was full
    paused_fs: int
    upstream: tuple["PauseTree", ...]  # those that paused longest first

    @property
    def held_fs(self) -> int:
        """The ticks of all pauses of the ports upstream."""
        return sum(each.paused_fs + each.held_fs for each in self.upstream)

    def ports(self, deep: int = 0) -> Iterator[tuple[int, "PauseTree"]]:
        """Yield how far upstream each port of the tree is, and the port; a port comes before those upstream of it."""
        yield deep, self
        for each in self.upstream:
            yield from each.ports(deep + 1)


class HeldMessage(NamedTuple):
    """A message that pauses held up, although it does not cross the port that was full."""

    task: int
    queue: int  # the paused port on its way that held it up longest
    held_fs: int  # ticks in which a port on its way was paused, while it was under way
    time_fs: int
    fluid_fs: int  # its time in the fluid fabric


@dataclass(frozen=True, eq=False)
class PauseCauses:
    """The pauses of a run by packets, each with the full port that it goes back to."""

    pauses: I64  # [M, 4] in the order of their starts: the queue, since, until, the queue whose packets caused it
    root: I64  # [M] the port that was full
    trees: tuple[PauseTree, ...]  # a tree for each such port; those that held up others longest first


def pause_causes(run: PacketRun, topology: Topology, pause_above_bytes: int) -> PauseCauses:
    """Return the causes of the pauses that a run logged.

    Args:
        run: The run.
        topology: Its topology.
        pause_above_bytes: The bytes from one link that made it pause.
    """
    known = run.pauses[run.pauses[:, 3] >= 0]
    pauses = known[np.lexsort((known[:, 0], known[:, 1]))]
    link = pauses[:, 0] // run.lanes
    asked_fs = pauses[:, 1] - topology.links.latency_fs[link]
    drain_fs = pause_above_bytes * TICKS_PER_S / topology.links.bandwidth_Bps[pauses[:, 3] // run.lanes]
    return _with_trees(pauses, _cause(pauses, asked_fs, drain_fs))


def _cause(pauses: I64, asked_fs: I64, drain_fs: F64) -> I64:
    """Return [M] the number of the pause that caused each pause; `_NO_CAUSE` if it has none.

    The cause is the last pause of the queue whose packets filled the port. It may have ended before, by at most the ticks in
    which that queue sends what made it pause.

    Args:
        pauses: [M, 4] the pauses in the order of their starts, as in `PauseCauses`.
        asked_fs: [M] the tick at which each pause was asked for.
        drain_fs: [M] the ticks in which the queue that caused it sends the bytes that made it pause.
    """
    of_queue: defaultdict[int, list[int]] = defaultdict(list)
    for m, queue in enumerate(pauses[:, 0].tolist()):
        of_queue[queue].append(m)
    cause = np.full(len(pauses), _NO_CAUSE)
    for queue, mine in of_queue.items():
        waits = np.flatnonzero(pauses[:, 3] == queue)
        last = np.searchsorted(pauses[mine, 1], asked_fs[waits], side="right") - 1
        last = np.minimum(last, np.searchsorted(mine, waits) - 1)  # without latency two may begin at one tick
        found = np.array(mine)[np.maximum(last, 0)]
        holds = (last >= 0) & (pauses[found, 2] + drain_fs[waits] >= asked_fs[waits])
        cause[waits[holds]] = found[holds]
    return cause


def _with_trees(pauses: I64, cause: I64) -> PauseCauses:
    """Return the pauses with their roots and trees; `cause` [M] is an earlier pause, or none."""
    path: list[_Path] = []
    counts: defaultdict[_Path, list[int]] = defaultdict(lambda: [0, 0])
    for (queue, since, until, waits_for), before in zip(pauses.tolist(), cause.tolist(), strict=True):
        above = (waits_for,) if before == _NO_CAUSE or queue in path[before] else path[before]
        path.append((*above, queue))
        counts[path[-1]][0] += 1
        counts[path[-1]][1] += until - since
    root = np.array([each[0] for each in path], np.int64)
    upstream: defaultdict[_Path, list[_Path]] = defaultdict(list)
    for each in counts:
        upstream[each[:-1]].append(each)
    trees = [_tree((first,), counts, upstream) for first in dict.fromkeys(root.tolist())]
    return PauseCauses(pauses, root, tuple(sorted(trees, key=lambda tree: (-tree.held_fs, tree.queue))))


def _tree(path: _Path, counts: Mapping[_Path, list[int]], upstream: Mapping[_Path, list[_Path]]) -> PauseTree:
    """Return the tree of the port at the end of a path.

    Args:
        path: The queues from the full port to this one.
        counts: The number of pauses and their ticks, by path.
        upstream: The paths that are one port longer, by path.
    """
    above = [_tree(each, counts, upstream) for each in upstream.get(path, ())]
    pauses, paused_fs = counts.get(path, (0, 0))
    return PauseTree(path[-1], pauses, paused_fs, tuple(sorted(above, key=lambda tree: (-tree.paused_fs, tree.queue))))


def held_messages(
    causes: PauseCauses, root: int, run: PacketRun, graph: Graph, hop_queue: I64, fluid: Timeline
) -> list[HeldMessage]:
    """Return the messages that a tree held up although they do not cross its root, those held up longest first.

    Of those held up equally long, the latest come first. Each took at least 5 % longer than in the fluid fabric.
    Each message must take the path of its task.

    Args:
        causes: The pauses with their causes.
        root: The queue of the full port.
        run: The run.
        graph: Its graph.
        hop_queue: [H] the queue of each hop of the graph.
        fluid: The timeline of the graph in the fluid fabric.
    """
    spans = causes.pauses[causes.root == root]
    goes_there = np.zeros(graph.n_tasks, bool)
    goes_there[graph.hop_task[graph.hop_link == root // run.lanes]] = True
    paused = np.isin(hop_queue, spans[:, 0]) & ~goes_there[graph.hop_task]
    held, at = (np.zeros(graph.n_tasks, np.int64) for _ in range(2))
    for queues, task in _tasks_by_queues(graph.hop_task[paused], hop_queue[paused]):
        times = run.timeline.start_fs[task], run.timeline.end_fs[task]
        of_each = [_overlap_fs(spans[spans[:, 0] == queue], *times) for queue in queues.tolist()]
        held[task] = _overlap_fs(_united(spans[np.isin(spans[:, 0], queues)]), *times)
        at[task] = queues[np.argmax(of_each, axis=0)]
    took = run.timeline.end_fs - run.timeline.start_fs
    alone = fluid.end_fs - fluid.start_fs
    late = np.flatnonzero((held > 0) & (took > LATE * alone))
    order = late[np.lexsort(((alone - took)[late], -held[late]))].tolist()
    return [HeldMessage(v, int(at[v]), int(held[v]), int(took[v]), int(alone[v])) for v in order]


def _tasks_by_queues(task: I64, queue: I64) -> Iterator[tuple[I64, I64]]:
    """Yield each set of queues that a task crosses, and the tasks that cross it.

    Args:
        task: The task of each hop, in rising order.
        queue: The queue of each hop.
    """
    if not len(task):
        return
    tasks, first, row = np.unique(task, return_index=True, return_inverse=True)
    nth = np.arange(len(task)) - first[row]
    crossed = np.full((len(tasks), int(nth.max()) + 1), -1)
    crossed[row, nth] = queue
    sets, of_task, sizes = np.unique(crossed, axis=0, return_inverse=True, return_counts=True)
    parts = np.split(tasks[np.argsort(of_task.ravel(), kind="stable")], np.cumsum(sizes)[:-1])
    for queues, part in zip(sets, parts, strict=True):
        yield queues[queues >= 0], part


def _united(spans: I64) -> I64:
    """Return pauses without overlap, in order, that last when at least one of the given ones does."""
    spans = spans[np.argsort(spans[:, 1], kind="stable")]
    until = np.maximum.accumulate(spans[:, 2])
    begins = np.append(True, spans[1:, 1] > until[:-1])
    united: I64 = spans[begins]
    united[:, 2] = until[np.append(begins[1:], True)]
    return united


def _overlap_fs(spans: I64, start_fs: I64, end_fs: I64) -> I64:
    """Return the ticks for which pauses overlap each of some times; the pauses are in order, and no two overlap."""
    edges = spans[:, 1:3].ravel().astype(np.float64)
    over = np.repeat(np.concatenate(([0.0], np.cumsum(edges[1::2] - edges[::2]))), 2)[1:-1]
    passed = np.interp(end_fs, edges, over) - np.interp(start_fs, edges, over)
    return np.asarray(np.rint(passed), np.int64)


def ports_of(trees: Sequence[PauseTree]) -> list[int]:
    """Return the paused ports of some trees, each once, in the order of the trees."""
    return list(dict.fromkeys(tree.queue for root in trees for deep, tree in root.ports() if deep))
