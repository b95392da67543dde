"""A streaming reader of JSON traces of any size: only one entry and a window of text are in memory."""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from emu.errors import InputError
from emu.files import has_ending

EVENTS = "traceEvents"  # the key whose list has one entry for each event
_MAGIC = b"\x1f\x8b"  # the first bytes of a gzip
_CHUNK = 2**20  # characters that are read at once
_LONGEST = 2**26  # characters of the longest entry
_IN_NUMBER = "e-"  # the longest text within a number behind which it may end, as in 1e-5
_decode = json.JSONDecoder(strict=False).raw_decode  # names of kernels have control characters in some profiles


def open_json(path: Path) -> IO[str]:
    """Open a JSON file, plain or gzipped, as text.

    Raises:
        InputError: The file cannot be read, or is named as a gzip and is none.
    """
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == _MAGIC
        if has_ending(path, ".gz") and not zipped:
            raise InputError(f"profile: {path.name!r} must be a gzip, as its name ends in .gz; name it .json if it is plain")
        opened = gzip.open if zipped else open
        return cast("IO[str]", opened(path, "rt", encoding="utf-8", errors="replace"))
    except OSError as error:
        raise InputError(f"profile: cannot read {str(path)!r}: {error.strerror}") from None


def json_entries(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the key and the value of each entry of a JSON object; of `traceEvents` one event after another.

    A file that is a list of events is read as such an object.

    Raises:
        InputError: the file is cut off, damaged or no JSON; the line names the event.
    """
    last = "its beginning"
    number = 0
    try:
        with open_json(path) as file:
            for key, value in _entries(_Window(file)):
                yield key, value
                if key == EVENTS:
                    name = value.get("name", "") if isinstance(value, dict) else ""
                    last, number = f"event {number} ({name})", number + 1
    except EOFError:
        raise InputError(f"profile: {path.name!r} is cut off after {last}; copy the file again") from None
    except (RecursionError, ValueError, OSError, zlib.error) as error:
        told = " ".join(str(error).split())[:80]
        raise InputError(f"profile: {path.name!r} must be JSON, but is not after {last}: {told}; write it again") from None


class _Window:
    """The window of text that is in memory, and the position in it that is read next."""

    def __init__(self, file: IO[str]) -> None:
        self._file, self._text, self._at = file, "", 0

    def _read_more(self) -> bool:
        """Read the next part of the file into the window; return False at the end of the file."""
        chunk = self._file.read(_CHUNK)
        self._text, self._at = self._text[self._at :] + chunk, 0
        return bool(chunk)

    def next(self) -> str:
        """Return the next character that is not a space, without moving past it.

        Raises:
            EOFError: the text ends.
        """
        while True:
            text = self._text
            while self._at < len(text):
                if not text[self._at].isspace():
                    return text[self._at]
                self._at += 1
            if not self._read_more():
                raise EOFError

    def takes(self, mark: str) -> bool:
        """Return whether the next character is `mark`; if so, move past it."""
        found = self.next() == mark
        self._at += found
        return found

    def value(self) -> Any:
        """Return the next value, and go past it.

        Raises:
            EOFError: the text ends within it.
            ValueError: it is no JSON.
        """
        self.next()
        while True:
            try:
                value, end = _decode(self._text, self._at)
            except json.JSONDecodeError as error:
                cut = error.pos >= len(self._text) - 1 or error.msg.startswith("Unterminated")
                if len(self._text) - self._at > _LONGEST:
                    raise
                if not self._read_more():
                    raise (EOFError() if cut else error) from None
            else:
                length = end - self._at
                if len(self._text) - end > len(_IN_NUMBER) or not self._read_more():  # a number may go on behind the window
                    self._at += length
                    return value


def _entries(window: _Window) -> Iterator[tuple[str, Any]]:
    if window.next() == "[":
        yield from ((EVENTS, value) for value in _items(window))
        return
    if not window.takes("{"):
        raise ValueError("it must begin with { or [")
    while not window.takes("}"):
        key = window.value()
        if not window.takes(":"):
            raise ValueError(f"no colon after the key {key!r}")
        if key == EVENTS:
            yield from ((EVENTS, value) for value in _items(window))
        else:
            yield key, window.value()
        _separator(window, "}")


def _items(window: _Window) -> Iterator[Any]:
    if not window.takes("["):
        raise ValueError(f"{EVENTS} must be a list")
    while not window.takes("]"):
        yield window.value()
        _separator(window, "]")


def _separator(window: _Window, closing: str) -> None:
    if not window.takes(",") and window.next() != closing:
        raise ValueError(f"no comma and no {closing} after a value")
