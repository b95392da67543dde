"""Sorting and grouping of a schedule's columns: rows become messages, and messages become queues and pairs.

Letters: S rows, K slots, M messages, Q messages in queues, P participants, R distinct (src, dst, channel), G places.
"""

from typing import Any

from numpy import empty, full, int8, int32, zeros
from numpy import int64 as np_int64
from numpy.typing import NDArray

from emu.arrays import I32, I64, Bool
from emu.compiled.function import compiled_making_arrays

FIRST, MEETS, LAST = 1, 2, 4  # bits: in its queue's first round; first of its (src, dst, channel); in the last round


@compiled_making_arrays
def group_rows(keys: tuple[I32, I32, I32, I32, I32], slot_bytes: I64) -> tuple[I32, I64, I32]:
    """Return [S] the message of each row, [M] the bytes of each message, and [M] its first row.

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
    """Return the indices sorted by (major, minor); equal ones keep their order (two counting sorts)."""
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
    """Return [G, 4] the range of reads and the range of writes of each (slot, participant) that is written.

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
    """Return, for each message that leaves a rank, its bits and its pair; and, for each pair, its last message.

    A queue is the messages of one source on one channel. A pair is the messages of one queue to one destination.

    Args:
        keys: [Q] src, channel, round and dst of each message, sorted by the first three.
        n_participants: The number of participants; each src and dst is below it.

    Returns:
        [Q] the bits of each message: FIRST if it is in the first round of its queue, LAST if it is in the last round of its
        queue, MEETS if it is the first message of its pair. [Q] the number of its pair. [R] the index of the last message of
        each pair.
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
