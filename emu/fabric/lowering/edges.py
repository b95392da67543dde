"""Predecessor edges: what waits for what, made the columns of a Graph.

V tasks, E edges.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64, Bool, column
from emu.fabric.lowering.waits import Out, drop_repeats, wait_for_given

Predecessors = tuple[I64, I32, Bool]  # pred_start, pred and pred_left of a Graph


class Edges(NamedTuple):
    """Who waits for whom, in any order."""

    task: I32  # [E]
    pred: I32  # [E]
    left: Bool  # [E] as `Graph.pred_left`

    @staticmethod
    def of(task: I32 | I64, pred: I32 | I64, left: bool = False) -> "Edges":
        """Edges of one kind."""
        return Edges(column(task, np.int32), column(pred, np.int32), column(np.full(len(task), left), np.bool_))

    @staticmethod
    def joined(parts: "Iterable[Edges]") -> "Edges":
        """One after another."""
        task, pred, left = (np.concatenate(c) for c in zip(*parts, strict=True))
        return Edges(column(task, np.int32), column(pred, np.int32), column(left, np.bool_))

    def write(self, out: Out) -> None:
        """Count or write them."""
        wait_for_given(self.task, self.pred, self.left, out)


def columns_of(write: Callable[[Out], None], n_tasks: int, most_joins: int = 0) -> Predecessors:
    """The columns of what `write` writes, equal edges once.

    Args:
        write: Emits every edge; called twice, once to count.
        n_tasks: But for the joins that it adds, which follow.
        most_joins: That it may add.
    """
    count, joins = np.zeros(n_tasks + most_joins, np.int64), np.array([n_tasks])
    write(Out(count, np.empty(0, np.int32), np.empty(0, np.bool_), joins))
    start = np.zeros(joins[0] + 1, np.int64)
    np.cumsum(count[: joins[0]], out=start[1:])
    pred, left = np.empty(start[-1], np.int32), np.empty(start[-1], np.bool_)
    write(Out(start[:-1].copy(), pred, left, np.array([n_tasks])))
    end = drop_repeats(start, pred, left, np.zeros(len(start), np.int64))
    return start, pred[:end], left[:end]
