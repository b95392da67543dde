"""A strand: one thread of a rank, either that of its program, or one that the program or a library starts.

All strands of a rank belong to the same emulated process: they have the same process groups, environment and random state.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emu.backend.rank.source_lines import SourceLine, in_brackets
from emu.cluster.strands.next_instruction import thread_state

if TYPE_CHECKING:  # it imports this module
    from emu.cluster.threads.wait_table import WaitTable

_thread = threading.local()  # its `strand`
_forked_by: list[int] = []  # the rank that has forked this process, if one has


@dataclass(eq=False, slots=True)
class Strand:
    """One thread of a rank.

    Args:
        number: The number in the cluster; for the thread of a rank's program, the rank.
        rank: The rank that it belongs to.
        wait_table: The strands of its process that wait; by this object it gets the baton and hands it on.
        thread: The thread.
        is_outside: Whether it runs without the baton, until it uses something that belongs to the rank.
        is_native: Whether its waits block like those of the system, because its code must not hand the baton on.
        must_end: Whether it must end at its next wait, because its rank has ended.
        is_done: Whether it has ended.
        end_position: The position in the events of the rank at which all its work has ended, once it has.
        state: The address at which Python keeps the state of its thread.
    """

    number: int
    rank: int
    wait_table: "WaitTable"
    thread: threading.Thread
    is_outside: bool = False
    is_native: bool = False
    must_end: bool = False
    is_done: bool = False
    end_position: Any = None
    state: int = 0

    @property
    def is_main(self) -> bool:
        """True if it is the thread of the rank's program."""
        return self.number == self.rank


@dataclass(frozen=True, eq=False, slots=True)
class Wait:
    """A wait of a strand for something other than communication, such as a lock.

    Args:
        what: A noun for what the strand waits for, such as "a lock".
        line: The line of the user's program that waits.
        of: The object that wakes the strand; None: the wait itself.
        is_over: A function that says whether the wait is over; it is called when no other strand can change that.
        comes: Whether the wait ends by itself, as a wait until a time does.
    """

    what: str
    line: SourceLine | None = None
    of: object = None
    is_over: Callable[[], bool] = lambda: False
    comes: bool = False

    @property
    def key(self) -> object:
        """The object that others pass to wake this strand: `of` if it is set, else this wait itself."""
        return self if self.of is None else self.of

    def in_words(self, rank: int) -> str:
        """Return words such as `rank 1 waits for a lock (train.py:12)`."""
        return f"rank {rank} waits for {self.what}{in_brackets(self.line)}"


class StrandEnd(SystemExit):
    """The exception that ends a thread of a rank when the rank or the run has ended."""


def current_strand() -> Strand | None:
    """Return the strand of the calling thread; None if the thread belongs to no rank."""
    found: Strand | None = getattr(_thread, "strand", None)
    return found


def this_strand() -> Strand:
    """Return the strand of the calling thread, which must belong to a rank."""
    strand = current_strand()
    assert strand is not None
    return strand


def current_rank() -> int | None:
    """Return the rank of the calling thread, or the rank that has forked this process; None if there is no rank."""
    strand = current_strand()
    return strand.rank if strand is not None else next(iter(_forked_by), None)


def enter(strand: Strand | None) -> None:
    """Set the strand of the calling thread; None: it belongs to no rank."""
    _thread.strand = strand
    if strand is not None:
        strand.state = thread_state()


@contextmanager
def native_waits() -> Iterator[None]:
    """Let the strand of the calling thread keep the baton while it waits inside the context, for waits of Emu itself."""
    strand = current_strand()
    if strand is None:
        yield
        return
    before, strand.is_native = strand.is_native, True
    try:
        yield
    finally:
        strand.is_native = before


def take_turn(strand: Strand, *, is_last: bool = False) -> None:
    """Wait until the calling thread's strand has the baton, if it runs without it.

    Args:
        strand: The strand.
        is_last: Whether all ready strands run before it.

    Raises:
        StrandEnd: The rank or the run has ended.
    """
    if strand.is_outside:
        strand.wait_table.step_in(strand, is_last=is_last)
        strand.is_outside = False
    check_goes_on(strand)


def check_goes_on(strand: Strand) -> None:
    """Raise the error that ends a strand, if its rank or the run has ended."""
    if strand.is_main:
        if strand.wait_table.failure is not None:
            raise strand.wait_table.stopped()
    elif strand.must_end or strand.wait_table.failure is not None:
        raise StrandEnd


class RankLocal:
    """Attributes that each rank has separately, shared by all threads of the rank.

    The class is to ranks what `threading.local` is to threads. Threads that belong to no rank share one set of attributes.

    Args:
        first: A function that returns the first attributes of a rank.
    """

    def __init__(self, first: Callable[[], dict[str, Any]]) -> None:
        self.__dict__.update(_by_rank={}, _first=first)

    def here(self) -> dict[str, Any]:
        """Return the attributes that belong to the rank of the calling thread."""
        rank = current_rank()
        found: dict[str, Any] | None = self._by_rank.get(rank)
        if found is None:
            found = self._by_rank[rank] = self._first()
        return found

    def __getattr__(self, name: str) -> Any:
        try:
            return self.here()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.here()[name] = value


def _leave_behind() -> None:
    """Remove all strands in a process that a rank has forked."""
    strand = current_strand()
    if strand is not None:
        _forked_by[:] = [strand.rank]
        enter(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_behind)
