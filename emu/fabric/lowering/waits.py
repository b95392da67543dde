"""Which messages wait for which: the rules of a schedule's docstring ("Waits for"), less what others imply.

S rows, G places. The reads and the writes of each (slot, participant) are two lists in order of rounds, and so are the
messages of each (src, channel); what one waits for is a run of such a list. Where many wait for many, a join stands between,
so that edges stay as few as rows. Each function is run twice: to count the edges of each task, and to write them.
"""

from typing import NamedTuple

from emu.arrays import I32, I64, Bool
from emu.compiled.function import compiled
from emu.compiled.kinds import BOOL_OUT, I32_OUT, I64_2D, I64_OUT


class Out(NamedTuple):
    """Where edges go."""

    fill: I64_OUT  # [V] where the next edge of each task goes; or how many it has
    pred: I32_OUT  # [E] empty where edges are only counted
    left: BOOL_OUT  # [E]
    join: I64_OUT  # [1] the next join


class Run(NamedTuple):
    """Some tasks of a list, one after another."""

    task: I32
    low: int
    high: int


@compiled
def _emit(out: Out, task: int, pred: int, left: bool) -> None:
    at = out.fill[task]
    if at < len(out.pred):
        out.pred[at], out.left[at] = pred, left
    out.fill[task] = at + 1


@compiled
def _emit_runs(out: Out, waiting: Run, others: Run, left: bool) -> None:
    """Let each of one run wait for each of another, by a join where that makes fewer edges."""
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
def wait_for_others(places: I64_2D, when: tuple[I32, I32], task: tuple[I32, I32], left: bool, out: Out) -> None:
    """Let each of those waiting wait for the last others, in earlier rounds, that imply all others in earlier rounds.

    Each of the others waits in turn for what is waiting here in rounds before its own. So the last round of others implies
    those before the last round of the waiting before it; and all that see the same others share a run.

    Args:
        places: [G, 4] from..to of those waiting, from..to of the others.
        when: [S] rounds of those waiting, of the others.
        task: [S] tasks of those waiting, of the others.
        left: Whether the others must have left or ended.
        out: Where edges go.
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
                _emit_runs(out, Run(task[0], i, end), Run(task[1], low, j), left)
            i = end


@compiled
def wait_for_overwrites(places: I64_2D, when: tuple[I32, I32], reduce: Bool, task: tuple[I32, I32], out: Out) -> None:
    """Let an add wait for the last overwrite before it, an overwrite for all writes since; less what a read implies.

    Args:
        places: [G, 4] from..to of the reads, from..to of the writes.
        when: [S] rounds of the reads, of the writes.
        reduce: [S] of the writes.
        task: [S] of the writes: who waits, and their messages.
        out: Where edges go.
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
                    _emit_runs(out, Run(task[0], end, end + 1), Run(task[1], begin, stop), False)
                end += 1
            if over:
                low, high = j, end
            j = end


@compiled
def wait_for_queue(keys: tuple[I32, I32, I32], queue: I32, out: Out) -> None:
    """Let each message wait until the round before its own, in its queue, has left.

    Args:
        keys: [Q] src, channel and round, ascending.
        queue: [Q] messages.
        out: Where edges go.
    """
    src, channel, when = keys
    i = low = 0
    while i < len(src):
        end = i
        while end < len(src) and src[end] == src[i] and channel[end] == channel[i] and when[end] == when[i]:
            end += 1
        if i > 0 and src[i - 1] == src[i] and channel[i - 1] == channel[i]:
            _emit_runs(out, Run(queue, i, end), Run(queue, low, i), True)
        low, i = i, end


@compiled
def wait_for_given(task: I32, pred: I32, left: Bool, out: Out) -> None:
    """Add edges that are at hand."""
    for e in range(len(task)):
        _emit(out, task[e], pred[e], left[e])


@compiled
def wait_for_columns(start: I64, pred: I32, left: Bool, out: Out) -> None:
    """Add edges that are columns of a Graph."""
    for t in range(len(start) - 1):
        for e in range(start[t], start[t + 1]):
            _emit(out, t, pred[e], left[e])


@compiled
def drop_repeats(start: I64_OUT, pred: I32_OUT, left: BOOL_OUT, place: I64_OUT) -> int:
    """Keep one of equal predecessors of a task, in place; to have ended is more than to have left. Returns the new end.

    Args:
        start: [V + 1] as `Graph.pred_start`.
        pred: [E].
        left: [E].
        place: [V] zeros: where each task was last kept, for tasks with many predecessors.
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
