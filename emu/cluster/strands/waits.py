"""Waits of strands, during which they hand the baton on: for locks, sleeps, files, sockets and processes.

A thread that belongs to no rank waits for locks in the system's own way.

While a strand waits for files, sockets, pipes or other processes, other strands run if its rank has other threads, because one
of these may bring what it waits for. The strand looks for it at times of the baton's own clock, so that what another strand
brings is seen at the same moment in every run. A rank without other threads keeps the baton, unless it waits until a time. Data
from a process that a rank has started are taken only when no strand is ready: otherwise the speed of the process would decide
after which turn of the baton the strand goes on.
"""

import asyncio
import math
import multiprocessing.connection as pipes
import queue
import selectors
import threading
import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch

from emu.backend.rank.source_lines import caller
from emu.cluster.child_processes import Idle, are_of_processes
from emu.cluster.rank_state.rank_state import Replacement
from emu.cluster.strands.strand import Strand, Wait, check_goes_on, current_strand, take_turn

if TYPE_CHECKING:  # it imports this module
    from emu.cluster.threads.wait_table import WaitTable

_new_lock, _monotonic = threading.Lock, time.monotonic
_python: Any = threading  # has its classes in Python, too, which the stubs do not say
_python_queue: Any = queue


class Lock:
    """A lock in place of `threading.Lock`: a strand that waits for it hands the baton on."""

    __slots__ = ("__weakref__", "_holder", "_lock", "_wait_table")

    def __init__(self) -> None:
        self._lock = _new_lock()
        self._wait_table: WaitTable | None = None  # of strands that have waited for it
        self._holder: Strand | None = None  # who has it

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock, and return whether that succeeded in time."""
        strand = current_strand()
        if self._lock.acquire(False):
            self._holder = strand
            return True
        if not blocking:
            return False
        if strand is None or strand.is_native or strand.is_outside or self._is_held_beside():
            return self._lock.acquire(True, timeout)
        return self._await_release(strand, None if timeout < 0 else strand.wait_table.after(timeout))

    def _is_held_beside(self) -> bool:
        """Return whether a strand that runs without the baton holds the lock."""
        holder = self._holder
        return holder is not None and holder.is_outside

    def _await_release(self, strand: Strand, until_s: float | None) -> bool:
        """Wait for the lock while other strands run, and return whether it became free in time."""
        self._wait_table = strand.wait_table
        wait = Wait("a lock", caller(), self, lambda: not self._lock.locked())
        while not self._lock.acquire(False):
            if until_s is not None and strand.wait_table.now() >= until_s:
                return False
            block_on(strand, wait, until_s)
        self._holder = strand
        return True

    def release(self) -> None:
        """Release the lock, and wake the strands that wait for it."""
        self._holder = None
        self._lock.release()
        if self._wait_table is not None:
            self._wait_table.wake(self)

    def locked(self) -> bool:
        """Return whether the lock is taken."""
        return self._lock.locked()

    def _at_fork_reinit(self) -> None:
        self._lock, self._wait_table, self._holder = _new_lock(), None, None

    __enter__ = acquire

    def __exit__(self, *error: object) -> None:
        self.release()


def block_on(strand: Strand, wait: Wait, until_s: float | None = None) -> bool:
    """Hand the baton on until a wait of the calling thread's strand is over, or until a time.

    Args:
        strand: The strand of the calling thread.
        wait: The wait.
        until_s: A time by the clock of the strand's turns; None: there is none.

    Returns:
        Whether the strand was woken before that time.

    Raises:
        RunError: The run has failed.
        StrandEnd: The strand is of a thread that a rank has started, and the rank has ended.
    """
    check_goes_on(strand)
    woken = strand.wait_table.park(strand.number, wait, until_s)
    strand.is_outside = False
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
    """Return the time in seconds by which the calling thread waits: that of its strand, else this host's."""
    strand = current_strand()
    return _monotonic() if strand is None else strand.wait_table.now()


def _sleeping(sleep: Any) -> Any:
    """Return the replacement of `time.sleep`, during which other strands of the rank and other ranks run."""

    def slept(seconds: float) -> None:
        strand = current_strand()
        if strand is None or strand.is_native or seconds < 0:
            sleep(seconds)
            return
        take_turn(strand)
        block_on(strand, Wait("a time", caller(), comes=True), strand.wait_table.after(seconds))

    return slept


_IDLE_S = 0.1  # how long processes do nothing that are not at work
_FIRST_S, _LAST_S = 1e-3, 1e-2  # between two questions whether it has come
_SMALL = 512  # bytes, for which a pipe has room that is read at all
_pipes: Any = pipes  # the stubs do not have what is used here


def wait_replacements() -> Iterator[Replacement]:
    """Yield the replacements of waits for files, sockets, pipes, processes and futures, during which other strands run.

    asyncio's loops get the strands' clock. Locks and `time.sleep` are in `lock_replacements`.
    """
    known = {getattr(selectors, name, None) for name in ("SelectSelector", "PollSelector", "EpollSelector", "KqueueSelector")}
    for selector in filter(None, known):
        yield selector, "select", _selecting(selector.select)
    yield asyncio.BaseEventLoop, "time", lambda _: now()
    yield _pipes.Connection, "_recv", _receiving(_pipes.Connection._recv)
    yield _pipes.Connection, "_send", _sending(_pipes.Connection._send)
    yield torch.futures.Future, "wait", _future_waits(torch.futures.Future.wait)


def await_event(strand: Strand, what: str, has_come: Callable[[], Any], timeout_s: float | None = None) -> Any:
    """Let other strands run until an event from outside has come or the time is over; return the last result.

    Args:
        strand: The strand of the calling thread.
        what: The thing, such as "a file".
        has_come: A function whose result is true once the thing has come.
        timeout_s: The longest wait; None: for ever.

    Returns:
        The last result of `has_come`.
    """
    until_s, step_s = None if timeout_s is None else strand.wait_table.after(max(timeout_s, 0.0)), _FIRST_S
    wait = Wait(what, caller(), comes=True)
    while not (found := has_come()) and (until_s is None or strand.wait_table.now() < until_s):
        asked_s = strand.wait_table.after(step_s)
        block_on(strand, wait, asked_s if until_s is None else min(asked_s, until_s))
        step_s = min(1.1 * step_s, _LAST_S)
    return found


def _selecting(select: Callable[..., Any]) -> Callable[..., Any]:
    """Return the replacement of a selector's `select`, during which other strands run."""

    @wraps(select)
    def selected(selector: Any, timeout: float | None = None) -> Any:
        strand = current_strand()
        is_timed = timeout is not None and timeout > 0
        if (
            strand is None
            or strand.is_outside
            or strand.is_native
            or not (is_timed or strand.wait_table.baton.has_others(strand.rank))
        ):
            return select(selector, timeout)
        if not is_timed and timeout is not None:
            return select(selector, timeout)
        if are_of_processes([key.fd for key in selector.get_map().values()]):
            return _await_processes(strand, select, selector, timeout)
        if found := select(selector, 0):  # as when a process has just ended, which holds nothing
            return found
        return await_event(strand, "a file, a pipe or a socket", lambda: select(selector, 0), timeout)

    return selected


def _await_processes(strand: Strand, select: Callable[..., Any], selector: Any, timeout_s: float | None) -> Any:
    """Wait for data from processes while other strands run; data are read only when no other strand is ready."""
    until_s = math.inf if timeout_s is None else _monotonic() + timeout_s
    strand.wait_table.step_out(strand, awaits=True)
    try:
        idle: Idle | None = Idle()
        while not (found := select(selector, min(Idle.LONGEST_S, max(0.0, until_s - _monotonic())))):
            if _monotonic() >= until_s or strand.must_end or strand.wait_table.failure is not None:
                break
            if idle is not None and idle.time_s() > _IDLE_S:
                strand.wait_table.await_idle(strand)
                idle = None  # others go on before it from now on
        return found
    finally:
        take_turn(strand, is_last=True)


def _receiving(receive: Callable[..., Any]) -> Callable[..., Any]:
    """Return the replacement of a function that reads from a pipe, during which other strands run."""

    @wraps(receive)
    def received(pipe: Any, *args: Any) -> Any:
        strand = current_strand()
        if strand is not None and hands_baton_on(strand):
            pipes.wait([pipe])
        return receive(pipe, *args)

    return received


def _sending(send: Callable[..., Any]) -> Callable[..., Any]:
    """Return the replacement of a function that writes to a pipe; a small message fits into the pipe without a wait."""

    @wraps(send)
    def sent(pipe: Any, message: Any, *args: Any) -> Any:
        return (send if len(message) <= _SMALL else without_baton(send))(pipe, message, *args)

    return sent


def without_baton(wait: Callable[..., Any]) -> Callable[..., Any]:
    """Return a version of a waiting function during which other strands run."""

    @wraps(wait)
    def waited(*args: Any, **kwargs: Any) -> Any:
        strand = current_strand()
        if strand is None or not hands_baton_on(strand):
            return wait(*args, **kwargs)
        strand.wait_table.step_out(strand)
        try:
            return wait(*args, **kwargs)
        finally:
            take_turn(strand)

    return waited


def hands_baton_on(strand: Strand) -> bool:
    """Return whether a strand that waits for the system hands the baton on: it has it, and its rank has other threads."""
    return not (strand.is_outside or strand.is_native) and strand.wait_table.baton.has_others(strand.rank)


def _future_waits(wait: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the replacement of `wait` of PyTorch's futures, during which other strands run."""

    def waited(future: Any) -> Any:
        strand = current_strand()
        if strand is not None and not future.done() and hands_baton_on(strand):
            await_event(strand, "a future of PyTorch's", future.done)
        return wait(future)

    return waited
