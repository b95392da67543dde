"""Ranks as Ray actors, a process each, on this machine or on any Ray by its address: the same programs, the same bits.

Ray starts, places, watches and ends the ranks; gloo carries bytes between them.
"""

import pickle
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import entry_points
from typing import Any, TypeVar

import ray
from torch._C._distributed_c10d import TCPStore

from emu.backend.executor.wire import LOOPBACK, serve_store
from emu.backend.rank.record import merge
from emu.cluster.apart import Ended, Job, at_key
from emu.collective.algorithm import ALGORITHMS, Algorithm, Choice, file_missing
from emu.errors import RunError, must_be
from emu.trace.trace import Trace
from launch.ray.process import RayProcess

T = TypeVar("T")
_cloudpickle: Any = ray.cloudpickle  # it has no types
_WORST = ("died", "failed", "broken", "lost", "done")  # of several ranks, what is told


class RayCluster:
    """Actors of one Ray, which live from job to job; a context manager that ends them.

    Args:
        address: Of the Ray to join; unless given, one is started on this machine and ended with this object.
        timeout_s: A rank that others wait for, and that is silent for so long, counts as gone.

    Raises:
        InputError: no Ray answers at the address.
        RunError: Ray does not start.
    """

    def __init__(self, address: str | None = None, timeout_s: float = 300.0) -> None:
        self._timeout_s = timeout_s
        self._keep_log = False  # until an error names it
        self._process = RayProcess(address or "")

    def __enter__(self) -> "RayCluster":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the actors and the Ray that was started here."""
        self._process.end(keep_log=self._keep_log)

    def run(self, n_ranks: int, choice: Choice, program: Callable[[int], T]) -> list[T]:
        """Run `program(rank)` in every actor, with PyTorch's default group made; the results in rank order.

        Raises:
            InputError: fewer than one rank.
            RunError: a rank died or failed, or is silent; the others have been ended.
        """
        return [ended.value for ended in self._run(n_ranks, choice, program)]

    def record(self, n_ranks: int, choice: Choice, program: Callable[[int], T]) -> tuple[list[T], Trace]:
        """As `run`, with the trace of what ran."""
        ended = self._run(n_ranks, choice, program)
        return [e.value for e in ended], merge([e.notes for e in ended if e.notes is not None])

    def _run(self, n_ranks: int, choice: Choice, program: Callable[[int], T]) -> list[Ended]:
        if n_ranks < 1:
            raise must_be("cluster", "ranks", "1 or more", n_ranks)
        store = serve_store(self._process.node or LOOPBACK)
        own = _users_own()
        brought = partial(_bring, own, program) if own else program
        job = Job(brought, n_ranks, choice, self._process.node or LOOPBACK, store.port, self._timeout_s)
        answers = self._process.ask(n_ranks, _pickled(job, program, own))
        worst = min(answers, key=lambda answer: _WORST.index(answer[1]))
        if worst[1] != "done":
            raise self._failure(worst, store)
        return [pickle.loads(ended) for _, _, ended, _ in sorted(answers)]

    def _failure(self, answer: tuple[int, str, bytes, str], store: TCPStore) -> BaseException:
        rank, how, ended, said = answer
        error: BaseException | None = pickle.loads(ended).error if ended else None
        if how == "failed" and error is not None:
            return error
        words = f"rank {rank}: its process died" if how == "died" else f"rank {rank}: {said}"
        if error is not None:
            words = f"rank {rank}: {error}" if how == "lost" else str(error)
        self._keep_log = True
        return RunError(f"{words}, {_doing(store, rank)}; log: {self._process.log}")


def _doing(store: TCPStore, rank: int) -> str:
    """What a rank was last known to do."""
    key = at_key(rank)
    return store.get(key).decode() if store.check([key]) else "before its first request"


def _catalogue() -> list[str]:
    return [point.value for point in entry_points(group="emu.catalogue")]


def _users_own() -> tuple[Algorithm, ...]:
    """The algorithms of a user's own files, which the actors do not find in the catalogue."""
    catalogue = _catalogue()
    return tuple(a for _, a in ALGORITHMS if a.build.__module__.partition(".")[0] not in catalogue)


def _bring(own: tuple[Algorithm, ...], program: Callable[[int], T], rank: int) -> T:
    file_missing(own)
    return program(rank)


def _pickled(job: Job, program: object, own: Sequence[Algorithm]) -> bytes:
    """The job as bytes; the catalogue's code and the program's own go by value, as other folders may have their names."""
    home = sys.modules.get(getattr(program.func if isinstance(program, partial) else program, "__module__", ""))
    names = ["launch", *_catalogue()]
    users = {each.build.__module__ for each in own if not each.build.__module__.startswith("emu.")}
    by_value = [sys.modules[name] for name in (*names, *users) if name in sys.modules]
    if home is not None and home.__name__.partition(".")[0] not in ("emu", "__main__", *names, *users):
        by_value.append(home)
    for module in by_value:
        _cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(_cloudpickle.dumps(job))
    finally:
        for module in by_value:
            with suppress(ValueError):
                _cloudpickle.unregister_pickle_by_value(module)
