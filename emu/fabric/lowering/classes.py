"""The messages of rank 0 and what each waits for, where translations make all others' of them: rows are never expanded.

S stored rows, M messages of rank 0, C classes: these and the joins between them, E edges, N ranks. Whatever waits does so for
what is read or written at some place, and every place is a translation of one of rank 0. There rank 0 itself reads, and what
is written comes from the rank that a translation brings to 0 together with the receiver.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64, Bool, column
from emu.collective.schedule import Schedule
from emu.collective.translation import Translations
from emu.fabric.lowering.edges import Predecessors, columns_of
from emu.fabric.lowering.messages import Accesses, Messages, Rows, accesses_of, messages_of, queues_of, rows_of
from emu.fabric.lowering.waits import Out, wait_for_others, wait_for_overwrites, wait_for_queue


class Classes(NamedTuple):
    """One task of each class, at rank 0, predecessors first; a task at rank r waits for those `away` of r."""

    size_bytes: I64  # [C]
    dst: I32  # [C] -1: a join
    channel: I32  # [C] -1: a join
    origin: I32  # [C] its first row as the schedule counts; -1: a join
    start: I64  # [C + 1]
    pred: I32  # [E] class
    away: I64  # [E] the rank where the one waited for is
    left: Bool  # [E] as `Graph.pred_left`


def invariant(slot_bytes: I64, moves: Translations) -> bool:
    """Whether translations bring each slot to one of as many bytes."""
    if not len(slot_bytes) or slot_bytes.min() == slot_bytes.max():
        return True
    dims, digits = moves.dims, moves.slot_digits
    table = slot_bytes.reshape(*dims * digits, -1)
    axes = [tuple(digit * len(dims) + i for digit in range(digits)) for i in range(len(dims))]
    return all(np.array_equal(np.roll(table, (1,) * digits, of), table) for of in axes)


def classes_of(schedule: Schedule, slot_bytes: I64) -> Classes:
    """The classes of a schedule with translations that keep the size of every slot."""
    rows, moves = rows_of(schedule, slot_bytes), schedule.translations
    slots, code = np.unique(rows.slot, return_inverse=True)
    messages = messages_of(rows._replace(slot=column(code, np.int32)), slot_bytes[slots])
    back = moves.opposite(messages.dst)
    accesses = _accesses(rows, messages, moves.slot(rows.slot, back[messages.of_row]))
    count = len(messages.src)
    start, pred, left = _waits(messages, accesses, schedule.n_ranks)
    joins = len(start) - 1 - 2 * count
    number = np.concatenate((np.arange(count), np.arange(count + joins)))  # a write is by the class of its message
    where = np.concatenate((np.zeros(count, np.int64), back, np.zeros(joins, np.int64)))
    task = np.repeat(np.arange(len(start) - 1), np.diff(start))
    away = moves.rank(where[pred], moves.opposite(where[task]))
    when = _when(messages, number[task], number[pred], joins)
    return _in_order(messages, rows, when, (number[task], number[pred], away, left))


def _accesses(rows: Rows, messages: Messages, written: I64) -> Accesses:
    """What is read and written at rank 0, as if by it alone, its slots numbered without gaps."""
    names, code = np.unique(np.concatenate((rows.slot, written)), return_inverse=True)
    here = column(np.zeros(len(rows.src)), np.int32)
    read, write = (column(c, np.int32) for c in np.split(code, 2))
    at_0 = rows._replace(src=here, dst=here, slot=read, written=write)
    return accesses_of(at_0, messages, len(names), 1)


def _waits(messages: Messages, accesses: Accesses, n_ranks: int) -> Predecessors:
    """The edges of reads (M), writes (M) and joins."""
    count, queues = len(messages.src), queues_of(messages, n_ranks)
    read, write = accesses.message[0], column(accesses.message[1] + np.int32(count), np.int32)
    reversed_places = np.roll(accesses.places, 2, axis=1)

    def emit_all(out: Out) -> None:
        wait_for_others(accesses.places, accesses.when, (read, write), False, out)
        wait_for_others(reversed_places, accesses.when[::-1], (write, read), True, out)
        wait_for_overwrites(accesses.places, accesses.when, accesses.reduce, (write, write), out)
        wait_for_queue(queues.keys, queues.message, out)

    return columns_of(emit_all, 2 * count, len(read) + count)


def _when(messages: Messages, task: I64, pred: I64, joins: int) -> I64:
    """[C] an order in which a join comes after the rounds that it waits for and before the next."""
    when = np.concatenate((2 * messages.when.astype(np.int64), np.zeros(joins, np.int64)))
    of_join = task >= len(messages.when)
    np.maximum.at(when, task[of_join], when[pred[of_join]] + 1)
    return when


def _in_order(messages: Messages, rows: Rows, when: I64, edges: tuple[I64, I64, I64, Bool]) -> Classes:
    """The classes by `when`, equal edges once."""
    order = np.argsort(when, kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    by = np.lexsort((edges[2], number[edges[1]], number[edges[0]]))
    task, pred, away, left = number[edges[0][by]], number[edges[1][by]], edges[2][by], edges[3][by]
    first = np.flatnonzero(np.diff(task, prepend=-1) | np.diff(pred, prepend=-1) | np.diff(away, prepend=-1))
    left = np.logical_and.reduceat(left, first) if len(first) else left  # to have ended is more than to have left
    none = np.full(len(order) - len(messages.src), -1)
    names = (messages.dst, messages.channel, rows.number[messages.first])
    dst, channel, origin = (column(np.concatenate((c, none))[order], np.int32) for c in names)
    return Classes(
        column(np.concatenate((messages.size_bytes, np.zeros_like(none)))[order], np.int64),
        dst,
        channel,
        origin,
        column(np.searchsorted(task[first], np.arange(len(order) + 1)), np.int64),
        column(pred[first], np.int32),
        column(away[first], np.int64),
        column(left, np.bool_),
    )
