"""Jobs done by several processes where there are cores for them; what comes of them is that of one."""

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from emu.cluster.rank_state.parent_process import end_with_parent

J = TypeVar("J")
K = TypeVar("K")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Waiting(Protocol[R_co]):
    """What is being done."""

    def ready(self) -> bool:
        """Whether nobody waits for it any more."""

    def get(self) -> R_co:
        """Wait for it."""


@dataclass(frozen=True)
class _Now(Generic[J, R]):
    """Done in this process, once it is waited for."""

    work: Callable[[J], R]
    job: J

    def ready(self) -> bool:
        return True

    def get(self) -> R:
        return self.work(self.job)


_WORK: list[Callable[[Any], Any]] = []  # of a process that was forked


def _do(job: Any) -> Any:
    return _WORK[0](job)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process says when it ends
    end_with_parent()


@contextmanager
def forked(work: Callable[[J], R], processes: int) -> Iterator[Callable[[J], Waiting[R]]]:
    """What takes jobs to be done, by so many processes; what these do is given up when the context ends."""
    served = multiprocessing.current_process().daemon  # by another's pool: it may start no processes of its own
    if processes == 1 or served or "fork" not in multiprocessing.get_all_start_methods():
        yield lambda job: _Now(work, job)
        return
    _WORK[:] = [work]
    try:
        with multiprocessing.get_context("fork").Pool(processes, _begin) as pool:
            yield lambda job: pool.apply_async(_do, (job,))
    finally:
        _WORK.clear()


def ahead(asked: Iterator[tuple[K, Waiting[R]]], most: int) -> Iterator[tuple[K, R]]:
    """The results in the order in which they were asked for, a few being under way at a time."""
    under_way: deque[tuple[K, Waiting[R]]] = deque()
    for each in asked:
        under_way.append(each)
        if len(under_way) >= most:
            name, waiting = under_way.popleft()
            yield name, waiting.get()
    for name, waiting in under_way:
        yield name, waiting.get()
