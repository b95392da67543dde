"""The time of a schedule that has a fabric to itself, in three steps: place it, lower it to tasks, run the tasks."""

from dataclasses import replace
from functools import partial

from numpy.typing import ArrayLike

from emu.arrays import I64
from emu.collective.schedule import Schedule
from emu.fabric.graph import Graph
from emu.fabric.job_symmetry import domain_of
from emu.fabric.lower import LoweredSchedule, lay, lower_placed
from emu.fabric.lowering.classes import Joins
from emu.fabric.lowering.names import message_name
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.fabric.run import run
from emu.fabric.task_error import name_tasks
from emu.fabric.timeline import Timeline
from emu.topology.topology import Topology


def time_alone(
    schedule: Schedule,
    slot_bytes: I64,
    topology: Topology,
    placement: ArrayLike,
    *,
    key: int = 0,
    send_overhead_fs: int = 0,
    name: str = "schedule",
) -> Timeline:
    """Return the timeline of a schedule that has the fabric to itself; its symmetry shortens the work where it has one.

    The arguments are those of `lay`.

    Raises:
        InputError: See `lay` and `lower_placed`; or a message ends beyond the clock.
    """
    piece = lower_alone(schedule, slot_bytes, topology, placement, key=key, send_overhead_fs=send_overhead_fs, name=name)
    timeline = run_named(piece.graph, piece.schedule, name)
    return replace(timeline, how="quotient") if piece.is_quotient else timeline


def lower_alone(
    schedule: Schedule,
    slot_bytes: I64,
    topology: Topology,
    placement: ArrayLike,
    *,
    key: int = 0,
    send_overhead_fs: int = 0,
    name: str = "schedule",
) -> LoweredSchedule:
    """Return a schedule as few tasks as its symmetry and the topology's allow.

    The arguments and errors are those of `time_alone`.
    """
    placed = lay_alone(schedule, slot_bytes, topology, placement, key=key, send_overhead_fs=send_overhead_fs, name=name)
    return lower_placed(placed, domain_of(topology, placed.npus[0], [placed]) if placed.by_rank else None)


def lay_alone(
    schedule: Schedule,
    slot_bytes: I64,
    topology: Topology,
    placement: ArrayLike,
    *,
    key: int = 0,
    send_overhead_fs: int = 0,
    name: str = "schedule",
) -> PlacedSchedule:
    """Return the schedule on its nodes, without joins; the arguments are those of `time_alone`.

    Raises:
        InputError: See `lay`.
    """
    where = schedule, slot_bytes, topology, placement
    return lay(*where, key=key, send_overhead_fs=send_overhead_fs, joins=Joins.NONE, name=name)


def run_named(graph: Graph, schedule: Schedule, name: str) -> Timeline:
    """Return the timeline of a graph to which a schedule was lowered.

    Raises:
        InputError: A task cannot be timed. The message begins with `name` and says which message of the schedule it is.
    """
    with name_tasks(name, partial(message_name, schedule, graph)):
        return run(graph)
