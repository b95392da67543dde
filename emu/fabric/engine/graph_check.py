"""The check of a graph before it runs: column lengths, value ranges, no link twice in one task, no cycle of waits.

Letters: V tasks, L links, H hops, E predecessor edges.
"""

import numpy as np

from emu.arrays import I32, I64, Bool
from emu.compiled.function import compiled, compiled_making_arrays
from emu.errors import InputError, must_be
from emu.fabric.graph import CandidateWays, Graph, TaskError

_MOST_ROOM = 2**30  # places for messages on links, each of 4 bytes
_LENGTHS = (
    ("V", "alpha_fs", 0),
    ("V", "ready_fs", 0),
    ("V", "owner", 0),
    ("V", "origin", 0),
    ("V + 1", "hop_start", 1),
    ("V + 1", "pred_start", 1),
)


def check_graph(graph: Graph, n_before: int = 0) -> None:
    """Raise an error if a graph cannot be run. Its predecessors may also be `n_before` earlier tasks.

    Raises:
        InputError: The graph is invalid. The message names the first fault and its link; a fault of a task is a TaskError.
    """
    _check_lengths(graph)
    _check_links(graph)
    _check_tasks(graph, n_before)
    twice = _crossed_twice(graph.hop_start, graph.hop_link, graph.n_links)
    if twice >= 0:
        raise TaskError("graph", "{} crosses a link twice; cross it once with the sum of the weights", twice + n_before)
    if graph.ways is not None:
        _check_ways(graph.ways, graph)


def _check_ways(ways: CandidateWays, graph: Graph) -> None:
    """Check the sets of ways among which the messages of a graph choose, and that there is memory for all that may flow.

    Raises:
        InputError: The columns do not fit one another, or messages and the links of their ways are too many.
    """
    n_sets = len(ways.set_start) - 1
    if len(ways.set_of) != graph.n_tasks or ways.set_of.max(initial=-1) >= n_sets or ways.set_of.min(initial=-1) < -1:
        raise must_be("graph", "the sets of ways", f"one of {n_sets} for each task, or -1", "others")
    if (graph.hop_weight[np.repeat(ways.set_of >= 0, np.diff(graph.hop_start))] != 1).any():
        raise must_be("graph", "hop_weight of messages that choose their way", "1", "more")
    if (np.diff(ways.set_start) < 1).any() or (np.diff(ways.way_start) < 1).any():
        raise must_be("graph", "the ways of a set", "one or more, of one link or more", "none")
    if ways.link.min(initial=0) < 0 or ways.link.max(initial=-1) >= graph.n_links or ways.alpha_fs.min(initial=0) < 0:
        raise must_be("graph", "the links of ways", f"0 to {graph.n_links - 1}, with a latency of 0 or more", "others")
    if _crossed_twice(ways.way_start, ways.link, graph.n_links) >= 0:
        raise InputError("graph: a way crosses a link twice")
    room = np.bincount(ways.set_of[ways.set_of >= 0], minlength=n_sets) @ np.diff(ways.way_start[ways.set_start])
    if room > _MOST_ROOM:
        what = "have at most 2**30 links where messages choose their way"
        raise must_be(
            "graph", "the ways of all messages", what, int(room), "take fewer ranks, or a topology with another route"
        )


def _check_lengths(graph: Graph) -> None:
    """Check that the columns of a graph have lengths that fit one another."""
    for what, name, more in _LENGTHS:
        if len(getattr(graph, name)) != graph.n_tasks + more:
            raise must_be("graph", f"the length of {name}", f"{what} = {graph.n_tasks + more}", len(getattr(graph, name)))
    for start, columns in (("hop_start", ("hop_link", "hop_weight")), ("pred_start", ("pred", "pred_left"))):
        offsets = getattr(graph, start)
        if offsets[0] != 0 or (np.diff(offsets) < 0).any():
            raise must_be("graph", start, "offsets from 0 that never fall", offsets.tolist()[:8])
        for name in columns:
            if len(getattr(graph, name)) != offsets[-1]:
                raise must_be("graph", f"the length of {name}", f"{start}[-1] = {offsets[-1]}", len(getattr(graph, name)))


def _check_links(graph: Graph) -> None:
    """Check that the bandwidth of every link is finite and above 0."""
    bad = ~(np.isfinite(graph.capacity_Bps) & (graph.capacity_Bps > 0))
    if bad.any():
        link = int(bad.argmax())
        raise must_be("graph", f"capacity_Bps of link {link}", "above 0 and finite", float(graph.capacity_Bps[link]))


def _check_tasks(graph: Graph, n_before: int) -> None:
    """Check that sizes, times, links and predecessors of tasks are within their ranges."""
    n_links, n_tasks = graph.n_links, graph.n_tasks + n_before
    for name in ("size_bytes", "alpha_fs", "ready_fs"):
        values = getattr(graph, name)
        _refuse(graph, values < 0, name, "0 or more", values, n_before)
    without = np.diff(graph.hop_start) == 0
    _refuse(graph, without & (graph.size_bytes > 0), "size_bytes", "0 without hops", graph.size_bytes, n_before)
    link, pred = graph.hop_link, graph.pred
    _refuse(graph, (link < 0) | (link >= n_links), "hop_link", f"a link, 0 to {n_links - 1}", link, n_before)
    _refuse(graph, graph.hop_weight < 1, "hop_weight", "1 or more", graph.hop_weight, n_before)
    _refuse(graph, (pred < 0) | (pred >= n_tasks), "pred", f"a task, 0 to {n_tasks - 1}", pred, n_before)


def _refuse(graph: Graph, bad: Bool, name: str, what: str, values: I32 | I64, n_before: int) -> None:
    """Raise an error for the first bad row of a column of tasks, hops or predecessors."""
    if not bad.any():
        return
    row = task = int(bad.argmax())
    if name.startswith(("hop", "pred")):
        offsets = graph.hop_start if name.startswith("hop") else graph.pred_start
        task = int(np.searchsorted(offsets, row, side="right")) - 1
    raise TaskError("graph", f"{name} of {{}} must be {what}, got {values[row]}", task + n_before)


@compiled_making_arrays
def _crossed_twice(hop_start: I64, hop_link: I32, n_links: int) -> int:
    """Return the first task that crosses a link twice, or -1."""
    last = np.full(n_links, -1, np.int64)
    for v in range(len(hop_start) - 1):
        for h in range(hop_start[v], hop_start[v + 1]):
            if last[hop_link[h]] == v:
                return v
            last[hop_link[h]] = v
    return -1


def order_tasks(graph: Graph, n_before: int = 0) -> I32:
    """Return the task numbers sorted so that predecessors come first; an empty array if they are sorted already.

    Raises:
        TaskError: The waits have a cycle; the message names one of its tasks.
    """
    if _in_order(graph.pred_start, graph.pred, n_before):
        return np.empty(0, np.int32)
    tasks, cycle = _depth_first(graph.pred_start, graph.pred, n_before)
    if cycle >= 0:
        raise TaskError("graph", "{} waits for itself, at once or over others; remove one of these waits", cycle + n_before)
    return np.asarray(tasks)


@compiled
def _in_order(pred_start: I64, pred: I32, n_before: int) -> bool:
    """Return whether every predecessor has a lower number than the task that waits for it."""
    for v in range(len(pred_start) - 1):
        for i in range(pred_start[v], pred_start[v + 1]):
            if pred[i] >= v + n_before:
                return False
    return True


@compiled_making_arrays
def _depth_first(pred_start: I64, pred: I32, n_before: int) -> tuple[I32, int]:
    """Return a topological order, by depth-first search from each task to its predecessors, and a task on a cycle or -1."""
    n = len(pred_start) - 1
    done, stack = np.empty(n, np.int32), np.empty(n, np.int32)
    at = np.full(n, -1, np.int64)  # the next edge to follow; -1: not met; its row's end: done
    n_done = depth = 0
    for root in range(n):
        if at[root] >= 0:
            continue
        stack[0], at[root], depth = root, pred_start[root], 1
        while depth > 0:
            v = stack[depth - 1]
            if at[v] == pred_start[v + 1]:
                at[v] += 1
                done[n_done] = v
                n_done, depth = n_done + 1, depth - 1
                continue
            p = pred[at[v]] - n_before
            if p >= 0 and at[p] == -1:
                stack[depth], at[p], depth = p, pred_start[p], depth + 1
            elif p >= 0 and at[p] <= pred_start[p + 1]:
                return done, p
            else:
                at[v] += 1
    return done, -1
