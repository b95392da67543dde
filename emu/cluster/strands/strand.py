"""A strand is one thread of a rank: the thread of its program, or one that the program or a library has started there.

All strands of a rank belong to the same emulated process: they have the same process groups, environment and random state.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from emu.backend.rank.source_lines import SourceLine, in_brackets
from emu.cluster.strands.resumption import thread_state

_thread = threading.local()  # its `strand`
_forked_by: list[int] = []  # the rank that has forked this process, if one has


class Turns(Protocol):
    """The giver of turns: it lets one strand run at a time."""

    failure: BaseException | None  # of the run

    def has_threads(self, rank: int) -> bool:
        """Return whether a rank has more than one strand that takes turns."""

    def now(self) -> float:
        """Return the time by which strands rest."""

    def after(self, seconds: float) -> float:
        """Return that time after some seconds."""

    def give_way(self, strand: int) -> None:
        """Let the others that are ready run, then go on."""

    def rest(self, strand: int, what: object, until_s: float | None = None) -> bool:
        """Let others run until the strand is woken for that, at the latest at a time; return whether it was woken."""

    def wake(self, key: object) -> bool:
        """Let the strands go on that wait for that; return whether any did."""

    def step_out(self, strand: "Strand", *, awaits: bool = False) -> None:
        """Let others run while the strand runs on without the turn, or waits for processes that are at work."""

    def step_in(self, strand: "Strand", *, is_last: bool = False) -> None:
        """Return when it is the turn of a strand that ran on without it: in its order, or once no other is ready."""

    def await_idle(self, strand: "Strand") -> None:
        """Let others go on before the strand that waits for processes: these are not at work."""

    def stopped(self) -> Exception:
        """Return what a strand is told that goes on after the run has failed."""


@dataclass(eq=False, slots=True)
class Strand:
    """One thread of a rank.

    Args:
        number: By which the cluster knows it; that of the rank for the thread of its program.
        rank: Whose it is.
        turns: Who gives it its turn.
        thread: What runs it.
        is_free: Whether it runs beside the others without the turn, until it asks for something of the rank's.
        is_native: Whether its waits block as the system's do: in the midst of what must not hand on the turn.
        ends: Whether it is to end where it waits next: its rank has ended.
        is_done: Whether it has ended.
        end: When it has ended: the end of all that it has done.
        state: Where Python keeps the state of its thread.
    """

    number: int
    rank: int
    turns: Turns
    thread: threading.Thread
    is_free: bool = False
    is_native: bool = False
    ends: bool = False
    is_done: bool = False
    end: Any = None
    state: int = 0

    @property
    def is_main(self) -> bool:
        """Whether it is the thread of the rank's program."""
        return self.number == self.rank


@dataclass(frozen=True, eq=False, slots=True)
class Wait:
    """One wait of a strand outside of communication.

    Args:
        what: Such as "a lock".
        line: Of the user's program, that waits.
        of: By which the strand is woken; None: by this alone.
        is_over: Says, once nobody else can change it, whether what it waits for has come.
        comes: Whether it comes by itself, as a time does.
    """

    what: str
    line: SourceLine | None = None
    of: object = None
    is_over: Callable[[], bool] = lambda: False
    comes: bool = False

    @property
    def key(self) -> object:
        """By which the strand is woken."""
        return self if self.of is None else self.of

    def told(self, rank: int) -> str:
        """Return such as `rank 1 waits for a lock (train.py:12)`."""
        return f"rank {rank} waits for {self.what}{in_brackets(self.line)}"


class StrandEnd(SystemExit):
    """The exception that ends a thread that a rank has started, when the rank or the run has ended."""


def current() -> Strand | None:
    """Return the strand that the calling thread is; None where it belongs to no rank."""
    found: Strand | None = getattr(_thread, "strand", None)
    return found


def here() -> Strand:
    """Return the strand that the calling thread is, which is known to be one."""
    strand = current()
    assert strand is not None
    return strand


def current_rank() -> int | None:
    """Return the rank that the calling thread belongs to, or that has forked this process; None where there is none."""
    strand = current()
    return strand.rank if strand is not None else next(iter(_forked_by), None)


def enter(strand: Strand | None) -> None:
    """Make the calling thread a strand, or none."""
    _thread.strand = strand
    if strand is not None:
        strand.state = thread_state()


@contextmanager
def natively() -> Iterator[None]:
    """Let the calling thread's strand keep its turn while it waits: for what Emu itself asks of the system."""
    strand = current()
    if strand is None:
        yield
        return
    before, strand.is_native = strand.is_native, True
    try:
        yield
    finally:
        strand.is_native = before


def take_turn(strand: Strand, *, is_last: bool = False) -> None:
    """Return when it is the turn of the calling thread's strand, which may have run without it.

    Args:
        strand: That strand.
        is_last: Whether all that are ready go before it.

    Raises:
        StrandEnd: its rank or the run has ended.
    """
    if strand.is_free:
        strand.turns.step_in(strand, is_last=is_last)
        strand.is_free = False
    check_goes_on(strand)


def check_goes_on(strand: Strand) -> None:
    """Raise what ends a strand, if it is to end."""
    if strand.is_main:
        if strand.turns.failure is not None:
            raise strand.turns.stopped()
    elif strand.ends or strand.turns.failure is not None:
        raise StrandEnd


class RankLocal:
    """Attributes that each rank has for itself, the same for all of its threads.

    It is to ranks what `threading.local` is to threads. Threads that belong to no rank share one set of attributes.
    """

    def __init__(self) -> None:
        self.__dict__["_by_rank"] = {}

    def here(self) -> dict[str, Any]:
        """Return the attributes of the calling thread's rank."""
        rank = current_rank()
        found: dict[str, Any] | None = self._by_rank.get(rank)
        if found is None:
            found = self._by_rank[rank] = self.first()
        return found

    def first(self) -> dict[str, Any]:
        """Return what a rank starts with."""
        return {}

    def __getattr__(self, name: str) -> Any:
        try:  # PyTorch asks a dozen times for each request
            return self._by_rank[_thread.strand.rank][name]
        except (AttributeError, KeyError):
            pass
        try:
            return self.here()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.here()[name] = value

    def __delattr__(self, name: str) -> None:
        del self.here()[name]


def _leave_behind() -> None:
    """Make a process that a rank has forked have no strands: it has no other ones to wait for."""
    strand = current()
    if strand is not None:
        _forked_by[:] = [strand.rank]
        enter(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_behind)
