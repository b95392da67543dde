"""Predecessor edges: which task waits for which, and the columns of a graph that they become.

Letters: V tasks, E edges.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64, Bool, column
from emu.fabric.lowering.dependencies import EdgeSink, drop_repeats, wait_for_given

Predecessors = tuple[I64, I32, Bool]  # pred_start, pred and pred_left of a Graph


class Edges(NamedTuple):
    """Pairs of a task and a task that must come first, in any order."""

    task: I32  # [E]
    pred: I32  # [E]
    left: Bool  # [E] see `Graph.pred_left`

    @staticmethod
    def of(task: I32 | I64, pred: I32 | I64, left: bool = False) -> "Edges":
        """Return edges of one kind."""
        return Edges(column(task, np.int32), column(pred, np.int32), column(np.full(len(task), left), np.bool_))

    @staticmethod
    def joined(parts: "Iterable[Edges]") -> "Edges":
        """Return the edges of several parts, one part after another."""
        task, pred, left = (np.concatenate(c) for c in zip(*parts, strict=True))
        return Edges(column(task, np.int32), column(pred, np.int32), column(left, np.bool_))

    def write(self, out: EdgeSink) -> None:
        """Count or write the edges into `out`."""
        wait_for_given(self.task, self.pred, self.left, out)


def columns_of(write: Callable[[EdgeSink], None], n_tasks: int, most_joins: int = 0) -> Predecessors:
    """Return the columns of the edges that `write` emits; equal edges are kept once.

    Args:
        write: Emits every edge. It is called twice: once to count, once to write.
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
