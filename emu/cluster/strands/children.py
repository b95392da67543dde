"""Threads that a rank starts: each becomes a strand of the rank and hands the baton on when it waits."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import thread as pools
from functools import wraps
from itertools import count
from typing import TYPE_CHECKING, Any

from emu.backend.rank.source_lines import caller
from emu.cluster.rank_state.rank_state import Replacement
from emu.cluster.strands.strand import Strand, Wait, current_strand, take_turn
from emu.cluster.strands.waits import block_on

if TYPE_CHECKING:  # it imports this module
    from emu.cluster.strands.strands import Strands

_pools: Any = pools  # the stubs do not have what is used here
_FREE = ("multiprocessing.", "multiprocess.", "concurrent.futures.process")  # whose threads only serve pipes: beside ranks


def thread_replacements(strands: "Strands") -> Iterator[Replacement]:
    """Yield the replacements of the functions that start threads, end them, and wait for them."""
    thread, future = threading.Thread, Future
    yield thread, "start", _starting(thread.start, strands)
    yield thread, "join", _joining(thread.join, strands)
    yield thread, "is_alive", _living(thread.is_alive, strands)
    for name in ("set_result", "set_exception"):
        yield future, name, _setting(getattr(future, name), strands)
    for name in ("result", "exception"):
        yield future, name, _getting(getattr(future, name), strands)
    yield future, "done", _asking(future.done)
    yield threading, "main_thread", _main_thread(threading.main_thread, strands)
    for made in (thread, future):
        yield made, "__init__", _making(made.__init__)
        yield made, "__hash__", _hash


def _making(make: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that numbers the objects of each rank, for a reproducible order."""
    numbers: defaultdict[int, Iterator[int]] = defaultdict(lambda: count(1))  # by rank

    @wraps(make)
    def made(new: Any, *args: Any, **kwargs: Any) -> None:
        strand = current_strand()
        if strand is not None:
            new.emu_number = next(numbers[strand.rank])
        make(new, *args, **kwargs)

    return made


def _hash(made: Any) -> int:
    """Return the number of an object as its hash, so that sets have the same order in every run."""
    return getattr(made, "emu_number", 0) or object.__hash__(made)


def _main_thread(main: Callable[[], threading.Thread], strands: "Strands") -> Callable[[], threading.Thread]:
    """Return the replacement of `threading.main_thread`, which returns the thread of the rank's program."""

    def main_thread() -> threading.Thread:
        strand = current_strand()
        return main() if strand is None else strands.main_of(strand.rank) or main()

    return main_thread


def _starting(start: Callable[[Any], None], strands: "Strands") -> Callable[[Any], None]:
    """Return the replacement of `Thread.start`, which makes a strand of the thread."""

    @wraps(start)
    def started(thread: threading.Thread) -> None:
        parent = current_strand()
        if parent is None:
            start(thread)
            return
        take_turn(parent)
        child = strands.child(parent, thread, is_outside=_runs_outside(thread))
        made: Any = thread
        made.run = lambda run=thread.run: strands.run_child(child, run)
        was_native, was_daemon = parent.is_native, made._daemonic
        parent.is_native = True  # it waits for the thread to be there, which does not have the baton then
        made._daemonic = True  # to Python: whom it waits for at the end of a rank is not for the end of this process
        try:
            start(thread)
        finally:
            parent.is_native, made._daemonic = was_native, was_daemon

    return started


def _runs_outside(thread: Any) -> bool:
    """Return whether a thread runs library code that only serves pipes, so that it needs no baton."""
    target = getattr(thread, "_target", None) or type(thread).run
    return str(getattr(target, "__module__", "")).startswith(_FREE)


def _joining(join: Callable[..., None], strands: "Strands") -> Callable[..., None]:
    """Return the replacement of `Thread.join`, which hands the baton on while the strand waits."""

    @wraps(join)
    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        strand, child = current_strand(), strands.find(thread)
        if strand is None or child is None or strand is child:
            join(thread, timeout)
        elif _runs_outside(thread):
            join(thread, timeout)  # it ends in its own time: nobody runs until it has
            take_turn(strand)
        elif await_end(strand, child, timeout):
            join(thread)  # it has nothing left to do
            strands.goes_on_after(child.end_position)

    return joined


def await_end(strand: Strand, child: Strand, timeout_s: float | None = None) -> bool:
    """Let other strands run until a thread of the rank has ended, and return whether it has.

    Args:
        strand: The strand of the calling thread.
        child: The strand of the other thread.
        timeout_s: The longest wait; None: for ever.

    Returns:
        Whether the thread has ended.
    """
    until_s = None if timeout_s is None else strand.wait_table.after(max(timeout_s, 0.0))
    take_turn(strand)
    wait = Wait(f"the end of its thread {child.thread.name!r}", caller(), child, lambda: child.is_done)
    while not child.is_done and (until_s is None or strand.wait_table.now() < until_s):
        block_on(strand, wait, until_s)
    return child.is_done


def _living(is_alive: Callable[[Any], bool], strands: "Strands") -> Callable[[Any], bool]:
    """Return the replacement of `Thread.is_alive`, which lets other strands run before it answers."""

    @wraps(is_alive)
    def living(thread: threading.Thread) -> bool:
        strand, child = current_strand(), strands.find(thread)
        if strand is not None and child is not None and not child.is_done:
            _give_way(strand)
        return is_alive(thread) and not (child is not None and child.is_done)

    return living


def _give_way(strand: Strand) -> None:
    """Let other strands run for a moment, for a program that polls."""
    take_turn(strand)
    strand.wait_table.give_way(strand.number)


def _asking(done: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return the replacement of `Future.done`, which lets other strands run before it answers."""

    @wraps(done)
    def asked(future: Any) -> bool:
        strand = current_strand()
        if strand is not None and not (strand.is_native or done(future)):
            _give_way(strand)
        return done(future)

    return asked


def _setting(settle: Callable[..., None], strands: "Strands") -> Callable[..., None]:
    """Return a replacement that sets a future's result and also records the position of the event."""

    @wraps(settle)
    def settled(future: Any, value: Any) -> None:
        if current_strand() is not None:
            future.emu_moment = strands.moment()
        settle(future, value)

    return settled


def _getting(get: Callable[..., Any], strands: "Strands") -> Callable[..., Any]:
    """Return a replacement that waits for a future's result; the strand's later work is ordered after it."""

    @wraps(get)
    def got(future: Any, timeout: float | None = None) -> Any:
        try:
            return get(future, timeout)
        finally:
            if current_strand() is not None and future.done() and hasattr(future, "emu_moment"):
                strands.goes_on_after(future.emu_moment)

    return got


def end_pools(threads: Callable[[threading.Thread], bool]) -> None:
    """End the idle workers of thread pools, as Python does when a process ends.

    Args:
        threads: A function that says whether a worker belongs to these pools.
    """
    _pools._shutdown = True
    for worker, work in list(_pools._threads_queues.items()):
        if threads(worker):
            work.put(None)
