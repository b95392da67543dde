"""The entry to the engine: a graph is timed by a sweep, a quotient or the solver, and becomes a timeline.

The module also times a schedule that has a fabric to itself, and measures the spread of a result. Where sharing of links feeds
back through dependencies, one tick more or less at a start can move the end by per cents. Then one result says little, and the
spread of results over perturbed starts is printed beside it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from emu.collective.schedule import Schedule
from emu.errors import must_be
from emu.fabric.engine.graph_check import check_graph, order_tasks
from emu.fabric.engine.quotient import quotient
from emu.fabric.engine.solver.state import State
from emu.fabric.engine.sweep import sweep
from emu.fabric.graph import Graph, Timeline, name_tasks
from emu.fabric.job_symmetry import orbits_of_job
from emu.fabric.lower import FabricJob, LoweredSchedule, lower_placed, place_schedule
from emu.fabric.lowering.classes import Joins
from emu.fabric.lowering.graph_columns import message_name
from emu.units import seconds


class CapacityEvent(NamedTuple):
    """A change of a link's bandwidth at a tick; with a bandwidth of 0, the link carries nothing from then on."""

    link: int
    time_fs: int
    capacity_Bps: float


def run_graph(graph: Graph, capacity_events: Iterable[CapacityEvent] = ()) -> Timeline:
    """Return the timeline of a graph.

    Raises:
        InputError: The graph or an event is invalid, or a task ends beyond the clock (9223 s).
        RunError: A task never leaves, because a link lost its capacity for good.
    """
    check_graph(graph)
    in_order, events = order_tasks(graph), tuple(capacity_events)
    quick_timeline = None if events or graph.ways else sweep(graph, in_order) or quotient(graph, in_order)
    if quick_timeline is not None:
        return quick_timeline
    state = State(graph.capacity_Bps)
    for event in events:
        state.set_capacity(*event)
    state.admit(graph)
    state.advance()
    return state.timeline()


@dataclass(frozen=True, slots=True)
class Spread:
    """The least and the largest seconds that a run takes over some perturbations of its starts; `seeds` is their number."""

    seeds: int
    least_s: float
    most_s: float


def perturb(graph: Graph, seed: int) -> Graph:
    """Return the graph with the start of each task delayed by one tick or not, at random."""
    late = np.random.default_rng(seed).integers(2, size=graph.n_tasks)
    return replace(graph, ready_fs=graph.ready_fs + late)


def check_seeds(seeds: int) -> None:
    """Check that the number of runs is two or more, because one run has no spread.

    Raises:
        InputError: The number is below two.
    """
    if seeds < 2:
        raise must_be("perturb", "the number of runs", "0, or 2 or more", seeds)


def spread(graph: Graph, seeds: int, result_s: Callable[[Timeline], float] = lambda timeline: timeline.end_s) -> Spread | None:
    """Return the range of a result over runs with perturbed starts; None if the results differ only by rounding.

    Args:
        graph: The graph that is timed.
        seeds: The number of runs, each with its own perturbation.
        result_s: A function that returns the result in seconds from a timeline; by default its end.

    Raises:
        InputError: There are fewer than two runs.
    """
    check_seeds(seeds)
    return spread_of([result_s(run_graph(perturb(graph, seed))) for seed in range(seeds)], graph.n_tasks)


def spread_of(results: Sequence[float], n_tasks: int) -> Spread | None:
    """Return the spread of the times of runs with slightly shifted starts; None if they differ by rounding alone.

    Args:
        results: The seconds that each run took.
        n_tasks: The number of tasks; a rounding error of one tick is allowed for each.
    """
    least, most = min(results), max(results)
    return Spread(len(results), least, most) if most - least > seconds(n_tasks) else None


def time_alone(job: FabricJob) -> Timeline:
    """Return the timeline of a job that has the fabric to itself.

    Its method is "quotient" if symmetries reduced the graph before it came to the engine, whichever method then timed it.

    Raises:
        InputError: See `place_schedule` and `lower_placed`; or a message ends beyond the clock.
    """
    piece = lower_alone(job)
    timeline = run_named(piece.graph, piece.schedule, job.name)
    return replace(timeline, how="quotient") if piece.uses_symmetry else timeline


def lower_alone(job: FabricJob) -> LoweredSchedule:
    """Return a job that has the fabric to itself as a graph with as few tasks as symmetries allow.

    The errors are those of `time_alone`.
    """
    placed = place_schedule(job, Joins.NONE)
    return lower_placed(placed, orbits_of_job(job.topology, placed.npus[0], [placed]) if placed.by_rank else None)


def run_named(graph: Graph, schedule: Schedule, name: str) -> Timeline:
    """Return the timeline of a graph to which a schedule was lowered.

    Raises:
        InputError: A task cannot be timed. The message begins with `name` and says which message of the schedule it is.
    """
    with name_tasks(name, partial(message_name, schedule, graph)):
        return run_graph(graph)
