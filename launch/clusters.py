"""The options for where ranks run (threads, Ray actors, nowhere) and where jobs are done (processes or Ray tasks)."""

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from emu.cluster.pace.timeliness import Pace
from emu.collective.choice import Choice
from emu.collective.chooser_names import SYNTHESIZED, chooser_needs
from emu.errors import InputError, must_be
from emu.registry import unknown
from emu.study.job_pool import THIS_PROCESS, JobPool
from emu.trace.trace import Trace

if TYPE_CHECKING:  # it loads torch
    from emu.cluster.cluster import Cluster

T = TypeVar("T")
CLUSTERS = ("local", "ray")
FAKE = "fake"  # no rank runs; for `emu run` only
WORKERS = ("local", "ray")


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The cluster on which ranks run, as options and arguments give it.

    Raises:
        InputError: the cluster is unknown, a number is too small, or an option of Ray is given without Ray.
    """

    cluster: str = "local"
    ray_address: str | None = None
    ranks_per_actor: int | None = None
    ray_options: str | Path | None = None
    known: tuple[str, ...] = CLUSTERS
    patience_s: float = 60.0

    def __post_init__(self) -> None:
        if self.cluster not in self.known:
            raise unknown("cluster", self.cluster, self.known)
        given = {
            "--ray-address": self.ray_address,
            "--ranks-per-actor": self.ranks_per_actor,
            "--ray-options": self.ray_options,
        }
        for flag, value in given.items():
            if value is not None and self.cluster != "ray":
                raise must_be(flag, "--cluster", "ray with this option", self.cluster, "add --cluster ray")
        if not self.patience_s > 0:
            raise must_be("run", "--patience", "a number of seconds above 0", self.patience_s)
        if self.ranks_per_actor is not None and self.ranks_per_actor < 1:
            raise must_be("run", "--ranks-per-actor", "1 or more", self.ranks_per_actor)

    def check_algorithms(self, words: Iterable[str]) -> None:
        """Check, before any process starts, that values of `--algorithm` name what all processes of the ranks find.

        Raises:
            InputError: A schedule is to be synthesised for ranks in processes of a Ray.
        """
        made = {by for by in (word.rpartition("=")[2] for word in words) if chooser_needs(by).makes}
        if self.cluster == "ray" and made:
            raise unshared_error(max(made))

    @contextmanager
    def open_cluster(self, brings: Path | None = None, pace: Pace | None = None) -> "Iterator[Cluster]":
        """Yield the cluster; its ranks end with the context.

        Args:
            brings: A folder that is copied to the nodes of a Ray that is joined.
            pace: The fabric and its clock, for a paced run; None: not paced.

        Raises:
            InputError: no Ray answers at the address, or the options for Ray are invalid.
            RunError: Ray does not start.
        """
        if self.cluster == "local":
            threads = importlib.import_module("emu.cluster.threads.threads")  # not above: it loads torch
            yield threads.LocalCluster(pace, self.patience_s)
            return
        ray = importlib.import_module("launch.ray.cluster")  # not above: it loads Ray
        read_options = importlib.import_module("launch.ray.process").read_options
        given = None if self.ray_options is None else Path(self.ray_options)
        options = read_options(given, None if self.ray_address is None else brings)
        with ray.RayCluster(self.ray_address, self.ranks_per_actor or 1, options, pace, self.patience_s) as ranks:
            yield ranks

    def run_traced(
        self, n_ranks: int, choice: Choice, program: Callable[[int], T], pace: Pace | None = None
    ) -> tuple[list[T], Trace]:
        """Run a program on every rank, and return its results in the order of ranks, and the trace.

        Args:
            n_ranks: The number of ranks.
            choice: The algorithm of each operation.
            program: A function that is called with the number of each rank.
            pace: The fabric and its clock, for a paced run; None: not paced.
        """
        with self.open_cluster(pace=pace) as ranks:
            return ranks.run_traced(n_ranks, choice, program)


def unshared_error(word: str = SYNTHESIZED) -> InputError:
    """Return the error for a word that asks for a synthesised schedule, which other processes would have to know."""
    mend = "take --cluster local, or write the schedule by `emu synthesize --xml` and --import it"
    return must_be("ray", "--algorithm", "one that every process finds", word, mend)


def job_pool(label: str, workers: str, ray_address: str | None, local: JobPool = THIS_PROCESS) -> JobPool:
    """Return the pool that does the jobs of a command.

    Args:
        label: The name of the command, with which the names of tasks of a Ray begin.
        workers: The kind of processes.
        ray_address: The address of a running Ray; None: one is started on this machine.
        local: The pool of this machine.

    Raises:
        InputError: the kind of processes is unknown, or an address is given without Ray.
    """
    if workers not in WORKERS:
        raise must_be("", "--workers", " or ".join(WORKERS), workers)
    if ray_address is not None and workers != "ray":
        raise must_be("--ray-address", "--workers", "ray with this option", workers, "add --workers ray")
    if workers == "local":
        return local
    made: JobPool = importlib.import_module("launch.ray.ray_pool").RayPool(label, ray_address)  # it loads Ray
    return made


def pool_and_cluster(
    label: str, workers: str, cluster: str, ray_address: str | None, ranks_per_actor: int | None, ray_options: str | Path | None
) -> tuple[JobPool, ClusterOptions]:
    """Return the job pool and the cluster of a command that takes both options.

    The address is used by whichever of the two is a Ray.

    Raises:
        InputError: as `job_pool` and `ClusterOptions`.
    """
    pool = job_pool(label, workers, ray_address if workers == "ray" else None)
    joins = cluster == "ray" or workers == "local"
    return pool, ClusterOptions(cluster, ray_address if joins else None, ranks_per_actor, ray_options)
