"""The last words of a process that a signal ends: which signal, and at which line of its program each rank was.

Python's `faulthandler` writes them, also where no Python runs any more, to whoever watches the process: the desk of a job, or
the process that has started it.
"""

import faulthandler
import os
import re
import signal
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from emu.backend.rank.source_lines import SourceLine, in_brackets, is_users

_FAULTS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
_ASKED = (signal.SIGTERM, signal.SIGHUP)  # ends that somebody asks for
_RANK = re.compile(r"^rank (\d+) is (0x[0-9a-f]+)$", re.MULTILINE)
_ENDED = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_THREAD = re.compile(r"^(Current thread|Thread) (0x[0-9a-f]+)[^\n]*\n((?:  [^\n]*\n?)*)", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in ', re.MULTILINE)
_STDERR = 2
_told: list[int] = []  # where the words of this process go


@dataclass(frozen=True, slots=True)
class Fatal:
    """How a process ended: the name of the signal, the rank that ran into it if one did, and where each was, in brackets."""

    name: str
    rank: int | None = None
    at: dict[int, str] = field(default_factory=dict)


def tell(*to: int) -> None:
    """Write the last words of this process from now on to an open file, or if none is given to stderr."""
    _told[:] = to
    faulthandler.enable(to[0] if to else _STDERR, all_threads=bool(to))


@contextmanager
def tells(to: int) -> Iterator[None]:
    """Write the last words of this process to an open file, while the context lasts."""
    before = [*_told]
    tell(to)
    try:
        yield
    finally:
        tell(*before)


@contextmanager
def told_to_end() -> Iterator[None]:
    """Tell also which signal has asked this process to end, which ends it; for what has no better to do then."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _end) for number in _ASKED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_here(rank: int) -> None:
    """Say that a rank is the thread that asks."""
    for file in _told:
        os.write(file, f"rank {rank} is {threading.get_ident():#018x}\n".encode())


def read(words: str) -> Fatal | None:
    """Return what a process said at its end; None where it said nothing."""
    ended = _ENDED.search(words)
    if ended is None:
        return None
    ranks = {int(thread, 16): int(rank) for rank, thread in _RANK.findall(words[: ended.start()])}
    said = [
        (kind, ranks[int(thread, 16)], _line(frames))
        for kind, thread, frames in _THREAD.findall(words, ended.end())
        if int(thread, 16) in ranks
    ]
    culprit = next((rank for kind, rank, _ in said if kind.startswith("Current")), None)
    return Fatal(_FAULTS.get(ended[1], ended[1]), culprit, {rank: in_brackets(line) for _, rank, line in said})


def named(ranks: Collection[int]) -> str:
    """Return the ranks of one process in words."""
    return f"rank {min(ranks)}" if len(ranks) == 1 else f"ranks {min(ranks)} to {max(ranks)}"


def died(fatal: Fatal | None, doing: Mapping[int, str], others: str = "") -> str:
    """Return in words how a process ended.

    Args:
        fatal: By its last words; None: it has said none, as where it is killed.
        doing: By rank that it had, what that was last known to do; "" where nothing is known.
        others: Who waited for what.
    """
    how = "died without a word, as where SIGKILL ends it" if fatal is None else f"was ended by {fatal.name}"
    at: Mapping[int, str] = {} if fatal is None else fatal.at
    only = fatal.rank if fatal is not None else None
    if len(doing) == 1 or only is not None:
        (rank,) = doing if only is None else (only,)
        told = [f"{named([rank])}: its process {how}{at.get(rank, '')}", doing.get(rank, "")]
    else:
        each = [" ".join(filter(None, (f"{r}{at.get(r, '')}", does))) for r, does in doing.items() if does or at.get(r)]
        told = [f"{named(doing)}: their process {how}", *each]
    return "; ".join(filter(None, (", ".join(filter(None, told)), others)))


def story(name: str, words: str) -> str:
    """Return in words how a process ended on its own: by which signal, and what it has said."""
    fatal = read(words) or Fatal(name)
    ranks = {int(rank): "" for rank, _ in _RANK.findall(words)}
    return died(fatal, ranks) if ranks else f"the process of the command was ended by {fatal.name}"


def _line(frames: str) -> SourceLine | None:
    found = (SourceLine(file, int(number)) for file, number in _FRAME.findall(frames))
    return next((line for line in found if is_users(line.file)), None)


def _end(number: int, frame: FrameType | None) -> None:
    for file in _told:
        os.write(file, f"Fatal Python error: {signal.Signals(number).name}\n\n".encode())
        faulthandler.dump_traceback(file, all_threads=True)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _forget_in_child() -> None:
    """A process that a rank forks has last words of its own."""
    if _told:
        tell()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_in_child)
