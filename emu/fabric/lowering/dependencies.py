"""The rules by which messages wait for one another, the columns of edges that follow, and turns of optical switches.

The reads and the writes of each (slot, participant) are two lists in the order of rounds, and so are the messages of each
(src, channel). A message waits for a run of such a list. Where many wait for many, a join stands between, so that there are no
more edges than rows. Each function runs twice: once to count the edges of each task, once to write them. Letters: S rows,
G places.

Also here: predecessor edges: which task waits for which, and the columns of a graph that they become.

Letters: V tasks, E edges.

Also here: the compiled loops that give the edges and hops of each class to every copy that stands for others.

Letters: C classes, E edges, D copies of each class, one after another, R pairs, U distinct distances between copies.

Also here: optical switches that turn between messages: a turn is a delay that waits for earlier messages and holds back later
ones.

Letters: M messages, Q switches that each needs, A = M Q uses, T turns.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy import bool_, empty, int32, zeros
from numpy import int64 as np_int64

from emu.arrays import I32, I64, Bool, column
from emu.compiled.function import BOOL_OUT, I32_2D, I32_OUT, I64_2D, I64_OUT, compiled, compiled_making_arrays
from emu.errors import InputError


class EdgeSink(NamedTuple):
    """The arrays into which edges are written."""

    fill: I64_OUT  # [V] index of the next edge of each task; or, while counting, its number of edges
    pred: I32_OUT  # [E] empty where edges are only counted
    left: BOOL_OUT  # [E] see `Graph.pred_left`
    join: I64_OUT  # [1] number of the next join


class TaskRange(NamedTuple):
    """A range of a list of tasks, from index `low` up to `high` - 1."""

    task: I32
    low: int
    high: int


@compiled
def _emit(out: EdgeSink, task: int, pred: int, left: bool) -> None:
    """Write the edge from a task to a predecessor, or only count it if there is no room for edges."""
    at = out.fill[task]
    if at < len(out.pred):
        out.pred[at], out.left[at] = pred, left
    out.fill[task] = at + 1


@compiled
def _emit_runs(out: EdgeSink, waiting: TaskRange, others: TaskRange, left: bool) -> None:
    """Let each task of one run wait for each task of another, over a join if that makes fewer edges."""
    k, m = others.high - others.low, waiting.high - waiting.low
    if k * m <= k + m:
        for w in range(waiting.low, waiting.high):
            for i in range(others.low, others.high):
                _emit(out, waiting.task[w], others.task[i], left)
        return
    join = out.join[0]
    out.join[0] += 1
    for i in range(others.low, others.high):
        _emit(out, join, others.task[i], left)
    for w in range(waiting.low, waiting.high):
        _emit(out, waiting.task[w], join, False)


@compiled
def wait_for_others(places: I64_2D, when: tuple[I32, I32], task: tuple[I32, I32], left: bool, out: EdgeSink) -> None:
    """Let each waiting task wait for all others of earlier rounds, with few edges.

    There are two lists of tasks: waiting tasks, and others. Each of the others itself waits for the waiting tasks of rounds
    before its own, and so for all others that these wait for. A waiting task therefore needs edges only to the others between
    it and the waiting tasks before it. Waiting tasks with no other between them have the same edges, which a join gathers.

    Args:
        places: [G, 4] for each (slot, participant) the range of its waiting tasks, and the range of its others.
        when: The round of each waiting task [S], and the round of each other [S].
        task: The number of each waiting task [S], and the number of each other [S].
        left: Whether the others must have left (true) or ended (false).
        out: The arrays into which edges are written.
    """
    a, b = when
    for g in range(len(places)):
        i, a_end, j, b_end = places[g, 0], places[g, 1], places[g, 2], places[g, 3]
        first, b_first, low = i, j, j
        while i < a_end:
            while j < b_end and b[j] < a[i]:
                j += 1
            end = i
            while end < a_end and (j == b_end or a[end] <= b[j]):
                end += 1
            k = i - 1
            while j > b_first and k >= first and a[k] == b[j - 1]:
                k -= 1
            while j > b_first and k >= first and b[low] < a[k]:
                low += 1
            if j > low:
                _emit_runs(out, TaskRange(task[0], i, end), TaskRange(task[1], low, j), left)
            i = end


@compiled
def wait_for_overwrites(places: I64_2D, when: tuple[I32, I32], reduce: Bool, task: tuple[I32, I32], out: EdgeSink) -> None:
    """Let an add wait for the last overwrite before it, and an overwrite for all writes since then.

    Reads may imply some of these.

    Args:
        places: [G, 4] for each (slot, participant) the range of its reads, and the range of its writes.
        when: [S] the round of each read, and [S] the round of each write.
        reduce: [S] whether each write adds.
        task: [S] for each write, the task that waits, and [S] its message.
        out: The arrays into which edges are written.
    """
    read, write = when
    for g in range(len(places)):
        i, i_end, j, j_end = places[g, 0], places[g, 1], places[g, 2], places[g, 3]
        i_first, since, low, high = i, j, j, j
        while j < j_end and j_end > places[g, 2] + 1:
            while i < i_end and read[i] < write[j]:
                i += 1
            while i > i_first and since < j and write[since] < read[i - 1]:
                since += 1
            end, over, begin = j, False, max(since, low)
            while end < j_end and write[end] == write[j]:
                over |= not reduce[end]
                stop = j if not reduce[end] else high if low >= since else begin
                if stop > begin:
                    _emit_runs(out, TaskRange(task[0], end, end + 1), TaskRange(task[1], begin, stop), False)
                end += 1
            if over:
                low, high = j, end
            j = end


@compiled
def wait_for_queue(keys: tuple[I32, I32, I32], queue: I32, out: EdgeSink) -> None:
    """Let each message wait until the messages of the round before its own in its queue have left.

    Args:
        keys: [Q] src, channel and round, ascending.
        queue: [Q] the messages.
        out: The arrays into which edges are written.
    """
    src, channel, when = keys
    i = low = 0
    while i < len(src):
        end = i
        while end < len(src) and src[end] == src[i] and channel[end] == channel[i] and when[end] == when[i]:
            end += 1
        if i > 0 and src[i - 1] == src[i] and channel[i - 1] == channel[i]:
            _emit_runs(out, TaskRange(queue, i, end), TaskRange(queue, low, i), True)
        low, i = i, end


@compiled
def wait_for_given(task: I32, pred: I32, left: Bool, out: EdgeSink) -> None:
    """Write edges that are given as three columns."""
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
    """Keep one of several equal predecessors of a task, in place, and return the new number of edges.

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


class TornError(InputError):
    """The error of a round that needs an optical switch in two states at once: this topology cannot carry that schedule."""


class SwitchTurns(NamedTuple):
    """The turns of optical switches, as pairs of tasks of which one waits for the other."""

    total: int  # number of turns, T
    before: tuple[I32, I32]  # turn, and message that must be delivered first
    after: tuple[I32, I32]  # message, and turn that it waits for


def turns_of(message: I32, when: I32, switch: I64, state: I64) -> SwitchTurns:
    """Return the turns of every switch, in the order of the rounds that need it; its first state needs no turn.

    Args:
        message: [M] the number of each message in the graph.
        when: [M] the round of each message.
        switch: [M, Q] the switches that each message needs; -1 for none.
        state: [M, Q] the state of each switch that the message needs.

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
    """Return turns of switches from periods: a period is the messages in a row that need a switch in one state.

    A turn waits for all messages of the period before it, and all messages of its own period wait for it.
    """
    opened = np.full(len(period) and int(period[-1]) + 2, -1)
    opened[period[opens]] = number[opens]
    own = opened[period]  # the turn that opens the period of each use, -1: none
    following = opened[period + 1]  # the turn that ends it
    ends, waits = np.flatnonzero(following >= 0), np.flatnonzero(own >= 0)
    before = column(following[ends], np.int32), by[ends]
    return SwitchTurns(len(opens), before, (by[waits], column(own[waits], np.int32)))


Predecessors = tuple[I64, I32, Bool]  # pred_start, pred and pred_left of a Graph


class Edges(NamedTuple):
    """Pairs of a task and its predecessor, in any order."""

    task: I32  # [E]
    pred: I32  # [E]
    left: Bool  # [E] see `Graph.pred_left`

    @staticmethod
    def of(task: I32 | I64, pred: I32 | I64, left: bool = False) -> "Edges":
        """Return edges that all wait for the same moment of their predecessors (`left`)."""
        return Edges(column(task, np.int32), column(pred, np.int32), column(np.full(len(task), left), np.bool_))

    @staticmethod
    def joined(parts: "Iterable[Edges]") -> "Edges":
        """Return the edges of several parts, one part after another."""
        task, pred, left = (np.concatenate(c) for c in zip(*parts, strict=True))
        return Edges(column(task, np.int32), column(pred, np.int32), column(left, np.bool_))

    def write(self, out: EdgeSink) -> None:
        """Write the edges into the arrays, or count them."""
        wait_for_given(self.task, self.pred, self.left, out)


def columns_of(write: Callable[[EdgeSink], None], n_tasks: int, most_joins: int = 0) -> Predecessors:
    """Return the columns of the edges that a function writes; of equal edges one is kept.

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
def spread_edges(edges: Predecessors, kind: I64, there: I32_2D, begin: I64) -> tuple[I32, Bool]:
    """Return the predecessors of all tasks, from those of one task of each class.

    Each class has D copies, one for each rank or orbit. An edge joins each copy of a task to the copy of its predecessor at the
    edge's distance.

    Args:
        edges: The predecessors of each class, with E edges in all.
        kind: [E] the number of each edge's distance, 0..U-1.
        there: [U, D] the copy at each distance from each copy.
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
