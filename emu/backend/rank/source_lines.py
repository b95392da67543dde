"""The lines of the user's program that made a request or raised an error, and tracebacks reduced to such lines.

The user's files are all files but Python's own, installed ones, and Emu's.
"""

import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import NamedTuple, TypeVar

from emu.errors import EmuError
from emu.sources import is_installed

STDIN = "<stdin>"  # the file name of a program that Python reads from standard input
_torch = find_spec("torch")  # not loaded, because this module is also used where a process has ended
_EMU = str(Path(__file__).parents[2]) + os.sep
_TORCH = str(Path(_torch.origin).parent) + os.sep if _torch and _torch.origin else "torch"
_PYTHON = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_starts: dict[int, CodeType] = {}  # by identity, because the hash of a code object covers its whole content
F = TypeVar("F", bound=Callable[..., object])


def starts_rank(function: F) -> F:
    """Mark a function as the one that starts a rank's program; its callers are not part of the user's program."""
    _starts[id(function.__code__)] = function.__code__
    return function


class SourceLine(NamedTuple):
    """One line of a source file."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{_shown(self.file)}:{self.number}"


def _shown(file: str) -> str:
    """Return a path relative to the current folder if possible, else the whole path."""
    folder = os.getcwd() + os.sep  # noqa: PTH109 - as text, and a folder that is gone is no error
    return file.removeprefix(folder)


@cache
def is_users(file: str) -> bool:
    """Return True if a file is the user's own."""
    if file == STDIN:
        return True
    if file.startswith(("<", _EMU, *_PYTHON)):
        return False
    return not is_installed(Path(file))


def caller() -> SourceLine | None:
    """Return the line of the user's program that this thread runs, the innermost one; None if it runs none."""
    found = (frame for frame in _frames() if is_users(frame.f_code.co_filename))
    return next((SourceLine(frame.f_code.co_filename, frame.f_lineno) for frame in found), None)


def is_called_by_user() -> bool:
    """Return True if a line of the user's called into Emu directly, with no library between."""
    others = (frame for frame in _frames() if not frame.f_code.co_filename.startswith(_EMU))
    frame = next(others, None)
    return frame is not None and is_users(frame.f_code.co_filename)


def _frames() -> Iterator[FrameType]:
    """Yield the frames of this thread, innermost first, up to the frame that starts its rank."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and id(frame.f_code) not in _starts:
        yield frame
        frame = frame.f_back


def error_line(error: BaseException) -> SourceLine | None:
    """Return the innermost line of the user's program in an error's traceback, or None."""
    lines = [line for line in _lines(_from_start(error.__traceback__)) if is_users(line.file)]
    return lines[-1] if lines else None


def _lines(trace: TracebackType | None) -> Iterator[SourceLine]:
    while trace is not None:
        yield SourceLine(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next


def in_brackets(line: SourceLine | None) -> str:
    """Return a source line in brackets, such as ` (train.py:12)`; "" if there is none."""
    return f" ({line})" if line else ""


def traceback_of(error: BaseException) -> list[str]:
    """Return an error's traceback as Python prints it, without lines of Emu and torch; [] if no other line is left.

    The traceback begins where the rank starts, not where the error was raised again. The message of an EmuError is left out at
    the end, because its one line is printed by itself.
    """
    error_text = traceback.TracebackException(type(error), error, _from_start(error.__traceback__))
    for each in _chain(error_text):
        frames = [frame for frame in each.stack if not frame.filename.startswith((_EMU, _TORCH, "<frozen "))]
        each.stack = traceback.StackSummary.from_list(frames)
    if not any(each.stack for each in _chain(error_text)):
        return []
    words = list(error_text.format())
    if isinstance(error, EmuError):
        words = words[: -len(list(error_text.format_exception_only()))]
    return "".join(words).splitlines()


def _from_start(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback from the start of the rank; the whole traceback if no rank starts in it."""
    at = trace
    while at is not None and id(at.tb_frame.f_code) not in _starts:
        at = at.tb_next
    return at or trace


def _chain(error_text: traceback.TracebackException | None) -> Iterator[traceback.TracebackException]:
    """Yield an error and then its causes, one after another."""
    while error_text is not None:
        yield error_text
        error_text = error_text.__cause__ or error_text.__context__
