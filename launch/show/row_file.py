"""Answers for other programs: JSON of an answer, and CSV or JSON lines of its rows, written as rows become known."""

import csv
import io
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from pathlib import Path

from emu.errors import WriteError
from emu.files import is_stream, write_file


def plain(value: object) -> object:
    """Return a value in terms of dicts, lists, strings and numbers."""
    if is_dataclass(value) and not isinstance(value, type):
        kept = ((f.name, getattr(value, f.name), "left out" in f.metadata) for f in fields(value))
        return plain({name: each for name, each, optional in kept if each is not None or not optional})
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [plain(v) for v in value]
    return value.item() if hasattr(value, "item") else value


def json_text(value: object) -> str:
    """Return a value as JSON text."""
    return json.dumps(plain(value), indent=2, allow_nan=False)


STDOUT = Path("-")
ENDINGS = (".csv", ".jsonl")
_PAUSE_S = 1.0  # least time between two writings of a file, each of which writes all rows
Take = Callable[[object], None]
_TAKE: ContextVar[Take | None] = ContextVar("takes each row as soon as it is known", default=None)


def row_known(row: object) -> None:
    """Report a row as soon as it is known, to the function that `rows_to` has set."""
    take = _TAKE.get()
    if take is not None:
        take(row)


@contextmanager
def rows_to(take: Take) -> Iterator[None]:
    """Call a function with each row that becomes known within the context."""
    before = _TAKE.set(take)
    try:
        yield
    finally:
        _TAKE.reset(before)


def csv_text(rows: Sequence[object]) -> str:
    """Return rows as CSV with a header; nested fields have dotted names."""
    cells = [dict(_cells(plain(row))) for row in rows]
    text = io.StringIO()
    lines = csv.DictWriter(text, dict.fromkeys(name for row in cells for name in row), lineterminator="\n")
    lines.writeheader()
    lines.writerows(cells)
    return text.getvalue()


def _cells(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Yield the name and the value of each cell of a row; a list is JSON in its cell."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _cells(each, f"{name}.{key}" if name else str(key))
    else:
        yield name or "value", json.dumps(value) if isinstance(value, list) else value


def json_line(row: object) -> str:
    """Return a row as JSON on one line."""
    return json.dumps(plain(row), allow_nan=False)


def rows_text(rows: Sequence[object], ending: str) -> str:
    """Return rows as file content: CSV for the ending .csv, else one line of JSON for each row."""
    return csv_text(rows) if ending == ".csv" else "".join(f"{json_line(row)}\n" for row in rows)


class RowFile:
    """A writer that writes rows to a file or to stdout as they become known.

    A file is written whole, at most once a second and at the end, so that a crash leaves what was known a second before.
    A stream, such as a pipe, is written once, at the end.

    Args:
        path: A name that ends in one of `ENDINGS`, or `STDOUT`, which takes lines of JSON.
        print_line: The function that prints a line on stdout.
    """

    def __init__(self, path: Path, print_line: Callable[[str], None]) -> None:
        self._path, self._print, self._rows, self._next_s = path, print_line, list[object](), 0.0
        self._failed: WriteError | None = None
        self._is_stream = path != STDOUT and is_stream(path)

    def add(self, row: object) -> None:
        """Add a known row, and write the file if a second has passed."""
        self._rows.append(row)
        if self._path == STDOUT:
            self._print(json_line(row))
        elif self._failed is None and not self._is_stream and time.monotonic() >= self._next_s:
            try:
                self._save()
            except WriteError as error:
                self._failed = error
            self._next_s = time.monotonic() + _PAUSE_S

    def save_known(self) -> None:
        """Write the rows so far if the answer was not completed, as after Ctrl-C; nothing if there are none.

        Raises:
            WriteError: the file cannot be written.
        """
        if self._rows and self._path != STDOUT:
            self._save()

    def finish(self, rows: Sequence[object]) -> None:
        """Add the rows of the answer that were not added yet, and write the file.

        Raises:
            WriteError: the file cannot be written.
        """
        for row in rows[len(self._rows) :]:
            self.add(row)
        if self._path != STDOUT:
            self._save()

    def _save(self) -> None:
        """Write the file with all rows so far.

        Raises:
            WriteError: it cannot be written.
        """
        write_file("--out", self._path, rows_text(self._rows, self._path.suffix).encode())
