"""The options that say where the ranks of a job run: as threads, as Ray actors, or nowhere."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from emu.cluster.pace.timeliness import Pace
from emu.collective.algorithm import Choice
from emu.errors import must_be
from emu.registry import unknown
from emu.trace.trace import Trace

if TYPE_CHECKING:  # it loads torch
    from emu.cluster.cluster import Cluster

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
CLUSTERS = ("local", "ray")
FAKE = "fake"  # no rank runs; for `emu run` only
_ALONE = "--cluster ray"


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The values of the options that say where ranks run.

    Raises:
        InputError: the cluster is unknown, a number is too small, or an option of Ray is given without Ray.
    """

    cluster: str = "local"
    ray_address: str | None = None
    ranks_per_actor: int | None = None
    ray_options: Path | None = None
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
                raise must_be(flag, "--cluster", "ray with this option", self.cluster, f"add {_ALONE}")
        if not self.patience_s > 0:
            raise must_be("run", "--patience", "a number of seconds above 0", self.patience_s)
        if self.ranks_per_actor is not None and self.ranks_per_actor < 1:
            raise must_be("run", "--ranks-per-actor", "1 or more", self.ranks_per_actor)

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
            local = importlib.import_module("emu.cluster.threads.local_cluster")  # not above: it loads torch
            yield local.LocalCluster(pace, self.patience_s)
            return
        ray = importlib.import_module("launch.ray.cluster")  # not above: it loads Ray
        read_options = importlib.import_module("launch.ray.process").read_options
        options = read_options(self.ray_options, None if self.ray_address is None else brings)
        with ray.RayCluster(self.ray_address, self.ranks_per_actor or 1, options, pace, self.patience_s) as ranks:
            yield ranks

    def record(
        self, n_ranks: int, choice: Choice, program: Callable[[int], T], pace: Pace | None = None
    ) -> tuple[list[T], Trace]:
        """Run the program on every rank, and return the results and the trace."""
        with self.open_cluster(pace=pace) as ranks:
            return ranks.record(n_ranks, choice, program)


def cluster_options(command: F) -> F:
    """Add the options that say where ranks run to a command, which takes them as one `ClusterOptions`."""
    return _options(command, CLUSTERS, "Where ranks run: as threads (local), or in Ray actors (ray).")


def script_cluster_options(command: F) -> F:
    """Add the options of `cluster_options` with `fake` as another cluster, and `--patience`."""
    said = "Where ranks run: as threads (local), in Ray actors (ray), or nowhere (fake; tensors have no data)."
    return _options(_patience_option(command), (*CLUSTERS, FAKE), said)


def _patience_option(command: F) -> F:
    """Add `--patience`, the time that a rank may wait outside of communication."""

    @wraps(command)
    def called(*given: Any, patience: float, where: ClusterOptions, **rest: Any) -> Any:
        return command(*given, where=replace(where, patience_s=patience), **rest)

    said = "End the run if a rank waits so long for something else than communication (a lock, a store) while all others wait."
    option = click.option("--patience", type=float, default=60.0, show_default=True, metavar="SECONDS", help=said)
    return cast("F", option(called))


_RAY_OPTIONS = (
    click.option(
        "--ray-address", metavar="HOST:PORT", help="The address of a running Ray. [default: start one on this machine]"
    ),
    click.option("--ranks-per-actor", type=int, metavar="N", help="The ranks of each Ray actor, as threads. [default: 1]"),
    click.option(
        "--ray-options",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="A .toml file with Ray's own settings: strategy, resources, wait_s, runtime_env.",
    ),
)


def _options(command: F, known: tuple[str, ...], said: str) -> F:
    """Add the options that say where ranks run.

    Args:
        command: The command.
        known: The names of the clusters.
        said: The help text of `--cluster`.
    """

    @wraps(command)
    def called(
        *given: Any, cluster: str, ray_address: str | None, ranks_per_actor: int | None, ray_options: Path | None, **rest: Any
    ) -> Any:
        return command(*given, where=ClusterOptions(cluster, ray_address, ranks_per_actor, ray_options, known), **rest)

    taken: Any = called
    for option in reversed((click.option("--cluster", default="local", show_default=True, help=said), *_RAY_OPTIONS)):
        taken = option(taken)
    return cast("F", taken)
