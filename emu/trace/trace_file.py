"""A trace as a file (a zip of numpy columns and a JSON head, without code), and the checks of a trace.

Each amount must be 0 or more, and each event may wait for earlier events only.
E events of a role, W waits, S split sizes.
"""

import io
import json
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from emu.arrays import Bool, column
from emu.errors import InputError, must_be
from emu.files import read_input, write_file
from emu.trace.timed_dtype import is_single
from emu.trace.trace import PARTS, Events, Group, Trace


def check_trace(trace: Trace) -> None:
    """Check that a trace can be timed.

    Args:
        trace: A trace of all ranks.

    Raises:
        InputError: an amount, a split size or a wait that is impossible; the message names the first such event.
    """
    for role, events in enumerate(trace.events):
        rank = int(np.flatnonzero(trace.role_of_rank == role).min(initial=len(trace.role_of_rank)))
        _check(events, f"of rank {rank}")


def _check(events: Events, whose: str) -> None:
    most = np.where(is_single(events) > 0, events.bytes // 4, np.iinfo(np.int64).max)
    _refuse(~(np.isfinite(events.flops) & (events.flops >= 0)), "flops", "finite and 0 or more", events.flops, events, whose)
    _refuse(events.bytes < 0, "bytes", "0 or more", events.bytes, events, whose)
    too_many = (events.count < 0) | (events.count > most)
    _refuse(too_many, "count", "0 or more, and no more than its bytes hold", events.count, events, whose)
    _check_splits(events, whose)
    waiting = np.repeat(np.arange(len(events)), np.diff(events.wait_start))
    later = np.flatnonzero((events.wait < 0) | (events.wait >= waiting))
    if len(later):
        row, wait = waiting[later[0]], events.wait[later[0]]
        raise must_be("trace", f"a wait of event {row} {whose} ({events.name[row]})", "an earlier event", wait)


def _check_splits(events: Events, whose: str) -> None:
    row = np.repeat(np.arange(len(events)), np.diff(events.split_start))
    total = np.bincount(row, events.split, len(events))
    below = np.bincount(row, events.split < 0, len(events)) > 0
    split = np.diff(events.split_start) > 0
    most = "0 or more each, and no more than its count together"
    _refuse(below | (split & (total > events.count)), "the sum of split sizes", most, total.astype(np.int64), events, whose)
    broken = split & ((events.count <= 0) | (events.bytes % np.maximum(events.count, 1) != 0))
    _refuse(broken, "bytes", "a multiple of its count, as it has split sizes", events.bytes, events, whose)


def _refuse(bad: Bool, name: str, what: str, values: NDArray[np.generic], events: Events, whose: str) -> None:
    if bad.any():
        row = int(bad.argmax())
        raise must_be("trace", f"{name} of event {row} {whose} ({events.name[row]})", what, values[row])


_FORMAT = "emu trace 3"
# Errors that a damaged file causes: of its zip, of the columns in it, or of its head.
_UNREADABLE = (
    *(EOFError, OSError, NotImplementedError, RecursionError, zlib.error, zipfile.BadZipFile),
    *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
)
_MEASURED = "lasts_s"  # a column that older files lack
_WORDS = ("name", "dtype")  # columns of text: each is stored as a table of words and an index into it


def save(trace: Trace, path: Path) -> None:
    """Write a trace to a file.

    Raises:
        WriteError: the file cannot be written.
    """
    arrays: dict[str, np.ndarray] = {"role_of_rank": trace.role_of_rank, "peak_by_part": trace.peak_by_part}
    words: list[dict[str, list[str]]] = []
    for role, events in enumerate(trace.events):
        words.append({})
        for name in Events.__slots__:
            value = getattr(events, name)
            if name in _WORDS:
                table, index = np.unique(np.array(value, dtype=str), return_inverse=True)
                words[-1][name], value = table.tolist(), index
            arrays[f"{role}/{name}"] = value
    head = {
        "format": _FORMAT,
        "words": words,
        "groups": [[g.axis, list(g.ranks)] for g in trace.groups],
        "group_of": trace.group_of,
        "meta": trace.meta,
    }
    file = io.BytesIO()
    np.savez_compressed(file, head=np.frombuffer(json.dumps(head).encode(), np.uint8), allow_pickle=False, **arrays)
    write_file("--trace", path, file.getvalue())


def load(path: Path) -> Trace:
    """Read a trace from a file.

    Raises:
        InputError: the file cannot be read, or is no trace of this version.
    """
    data = read_input("trace", path, most=None)
    try:
        return _parse(io.BytesIO(data))
    except _UNREADABLE:
        raise InputError(f"trace: {str(path)!r} is no trace of this version ({_FORMAT}); record it again by --trace") from None


def _parse(file: IO[bytes]) -> Trace:
    with np.load(file, allow_pickle=False) as stored:
        head = json.loads(stored["head"].tobytes())
        if head["format"] != _FORMAT:
            raise ValueError(head["format"])
        events = []
        for role, words in enumerate(head["words"]):
            named = (name for name in Events.__slots__ if name != _MEASURED or f"{role}/{name}" in stored)
            columns: dict[str, Any] = {name: stored[f"{role}/{name}"] for name in named}
            for name, found in columns.items():
                table = words.get(name)
                columns[name] = tuple(table[i] for i in found) if table is not None else column(found, found.dtype.type)
            events.append(Events(**columns))
        return Trace(
            tuple(events),
            column(stored["role_of_rank"], np.int32),
            tuple(Group(axis, tuple(ranks)) for axis, ranks in head["groups"]),
            tuple(tuple(numbers) for numbers in head["group_of"]),
            column(stored["peak_by_part"], np.int64).reshape(-1, len(PARTS)),
            tuple((str(k), str(v)) for k, v in head["meta"]),
        )
