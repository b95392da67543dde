"""The rules by which messages wait for one another: data that must have arrived, slots in use, and queues.

The reads and the writes of each (slot, participant) are two lists in the order of rounds, and so are the messages of each
(src, channel). A message waits for a range of such a list. Where many tasks wait for many others, a join between them keeps the
number of edges below the number of rows. Each function runs twice: once to count the edges of each task, once to write them.
Letters: S rows, G places.
"""

from typing import NamedTuple

from emu.arrays import I32, Bool
from emu.compiled.function import I64_2D, compiled
from emu.fabric.lowering.task_edges import EdgeSink, _emit


class TaskRange(NamedTuple):
    """A range of a list of tasks, from index `low` up to `high` - 1."""

    task: I32
    low: int
    high: int


@compiled
def _emit_runs(out: EdgeSink, waiting: TaskRange, others: TaskRange, left: bool) -> None:
    """Write edges that make each task of one range wait for each task of another, over a join if that needs fewer edges."""
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
    """Write edges that make each waiting task wait for all other tasks of earlier rounds, with few edges.

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
    """Write edges that make an addition wait for the last overwrite of its slot, and an overwrite for all writes since then.

    Edges that reads already imply are left out.

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
    """Write edges that make each message wait until the earlier messages of its queue have left.

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
