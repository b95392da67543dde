"""The time of a schedule that has a fabric to itself, in three steps: place it, lower it to tasks, run the tasks."""

from dataclasses import replace
from functools import partial

from emu.collective.schedule import Schedule
from emu.fabric.graph import Graph, Timeline, name_tasks
from emu.fabric.job_symmetry import domain_of
from emu.fabric.lower import FabricJob, LoweredSchedule, lay, lower_placed
from emu.fabric.lowering.classes import Joins
from emu.fabric.lowering.tasks import message_name
from emu.fabric.run import run_graph


def time_alone(job: FabricJob) -> Timeline:
    """Return the timeline of a job that has the fabric to itself; its symmetry shortens the work where it has one.

    Raises:
        InputError: See `lay` and `lower_placed`; or a message ends beyond the clock.
    """
    piece = lower_alone(job)
    timeline = run_named(piece.graph, piece.schedule, job.name)
    return replace(timeline, how="quotient") if piece.is_quotient else timeline


def lower_alone(job: FabricJob) -> LoweredSchedule:
    """Return a job as few tasks as its symmetry and the topology's allow; errors as in `time_alone`."""
    placed = lay(job, Joins.NONE)
    return lower_placed(placed, domain_of(job.topology, placed.npus[0], [placed]) if placed.by_rank else None)


def run_named(graph: Graph, schedule: Schedule, name: str) -> Timeline:
    """Return the timeline of a graph to which a schedule was lowered.

    Raises:
        InputError: A task cannot be timed. The message begins with `name` and says which message of the schedule it is.
    """
    with name_tasks(name, partial(message_name, schedule, graph)):
        return run_graph(graph)
