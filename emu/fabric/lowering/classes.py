"""The tasks of a schedule and what each waits for, before it is known where they run and how many alike there are.

S stored rows, M messages, Q of them in queues (not local), C classes of tasks, E edges, N ranks, P participants, R pairs.

Where translations are declared the rows are those of rank 0, and so are the tasks: a class is a task of every rank, and an edge
says how far away the one is that is waited for. Whatever waits does so for what is read or written at some place, and every
place is a translation of one of rank 0. There rank 0 itself reads, and what is written comes from the rank that a translation
brings to 0 together with the receiver. Where none is declared every participant is a place, and each class is one task.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum
from itertools import accumulate, pairwise
from threading import Lock
from typing import NamedTuple

import numpy as np
from cachetools import LRUCache, cached

from emu.arrays import I32, I64, Bool, column
from emu.collective.schedule import Schedule
from emu.collective.translation import Translations
from emu.fabric.lowering.circuits import Turns, turns_of
from emu.fabric.lowering.edges import Edges, Predecessors, columns_of
from emu.fabric.lowering.messages import (
    Accesses,
    Messages,
    Queues,
    Rows,
    accesses_of,
    messages_of,
    queues_of,
    rows_of,
    some_empty,
)
from emu.fabric.lowering.sort import FIRST, LAST, MEETS
from emu.fabric.lowering.waits import Out, wait_for_others, wait_for_overwrites, wait_for_queue

_KEPT = 2**21  # edges and rows of all classes that are kept
Needs = Callable[[I64, I64, I64], tuple[I64, I64]]  # (src, dst, channel) of messages -> `Circuits.needs`


class Joins(IntEnum):
    """What of a participant's own a schedule has: tasks without a length, that wait for others or are waited for."""

    NONE = 0  # alone on a fabric: it ends with its last message
    EXITS = 1  # says when each participant is done
    BOTH = 2  # and holds its messages back until it has entered


class Tasks(NamedTuple):
    """The classes of each kind, in this order; messages come before them, joins after."""

    delays: I32  # [Q] or [0]: the send overhead of each message of a queue
    turns: I32  # of optical switches
    entries: I32  # [P] or [1], or [0]
    exits: I32  # [P] or [1], or [0]


class Classes(NamedTuple):
    """The classes of tasks, and what each waits for."""

    messages: Messages
    origin: I32  # [M] the first row of each, as the schedule counts
    queues: Queues
    tasks: Tasks
    start: I64  # [C + 1]
    pred: I32  # [E] class
    left: Bool  # [E] as `Graph.pred_left`
    away: I64 | None  # [E] the rank where the one waited for is, seen from rank 0; None: each class is one task

    @property
    def pairs(self) -> tuple[I64, I64, I64]:
        """[R] source, destination and channel of the messages that need a route, each once."""
        last = self.queues.message[self.queues.tail]
        src, dst, channel = (column(c[last], np.int64) for c in (self.messages.src, self.messages.dst, self.messages.channel))
        return src, dst, channel


def invariant(slot_bytes: I64, moves: Translations) -> bool:
    """Whether translations bring each slot to one of as many bytes."""
    if not len(slot_bytes) or slot_bytes.min() == slot_bytes.max():
        return True
    dims, digits = moves.dims, moves.slot_digits
    table = slot_bytes.reshape(*dims * digits, -1)
    axes = [tuple(digit * len(dims) + i for digit in range(digits)) for i in range(len(dims))]
    return all(np.array_equal(np.roll(table, (1,) * digits, of), table) for of in axes)


def classes_of(
    schedule: Schedule,
    slot_bytes: I64,
    *,
    joins: Joins = Joins.EXITS,
    delayed: bool = False,
    needs: Needs | None = None,
) -> Classes:
    """Return the classes of a schedule's rows.

    Args:
        schedule: Where translations are declared, they keep the size of every slot, and nothing is delayed or turns.
        slot_bytes: [K].
        joins: Which of a participant's there are; with entries a message waits until both its ends have entered.
        delayed: Whether a sender spends time on each message of a queue before it may leave, one after another.
        needs: Of optical switches that turn.
    """
    if needs is not None or some_empty(slot_bytes):
        return _classes(schedule, slot_bytes, joins, delayed, needs)
    found = _of_any_size(schedule, joins, delayed)
    return found._replace(messages=found.messages._replace(size_bytes=_sizes(schedule, slot_bytes, found.messages)))


@cached(LRUCache(_KEPT, getsizeof=lambda found: len(found.pred) + len(found.messages.of_row) + 1), lock=Lock())
def _of_any_size(schedule: Schedule, joins: Joins, delayed: bool) -> Classes:
    """Return the classes where no slot is empty: but for the bytes of messages they are equal for all sizes."""
    return _classes(schedule, np.broadcast_to(np.int64(1), schedule.n_slots), joins, delayed, None)


def _sizes(schedule: Schedule, slot_bytes: I64, messages: Messages) -> I64:
    """Return the bytes [M] of messages of which each row is one of the schedule's, and no slot is empty."""
    sizes = slot_bytes if schedule.translate else np.concatenate((slot_bytes, slot_bytes[list(schedule.temps)]))
    of_row = np.where(schedule.src == schedule.dst, 0, sizes[schedule.slot]).astype(np.int64)
    return column(np.add.reduceat(of_row, messages.first) if len(of_row) else of_row, np.int64)


def _classes(schedule: Schedule, slot_bytes: I64, joins: Joins, delayed: bool, needs: Needs | None) -> Classes:
    """Return the classes of the rows that carry bytes; arguments as of `classes_of`."""
    rows, messages = _messages(schedule, slot_bytes)
    queues = queues_of(messages, schedule.n_participants)
    turns = _turns(messages, queues, needs)
    places = _Places.of(schedule, rows, messages)
    counts = len(queues.message) * delayed, turns.total, places.n * (joins == Joins.BOTH), places.n * (joins != Joins.NONE)
    tasks = _number(len(messages.src), *counts)
    start, pred, left = _predecessors(messages, queues, places, tasks, turns)
    origin = column(rows.number[messages.first], np.int32)
    if places.back is None:
        return Classes(messages, origin, queues, tasks, start, pred, left, None)
    edges = _as_classes((start, pred, left), _total(messages, tasks), places.back, schedule.translations)
    return Classes(messages, origin, queues, tasks, *edges)


def _messages(schedule: Schedule, slot_bytes: I64) -> tuple[Rows, Messages]:
    """The rows that carry bytes, and the messages that they make."""
    if not schedule.translate:
        sizes = np.concatenate((slot_bytes, slot_bytes[list(schedule.temps)])).astype(np.int64)
        rows = rows_of(schedule, sizes)
        return rows, messages_of(rows, sizes)
    rows = rows_of(schedule, slot_bytes)  # there may be billions of slots, and a view of one number be their sizes
    slots, code = np.unique(rows.slot, return_inverse=True)
    return rows, messages_of(rows._replace(slot=column(code, np.int32)), slot_bytes[slots])


def _turns(messages: Messages, queues: Queues, needs: Needs | None) -> Turns:
    """The turns of optical switches, where there are any."""
    message, none = queues.message, np.zeros((0, 0), np.int64)
    if needs is None:
        return turns_of(message[:0], message[:0], none, none)
    src, dst, channel = (column(c[message], np.int64) for c in (messages.src, messages.dst, messages.channel))
    return turns_of(message, messages.when[message], *needs(src, dst, channel))


def _number(*counts: int) -> Tasks:
    return Tasks(*(column(np.arange(*span), np.int32) for span in pairwise(accumulate(counts))))


def _total(messages: Messages, tasks: Tasks) -> int:
    return len(messages.src) + sum(map(len, tasks))


class _Places(NamedTuple):
    """Where messages leave from and arrive at, and what is read and written there."""

    n: int  # how many
    src: I32  # [M] the place that each message leaves from
    dst: I32  # [M] the place that it, or one of its class, arrives at
    accesses: Accesses
    back: I64 | None  # [M] the rank whose message of the class arrives at rank 0; None: each message is alone in its class

    @staticmethod
    def of(schedule: Schedule, rows: Rows, messages: Messages) -> "_Places":
        n = schedule.n_participants
        if not schedule.translate:
            n_slots = schedule.n_slots + len(schedule.temps)
            return _Places(n, messages.src, messages.dst, accesses_of(rows, messages, n_slots, n), None)
        moves = schedule.translations
        back = moves.opposite(messages.dst)
        written = moves.slot(rows.slot, back[messages.of_row])
        names, code = np.unique(np.concatenate((rows.slot, written)), return_inverse=True)
        read, write = (column(c, np.int32) for c in np.split(code, 2))
        here, there = np.zeros_like(rows.src), np.zeros_like(messages.src)
        at_0 = rows._replace(src=here, dst=here, slot=read, written=write)
        return _Places(1, there, there, accesses_of(at_0, messages, len(names), 1), back)


def _predecessors(messages: Messages, queues: Queues, places: _Places, tasks: Tasks, turns: Turns) -> Predecessors:
    """Of all tasks; what a message waits for but its queue is for its delay to wait for, where there is one.

    Where classes stand for several, the one that leaves a place has the number of its class; the one that arrives there is
    another, and is numbered after all classes, in the same order.
    """
    n_messages, n_tasks = len(messages.src), _total(messages, tasks)
    apart = 0 if places.back is None else n_tasks
    leaving = np.arange(n_messages, dtype=np.int32)
    if len(tasks.delays):
        leaving[queues.message] = tasks.delays
    accesses = places.accesses
    read, arrives = accesses.message[0], column(accesses.message[1] + np.int32(apart), np.int32)
    reads, writes = (leaving[read], leaving[arrives]) if len(tasks.delays) else (read, arrives)
    given = Edges.joined([*_given(messages, queues, places, tasks, (leaving, apart)), *_turning(tasks, turns, leaving)])
    where, when = accesses.places, accesses.when
    reversed_places = np.roll(where, 2, axis=1)

    def emit_all(out: Out) -> None:
        wait_for_others(where, when, (reads, arrives), False, out)
        wait_for_others(reversed_places, when[::-1], (writes, read), True, out)
        wait_for_overwrites(where, when, accesses.reduce, (writes, arrives), out)
        wait_for_queue(queues.keys, queues.message, out)
        given.write(out)

    return columns_of(emit_all, n_tasks + (n_messages if apart else 0), len(read) + len(queues.message))


def _given(messages: Messages, queues: Queues, places: _Places, tasks: Tasks, first: tuple[I32, int]) -> Iterable[Edges]:
    """The edges of delays, entries and exits; `first` is what of a message begins, and how far on the arriving ones are."""
    (leaving, apart), message = first, queues.message
    local = np.flatnonzero(messages.src == messages.dst)
    leads, meets, last = (message[queues.mark & bit != 0] for bit in (FIRST, MEETS, LAST))
    tail = message[queues.tail]
    if len(tasks.exits):
        yield Edges.of(tasks.exits[places.src[last]], last, left=True)
        yield Edges.of(tasks.exits[places.dst[tail]], tail + apart)
        yield Edges.of(tasks.exits[places.dst[local]], local)
    if len(tasks.delays):
        src, channel, _ = queues.keys
        chained = np.flatnonzero((src[1:] == src[:-1]) & (channel[1:] == channel[:-1]))
        yield Edges.of(message, tasks.delays)
        yield Edges.of(tasks.delays[chained + 1], tasks.delays[chained])
    if len(tasks.entries):
        leads = np.concatenate((leads, local))
        yield Edges.of(leaving[leads], tasks.entries[places.src[leads]])
        if len(tasks.exits):
            yield Edges.of(tasks.exits, tasks.entries)
        yield Edges.of(leaving[meets] + apart, tasks.entries[places.dst[meets]])


def _turning(tasks: Tasks, turns: Turns, leaving: I32) -> Iterable[Edges]:
    (turn, earlier), (later, awaited) = turns.before, turns.after
    yield Edges.of(tasks.turns[turn], earlier)
    yield Edges.of(leaving[later], tasks.turns[awaited])


def _as_classes(edges: Predecessors, n_tasks: int, back: I64, moves: Translations) -> tuple[I64, I32, Bool, I64]:
    """What arrives at rank 0 made the class that it is of, and how far away each edge leads; equal edges once."""
    start, pred, left = edges
    joins = np.arange(len(start) - 1 - n_tasks - len(back))
    number = np.concatenate((np.arange(n_tasks), np.arange(len(back)), n_tasks + joins))
    where = np.concatenate((np.zeros(n_tasks, np.int64), back, np.zeros_like(joins)))
    waits = np.repeat(np.arange(len(start) - 1), np.diff(start))
    away = moves.rank(where[pred], moves.opposite(where[waits]))
    task, pred = number[waits], column(number[pred], np.int32)
    by = np.lexsort((away, pred, task))
    task, pred, away, left = task[by], column(pred[by], np.int32), away[by], column(left[by], np.bool_)
    first = np.flatnonzero(np.diff(task, prepend=-1) | np.diff(pred, prepend=-1) | np.diff(away, prepend=-1))
    left = np.logical_and.reduceat(left, first) if len(first) else left  # to have ended is more than to have left
    begins = np.searchsorted(task[first], np.arange(n_tasks + len(joins) + 1))
    return column(begins, np.int64), column(pred[first], np.int32), column(left, np.bool_), column(away[first], np.int64)
