"""The time of a schedule that has a fabric to itself."""

from dataclasses import replace
from functools import partial

from numpy.typing import ArrayLike

from emu.arrays import I64
from emu.collective.schedule import Schedule
from emu.fabric.graph import Graph
from emu.fabric.lower import Piece, lay, lowered
from emu.fabric.lowering.classes import Joins
from emu.fabric.lowering.laid import Laid
from emu.fabric.lowering.names import message_name
from emu.fabric.named import named
from emu.fabric.run import run
from emu.fabric.symmetric import domain_of
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
    """Time a schedule that has the fabric to itself, by its symmetry where it has one.

    Arguments are as of `lay`.

    Raises:
        InputError: as `lay` and `lowered`; or a message that ends beyond the clock.
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
) -> Piece:
    """Turn a schedule into as few tasks as its symmetry and the topology's allow; arguments and errors as of `time_alone`."""
    laid = lay_alone(schedule, slot_bytes, topology, placement, key=key, send_overhead_fs=send_overhead_fs, name=name)
    return lowered(laid, domain_of(topology, laid.npus[0], [laid]) if laid.by_rank else None)


def lay_alone(
    schedule: Schedule,
    slot_bytes: I64,
    topology: Topology,
    placement: ArrayLike,
    *,
    key: int = 0,
    send_overhead_fs: int = 0,
    name: str = "schedule",
) -> Laid:
    """The schedule on its nodes; arguments as of `time_alone`.

    Raises:
        InputError: as `lay`.
    """
    where = schedule, slot_bytes, topology, placement
    return lay(*where, key=key, send_overhead_fs=send_overhead_fs, joins=Joins.NONE, name=name)


def run_named(graph: Graph, schedule: Schedule, name: str) -> Timeline:
    """Time what a schedule was lowered to.

    Raises:
        InputError: a task cannot be timed; the line begins with `name` and says of which message it is.
    """
    with named(name, partial(message_name, schedule, graph)):
        return run(graph)
