"""What one collective takes on an idle fabric, and what it takes at least; no data is moved for it."""

import numpy as np

from emu.arrays import I32
from emu.collective.operation import Operation, cut
from emu.collective.schedule import Schedule
from emu.fabric.lower import lower
from emu.fabric.run import run
from emu.fabric.timeline import Timeline
from emu.topology.placement import with_helpers
from emu.topology.topology import Topology
from emu.units import TICKS_PER_S

_CHANNELS = 2**15


def time_collective(
    op: Operation, plan: Schedule, count: int, item_bytes: int, topology: Topology, placement: I32, send_overhead_fs: int = 0
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

    Raises:
        InputError: fewer switches than helpers, or a pair that no route joins.
    """
    slots = cut(op.block_counts(count), plan.n_slots, plan.shares)
    nodes = with_helpers(topology, placement, plan.helpers)
    return run(lower(plan, slots.count * item_bytes, topology, nodes, send_overhead_fs=send_overhead_fs).graph)


def least_fs(op: Operation, plan: Schedule, count: int, item_bytes: int, topology: Topology, placement: I32) -> float:
    """Ticks that a schedule takes at least: its busiest link's, carrying its bytes at full rate; arguments as above.

    Raises:
        InputError: as `time_collective`.
    """
    full, slots = plan.expand(), cut(op.block_counts(count), plan.n_slots, plan.shares)
    sizes = np.concatenate((slots.count, slots.count[list(plan.temps)])) * item_bytes
    nodes = with_helpers(topology, placement, plan.helpers).astype(np.int64)
    sent = np.flatnonzero((full.src != full.dst) & (sizes[full.slot] > 0))
    ends = (full.src[sent].astype(np.int64) * full.n_participants + full.dst[sent]) * _CHANNELS + full.channel[sent]
    pairs, number = np.unique(ends, return_inverse=True)
    (src, dst), channel = np.divmod(pairs // _CHANNELS, full.n_participants), pairs % _CHANNELS
    routes = topology.routes(nodes[src], nodes[dst], channel)
    crossing = np.bincount(number, sizes[full.slot[sent]], len(pairs))
    carried = np.bincount(routes.link, np.repeat(crossing, routes.hops), len(topology.links))
    return float((carried / topology.links.bandwidth_Bps).max(initial=0.0)) * TICKS_PER_S
