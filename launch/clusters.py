"""From the word `local` or `ray` to where the ranks of a job run."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from emu.collective.algorithm import Choice
from emu.errors import must_be
from emu.registry import unknown
from emu.trace.trace import Trace

if TYPE_CHECKING:  # it loads torch
    from emu.cluster.cluster import Cluster

T = TypeVar("T")
CLUSTERS = ("local", "ray")


def check_cluster(word: str, ray_address: str | None) -> None:
    """Refuse what names no cluster.

    Raises:
        InputError: another word than those of `CLUSTERS`, or an address without `ray`.
    """
    if word not in CLUSTERS:
        raise unknown("cluster", word, CLUSTERS)
    if ray_address is not None and word != "ray":
        raise must_be("--ray-address", "the cluster", "ray where an address is given", word, "add --cluster ray")


@contextmanager
def opened(word: str, ray_address: str | None = None) -> "Iterator[Cluster]":
    """The ranks of a cluster, ended with the context.

    Raises:
        InputError: no such cluster, or no Ray answers at the address.
        RunError: Ray does not start.
    """
    check_cluster(word, ray_address)
    if word == "local":
        yield importlib.import_module("emu.cluster.threads").LocalCluster()  # not above: it loads torch
        return
    ray = importlib.import_module("launch.ray.cluster")  # not above: it loads Ray
    with ray.RayCluster(ray_address) as ranks:
        yield ranks


def run_on(word: str, ray_address: str | None = None) -> Callable[[int, Choice, Callable[[int], Any]], tuple[list[Any], Trace]]:
    """What `emu.study.training.train` runs a program on; the cluster lives while it runs.

    Raises:
        InputError: no such cluster.
    """
    check_cluster(word, ray_address)

    def record(n_ranks: int, choice: Choice, program: Callable[[int], T]) -> tuple[list[T], Trace]:
        with opened(word, ray_address) as ranks:
            return ranks.record(n_ranks, choice, program)

    return record
