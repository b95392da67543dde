"""The time of one collective on an idle fabric; no data are moved for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import gcd
from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64
from emu.collective.operation import Operation, cut
from emu.collective.schedule import RowsError, Schedule
from emu.fabric.graph import Timeline, name_tasks
from emu.fabric.lower import FabricJob, UnevenError, lower, store_rows
from emu.fabric.lowering.classes import invariant
from emu.fabric.lowering.placed_schedule import message_name
from emu.fabric.run import Spread, spread, time_alone
from emu.topology.placement import with_helpers
from emu.topology.topology import Topology


class CollectiveJob(NamedTuple):
    """A collective to be timed."""

    op: Operation
    plan: Schedule
    elements: int  # of the operation's size
    item_bytes: int  # of an element
    topology: Topology
    placement: I32  # [N] the NPU of each rank; helpers are put on switches
    send_overhead_fs: int = 0  # LogGP's o, in ticks
    name: str = ""  # of the schedule in errors; "": its operation's

    def on_fabric(self) -> FabricJob:
        """Return the job as the fabric takes it: the bytes of each slot, and the node of each participant."""
        sizes, overhead_fs = slot_bytes(self.op, self.plan, self.elements, self.item_bytes), self.send_overhead_fs
        nodes = with_helpers(self.topology, self.placement, self.plan.helpers)
        return FabricJob(self.plan, sizes, self.topology, nodes, send_overhead_fs=overhead_fs, name=self.name or self.op.name)

    @contextmanager
    def name_even_sizes(self) -> Iterator[None]:
        """Add the nearest sizes that work to the error of a size that does not cut evenly."""
        try:
            yield
        except UnevenError as error:
            counts = even_counts(self.op, self.plan, self.elements)
            near = " or ".join(f"{even * self.item_bytes} B" for even in counts) or "fewer ranks"
            what = f"{self.elements * self.item_bytes} B do not cut evenly among {self.op.n_ranks} ranks"
            raise RowsError(f"{error.name}: {what}, {error.needed}; take {near}") from None


def time_collective(job: CollectiveJob) -> Timeline:
    """Return the timeline of a collective.

    Raises:
        InputError: There are fewer switches than helpers, no route joins a pair, there are more rows than can be timed, or a
            message ends beyond the clock.
    """
    with job.name_even_sizes():
        return time_alone(job.on_fabric())


def spread_collective(job: CollectiveJob, seeds: int) -> Spread | None:
    """Return the spread of the time over perturbed starts; see `spread`.

    Raises:
        InputError: As `time_collective` and `spread`.
    """
    placed = job.on_fabric()
    with job.name_even_sizes():
        full = store_rows(placed)
    graph = lower(replace(placed, schedule=full)).graph
    with name_tasks(placed.name, partial(message_name, full, graph)):
        return spread(graph, seeds)


def even_counts(op: Operation, plan: Schedule, count: int) -> list[int]:
    """Return the nearest sizes in elements, at most one below `count` and one above, whose slots translations keep equal."""
    parts, moved = plan.n_slots // op.n_blocks, plan.n_slots // plan.n_ranks**plan.slot_digits
    pieces = parts // gcd(parts, moved)  # of a block, that translations bring to one another
    step = op.blocks_in_size * (sum(plan.shares) if plan.shares and pieces > 1 else pieces)
    if not invariant(slot_bytes(op, plan, step, 1), plan.translations):
        return []
    return [c for c in (count // step * step, count // step * step + step) if c]


def slot_bytes(op: Operation, plan: Schedule, count: int, item_bytes: int) -> I64:
    """Return [K] the bytes of each slot; if all are equal, a view of one number, because there may be billions."""
    blocks = op.block_counts(count)
    if blocks.min() != blocks.max() or plan.n_slots % len(blocks):
        return cut(blocks, plan.n_slots, plan.shares).count * item_bytes
    parts = cut(blocks[:1], plan.n_slots // len(blocks), plan.shares).count * item_bytes
    if parts.min() == parts.max():
        return np.broadcast_to(parts[0], plan.n_slots)
    return np.tile(parts, len(blocks))
