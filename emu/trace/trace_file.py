"""A trace as a file: one zip of columns (numpy's npz) and a head in JSON. The file holds no code."""

import io
import json
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from emu.arrays import column
from emu.errors import InputError
from emu.files import write_file
from emu.trace.trace import PARTS, Events, Group, Trace

_FORMAT = "emu trace 3"
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
    try:
        with path.open("rb") as file:
            return _parse(file)
    except OSError as error:
        raise InputError(f"trace: cannot read {str(path)!r}: {error.strerror}") from None
    except (EOFError, KeyError, ValueError, zipfile.BadZipFile):
        raise InputError(f"trace: {str(path)!r} is no trace of this version ({_FORMAT}); record it again by --trace") from None


def _parse(file: IO[bytes]) -> Trace:
    with np.load(file, allow_pickle=False) as stored:
        head = json.loads(stored["head"].tobytes())
        if head["format"] != _FORMAT:
            raise ValueError(head["format"])
        events = []
        for role, words in enumerate(head["words"]):
            columns: dict[str, Any] = {name: stored[f"{role}/{name}"] for name in Events.__slots__}
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
