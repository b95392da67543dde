"""Which line of the user's program asked for something, and tracebacks of such lines.

The user's files are those that are neither Python's own, nor installed, nor Emu's.
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

STDIN = "<stdin>"  # the file of what Python reads from there
_torch = find_spec("torch")  # not loaded: this is asked where a process has ended, too
_EMU = str(Path(__file__).parents[2]) + os.sep
_TORCH = str(Path(_torch.origin).parent) + os.sep if _torch and _torch.origin else "torch"
_PYTHON = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_starts: dict[int, CodeType] = {}  # by identity, as a code's hash is one of all that is in it
F = TypeVar("F", bound=Callable[..., object])


def starts_rank(function: F) -> F:
    """Mark a function that runs a rank's program: whoever called it, such as a launcher, is not of the user's program."""
    _starts[id(function.__code__)] = function.__code__
    return function


class Line(NamedTuple):
    """A line of a file."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{_shown(self.file)}:{self.number}"


def _shown(file: str) -> str:
    """A path from the current folder, if it is in there."""
    folder = os.getcwd() + os.sep  # noqa: PTH109 - as text, and a folder that is gone is no error
    return file.removeprefix(folder)


@cache
def is_users(file: str) -> bool:
    """Whether it is a file of the user's own."""
    if file == STDIN:
        return True
    if file.startswith(("<", _EMU, *_PYTHON)):
        return False
    return not is_installed(Path(file))


def caller() -> Line | None:
    """The innermost line of the user's that is being executed on this thread."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and id(frame.f_code) not in _starts:  # every request asks
        if is_users(frame.f_code.co_filename):
            return Line(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def asked_by_user() -> bool:
    """Whether the function of Emu's that asks was called by a line of the user's, with none of a library's between."""
    others = (frame for frame in _frames() if not frame.f_code.co_filename.startswith(_EMU))
    frame = next(others, None)
    return frame is not None and is_users(frame.f_code.co_filename)


def _frames() -> Iterator[FrameType]:
    """What is being executed on this thread, innermost first, to where its rank starts."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and id(frame.f_code) not in _starts:
        yield frame
        frame = frame.f_back


def raised_at(error: BaseException) -> Line | None:
    """The innermost line of the user's in an error's traceback."""
    lines = [line for line in _lines(_from_start(error.__traceback__)) if is_users(line.file)]
    return lines[-1] if lines else None


def _lines(trace: TracebackType | None) -> Iterator[Line]:
    while trace is not None:
        yield Line(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next


def in_brackets(line: Line | None) -> str:
    """Such as ` (train.py:12)`; nothing for no line."""
    return f" ({line})" if line else ""


def traceback_of(error: BaseException) -> list[str]:
    """An error's traceback as Python prints it, without the lines that are Emu's or torch's; nothing if no other is left.

    It begins where the rank does, not where its error was raised once more. An error of Emu's own is not told at its end: it is
    one line that stands for itself.
    """
    told = traceback.TracebackException(type(error), error, _from_start(error.__traceback__))
    for each in _chain(told):
        kept = [frame for frame in each.stack if not frame.filename.startswith((_EMU, _TORCH, "<frozen "))]
        each.stack = traceback.StackSummary.from_list(kept)
    if not any(each.stack for each in _chain(told)):
        return []
    words = list(told.format())
    if isinstance(error, EmuError):
        words = words[: -len(list(told.format_exception_only()))]
    return "".join(words).splitlines()


def _from_start(trace: TracebackType | None) -> TracebackType | None:
    """What of a traceback is the rank's; all of it, if none starts there."""
    at = trace
    while at is not None and id(at.tb_frame.f_code) not in _starts:
        at = at.tb_next
    return at or trace


def _chain(told: traceback.TracebackException | None) -> Iterator[traceback.TracebackException]:
    """An error, and those that it came from."""
    while told is not None:
        yield told
        told = told.__cause__ or told.__context__
