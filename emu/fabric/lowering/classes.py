"""Classes of tasks: the tasks of a schedule and their waits, independent of the nodes and of the number of copies.

Without translations, each class is one task. If a schedule declares translations, only the rows of rank 0 are used, and a class
is one task of every rank. An edge between two classes then has the offset of the rank of the predecessor. A task waits
because of a slot that is read or written at a participant, which is a translation of a slot at rank 0. There, rank 0 itself
reads; a write comes from the rank to which the translation that maps the receiver to rank 0 maps the sender. The module also
has `JobOrbits`, the orbits of a job's nodes and links. Letters: S stored rows, M messages, Q of them in queues (not local), C
classes of tasks, E edges, N ranks, P participants, R pairs, L links.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import accumulate, pairwise
from threading import Lock
from typing import NamedTuple

import numpy as np
from cachetools import LRUCache, cached

from emu.arrays import F64, I32, I64, Bool, column
from emu.collective.schedule import Schedule, Translations
from emu.equivalence import Orbits
from emu.fabric.lowering.circuit_turns import SwitchTurns, turns_of
from emu.fabric.lowering.dependencies import wait_for_others, wait_for_overwrites, wait_for_queue
from emu.fabric.lowering.message_routes import MessageRoutes
from emu.fabric.lowering.message_table import (
    Accesses,
    MessageTable,
    Queues,
    RowTable,
    accesses_of,
    messages_of,
    queues_of,
    rows_of,
    some_empty,
)
from emu.fabric.lowering.row_order import FIRST, LAST, MEETS
from emu.fabric.lowering.task_edges import Edges, EdgeSink, Predecessors, columns_of

_KEPT = 2**21  # edges and rows of all classes that are kept
Needs = Callable[[I64, I64, I64], tuple[I64, I64]]  # (src, dst, channel) of messages -> `Circuits.needs`


class Joins(IntEnum):
    """The choice of the joins that each participant of a lowered schedule has: none, one or two.

    A join is a task that takes no time and only makes tasks wait for other tasks.
    """

    NONE = 0  # no joins: the schedule has the fabric to itself and ends with its last message
    EXITS = 1  # one join says when each participant is done
    BOTH = 2  # a second join holds a participant's messages back until it has entered


class Tasks(NamedTuple):
    """The numbers of the classes of tasks other than messages, kind after kind; the classes of messages come before them."""

    delays: I32  # [Q] or [0]: the send overhead of each message of a queue
    turns: I32  # turns of optical switches
    entries: I32  # [P] or [1], or [0]: the join that a participant's messages wait for
    exits: I32  # [P] or [1], or [0]: the join that ends when a participant is done


class Classes(NamedTuple):
    """The classes of tasks of a schedule, and the classes that each waits for.

    With translations a class stands for one task of every rank; `away` is then the distance to the rank of the predecessor.
    """

    messages: MessageTable
    origin: I32  # [M] the first row of each message in the schedule
    queues: Queues
    tasks: Tasks
    start: I64  # [C + 1] where the predecessors of each class begin
    pred: I32  # [E] class that must come first
    left: Bool  # [E] see `Graph.pred_left`
    pred_offset: I64 | None  # [E] the rank of the predecessor, seen from rank 0; None: each class is one task

    @property
    def pairs(self) -> tuple[I64, I64, I64]:
        """[R] the source, destination and channel of the messages that need a route, each triple once."""
        return _ends(self.messages, self.queues.message[self.queues.tail])

    @property
    def pair_bytes(self) -> F64:
        """[R] the bytes of all messages of each pair."""
        queues = self.queues
        return column(np.bincount(queues.pair, self.messages.size_bytes[queues.message], len(queues.tail)), np.float64)


def _ends(messages: MessageTable, of: I32) -> tuple[I64, I64, I64]:
    """Return the sources, destinations and channels of the messages with the numbers `of`."""
    src, dst, channel = (column(c[of], np.int64) for c in (messages.src, messages.dst, messages.channel))
    return src, dst, channel


def invariant(slot_bytes: I64, translations: Translations) -> bool:
    """Return whether the translations map each slot to a slot of the same size in bytes."""
    if not len(slot_bytes) or slot_bytes.min() == slot_bytes.max():
        return True
    dims, digits = translations.dims, translations.slot_digits
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
        schedule: The schedule. If it declares translations, these must keep the size of every slot, and nothing may be delayed
            or turn.
        slot_bytes: [K] bytes of each slot.
        joins: The joins that each participant gets; with entries, a message waits until both its ends have entered.
        delayed: Whether a sender spends time on each message of a queue before it may leave, one after another.
        needs: A function that returns the optical switches that messages need, if switches turn.
    """
    if needs is not None or some_empty(slot_bytes):
        return _classes_of_rows(schedule, slot_bytes, joins, delayed, needs)
    found = _classes_without_empty_slots(schedule, joins, delayed)
    return found._replace(messages=found.messages._replace(size_bytes=_sizes(schedule, slot_bytes, found.messages)))


@cached(LRUCache(_KEPT, getsizeof=lambda found: len(found.pred) + len(found.messages.of_row) + 1), lock=Lock())
def _classes_without_empty_slots(schedule: Schedule, joins: Joins, delayed: bool) -> Classes:
    """Return the classes of tasks of a schedule in which no slot is empty; all but the bytes of messages hold for any size."""
    return _classes_of_rows(schedule, np.broadcast_to(np.int64(1), schedule.n_slots), joins, delayed, None)


def _sizes(schedule: Schedule, slot_bytes: I64, messages: MessageTable) -> I64:
    """Return [M] the bytes of each message of a schedule in which no slot is empty."""
    sizes = slot_bytes if schedule.by_rank else np.concatenate((slot_bytes, slot_bytes[list(schedule.temps)]))
    of_row = np.where(schedule.src == schedule.dst, 0, sizes[schedule.slot]).astype(np.int64)
    return column(np.add.reduceat(of_row, messages.first) if len(of_row) else of_row, np.int64)


def _classes_of_rows(schedule: Schedule, slot_bytes: I64, joins: Joins, delayed: bool, needs: Needs | None) -> Classes:
    """Return the classes of the rows that carry bytes; see `classes_of` for the arguments."""
    rows, messages = _rows_and_messages(schedule, slot_bytes)
    queues = queues_of(messages, schedule.n_participants)
    turns = _turns(messages, queues, needs)
    ends = _Endpoints.of(schedule, rows, messages)
    counts = len(queues.message) * delayed, turns.total, ends.n * (joins == Joins.BOTH), ends.n * (joins != Joins.NONE)
    tasks = _number_classes(len(messages.src), *counts)
    start, pred, left = _predecessors(messages, queues, ends, tasks, turns)
    origin = column(rows.number[messages.first], np.int32)
    if ends.sender is None:
        return Classes(messages, origin, queues, tasks, start, pred, left, None)
    edges = _class_edges((start, pred, left), _class_count(messages, tasks), ends.sender, schedule.translations)
    return Classes(messages, origin, queues, tasks, *edges)


def _rows_and_messages(schedule: Schedule, slot_bytes: I64) -> tuple[RowTable, MessageTable]:
    """Return the rows that carry bytes, and the messages that they form."""
    if not schedule.by_rank:
        sizes = np.concatenate((slot_bytes, slot_bytes[list(schedule.temps)])).astype(np.int64)
        rows = rows_of(schedule, sizes)
        return rows, messages_of(rows, sizes)
    rows = rows_of(schedule, slot_bytes)  # there may be billions of slots, and a view of one number be their sizes
    slots, code = np.unique(rows.slot, return_inverse=True)
    return rows, messages_of(rows._replace(slot=column(code, np.int32)), slot_bytes[slots])


def _turns(messages: MessageTable, queues: Queues, needs: Needs | None) -> SwitchTurns:
    """Return the turns of optical switches; none if no switch turns."""
    message, none = queues.message, np.zeros((0, 0), np.int64)
    if needs is None:
        return turns_of(message[:0], message[:0], none, none)
    return turns_of(message, messages.when[message], *needs(*_ends(messages, message)))


def _number_classes(*counts: int) -> Tasks:
    """Return the numbers of the classes of each kind; those of a kind follow those of the kind before.

    Args:
        *counts: The number of messages, and then the numbers of delays, turns, entries and exits.
    """
    return Tasks(*(column(np.arange(*span), np.int32) for span in pairwise(accumulate(counts))))


def _class_count(messages: MessageTable, tasks: Tasks) -> int:
    """Return the number of classes of tasks: one for each message, and those of the delays, turns and joins."""
    return len(messages.src) + sum(map(len, tasks))


class _Endpoints(NamedTuple):
    """The participants that send and receive messages, and the reads and writes of slots.

    Where a schedule declares translations, rank 0 stands for all ranks, and is the only endpoint.
    """

    n: int  # number of endpoints
    src: I32  # [M] the endpoint that sends each message
    dst: I32  # [M] the endpoint that receives it, or that receives another message of its class
    accesses: Accesses
    sender: I64 | None  # [M] the rank whose message of the class arrives at rank 0; None: each message is alone in its class

    @staticmethod
    def of(schedule: Schedule, rows: RowTable, messages: MessageTable) -> "_Endpoints":
        """Return the endpoints of a schedule's messages: all participants, or rank 0 alone if it declares translations."""
        n = schedule.n_participants
        if not schedule.by_rank:
            n_slots = schedule.n_slots + len(schedule.temps)
            return _Endpoints(n, messages.src, messages.dst, accesses_of(rows, messages, n_slots, n), None)
        translations = schedule.translations
        sender = translations.opposite(messages.dst)
        written = translations.slot(rows.slot, sender[messages.of_row])
        names, code = np.unique(np.concatenate((rows.slot, written)), return_inverse=True)
        read, write = (column(c, np.int32) for c in np.split(code, 2))
        here, there = np.zeros_like(rows.src), np.zeros_like(messages.src)
        at_0 = rows._replace(src=here, dst=here, slot=read, written=write)
        return _Endpoints(1, there, there, accesses_of(at_0, messages, len(names), 1), sender)


def _predecessors(messages: MessageTable, queues: Queues, ends: _Endpoints, tasks: Tasks, turns: SwitchTurns) -> Predecessors:
    """Return the predecessors of all tasks of rank 0 or, without translations, of all participants.

    If a message has a delay, the delay waits for everything but the message's queue. If a class stands for several messages,
    the one that rank 0 sends has the number of its class. The one that arrives at rank 0 is another message; it is numbered
    after all classes, in the same order.
    """
    n_messages, n_tasks = len(messages.src), _class_count(messages, tasks)
    apart = 0 if ends.sender is None else n_tasks
    leaving = np.arange(n_messages, dtype=np.int32)
    if len(tasks.delays):
        leaving[queues.message] = tasks.delays
    accesses = ends.accesses
    read, arrives = accesses.message[0], column(accesses.message[1] + np.int32(apart), np.int32)
    reads, writes = (leaving[read], leaving[arrives]) if len(tasks.delays) else (read, arrives)
    given = Edges.joined([*_join_edges(messages, queues, ends, tasks, (leaving, apart)), *_turn_edges(tasks, turns, leaving)])
    places, when = accesses.places, accesses.when
    reversed_places = np.roll(places, 2, axis=1)

    def emit_all(out: EdgeSink) -> None:
        wait_for_others(places, when, (reads, arrives), False, out)
        wait_for_others(reversed_places, when[::-1], (writes, read), True, out)
        wait_for_overwrites(places, when, accesses.reduce, (writes, arrives), out)
        wait_for_queue(queues.keys, queues.message, out)
        given.write(out)

    return columns_of(emit_all, n_tasks + (n_messages if apart else 0), len(read) + len(queues.message))


def _join_edges(
    messages: MessageTable, queues: Queues, ends: _Endpoints, tasks: Tasks, first: tuple[I32, int]
) -> Iterable[Edges]:
    """Yield the edges of delays, entries and exits.

    Args:
        messages: The messages.
        queues: The queues of messages.
        ends: The senders and receivers of messages.
        tasks: The numbers of the tasks that are no messages.
        first: The task that begins each message, and the offset of the numbers of arriving messages.
    """
    (leaving, apart), message = first, queues.message
    local = np.flatnonzero(messages.src == messages.dst)
    leads, meets, last = (message[queues.mark & bit != 0] for bit in (FIRST, MEETS, LAST))
    tail = message[queues.tail]
    if len(tasks.exits):
        yield Edges.of(tasks.exits[ends.src[last]], last, left=True)
        yield Edges.of(tasks.exits[ends.dst[tail]], tail + apart)
        yield Edges.of(tasks.exits[ends.dst[local]], local)
    if len(tasks.delays):
        src, channel, _ = queues.keys
        chained = np.flatnonzero((src[1:] == src[:-1]) & (channel[1:] == channel[:-1]))
        yield Edges.of(message, tasks.delays)
        yield Edges.of(tasks.delays[chained + 1], tasks.delays[chained])
    if len(tasks.entries):
        leads = np.concatenate((leads, local))
        yield Edges.of(leaving[leads], tasks.entries[ends.src[leads]])
        if len(tasks.exits):
            yield Edges.of(tasks.exits, tasks.entries)
        yield Edges.of(leaving[meets] + apart, tasks.entries[ends.dst[meets]])


def _turn_edges(tasks: Tasks, turns: SwitchTurns, leaving: I32) -> Iterable[Edges]:
    """Yield the edges from the turns of switches to the messages before them, and from later messages to turns."""
    (turn, earlier), (later, awaited) = turns.before, turns.after
    yield Edges.of(tasks.turns[turn], earlier)
    yield Edges.of(leaving[later], tasks.turns[awaited])


def _class_edges(edges: Predecessors, n_tasks: int, sender: I64, translations: Translations) -> tuple[I64, I32, Bool, I64]:
    """Return the edges between classes, without duplicates, and the offset of the rank of each predecessor.

    A message that arrives at rank 0 is replaced by its class.
    """
    start, pred, left = edges
    joins = np.arange(len(start) - 1 - n_tasks - len(sender))
    number = np.concatenate((np.arange(n_tasks), np.arange(len(sender)), n_tasks + joins))
    rank_of = np.concatenate((np.zeros(n_tasks, np.int64), sender, np.zeros_like(joins)))
    waits = np.repeat(np.arange(len(start) - 1), np.diff(start))
    pred_offset = translations.rank(rank_of[pred], translations.opposite(rank_of[waits]))
    task, pred = number[waits], column(number[pred], np.int32)
    by = np.lexsort((pred_offset, pred, task))
    task, pred, pred_offset, left = task[by], column(pred[by], np.int32), pred_offset[by], column(left[by], np.bool_)
    first = np.flatnonzero(np.diff(task, prepend=-1) | np.diff(pred, prepend=-1) | np.diff(pred_offset, prepend=-1))
    left = np.logical_and.reduceat(left, first) if len(first) else left  # to have ended is more than to have left
    begins = np.searchsorted(task[first], np.arange(n_tasks + len(joins) + 1))
    return column(begins, np.int64), column(pred[first], np.int32), column(left, np.bool_), column(pred_offset[first], np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class JobOrbits:
    """The orbits of nodes and of links of a job under its symmetries; one member of each orbit represents the others."""

    nodes: Orbits
    links: Orbits
    routes: dict[object, MessageRoutes] = field(default_factory=dict)  # of each placed schedule that `job_symmetry` tested
