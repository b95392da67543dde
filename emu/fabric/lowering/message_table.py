"""The messages that the rows of a schedule form, and their queues.

Letters: S rows, M messages, Q of them in queues (not local), P participants, R distinct (src, dst, channel).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.arrays import I32, I64, Bool, column
from emu.collective.schedule import Schedule
from emu.fabric.lowering.row_order import group_rows, mark_queues, meeting_places, stable_order, take


class RowTable(NamedTuple):
    """The rows of a schedule whose slots are not empty, as columns of S entries."""

    when: I32
    src: I32
    dst: I32
    channel: I32
    slot: I32
    written: I32  # slot that the receiver writes
    reduce: Bool
    number: I32  # number of the row in the schedule


class MessageTable(NamedTuple):
    """The messages of a schedule: one entry of each column for each of M messages. A local row is a message without a route.

    Rows of one source, destination, channel and round form one message. `of_row` has the message of each row, `first` the first
    row of each message, and `when` its round.
    """

    of_row: I32  # [S] message of each row
    size_bytes: I64
    first: I32  # first row of each message
    when: I32
    src: I32
    dst: I32
    channel: I32


class Accesses(NamedTuple):
    """The reads and the writes of each cell (a slot of a participant), in the order of rounds.

    `places` has the range of the reads and that of the writes of each cell in the columns.
    """

    places: I64  # [G, 4] range of the reads and range of the writes of each (slot, participant)
    when: tuple[I32, I32]  # [S] round of each read, of each write
    message: tuple[I32, I32]  # [S] message of each read, of each write
    reduce: Bool  # [S] whether each write adds


class Queues(NamedTuple):
    """The messages between ranks, sorted by sender, channel and round, as columns [Q].

    A queue is the messages of one sender on one channel. `mark` and `pair` are those of `mark_queues`.
    """

    message: I32
    keys: tuple[I32, I32, I32]  # src, channel, round
    mark: NDArray[np.int8]  # bits FIRST, MEETS and LAST
    pair: I32  # number of its (src, dst, channel)
    tail: I32  # [R] the last message of each pair


def some_empty(sizes: I64) -> bool:
    """Return whether any size is 0; for a view of one repeated number, only that number is read."""
    return not (sizes[:1] if sizes.strides == (0,) else sizes).all()


def rows_of(schedule: Schedule, sizes: I64) -> RowTable:
    """Return the rows of a schedule except those of empty slots."""
    kept = np.flatnonzero(sizes[schedule.slot]) if some_empty(sizes) else slice(None)
    number = np.arange(schedule.n_rows, dtype=np.int32)
    named = (schedule.src, schedule.dst, schedule.channel, schedule.slot, schedule.written_slot)
    when, src, dst, channel, slot, written = (column(c[kept], np.int32) for c in (schedule.round_column(), *named))
    reduce, own = column(schedule.reduce[kept], np.bool_), column(number[kept], np.int32)
    return RowTable(when, src, dst, channel, slot, written, reduce, own)


def messages_of(rows: RowTable, sizes: I64) -> MessageTable:
    """Return the messages that rows form: rows of one round, sender, receiver and channel are one message."""
    keys = (rows.when, rows.src, rows.dst, rows.channel, rows.slot)
    of_row, size_bytes, first = group_rows(keys, column(sizes, np.int64))
    when, src, dst, channel = (column(c[first], np.int32) for c in (rows.when, rows.src, rows.dst, rows.channel))
    return MessageTable(of_row, size_bytes, first, when, src, dst, channel)


def accesses_of(rows: RowTable, messages: MessageTable, n_slots: int, n_participants: int) -> Accesses:
    """Return the reads and the writes of each slot of each participant."""
    by_read = stable_order(rows.slot, n_slots, rows.src, n_participants)
    by_write = stable_order(rows.written, n_slots, rows.dst, n_participants)
    reads = rows.slot.astype(np.int64) * n_participants + rows.src
    writes = rows.written.astype(np.int64) * n_participants + rows.dst
    return Accesses(
        meeting_places((column(take(reads, by_read), np.int64), column(take(writes, by_write), np.int64))),
        (column(take(rows.when, by_read), np.int32), column(take(rows.when, by_write), np.int32)),
        (_messages_at(messages, by_read), _messages_at(messages, by_write)),
        column(take(rows.reduce, by_write), np.bool_),
    )


def _messages_at(messages: MessageTable, rows: I32) -> I32:
    """Return the number of the message that each of these rows belongs to."""
    alone = len(messages.first) == len(messages.of_row)  # each row is a message of its own
    return column(rows if alone else take(messages.of_row, rows), np.int32)


def queues_of(messages: MessageTable, n_participants: int) -> Queues:
    """Return the queues of a schedule's messages, with the marks of each message."""
    remote = column(np.flatnonzero(messages.src != messages.dst), np.int32)
    all_remote = len(remote) == len(messages.src)
    src, channel = (c if all_remote else column(take(c, remote), np.int32) for c in (messages.src, messages.channel))
    order = stable_order(src, n_participants, channel, int(channel.max(initial=0)) + 1)
    message = column(order if all_remote else take(remote, order), np.int32)
    own = (messages.src, messages.channel, messages.when, messages.dst)
    src, channel, when, dst = (column(take(c, message), np.int32) for c in own)
    return Queues(message, (src, channel, when), *mark_queues((src, channel, when, dst), n_participants))
