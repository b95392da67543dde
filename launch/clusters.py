"""From the words of a command to where the ranks of a job run."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from emu.cluster.pace.pace import Pace
from emu.collective.algorithm import Choice
from emu.errors import must_be
from emu.registry import unknown
from emu.trace.trace import Trace

if TYPE_CHECKING:  # it loads torch
    from emu.cluster.cluster import Cluster

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
CLUSTERS = ("local", "ray")
FAKE = "fake"  # where no rank runs: of `emu run` alone
_ALONE = "--cluster ray"


@dataclass(frozen=True, slots=True)
class Where:
    """What was asked for of where the ranks run.

    Raises:
        InputError: another word than those that are known, no ranks in an actor, or what belongs to Ray without it.
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
                raise must_be(flag, "the cluster", "ray where this is given", self.cluster, f"add {_ALONE}")
        if not self.patience_s > 0:
            raise must_be("run", "--patience", "a number of seconds above 0", self.patience_s)
        if self.ranks_per_actor is not None and self.ranks_per_actor < 1:
            raise must_be("--ranks-per-actor", "the ranks", "1 or more", self.ranks_per_actor)

    @contextmanager
    def opened(self, brings: Path | None = None, pace: Pace | None = None) -> "Iterator[Cluster]":
        """The ranks, ended with the context.

        Args:
            brings: A folder that a Ray which is joined brings to its nodes.
            pace: What messages meet, by this host's clock; None: nothing.

        Raises:
            InputError: no Ray answers at the address, or options that are none.
            RunError: Ray does not start.
        """
        if self.cluster == "local":
            local = importlib.import_module("emu.cluster.threads.local")  # not above: it loads torch
            yield local.LocalCluster(pace, self.patience_s)
            return
        ray = importlib.import_module("launch.ray.cluster")  # not above: it loads Ray
        with ray.RayCluster(
            self.ray_address, self.ranks_per_actor or 1, self.ray_options, brings, pace, self.patience_s
        ) as ranks:
            yield ranks

    def record(
        self, n_ranks: int, choice: Choice, program: Callable[[int], T], pace: Pace | None = None
    ) -> tuple[list[T], Trace]:
        """What `emu.study.training.train` runs a program on; the ranks live while it runs."""
        with self.opened(pace=pace) as ranks:
            return ranks.record(n_ranks, choice, program)


def cluster_options(command: F) -> F:
    """Where the ranks really run; the command takes all as one `Where`."""
    return _options(command, CLUSTERS, "Ranks are threads (local), or in processes of Ray (ray).")


def script_cluster_options(command: F) -> F:
    """The same, or nowhere."""
    said = "Ranks are threads (local), in processes of Ray (ray), or nowhere (fake): tensors without data, any number of ranks."
    return _options(_patience_option(command), (*CLUSTERS, FAKE), said)


def _patience_option(command: F) -> F:
    """Add how long a rank may wait for what never comes."""

    @wraps(command)
    def called(*given: Any, patience: float, where: Where, **rest: Any) -> Any:
        return command(*given, where=replace(where, patience_s=patience), **rest)

    said = "End the run if a rank waits for so long outside of communication (a lock, a thread, a store) while all others wait."
    option = click.option("--patience", type=float, default=60.0, show_default=True, metavar="SECONDS", help=said)
    return cast("F", option(called))


def _options(command: F, known: tuple[str, ...], said: str) -> F:
    @wraps(command)
    def called(
        *given: Any,
        cluster: str,
        ray_address: str | None,
        ranks_per_actor: int | None,
        ray_options: Path | None,
        **rest: Any,
    ) -> Any:
        return command(*given, where=Where(cluster, ray_address, ranks_per_actor, ray_options, known), **rest)

    options = (
        click.option("--cluster", default="local", show_default=True, help=said),
        click.option("--ray-address", metavar="HOST:PORT", help="A Ray that runs. [default: start one on this machine]"),
        click.option("--ranks-per-actor", type=int, metavar="N", help="Ranks in each process of Ray, as threads. [default: 1]"),
        click.option(
            "--ray-options",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="A .toml of Ray's own words: strategy, resources, runtime_env.",
        ),
    )
    taken: Any = called
    for option in reversed(options):
        taken = option(taken)
    return cast("F", taken)
