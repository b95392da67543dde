"""The routes of messages: the links that each crosses, and the latency of the whole route.

Letters: L links, O orbits of links, P pairs, H hops.

Also here: the messages of a schedule's rows, and the queues of these messages.

Letters: S rows, K slots, M messages, Q of them in queues (not local), P participants, R distinct (src, dst, channel).

Also here: sorting and grouping of a schedule's columns: rows into messages, messages into queues and pairs.

Letters: S rows, M messages, Q messages in queues, P participants, R distinct (src, dst, channel).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy import empty, full, int8, int32, zeros
from numpy import int64 as np_int64
from numpy.typing import NDArray

from emu.arrays import F64, I32, I64, Bool, column
from emu.collective.schedule import Schedule
from emu.compiled.function import compiled_making_arrays
from emu.equivalence import Orbits
from emu.errors import InputError
from emu.topology.topology import Routes, Topology
from emu.units import MAX_TICKS, TICKS_PER_S

FIRST, MEETS, LAST = 1, 2, 4  # bits: in its queue's first round; first of its (src, dst, channel); in the last round


@compiled_making_arrays
def group_rows(keys: tuple[I32, I32, I32, I32, I32], slot_bytes: I64) -> tuple[I32, I64, I32]:
    """Return [S] the message of each row, [M] the bytes of each message, and [M] its first row; a local row is one message.

    Args:
        keys: [S] round, src, dst, channel and slot, in the order of a schedule.
        slot_bytes: [K] bytes of each slot.
    """
    when, src, dst, channel, slot = keys
    rows, count = len(when), 0
    message, first, size = empty(rows, int32), empty(rows, int32), zeros(rows, np_int64)
    for i in range(rows):
        same = i > 0 and when[i] == when[i - 1] and src[i] == src[i - 1] and dst[i] == dst[i - 1]
        if not same or channel[i] != channel[i - 1] or src[i] == dst[i]:
            first[count] = i
            count += 1
        message[i] = count - 1
        if src[i] != dst[i]:
            size[count - 1] += slot_bytes[slot[i]]
    return message, size[:count], first[:count]


@compiled_making_arrays
def _counting(key: I32, n_keys: int, order: I32) -> I32:
    """Return `order` sorted by key, with equal keys in their old order; an empty `order` means the order of the rows."""
    given = len(order) > 0
    place, out = zeros(n_keys + 1, np_int64), empty(len(key), int32)
    for k in key:
        place[k + 1] += 1
    for k in range(n_keys):
        place[k + 1] += place[k]
    for i in range(len(key)):
        row = order[i] if given else int32(i)
        out[place[key[row]]] = row
        place[key[row]] += 1
    return out


@compiled_making_arrays
def stable_order(major: I32, n_major: int, minor: I32, n_minor: int) -> I32:
    """Return the indices sorted by (major, minor), with equal ones in their old order, by two counting sorts."""
    order = _counting(minor, n_minor, empty(0, int32)) if n_minor > 1 else empty(0, int32)
    return _counting(major, n_major, order)


@compiled_making_arrays
def take(values: I32 | I64 | Bool, order: I32) -> NDArray[Any]:
    """Return `values[order]`; numpy would first make a copy of the indices with 64 bits."""
    out = empty(len(order), values.dtype)
    for i in range(len(order)):
        out[i] = values[order[i]]
    return out


@compiled_making_arrays
def meeting_places(where: tuple[I64, I64]) -> I64:
    """Return [G, 4] the ranges of the reads and of the writes of each (slot, participant) that is written.

    Args:
        where: [S] the number of the (slot, participant) of each read, and [S] that of each write, both ascending.
    """
    read_at, write_at = where
    size, places, i, j = len(read_at), 0, 0, 0
    out = empty((size, 4), np_int64)
    while j < size:
        here = write_at[j]
        while i < size and read_at[i] < here:
            i += 1
        out[places, 0], out[places, 2] = i, j
        while i < size and read_at[i] == here:
            i += 1
        while j < size and write_at[j] == here:
            j += 1
        out[places, 1], out[places, 3] = i, j
        places += 1
    return out[:places]


@compiled_making_arrays
def mark_queues(keys: tuple[I32, I32, I32, I32], n_participants: int) -> tuple[NDArray[int8], I32, I32]:
    """Return [Q] the bits FIRST, MEETS and LAST of each message, [Q] its pair, and [R] the last message of each pair.

    Args:
        keys: [Q] src, channel, round and dst, sorted by the first three.
        n_participants: P.
    """
    src, channel, when, dst = keys
    size = len(src)
    mark, pair, tail = zeros(size, int8), empty(size, int32), empty(size, int32)
    met, pairs, first = full(n_participants, -1, int32), 0, 0  # met[dst] is of another queue where below `first`
    begin = 0
    for m in range(size):
        if m == 0 or src[m - 1] != src[m] or channel[m - 1] != channel[m]:
            first, begin = pairs, m
        if when[m] == when[begin]:
            mark[m] |= FIRST
        if met[dst[m]] < first:
            met[dst[m]] = pairs
            mark[m] |= MEETS
            pairs += 1
        pair[m] = met[dst[m]]
        tail[pair[m]] = m
    for m in range(size - 1, -1, -1):
        if m == size - 1 or src[m + 1] != src[m] or channel[m + 1] != channel[m]:
            begin = m
        if when[m] == when[begin]:
            mark[m] |= LAST
    return mark, pair, tail[:pairs]


class RowTable(NamedTuple):
    """The rows that carry bytes, as columns [S]."""

    when: I32
    src: I32
    dst: I32
    channel: I32
    slot: I32
    written: I32  # slot that the receiver writes
    reduce: Bool
    number: I32  # number of the row in the schedule


class MessageTable(NamedTuple):
    """The messages of a schedule, as columns [M]; a local row is a message that goes nowhere."""

    of_row: I32  # [S] message of each row
    size_bytes: I64
    first: I32  # first row of each message
    when: I32
    src: I32
    dst: I32
    channel: I32


class Accesses(NamedTuple):
    """The reads and the writes of each (slot, participant), in the order of rounds."""

    places: I64  # [G, 4] range of the reads and range of the writes of each (slot, participant)
    when: tuple[I32, I32]  # [S] round of each read, of each write
    message: tuple[I32, I32]  # [S] message of each read, of each write
    reduce: Bool  # [S] whether each write adds


class Queues(NamedTuple):
    """The messages that are not local, by (src, channel) and in the order of rounds, as columns [Q]."""

    message: I32
    keys: tuple[I32, I32, I32]  # src, channel, round
    mark: NDArray[np.int8]  # bits FIRST, MEETS and LAST
    pair: I32  # number of its (src, dst, channel)
    tail: I32  # [R] the last message of each pair


def some_empty(sizes: I64) -> bool:
    """Return whether any size is 0; if the sizes are a view of one number, only this number is looked at."""
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
    """Return the messages that rows form."""
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
    """Return the message of each given row."""
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


RoutePairs = tuple[I64, I64, I64]  # [P] source, destination, key


class MessageRoutes(NamedTuple):
    """The routes of pairs, over links or over orbits of links."""

    capacity_Bps: F64  # [L or O] bandwidth of each
    head_fs: I64  # [P] ticks that the head of a message takes over the route, with the software's time for a message
    start: I64  # [P + 1] where the hops of each pair begin
    link: I32  # [H] link or orbit of each hop
    weight: I32  # [H] number of copies of the route that cross one link of the orbit


def routes_of_pairs(topology: Topology, pairs: RoutePairs) -> MessageRoutes:
    """Return the routes of pairs over links.

    Raises:
        InputError: No route joins a pair; or see `head_times`.
    """
    found, links = topology.routes(*pairs), topology.links
    once = np.ones(len(found.link), np.int32)
    return MessageRoutes(
        links.bandwidth_Bps, head_times(topology, pairs, found), found.start, column(found.link, np.int32), once
    )


def shared_routes(topology: Topology, pairs: RoutePairs, copies: Orbits, links: Orbits) -> MessageRoutes | None:
    """Return the routes of pairs over orbits of links.

    It is None if the images of the routes do not cross all links of an orbit equally often.

    Args:
        topology: The topology whose links they are.
        pairs: The pairs, each in all copies that stand for others.
        copies: The orbits of copies.
        links: The orbits of links.
    """
    found, n_copies = topology.routes(*pairs), len(copies.first)
    crossing = np.repeat(np.arange(len(found.start) - 1), found.hops) * len(links.first) + links.number[found.link]
    crossed, times = np.unique(crossing, return_counts=True)
    pair, link = np.divmod(crossed, len(links.first))
    weight, odd = np.divmod(times * copies.size[pair % max(1, n_copies)], links.size[link])
    if odd.any():
        return None
    start = column(np.searchsorted(pair, np.arange(len(found.start))), np.int64)
    rate = column(topology.links.bandwidth_Bps[links.first], np.float64)
    return MessageRoutes(rate, head_times(topology, pairs, found), start, column(link, np.int32), column(weight, np.int32))


def head_times(topology: Topology, pairs: tuple[I64, I64, I64], routes: Routes) -> I64:
    """Return [P] the ticks of each route's latency and of the software's time for a message.

    Args:
        topology: The topology whose routes they are.
        pairs: [P] source, destination and key.
        routes: One hop or more for each pair.

    Raises:
        InputError: A route takes longer than the clock can count.
    """
    latency_fs, first = topology.links.latency_fs, routes.start[:-1]
    if not len(first):
        return column([], np.int64)
    of_switch = np.maximum(pairs[0], pairs[1]) >= topology.n_npus  # a helper's: ranks are on NPUs
    calls_fs = topology.message_fs + topology.adding_fs * of_switch
    if int(latency_fs.max(initial=0)) * int(routes.hops.max()) + int(calls_fs.max()) > MAX_TICKS:
        about = np.add.reduceat(latency_fs[routes.link].astype(np.float64), first) + calls_fs
        worst = int(np.argmax(about))
        if about[worst] >= MAX_TICKS:
            raise InputError(
                f"{topology.name}: latencies of the route from node {pairs[0][worst]} to node {pairs[1][worst]} must come to "
                f"less than 9223 s, the end of the clock, got {about[worst] / TICKS_PER_S:.0f} s; take shorter ones"
            )
    return column(np.add.reduceat(latency_fs[routes.link], first) + calls_fs, np.int64)
