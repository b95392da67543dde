"""Where the ranks of a job run: as threads, as Ray actors, or nowhere."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from emu.cluster.pace.timeliness import Pace
from emu.collective.algorithm import Choice
from emu.errors import must_be
from emu.registry import unknown
from emu.trace.trace import Trace

if TYPE_CHECKING:  # it loads torch
    from emu.cluster.cluster import Cluster

T = TypeVar("T")
CLUSTERS = ("local", "ray")
FAKE = "fake"  # no rank runs; for `emu run` only
_ALONE = "--cluster ray"


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
            threads = importlib.import_module("emu.cluster.threads.threads")  # not above: it loads torch
            yield threads.LocalCluster(pace, self.patience_s)
            return
        ray = importlib.import_module("launch.ray.cluster")  # not above: it loads Ray
        read_options = importlib.import_module("launch.ray.process").read_options
        given = None if self.ray_options is None else Path(self.ray_options)
        options = read_options(given, None if self.ray_address is None else brings)
        with ray.RayCluster(self.ray_address, self.ranks_per_actor or 1, options, pace, self.patience_s) as ranks:
            yield ranks

    def record(
        self, n_ranks: int, choice: Choice, program: Callable[[int], T], pace: Pace | None = None
    ) -> tuple[list[T], Trace]:
        """Run the program on every rank, and return the results and the trace."""
        with self.open_cluster(pace=pace) as ranks:
            return ranks.record(n_ranks, choice, program)
