"""Ranks as Ray actors, each a process, on this machine or on a running Ray.

Ray starts, places, watches and ends the ranks; gloo carries bytes between them. Results equal those of threads bit by bit.
"""

import pickle
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

import ray

from emu.backend.executor.wire import LOOPBACK
from emu.backend.rank.notes import merge
from emu.backend.rank.record import Recorder
from emu.cluster.cluster import Make, Performed, Program
from emu.cluster.ends import RankExit
from emu.cluster.pace.pace import Pace
from emu.cluster.processes.desk import Desk
from emu.cluster.processes.fatal import died, named
from emu.cluster.processes.job import Ended, Job, everywhere, processes_of
from emu.cluster.strands.watch import PATIENCE_S
from emu.collective.algorithm import ALGORITHMS, Algorithm, Choice, file_missing
from emu.errors import InputError, LostError, RunError, must_be
from emu.trace.trace import Trace
from launch.ray.options import read_options
from launch.ray.process import RayProcess

T = TypeVar("T")
_cloudpickle: Any = ray.cloudpickle  # it has no types
_WORST = ("refused", "died", "broken", "failed", "done")  # states of processes; the first that occurs is reported


class RayCluster:
    """Actors of one Ray that stay from job to job; a context manager ends them.

    Args:
        address: The address of the Ray to join; None: one is started on this machine and ended with this object.
        per_actor: The number of ranks in an actor, as threads.
        options: A file that says where actors are placed, and in which environment.
        brings: A folder that is copied to the nodes of a Ray that is joined, unless the options name another.
        pace: The fabric and its clock, for a paced run; None: not paced.
        patience_s: A rank that waits so long outside of communication, while all others wait for it, is given up.
        timeout_s: A process that is silent for so long in the middle of a request counts as gone.

    Raises:
        InputError: no Ray answers at the address, or the options are invalid.
        RunError: Ray does not start.
    """

    def __init__(
        self,
        address: str | None = None,
        per_actor: int = 1,
        options: Path | None = None,
        brings: Path | None = None,
        pace: Pace | None = None,
        patience_s: float = PATIENCE_S,
        timeout_s: float = 300.0,
    ) -> None:
        self._per_actor, self._patience_s = per_actor, patience_s
        self.pace = pace
        self._timeout_s = timeout_s
        self._keep_log = False  # True once an error names the log
        found = read_options(options)
        if address is not None and brings is not None:
            found = replace(found, runtime_env={"working_dir": str(brings), **found.runtime_env})
        self._process = RayProcess(address or "", found)

    def __enter__(self) -> "RayCluster":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the actors, and Ray if it was started here."""
        self._process.end(keep_log=self._keep_log)

    def run(self, n_ranks: int, choice: Choice, program: Callable[[int], T]) -> list[T]:
        """Run `program(rank)` in every actor, with PyTorch's default group made, and return the results in the order of ranks.

        Raises:
            InputError: there is less than one rank.
            RunError: a rank died or failed, there is a deadlock, or calls do not agree; all ranks have been ended.
            SystemExit: a rank ended with a code other than 0.
        """
        return [value for ended in self._run(n_ranks, choice, everywhere(program)) for value in ended.values]

    def record(self, n_ranks: int, choice: Choice, program: Callable[[int], T]) -> tuple[list[T], Trace]:
        """Run a program as `run` does; return the results and the trace."""
        ended = self._run(n_ranks, choice, everywhere(program))
        return [value for e in ended for value in e.values], merge([notes for e in ended for notes in e.notes])

    def perform(self, n_ranks: int, choice: Choice, program: Program) -> Performed:
        """Run a program that makes its ranks itself; return the results and the notes of every rank.

        Nothing is recorded where the program leaves with an exit code.

        Raises:
            InputError: as `run`.
            RunError: as `run`.
        """
        try:
            ended = self._run(n_ranks, choice, program)
        except RankExit as left:
            return Performed([], [Recorder().notes()] * n_ranks, left)
        return Performed([value for e in ended for value in e.values], [notes for e in ended for notes in e.notes])

    def _run(self, n_ranks: int, choice: Choice, program: Program) -> list[Ended]:
        """Run a program on all ranks, and return the end of every process."""
        if n_ranks < 1:
            raise must_be("cluster", "ranks", "1 or more", n_ranks)
        processes = processes_of(n_ranks, self._per_actor)
        own = _user_algorithms()
        with Desk(n_ranks, choice, self._process.node or LOOPBACK, _say, self.pace, self._patience_s) as desk:
            brought = partial(_run_with_algorithms, own, program) if own else program
            tempo = None if self.pace is None else self.pace.tempo
            job = Job(brought, n_ranks, self._per_actor, desk.address, self._timeout_s, tempo)
            answers = self._process.ask(len(processes), _pickle_job(job, program, own), desk.failing)
        if len(answers) < len(processes) or any(how != "done" for _, how, _, _ in answers):
            raise self._failure(answers, desk, processes)
        self._keep_log = False  # the log is of a process that died before the job went on
        ended = [pickle.loads(ended) for _, _, ended, _ in sorted(answers)]
        if self.pace is not None:
            self.pace.tempo.kept.add(each.late for each in ended)
        return ended

    def _failure(self, answers: list[tuple[int, str, bytes, str]], desk: Desk, processes: list[range]) -> BaseException:
        """Return the error of a job that failed, by the worst of its processes."""
        process, how, _, said = min(answers, key=lambda answer: _WORST.index(answer[1]), default=(0, "done", b"", ""))
        if how == "refused":
            return InputError(f"ray: {said}; ask for less, or wait longer (resources, strategy, wait_s of --ray-options)")
        if how not in ("died", "broken"):
            return desk.failure or RunError("ray: actors have ended without a reason")
        self._keep_log = True
        ranks = processes[process]
        if how == "died":
            doing = {rank: desk.doing(rank) for rank in ranks}
            return LostError(f"{died(desk.fatal(process), doing, desk.waiting(ranks))}; log: {self._process.log}")
        return RunError(f"{named(ranks)}: {said}; log: {self._process.log}")


def _say(rank: int, stream: str, text: str) -> None:
    """Print lines of a rank, each with the rank before it."""
    said = "".join(f"[rank {rank}] {line}" for line in text.splitlines(keepends=True))
    print(said, end="", file=sys.stderr if stream == "err" else sys.stdout, flush=True)


def _catalogue() -> list[str]:
    """Return the packages of the catalogue."""
    return [point.value for point in entry_points(group="emu.catalogue")]


def _user_algorithms() -> tuple[Algorithm, ...]:
    """Return the algorithms of the user's own files, which actors do not find in the catalogue."""
    catalogue = _catalogue()
    return tuple(a for _, a in ALGORITHMS if a.build.__module__.partition(".")[0] not in catalogue)


def _run_with_algorithms(own: tuple[Algorithm, ...], program: Program, make: Make) -> list[Any]:
    """File the user's algorithms in this process, then run the program."""
    file_missing(own)
    return program(make)


def _modules_of(program: object) -> list[str]:
    """Return the modules of a program and of the functions that it is given."""
    if isinstance(program, partial):
        return [name for each in (program.func, *program.args) for name in _modules_of(each)]
    return [getattr(program, "__module__", "")] if callable(program) else []


def _pickle_job(job: Job, program: object, own: Sequence[Algorithm]) -> bytes:
    """Return the job as bytes.

    The code of the catalogue and of the program goes by value, because modules in other folders may have the same names.
    """
    homes = [sys.modules[name] for name in _modules_of(program) if name in sys.modules]
    names = ["launch", *_catalogue()]
    users = {each.build.__module__ for each in own if not each.build.__module__.startswith("emu.")}
    by_value = [sys.modules[name] for name in (*names, *users) if name in sys.modules]
    by_value += [home for home in homes if home.__name__.partition(".")[0] not in ("emu", "__main__", *names, *users)]
    for module in by_value:
        _cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(_cloudpickle.dumps(job))
    finally:
        for module in by_value:
            with suppress(ValueError):
                _cloudpickle.unregister_pickle_by_value(module)
