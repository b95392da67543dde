"""Pools of processes that do jobs, here or on other machines; results do not depend on the number of processes.

A job is the input of a function, the *work*. A work that stores its results writes them to a table by key. Processes of this
machine share the table. Another machine gets an empty one with the work, and its values come back with each result.
"""

import multiprocessing
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.pool import Pool
from typing import Any, Generic, Protocol, TypeVar

from emu.cluster.child_processes import end_with_parent
from emu.store import ValueTable

J = TypeVar("J")
R = TypeVar("R")


PendingResult = Callable[[], R]  # a function that returns the result of a job that may still run; it waits for it if needed


def known_result(found: R) -> PendingResult[R]:
    """Return a pending result that is known already, such as one from a cache."""
    return lambda: found


@dataclass(frozen=True)
class OpenPool(Generic[J, R]):
    """A pool whose processes have been started; all its jobs are calls of one function."""

    submit: Callable[[J], PendingResult[R]]  # starts a job
    side_by_side: int = 1  # jobs that run at one time


class JobPool(Protocol):
    """A way to run the jobs of a question: in this process, in forks of it, or on a Ray cluster."""

    def open(
        self, work: Callable[[J], R], kept: ValueTable | None = None, jobs: int | None = None
    ) -> AbstractContextManager[OpenPool[J, R]]:
        """Return a context manager that starts the processes for a work; at its end, unfinished jobs are dropped.

        Args:
            work: The function of a job.
            kept: The table to which the work writes what it keeps; None: it keeps nothing.
            jobs: The number of jobs; None: unknown; where it is 0, no process is started.
        """


_PATIENCE_S = 5.0
_WORK: list[Callable[[Any], Any]] = []  # of a process that was forked


def _do(job: Any) -> Any:
    return _WORK[0](job)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process says when it ends
    end_with_parent()


@dataclass(frozen=True)
class LocalPool:
    """A pool of processes that are forked from this one, if there are enough cores."""

    processes: int = 1

    @contextmanager
    def open(self, work: Callable[[J], R], kept: ValueTable | None = None, jobs: int | None = None) -> Iterator[OpenPool[J, R]]:
        """Yield the open pool of forked processes; see `JobPool.open` for the arguments."""
        n = self.processes if jobs is None else min(self.processes, jobs)
        served = multiprocessing.current_process().daemon  # by another's pool: it may start no processes of its own
        if n <= 1 or served or "fork" not in multiprocessing.get_all_start_methods():
            yield OpenPool(partial(partial, work))
            return
        _WORK[:] = [work]
        pool = multiprocessing.get_context("fork").Pool(n, _begin)
        try:
            yield OpenPool(lambda job: pool.apply_async(_do, (job,)).get, n)
        finally:
            _end(pool)
            _WORK.clear()


THIS_PROCESS = LocalPool()  # does each job when its result is wanted


def _end(pool: Pool) -> None:
    """End the processes of a pool, but wait only some seconds for its threads.

    A thread can wait forever for a lock that a process held when it was ended.
    """
    ended = threading.Thread(target=pool.terminate, daemon=True)
    ended.start()
    ended.join(_PATIENCE_S)


def results_of(asked: Iterator[PendingResult[R]], most: int) -> Iterator[R]:
    """Yield the results in the order of the jobs; at most `most` jobs run at a time."""
    under_way: deque[PendingResult[R]] = deque()
    for each in asked:
        under_way.append(each)
        if len(under_way) >= most:
            yield under_way.popleft()()
    for waiting in under_way:
        yield waiting()
