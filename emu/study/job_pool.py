"""Jobs on several processes, if there are cores for them; their results do not depend on the number of processes."""

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from emu.cluster.rank_state.child_processes import end_with_parent

J = TypeVar("J")
K = TypeVar("K")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class PendingResult(Protocol[R_co]):
    """The result of a job that may still run."""

    def ready(self) -> bool:
        """Return whether the job has ended."""

    def get(self) -> R_co:
        """Return the result; wait for it if needed."""


@dataclass(frozen=True)
class LocalJob(Generic[J, R]):
    """A job that this process does when its result is wanted."""

    work: Callable[[J], R]
    job: J

    def ready(self) -> bool:
        """Return that the result can be had at once."""
        return True

    def get(self) -> R:
        """Return the result."""
        return self.work(self.job)


_WORK: list[Callable[[Any], Any]] = []  # of a process that was forked


def _do(job: Any) -> Any:
    return _WORK[0](job)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process says when it ends
    end_with_parent()


@contextmanager
def job_pool(work: Callable[[J], R], processes: int) -> Iterator[Callable[[J], PendingResult[R]]]:
    """Yield a function that starts a job on one of the processes; jobs that still run are dropped when the context ends."""
    served = multiprocessing.current_process().daemon  # by another's pool: it may start no processes of its own
    if processes == 1 or served or "fork" not in multiprocessing.get_all_start_methods():
        yield lambda job: LocalJob(work, job)
        return
    _WORK[:] = [work]
    try:
        with multiprocessing.get_context("fork").Pool(processes, _begin) as pool:
            yield lambda job: pool.apply_async(_do, (job,))
    finally:
        _WORK.clear()


def results_of(asked: Iterator[tuple[K, PendingResult[R]]], most: int) -> Iterator[tuple[K, R]]:
    """Yield the results in the order of the jobs; at most `most` jobs run at a time."""
    under_way: deque[tuple[K, PendingResult[R]]] = deque()
    for each in asked:
        under_way.append(each)
        if len(under_way) >= most:
            name, waiting = under_way.popleft()
            yield name, waiting.get()
    for name, waiting in under_way:
        yield name, waiting.get()
