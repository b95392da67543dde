"""A cluster whose ranks are Ray actors, on this machine or on any Ray by its address; results have the same bits.

Ray starts, places, watches and ends the ranks; gloo carries bytes between them.
"""

import pickle
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import entry_points
from typing import Any

from emu.backend.executor.wire import LOOPBACK
from emu.backend.rank.record import Recorder
from emu.cluster.cluster import Cluster, JobProgram, JobResult, RankFactory
from emu.cluster.pace.timeliness import Pace
from emu.cluster.processes.coordinator import Coordinator
from emu.cluster.processes.job_process import JobProcess, ranks_of_processes
from emu.cluster.rank_failure import RankExit, death_in_words, ranks_in_words
from emu.cluster.watch import PATIENCE_S
from emu.collective.algorithm import ALGORITHMS, Algorithm, file_missing
from emu.collective.choice import Choice
from emu.collective.chooser_names import SYNTHESIZED
from emu.errors import InputError, LostError, RunError, must_be
from emu.study.choice.chooser import is_automatic
from launch.clusters import unshared_error
from launch.ray.actors import ActorResult
from launch.ray.process import RayOptions, RayProcess, pickled_by_value

_WORST = ("refused", "died", "broken", "failed", "done")  # the worst first: that of several results which is reported


class RayCluster(Cluster):
    """The cluster of one Ray, whose actors live from job to job; as a context manager it ends them.

    Args:
        address: The address of the Ray to join; None: one is started on this machine, and ended with this object.
        per_actor: The number of ranks of an actor, as threads.
        options: The placement and the environment of actors; None: Ray's own.
        pace: The pace of messages, by this host's clock; None: there is no clock.
        patience_s: Seconds after which the job fails because of a rank that waits outside of communication while all wait
            for it.
        timeout_s: A process that is silent for so long during a request counts as gone.

    Raises:
        InputError: no Ray answers at the address.
        RunError: Ray does not start.
    """

    def __init__(
        self,
        address: str | None = None,
        per_actor: int = 1,
        options: RayOptions | None = None,
        pace: Pace | None = None,
        patience_s: float = PATIENCE_S,
        timeout_s: float = 300.0,
    ) -> None:
        self._per_actor, self._patience_s, self._timeout_s = per_actor, patience_s, timeout_s
        self.pace = pace
        self._keep_log = False  # True when an error names the log
        self._process = RayProcess(address or "", options)

    def __enter__(self) -> "RayCluster":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.end(keep_log=self._keep_log)

    def run_job(self, n_ranks: int, choice: Choice, program: JobProgram) -> JobResult:
        """Run a program that makes the ranks itself; if a rank exits with a code, nothing is recorded.

        Raises:
            InputError: see `run`.
            RunError: see `run`.
        """
        try:
            ended = self._run(n_ranks, choice, program)
        except RankExit as left:
            return JobResult([], [Recorder().recorded_events()] * n_ranks, left)
        return JobResult([value for e in ended for value in e.values], [each for e in ended for each in e.recorded_events])

    def _run(self, n_ranks: int, choice: Choice, program: JobProgram) -> list[JobResult]:
        if n_ranks < 1:
            raise must_be("cluster", "ranks", "1 or more", n_ranks)
        if is_automatic(choice.chooser, name=SYNTHESIZED):
            raise unshared_error()
        processes = ranks_of_processes(n_ranks, self._per_actor)
        own = _users_own()
        with Coordinator(n_ranks, choice, self._process.node or LOOPBACK, _say, self.pace, self._patience_s) as coordinator:
            brought = partial(_bring, own, program) if own else program
            tempo = None if self.pace is None else self.pace.tempo
            job = JobProcess(brought, n_ranks, self._per_actor, coordinator.address, self._timeout_s, tempo)
            answers = self._process.ask(len(processes), _pickle(job, program, own), coordinator.failing)
        if len(answers) < len(processes) or any(how != "done" for _, how, _, _ in answers):
            raise self._failure(answers, coordinator, processes)
        self._keep_log = False  # the log of a process that died before is of no interest
        ended = [pickle.loads(ended) for _, _, ended, _ in sorted(answers)]
        if self.pace is not None:
            self.pace.tempo.kept.add(each.late for each in ended)
        return ended

    def _failure(self, answers: list[ActorResult], coordinator: Coordinator, processes: list[range]) -> BaseException:
        process, how, _, said = min(answers, key=lambda answer: _WORST.index(answer[1]), default=(0, "done", b"", ""))
        if how == "refused":
            return InputError(f"ray: {said}; ask for less, or wait longer (resources, strategy, wait_s of --ray-options)")
        if how not in ("died", "broken"):
            return coordinator.failure or RunError("ray: actors have ended without a reason")
        self._keep_log = True
        ranks = processes[process]
        if how == "died":
            doing = {rank: coordinator.doing(rank) for rank in ranks}
            return LostError(
                f"{death_in_words(coordinator.fatal(process), doing, coordinator.waiting(ranks))}; log: {self._process.log}"
            )
        return RunError(f"{ranks_in_words(ranks)}: {said}; log: {self._process.log}")


def _say(rank: int, stream: str, text: str) -> None:
    """Print lines of a rank's output, each with the number of the rank in front."""
    said = "".join(f"[rank {rank}] {line}" for line in text.splitlines(keepends=True))
    print(said, end="", file=sys.stderr if stream == "err" else sys.stdout, flush=True)


def _catalogue() -> list[str]:
    return [point.value for point in entry_points(group="emu.catalogue")]


def _users_own() -> tuple[Algorithm, ...]:
    """Return the algorithms of a user's own files, which actors do not find in the catalogue."""
    catalogue = _catalogue()
    return tuple(a for _, a in ALGORITHMS if a.build.__module__.partition(".")[0] not in catalogue)


def _bring(own: tuple[Algorithm, ...], program: JobProgram, make: RankFactory) -> list[Any]:
    file_missing(own)
    return program(make)


def _modules_of(program: object) -> list[str]:
    """Return the names of the modules of a program, and of the functions that it gets."""
    if isinstance(program, partial):
        return [name for each in (program.func, *program.args) for name in _modules_of(each)]
    return [getattr(program, "__module__", "")] if callable(program) else []


def _pickle(job: JobProcess, program: object, own: Sequence[Algorithm]) -> bytes:
    """Return a job as bytes; code of the catalogue and of the program is pickled by value."""
    homes = [sys.modules[name] for name in _modules_of(program) if name in sys.modules]
    names = ["launch", *_catalogue()]
    users = {each.build.__module__ for each in own if not each.build.__module__.startswith("emu.")}
    by_value = [sys.modules[name] for name in (*names, *users) if name in sys.modules]
    by_value += [home for home in homes if home.__name__.partition(".")[0] not in ("emu", "__main__", *names, *users)]
    return pickled_by_value(job, by_value)
