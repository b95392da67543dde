"""Predecessor edges, which say which task waits for which, and the columns of a graph that they become.

Compiled loops give the edges and hops of each class of tasks to every copy that stands for others. Letters: V tasks, E edges,
C classes, D copies of each class, one after another, R pairs, U distinct offsets between copies.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy import bool_, empty, int32, zeros
from numpy import int64 as np_int64

from emu.arrays import I32, I64, Bool, column
from emu.compiled.function import BOOL_OUT, I32_2D, I32_OUT, I64_OUT, compiled, compiled_making_arrays


class EdgeSink(NamedTuple):
    """The arrays into which edges are written, in two passes: one counts, the other writes."""

    fill: I64_OUT  # [V] index of the next edge of each task; or, while counting, its number of edges
    pred: I32_OUT  # [E] empty where edges are only counted
    left: BOOL_OUT  # [E] see `Graph.pred_left`
    join: I64_OUT  # [1] number of the next join


@compiled
def _emit(out: EdgeSink, task: int, pred: int, left: bool) -> None:
    """Write the edge from a task to a predecessor; in the counting pass, only count it."""
    at = out.fill[task]
    if at < len(out.pred):
        out.pred[at], out.left[at] = pred, left
    out.fill[task] = at + 1


@compiled
def wait_for_given(task: I32, pred: I32, left: Bool, out: EdgeSink) -> None:
    """Write the edges that three columns hold: task, predecessor, and whether it must only have left."""
    for e in range(len(task)):
        _emit(out, task[e], pred[e], left[e])


@compiled
def wait_for_columns(start: I64, pred: I32, left: Bool, out: EdgeSink) -> None:
    """Write the edges of the columns of a graph."""
    for t in range(len(start) - 1):
        for e in range(start[t], start[t + 1]):
            _emit(out, t, pred[e], left[e])


@compiled
def drop_repeats(start: I64_OUT, pred: I32_OUT, left: BOOL_OUT, place: I64_OUT) -> int:
    """Remove duplicate predecessors of each task in place, and return the new number of edges.

    A wait for the end of a predecessor includes the wait until it has left.

    Args:
        start: [V + 1] as `Graph.pred_start`.
        pred: [E] the predecessors.
        left: [E] see `Graph.pred_left`.
        place: [V] zeros: a working array for tasks with many predecessors.
    """
    end = 0
    for t in range(len(start) - 1):
        low, begin, stop = end, start[t], start[t + 1]
        many = stop - begin > 8
        for e in range(begin, stop):
            k = place[pred[e]] if many else low
            while not many and k < end and pred[k] != pred[e]:
                k += 1
            if low <= k < end and pred[k] == pred[e]:
                left[k] &= left[e]
                continue
            pred[end], left[end] = pred[e], left[e]
            if many:
                place[pred[e]] = end
            end += 1
        start[t] = low
    start[len(start) - 1] = end
    return end


Predecessors = tuple[I64, I32, Bool]  # pred_start, pred and pred_left of a Graph


class Edges(NamedTuple):
    """Pairs of a task and its predecessor, in any order.

    `left` is true if the task waits only until the predecessor has left.
    """

    task: I32  # [E]
    pred: I32  # [E]
    left: Bool  # [E] see `Graph.pred_left`

    @staticmethod
    def of(task: I32 | I64, pred: I32 | I64, left: bool = False) -> "Edges":
        """Return edges that all have the same value of `left`: wait until the predecessor has left (true) or ended."""
        return Edges(column(task, np.int32), column(pred, np.int32), column(np.full(len(task), left), np.bool_))

    @staticmethod
    def joined(parts: "Iterable[Edges]") -> "Edges":
        """Return all edges of several sets, one set after another."""
        task, pred, left = (np.concatenate(c) for c in zip(*parts, strict=True))
        return Edges(column(task, np.int32), column(pred, np.int32), column(left, np.bool_))

    def write(self, out: EdgeSink) -> None:
        """Write the edges into the sink; a sink without arrays only counts them."""
        wait_for_given(self.task, self.pred, self.left, out)


def columns_of(write: Callable[[EdgeSink], None], n_tasks: int, most_joins: int = 0) -> Predecessors:
    """Return the predecessor columns of the edges that function `write` writes, without duplicates.

    Args:
        write: A function that writes every edge. It is called twice: once to count, once to write.
        n_tasks: The number of tasks, without the joins that `write` adds after them.
        most_joins: The largest number of joins that `write` may add.
    """
    count, joins = np.zeros(n_tasks + most_joins, np.int64), np.array([n_tasks])
    write(EdgeSink(count, np.empty(0, np.int32), np.empty(0, np.bool_), joins))
    start = np.zeros(joins[0] + 1, np.int64)
    np.cumsum(count[: joins[0]], out=start[1:])
    pred, left = np.empty(start[-1], np.int32), np.empty(start[-1], np.bool_)
    write(EdgeSink(start[:-1].copy(), pred, left, np.array([n_tasks])))
    end = drop_repeats(start, pred, left, np.zeros(len(start), np.int64))
    return start, pred[:end], left[:end]


@compiled_making_arrays
def copy_edges(edges: Predecessors, kind: I64, there: I32_2D, begin: I64) -> tuple[I32, Bool]:
    """Return the predecessors of all tasks from the predecessors of each class.

    Each class has D copies, one for each rank or orbit. An edge joins each copy of a task to the copy of its predecessor at the
    edge's offset.

    Args:
        edges: The predecessors of each class, with E edges in all.
        kind: [E] the number of each edge's offset, 0..U-1.
        there: [U, D] the copy at each offset from each copy.
        begin: [C D + 1] the number of the first edge of each task, where C is the number of classes.

    Returns:
        [E D] the predecessors of all tasks, and [E D] whether each wait ends when the predecessor has left (else when it ends).
    """
    (start, pred, left), size = edges, there.shape[1]
    preds, lefts = empty(len(pred) * size, int32), empty(len(pred) * size, bool_)
    for c in range(len(start) - 1):
        for i in range(size):
            at = begin[c * size + i]
            for e in range(start[c], start[c + 1]):
                preds[at], lefts[at] = pred[e] * size + there[kind[e], i], left[e]
                at += 1
    return preds, lefts


@compiled_making_arrays
def copy_hops(pair: I32, size: int, way_start: I64, way_link: I32, way_weight: I32) -> tuple[I64, I32, I32]:
    """Return the columns hop_start [C D + 1], hop_link and hop_weight of all tasks from the routes of pairs.

    Args:
        pair: [C] pair of each class; -1: it takes no route.
        size: D.
        way_start: [R D + 1] where the hops of each pair in each copy begin, the copies of a pair one after another.
        way_link: link of each hop.
        way_weight: weight of each hop.
    """
    start = zeros(len(pair) * size + 1, np_int64)
    for c in range(len(pair)):
        for i in range(size):
            t, way = c * size + i, pair[c] * size + i
            start[t + 1] = start[t] + (way_start[way + 1] - way_start[way] if pair[c] >= 0 else 0)
    link, weight = empty(start[-1], int32), empty(start[-1], int32)
    for c in range(len(pair)):
        for i in range(size):
            t, way = c * size + i, pair[c] * size + i
            for h in range(start[t + 1] - start[t]):
                link[start[t] + h] = way_link[way_start[way] + h]
                weight[start[t] + h] = way_weight[way_start[way] + h]
    return start, link, weight
