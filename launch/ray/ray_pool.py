"""A job pool whose jobs are Ray tasks, on this machine or on all nodes of a running Ray."""

import logging
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from emu.errors import RunError
from emu.store import ValueTable
from emu.study.job_pool import OpenPool, PendingResult
from launch.ray.process import RayOptions, RayProcess
from launch.ray.task_work import TaskWork, by_value
from launch.ray.tasks import TaskResult
from launch.show.progress import late_notice

J = TypeVar("J")
R = TypeVar("R")
_log = logging.getLogger("emu")
# What may be set for all processes of a command, and must then be so on other machines.
_SETTINGS = (
    "PYTHONHASHSEED",
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


@dataclass(frozen=True)
class RayPool:
    """The processes of a Ray.

    A task whose node is lost is started again on another one. Results are kept here as they come.
    """

    label: str  # the beginning of the names of tasks on Ray's dashboard
    address: str | None = None  # of the Ray to join; None: one is started on this machine, and ended with the work

    @contextmanager
    def open(self, work: Callable[[J], R], kept: ValueTable | None = None, jobs: int | None = None) -> Iterator[OpenPool[J, R]]:
        """Yield the open pool of Ray tasks; see `JobPool.open` for the arguments.

        Raises:
            InputError: no Ray answers at the address.
            RunError: Ray does not start.
        """
        if jobs == 0:
            yield OpenPool(partial(partial, work))
            return
        sent = by_value(TaskWork(work, kept))
        with late_notice("joining the Ray" if self.address else "starting Ray"):
            process = RayProcess(self.address or "", _options(joined=bool(self.address)), "tasks.py")
        tasks = _RayTasks(process, self.label, kept, jobs)
        try:
            yield OpenPool(tasks.submit, tasks.begin(sent))
        finally:
            tasks.end()


def _options(*, joined: bool) -> RayOptions:
    """Return Ray's options; a joined Ray gets the environment settings of this process."""
    settings = {"OMP_NUM_THREADS": "1"} | {name: os.environ[name] for name in _SETTINGS if name in os.environ}
    return RayOptions(runtime_env={"env_vars": settings} if joined else {})


class _RayTasks:
    """The tasks of one pool, as the process that submits them to Ray sees them.

    Args:
        process: The process in which Ray lives.
        label: The beginning of the names of tasks.
        kept: The table to which values are written that come with results.
        jobs: The number of jobs; None: unknown.
    """

    def __init__(self, process: RayProcess, label: str, kept: ValueTable | None, jobs: int | None) -> None:
        self._process, self._label, self._kept, self._jobs = process, label, kept, jobs
        self._found: dict[int, tuple[str, Any]] = {}  # how tasks ended whose results nobody has taken yet
        self._started, self._again, self._lost_nodes = 0, 0, 0
        self._keep_log = False

    def begin(self, work: bytes) -> int:
        """Send the work to the Ray, and return the number of tasks that it runs at one time."""
        self._process.send(work)
        return int(self._process.receive())

    def submit(self, job: Any) -> PendingResult[Any]:
        """Start a task, and return its result to wait for."""
        self._store_all_results()
        number = self._started
        self._started += 1
        of = "" if self._jobs is None else f"/{self._jobs}"
        self._process.send((number, f"{self._label} {self._started}{of}", by_value(job)))
        return partial(self._result, number)

    def _result(self, number: int) -> Any:
        """Wait for the result of a task, and return it.

        Raises:
            RunError: its process was lost each time that it was tried, or Emu is not there.
        """
        while number not in self._found:
            self._store_result(self._process.receive())
        how, found = self._found.pop(number)
        if how == "lost":
            self._keep_log = True
            raise RunError(f"ray: a task has no result: {found}; log: {self._process.log}")
        if how == "failed":
            raise found
        return found

    def _store_all_results(self) -> None:
        """Receive all results that have arrived."""
        while self._process.has_sent():
            self._store_result(self._process.receive())

    def _store_result(self, ended: TaskResult) -> None:
        """Store the result of one task, and the cached values that came with it."""
        number, how, found, tries, self._lost_nodes = ended
        self._again += tries > 1
        if how == "done":
            value, fresh = pickle.loads(found)
            if self._kept is not None:
                for key, each in fresh:
                    self._kept.write(key, each)
        else:
            value = pickle.loads(found) if how == "failed" else found.decode()
        self._found[number] = how, value

    def end(self) -> None:
        """Receive the remaining results, report how many tasks ran again, and end or leave the Ray."""
        try:
            self._store_all_results()
        except RunError:  # the process in which Ray lives is gone, and the error is on its way
            self._keep_log = True
        finally:
            self._process.end(keep_log=self._keep_log)
        if self._again or self._lost_nodes:
            _log.info(f"{self._again} of {self._started} tasks ran again: {_cause(self._lost_nodes)}")


def _cause(lost_nodes: int) -> str:
    """Return the reason why tasks ran again, for a notice."""
    if not lost_nodes:
        return "their processes were lost"
    return "a node was lost" if lost_nodes == 1 else f"{lost_nodes} nodes were lost"
