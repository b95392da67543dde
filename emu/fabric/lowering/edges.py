"""Predecessor edges: which task waits for which, and the columns of a graph that they become.

Letters: V tasks, E edges.

Also here: the compiled loops that give the edges and hops of each class to every copy that stands for others.

Letters: C classes, E edges, D copies of each class, one after another, R pairs, U distinct distances between copies.

Optical switches that turn between messages: a turn is a delay that waits for earlier messages and holds back later ones.

Letters: M messages, Q switches that each needs, A = M Q uses, T turns.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy import bool_, empty, int32, zeros
from numpy import int64 as np_int64

from emu.arrays import I32, I64, Bool, column
from emu.compiled.function import I32_2D, compiled_making_arrays
from emu.errors import InputError
from emu.fabric.lowering.dependencies import EdgeSink, drop_repeats, wait_for_given


class TornError(InputError):
    """The error of a round that needs an optical switch in two states at once: this topology cannot carry that schedule."""


class SwitchTurns(NamedTuple):
    """The turns of optical switches, as pairs of tasks of which one waits for the other."""

    total: int  # number of turns, T
    before: tuple[I32, I32]  # turn, and message that must be delivered first
    after: tuple[I32, I32]  # message, and turn that it waits for


def turns_of(message: I32, when: I32, switch: I64, state: I64) -> SwitchTurns:
    """Return the turns of every switch, in the order of the rounds that need it; its first state costs nothing.

    Args:
        message: [M] number of each message in the graph.
        when: [M] round of each message.
        switch: [M, Q] switches that each message needs; -1 for none.
        state: [M, Q] the state that it needs of each.

    Raises:
        TornError: Messages of one round need one switch in two states.
    """
    needed = np.nonzero(switch >= 0)
    uses = (switch[needed], when[needed[0]].astype(np.int64), state[needed])
    order = np.lexsort(uses[::-1])
    which, turn_when, wanted = (use[order] for use in uses)
    by = column(message[needed[0]][order], np.int32)
    same = which[1:] == which[:-1]
    turned = same & (wanted[1:] != wanted[:-1])
    torn = np.flatnonzero(turned & (turn_when[1:] == turn_when[:-1]))
    if len(torn):
        at = torn[0] + 1
        raise TornError(
            f"schedule: round {turn_when[at]} needs switch {which[at]} in states {wanted[at - 1]} and {wanted[at]} at once; "
            "take another algorithm, or put these messages in rounds of their own"
        )
    period = np.concatenate(([0], np.cumsum(turned | ~same))) if len(by) else np.zeros(0, np.int64)
    number = np.cumsum(np.concatenate(([False], turned))) - 1 if len(by) else period  # of the latest turn of any switch
    opens = np.flatnonzero(np.concatenate(([False], turned)))  # the first use of each period that a turn opens
    return _turns(period, number, opens, by)


def _turns(period: I64, number: I64, opens: I64, by: I32) -> SwitchTurns:
    """Return turns that wait for all uses of the period before, and for which all uses of their own period wait."""
    opened = np.full(len(period) and int(period[-1]) + 2, -1)
    opened[period[opens]] = number[opens]
    own = opened[period]  # the turn that opens the period of each use, -1: none
    following = opened[period + 1]  # the turn that ends it
    ends, waits = np.flatnonzero(following >= 0), np.flatnonzero(own >= 0)
    before = column(following[ends], np.int32), by[ends]
    return SwitchTurns(len(opens), before, (by[waits], column(own[waits], np.int32)))


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


@compiled_making_arrays
def spread_edges(edges: Predecessors, kind: I64, there: I32_2D, begin: I64) -> tuple[I32, Bool]:
    """Return the predecessors of all tasks [E D], and whether each wait ends when the predecessor has left [E D].

    Args:
        edges: The predecessors of each class.
        kind: [E] number of the edge's distance, 0..U-1.
        there: [U, D] the copy at each distance from each copy.
        begin: [C D + 1] where the predecessors of each task begin.
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
def spread_hops(pair: I32, size: int, way_start: I64, way_link: I32, way_weight: I32) -> tuple[I64, I32, I32]:
    """Return hop_start of all tasks [C D + 1], then hop_link and hop_weight.

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
