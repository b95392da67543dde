"""The binary form of GOAL that LogGOPSim's txt2bin writes: little-endian records without padding.

A cookie of 8 bytes; the number of ranks (u32), the largest cpu and NIC (u8 each); for each rank where its part begins and ends
(u64 each, counted from behind the cookie). A part has the numbers of its operations and of those that wait for nothing (u32
each), the latter (u32 each), a record of each operation, and an appendix (u32 each) of operations that wait for others.
"""

import numpy as np

from emu.arrays import I64
from emu.errors import InputError
from emu.trace.formats.goal.goal_ops import GoalOps, Op

COOKIE = (4223).to_bytes(8, "little")
_HEAD = 8 + 4 + 1 + 1
_RECORD = np.dtype(
    [
        *(("waits", "<u4"), ("kind", "u1"), ("peer", "<u4"), ("size", "<u8"), ("tag", "<u4"), ("cpu", "u1"), ("nic", "u1")),
        *(("later", "<u4"), ("later_at", "<u4"), ("starting", "<u4"), ("starting_at", "<u4")),
    ]
)
_ANY = 2**32 - 1  # any rank, or any tag
_MOST_SIZE = 2**62


def parse_binary(data: bytes, file: str) -> GoalOps:
    """Return the operations of a binary file.

    Args:
        data: The content of the file.
        file: The name of the file in error messages.

    Raises:
        InputError: the file is cut off, or an operation of it is impossible.
    """
    n_ranks = int.from_bytes(data[8:12], "little")
    spans = np.frombuffer(data[_HEAD : _HEAD + 16 * n_ranks], "<u8").reshape(-1, 2) if len(data) >= _HEAD + 16 * n_ranks else ()
    if len(spans) != n_ranks or not n_ranks:
        raise InputError(f"goal: {file!r} says that it has {n_ranks} ranks, and is too short for them; it may be cut off")
    parts = [_rank_records(data[8 + low : 8 + high], rank, file) for rank, (low, high) in enumerate(np.asarray(spans).tolist())]
    first = np.cumsum([0, *(len(records) for records, _ in parts)])
    records = np.concatenate([records for records, _ in parts])
    waits = np.concatenate(
        [np.add(found, [[start], [start], [0]]) for start, (_, found) in zip(first, parts, strict=False)], axis=1
    )
    columns = {name: records[name].astype(np.int64) for name in ("kind", "size", "peer", "tag", "cpu", "nic")}
    ops = GoalOps(
        first, **columns, line=np.zeros(len(records), np.int64), waiting=waits[0], waited=waits[1], at_start=waits[2] > 0
    )
    _check(ops, file)
    return ops


def _rank_records(part: bytes, rank: int, file: str) -> tuple[np.ndarray, I64]:
    """Return the records of one rank, and [3, W] its waits.

    Returns:
        The records of its operations; and for each wait the operation that waits, the one that it waits for, and 1 if it waits
        only for the start of that one.

    Raises:
        InputError: the part is shorter than it says, or names an operation that it does not have.
    """
    count, roots = np.frombuffer(part[:8], "<u4").tolist() if len(part) >= 8 else (0, 0)
    begin = 8 + 4 * roots
    end = begin + _RECORD.itemsize * count
    if len(part) < max(end, 8) or (len(part) - end) % 4:
        raise InputError(f"goal: {file!r} rank {rank}: its {count} operations need more bytes than it has; it may be cut off")
    records, appendix = np.frombuffer(part[begin:end], _RECORD), np.frombuffer(part[end:], "<u4").astype(np.int64)
    found = []
    for start, (name, at) in enumerate((("later", "later_at"), ("starting", "starting_at"))):
        size = records[name].astype(np.int64)
        fits = size.sum() <= len(appendix)  # else the places of a damaged file could fill the memory
        place = np.repeat(records[at].astype(np.int64) - np.cumsum(size) + size, size * fits) + np.arange(size.sum() * fits)
        if not fits or (len(place) and (place.max() >= len(appendix) or appendix[place].max() >= count)):
            raise InputError(f"goal: {file!r} rank {rank}: an operation is waited for that it does not have; write it again")
        found.append(np.stack((appendix[place], np.repeat(np.arange(count), size), np.full(len(place), start))))
    return records, np.concatenate(found, axis=1)


def _check(ops: GoalOps, file: str) -> None:
    """Check the numbers of operations.

    Raises:
        InputError: a kind is unknown, a size is too large, or the other end of a message is no rank.
    """
    talks = ops.kind != Op.CALC
    open_ended = talks & ((ops.peer == _ANY) | (ops.tag == _ANY))
    for bad, told in (
        (~np.isin(ops.kind, list(Op)), "its kind must be 1, 2 or 3; the file may be of another version"),
        ((ops.size < 0) | (ops.size >= _MOST_SIZE), f"its size must be below {_MOST_SIZE}; the file may be of another version"),
        (open_ended, "takes a message from any rank or of any tag, which only its run decides; name both"),
        (talks & (ops.peer >= ops.n_ranks), f"its peer must be below {ops.n_ranks}, the number of ranks; mend it"),
    ):
        if bad.any():
            raise InputError(f"goal: {file!r} {ops.place(int(bad.argmax()))}: {told}")
