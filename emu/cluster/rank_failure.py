"""The failures of ranks: exit codes, errors and signals that end a rank, and which one the job reports.

The last words of a process that a signal ends are the signal, and the line of its program at which each rank was. Python's
`faulthandler` writes them, even where Python itself can run no more, to the process that watches: the coordinator of a job, or
the process that started it.
"""

import faulthandler
import os
import re
import signal
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from emu.backend.rank.source_lines import SourceLine, caller, error_line, in_brackets, is_users
from emu.errors import EmuError, RunError

# The beginning of TorchScript's errors, and texts in errors of code that looked for a CUDA device itself.
_COMPILED = "The following operation failed in the TorchScript interpreter"
_WITHOUT_CUDA = ("Cannot initialize CUDA", "not linked with support for cuda", "from the 'CUDA' backend", "SparseCsrCUDA")
_OUT_OF_REACH = (
    "cuda: a function that TorchScript has compiled asks for a CUDA device, and looks for it in PyTorch's own code, where "
    "there is none; let it take the device of a tensor that it is given"
)


class HardExit(SystemExit):
    """The end of a rank by `os._exit`, which runs no exit handlers."""


class RankExit(SystemExit):
    """The exit of a rank with a code other than 0.

    Attributes:
        rank: The rank.
        at: The line of its program, in brackets; "" if it is not known.
        others: The waits of other ranks at that time, in words; "" if none waited.
    """

    def __init__(self, code: object, rank: int = 0, at: str = "") -> None:
        super().__init__(code)
        self.rank, self.at, self.others = rank, at, ""

    @property
    def story(self) -> str:
        """A phrase on how the rank's program exited, with its code.

        A text that the program gave to `sys.exit` counts as code 1.
        """
        code = self.code if isinstance(self.code, int) else 1
        return f"rank {self.rank} left with exit code {code}{self.at}" + (f"; {self.others}" if self.others else "")


def job_error(rank: int, error: BaseException) -> BaseException:
    """Return the error with which the job fails when `error` ends a rank's program.

    Emu's own errors stay as they are; other errors become one line; an exit code gets the rank.
    """
    at = error_line(error) or caller()
    if isinstance(error, RankExit):
        return error
    if isinstance(error, SystemExit):
        left = RankExit(error.code, rank, in_brackets(at))
        left.__cause__ = error
        return left
    if not isinstance(error, EmuError):
        error = _in_one_line(rank, error, at)
    error.rank = rank
    return error


def _in_one_line(rank: int, error: BaseException, at: SourceLine | None) -> RunError:
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    words = type(error).__name__ + (f": {said}" if said else "")
    if said.startswith(_COMPILED) and any(each in str(error) for each in _WITHOUT_CUDA):
        words = _OUT_OF_REACH
    told = RunError(f"rank {rank}: {words}{in_brackets(at)}")
    told.__cause__, told.alike = error, (type(error).__name__, str(at))
    return told


def takes_precedence(new: BaseException, old: BaseException | None) -> bool:
    """Return True if a failure is reported instead of an earlier one.

    Any failure takes precedence over none, and an equal failure of a lower rank over that of a higher one.
    """
    if old is None:
        return True
    first, second = (getattr(each, "rank", None) for each in (new, old))
    if not isinstance(first, int) or not isinstance(second, int):
        return False
    return first < second and _failure_key(new) is not None and _failure_key(new) == _failure_key(old)


def _failure_key(error: BaseException) -> object:
    """Return a key by which equal failures of several ranks are counted together.

    It is the line for an exit, and the attribute `alike` for other errors.
    """
    return ("exit", error.at) if isinstance(error, RankExit) else getattr(error, "alike", None)


_FAULTS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
_ASKED = (signal.SIGTERM, signal.SIGHUP)  # signals that ask a process to end
_RANK = re.compile(r"^rank (\d+) is (0x[0-9a-f]+)$", re.MULTILINE)
_ENDED = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_THREAD = re.compile(r"^(Current thread|Thread) (0x[0-9a-f]+)[^\n]*\n((?:  [^\n]*\n?)*)", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in ', re.MULTILINE)
_STDERR = 2
_outputs: list[int] = []  # the open file for the last words of this process


@dataclass(frozen=True, slots=True)
class FatalSignal:
    """The end of a process by a signal: its name, the rank that caused it if known, and the line of each rank in brackets."""

    name: str
    rank: int | None = None
    at: dict[int, str] = field(default_factory=dict)


def write_last_words(*to: int) -> None:
    """Make this process write its last words to an open file, or to stderr by default, if a signal ends it."""
    _outputs[:] = to
    faulthandler.enable(to[0] if to else _STDERR, all_threads=bool(to))


@contextmanager
def last_words_to(to: int) -> Iterator[None]:
    """Make this process write its last words to an open file, while the context lasts."""
    before = [*_outputs]
    write_last_words(to)
    try:
        yield
    finally:
        write_last_words(*before)


@contextmanager
def handled_signals(handler: Any, *numbers: int) -> Iterator[None]:
    """Set the handler of some signals while the context lasts, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, each in before.items():
            signal.signal(number, each)


def report_termination() -> AbstractContextManager[None]:
    """Return a context in which a signal that ends this process also makes it write its last words."""
    return handled_signals(_end, *_ASKED)


def announce_rank(rank: int) -> None:
    """Write into the file of last words that the calling thread is this rank."""
    for file in _outputs:
        os.write(file, f"rank {rank} is {threading.get_ident():#018x}\n".encode())


def parse_last_words(words: str) -> FatalSignal | None:
    """Parse the last words of a process, and return how it ended; None if there are none."""
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
    return FatalSignal(_FAULTS.get(ended[1], ended[1]), culprit, {rank: in_brackets(line) for _, rank, line in said})


def ranks_in_words(ranks: Collection[int]) -> str:
    """Return a phrase such as `ranks 0, 1` on the ranks of one process."""
    return f"rank {min(ranks)}" if len(ranks) == 1 else f"ranks {min(ranks)} to {max(ranks)}"


def death_in_words(fatal: FatalSignal | None, doing: Mapping[int, str], others: str = "") -> str:
    """Return a sentence on a process that a signal has ended.

    Args:
        fatal: The signal, from the last words of the process; None: it left no last words, as when it is killed.
        doing: For each of its ranks, a text on what it was last known to do; "" if nothing is known.
        others: A text on the waits of other ranks.
    """
    how = "died without a word, as where SIGKILL ends it" if fatal is None else f"was ended by {fatal.name}"
    at: Mapping[int, str] = {} if fatal is None else fatal.at
    only = fatal.rank if fatal is not None else None
    if len(doing) == 1 or only is not None:
        (rank,) = doing if only is None else (only,)
        told = [f"{ranks_in_words([rank])}: its process {how}{at.get(rank, '')}", doing.get(rank, "")]
    else:
        each = [" ".join(filter(None, (f"{r}{at.get(r, '')}", does))) for r, does in doing.items() if does or at.get(r)]
        told = [f"{ranks_in_words(doing)}: their process {how}", *each]
    return "; ".join(filter(None, (", ".join(filter(None, told)), others)))


def own_death_in_words(name: str, words: str) -> str:
    """Return a sentence on the end of a process that ran ranks as threads.

    Args:
        name: The name of the signal that ended the process.
        words: The text that the process wrote as it died, with the signal, the ranks and their lines of code; it may be empty.
    """
    fatal = parse_last_words(words) or FatalSignal(name)
    ranks = {int(rank): "" for rank, _ in _RANK.findall(words)}
    return death_in_words(fatal, ranks) if ranks else f"the process of the command was ended by {fatal.name}"


def _line(frames: str) -> SourceLine | None:
    found = (SourceLine(file, int(number)) for file, number in _FRAME.findall(frames))
    return next((line for line in found if is_users(line.file)), None)


def _end(number: int, frame: FrameType | None) -> None:
    for file in _outputs:
        os.write(file, f"Fatal Python error: {signal.Signals(number).name}\n\n".encode())
        faulthandler.dump_traceback(file, all_threads=True)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _forget_in_child() -> None:
    """Redirect the last words of a forked process to stderr, away from the file of its parent.

    It runs in the child after each fork. Last words are what `faulthandler` writes when a signal ends the process.
    """
    if _outputs:
        write_last_words()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_in_child)
