"""Is a result chaotic? Where sharing feeds back through dependencies, a tick more or less at a start moves the end by percents.

Then one figure says little, and its spread over perturbed starts stands beside it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from emu.errors import must_be
from emu.fabric.graph import Graph
from emu.fabric.run import run
from emu.fabric.timeline import Timeline
from emu.units import seconds


@dataclass(frozen=True, slots=True)
class Spread:
    """The least and the most that a chaotic result came to."""

    seeds: int
    least_s: float
    most_s: float


def perturbed(graph: Graph, seed: int) -> Graph:
    """The graph with each task held back by a tick or not, at random."""
    late = np.random.default_rng(seed).integers(2, size=graph.n_tasks)
    return replace(graph, ready_fs=graph.ready_fs + late)


def check_seeds(seeds: int) -> None:
    """Refuse fewer than two: one has no spread.

    Raises:
        InputError: fewer.
    """
    if seeds < 2:
        raise must_be("perturb", "the number of runs", "0, or 2 or more", seeds)


def spread(graph: Graph, seeds: int, result_s: Callable[[Timeline], float] = lambda timeline: timeline.end_s) -> Spread | None:
    """What a result comes to over perturbed starts; None: no more than a tick a task apart, so it is not chaotic.

    Args:
        graph: What is timed.
        seeds: How many times, each with its own perturbation.
        result_s: What is read off a timeline: its end, unless given.

    Raises:
        InputError: fewer seeds than two.
    """
    check_seeds(seeds)
    results = [result_s(run(perturbed(graph, seed))) for seed in range(seeds)]
    least, most = min(results), max(results)
    return Spread(seeds, least, most) if most - least > seconds(graph.n_tasks) else None
