"""What one collective takes on an idle fabric; no data is moved for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import gcd
from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64
from emu.collective.operation import Operation, cut
from emu.collective.schedule import RowsError, Schedule
from emu.fabric.isolated_time import time_alone
from emu.fabric.lower import UnevenError, lower
from emu.fabric.lower import store_rows as every_row
from emu.fabric.lowering.classes import invariant
from emu.fabric.lowering.names import message_name
from emu.fabric.perturb import Spread, spread
from emu.fabric.task_error import name_tasks as named
from emu.fabric.timeline import Timeline
from emu.topology.placement import with_helpers
from emu.topology.topology import Topology


def time_collective(
    op: Operation,
    plan: Schedule,
    count: int,
    item_bytes: int,
    topology: Topology,
    placement: I32,
    send_overhead_fs: int = 0,
    name: str = "",
) -> Timeline:
    """Time a schedule.

    Args:
        op: What it is for.
        plan: The schedule.
        count: Elements of the operation's size.
        item_bytes: Of an element.
        topology: Where it runs.
        placement: [N] the NPU of each rank; helpers are put on switches.
        send_overhead_fs: LogGP's o, in ticks.
        name: What errors call the schedule; unless given, its operation's.

    Raises:
        InputError: fewer switches than helpers, a pair that no route joins, more rows than can be timed, or a message that
            ends beyond the clock.
    """
    nodes, sizes = with_helpers(topology, placement, plan.helpers), slot_bytes(op, plan, count, item_bytes)
    with mended(op, plan, count, item_bytes):
        return time_alone(plan, sizes, topology, nodes, send_overhead_fs=send_overhead_fs, name=name or op.name)


class Job(NamedTuple):
    """The arguments of `time_collective`."""

    op: Operation
    plan: Schedule
    elements: int
    item_bytes: int
    topology: Topology
    placement: I32
    send_overhead_fs: int = 0
    name: str = ""


def spread_collective(job: Job, seeds: int) -> Spread | None:
    """What `time_collective` comes to over perturbed starts; see `spread`.

    Raises:
        InputError: as `time_collective`, and `spread`.
    """
    op, plan, count, item_bytes, topology, placement, send_overhead_fs, name = job
    nodes, sizes = with_helpers(topology, placement, plan.helpers), np.asarray(slot_bytes(op, plan, count, item_bytes))
    called = name or op.name
    with mended(op, plan, count, item_bytes):
        full = every_row(plan, sizes, topology, send_overhead_fs=send_overhead_fs, name=called)
    graph = lower(full, sizes, topology, nodes, send_overhead_fs=send_overhead_fs).graph
    with named(called, partial(message_name, full, graph)):
        return spread(graph, seeds)


@contextmanager
def mended(op: Operation, plan: Schedule, count: int, item_bytes: int) -> Iterator[None]:
    """Name the nearest sizes that would do, where this one is refused for not cutting evenly."""
    try:
        yield
    except UnevenError as error:
        near = " or ".join(f"{even * item_bytes} B" for even in even_counts(op, plan, count)) or "fewer ranks"
        what = f"{count * item_bytes} B do not cut evenly among {op.n_ranks} ranks"
        raise RowsError(f"{error.name}: {what}, {error.needed}; take {near}") from None


def even_counts(op: Operation, plan: Schedule, count: int) -> list[int]:
    """The nearest whole sizes in elements, at most one below `count` and one above, of which translations keep the slots."""
    parts, moved = plan.n_slots // op.n_blocks, plan.n_slots // plan.n_ranks**plan.slot_digits
    pieces = parts // gcd(parts, moved)  # of a block, that translations bring to one another
    step = op.blocks_in_size * (sum(plan.shares) if plan.shares and pieces > 1 else pieces)
    if not invariant(slot_bytes(op, plan, step, 1), plan.translations):
        return []
    return [c for c in (count // step * step, count // step * step + step) if c]


def slot_bytes(op: Operation, plan: Schedule, count: int, item_bytes: int) -> I64:
    """[K] bytes of each slot; where all are alike a view of one number, for there may be billions."""
    blocks = op.block_counts(count)
    if blocks.min() != blocks.max() or plan.n_slots % len(blocks):
        return cut(blocks, plan.n_slots, plan.shares).count * item_bytes
    parts = cut(blocks[:1], plan.n_slots // len(blocks), plan.shares).count * item_bytes
    if parts.min() == parts.max():
        return np.broadcast_to(parts[0], plan.n_slots)
    return np.tile(parts, len(blocks))
