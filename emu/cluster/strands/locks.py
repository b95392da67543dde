"""Locks whose waiting strands hand on the baton; all other waits of `threading` and `queue` are made of them.

A thread that belongs to no rank waits for them as for the system's own.
"""

import queue
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from emu.backend.rank.source_lines import caller
from emu.cluster.rank_state.rank_state import Replacement
from emu.cluster.strands.strand import Strand, Wait, check_goes_on, current_strand, take_turn

if TYPE_CHECKING:  # it imports this module
    from emu.cluster.threads.rests import Rests

_new_lock, _monotonic = threading.Lock, time.monotonic
_python: Any = threading  # has its classes in Python, too, which the stubs do not say
_python_queue: Any = queue


class Lock:
    """A lock, in place of `threading.Lock`: a strand that waits for it hands on the baton."""

    __slots__ = ("__weakref__", "_holder", "_lock", "_turns")

    def __init__(self) -> None:
        self._lock = _new_lock()
        self._turns: Rests | None = None  # of strands that have waited for it
        self._holder: Strand | None = None  # who has it

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; return whether that was possible in time."""
        strand = current_strand()
        if self._lock.acquire(False):
            self._holder = strand
            return True
        if not blocking:
            return False
        if strand is None or strand.is_native or strand.is_free or self._is_held_beside():
            return self._lock.acquire(True, timeout)
        return self._rest(strand, None if timeout < 0 else strand.turns.after(timeout))

    def _is_held_beside(self) -> bool:
        """Return whether a strand that runs without the baton has it, such as a queue's feeder: by chance, and not for long."""
        holder = self._holder
        return holder is not None and holder.is_free

    def _rest(self, strand: Strand, until_s: float | None) -> bool:
        """Wait for the lock while other strands run; return whether it came in time."""
        self._turns = strand.turns
        wait = Wait("a lock", caller(), self, lambda: not self._lock.locked())
        while not self._lock.acquire(False):
            if until_s is not None and strand.turns.now() >= until_s:
                return False
            rest(strand, wait, until_s)
        self._holder = strand
        return True

    def release(self) -> None:
        """Release the lock, and wake the strands that wait for it."""
        self._holder = None
        self._lock.release()
        if self._turns is not None:
            self._turns.wake(self)

    def locked(self) -> bool:
        """Return whether the lock is taken."""
        return self._lock.locked()

    def _at_fork_reinit(self) -> None:
        self._lock, self._turns, self._holder = _new_lock(), None, None

    __enter__ = acquire

    def __exit__(self, *error: object) -> None:
        self.release()


def rest(strand: Strand, wait: Wait, until_s: float | None = None) -> bool:
    """Hand on the baton of the calling thread's strand until its wait is over, at the latest at a time.

    Args:
        strand: The strand of the calling thread.
        wait: The wait.
        until_s: A time by the clock of the strand's turns; None: any.

    Returns:
        Whether the strand was woken before that time.

    Raises:
        RunError: The run has failed.
        StrandEnd: The rank of a thread that it has started has ended.
    """
    check_goes_on(strand)
    woken = strand.turns.rest(strand.number, wait, until_s)
    strand.is_free = False
    check_goes_on(strand)
    return woken


def lock_replacements() -> Iterator[Replacement]:
    """Yield the replacements of the locks of Python, and of functions that wait in C."""
    yield threading, "Lock", Lock
    yield threading, "_allocate_lock", Lock
    yield threading, "RLock", _python._PyRLock
    yield queue, "SimpleQueue", _python_queue._PySimpleQueue
    yield time, "sleep", _sleeping(time.sleep)
    yield queue, "time", now  # by which they tell whether the time is over that a program has set
    yield threading, "_time", now


def now() -> float:
    """Return the time by which the calling thread rests: that of its strand, else this host's."""
    strand = current_strand()
    return _monotonic() if strand is None else strand.turns.now()


def _sleeping(sleep: Any) -> Any:
    """Return the replacement of `time.sleep`: a strand lets others run meanwhile, of its rank and of the others."""

    def slept(seconds: float) -> None:
        strand = current_strand()
        if strand is None or strand.is_native or seconds < 0:
            sleep(seconds)
            return
        take_turn(strand)
        rest(strand, Wait("a time", caller(), comes=True), strand.turns.after(seconds))

    return slept
