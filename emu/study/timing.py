"""What one collective takes on an idle fabric, and what it takes at least; no data is moved for it."""

import numpy as np

from emu.arrays import I32, I64, column
from emu.collective.operation import Operation, cut
from emu.collective.schedule import Schedule
from emu.fabric.graph import Graph
from emu.fabric.lower import CHANNELS, lower
from emu.fabric.symmetric import lower_alone, time_alone
from emu.fabric.timeline import Timeline
from emu.topology.placement import with_helpers
from emu.topology.topology import Topology
from emu.units import TICKS_PER_S


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
    nodes = with_helpers(topology, placement, plan.helpers)
    return time_alone(plan, _slot_bytes(op, plan, count, item_bytes), topology, nodes, send_overhead_fs=send_overhead_fs)


def graph_of(
    op: Operation, plan: Schedule, count: int, item_bytes: int, topology: Topology, placement: I32, send_overhead_fs: int = 0
) -> Graph:
    """What `time_collective` times, every message of it; arguments as above.

    Raises:
        InputError: as `time_collective`.
    """
    nodes = with_helpers(topology, placement, plan.helpers)
    sizes = np.asarray(_slot_bytes(op, plan, count, item_bytes))
    return lower(plan, sizes, topology, nodes, send_overhead_fs=send_overhead_fs).graph


def _slot_bytes(op: Operation, plan: Schedule, count: int, item_bytes: int) -> I64:
    """[K] bytes of each slot; where all are alike a view of one number, for there may be billions."""
    blocks = op.block_counts(count)
    if blocks.min() != blocks.max() or plan.n_slots % len(blocks):
        return cut(blocks, plan.n_slots, plan.shares).count * item_bytes
    parts = cut(blocks[:1], plan.n_slots // len(blocks), plan.shares).count * item_bytes
    if parts.min() == parts.max():
        return np.broadcast_to(parts[0], plan.n_slots)
    return np.tile(parts, len(blocks))


def least_fs(op: Operation, plan: Schedule, count: int, item_bytes: int, topology: Topology, placement: I32) -> float:
    """Ticks that a schedule takes at least: its busiest link's, carrying its bytes at full rate; arguments as above.

    Raises:
        InputError: as `time_collective`.
    """
    full, slot_bytes = plan, _slot_bytes(op, plan, count, item_bytes)
    nodes = with_helpers(topology, placement, plan.helpers).astype(np.int64)
    if plan.translate:
        found = lower_alone(plan, slot_bytes, topology, column(nodes, np.int32))
        if found is not None:
            return _busiest_fs(found.graph)
        full = plan.expand()
    sizes = np.concatenate((slot_bytes, slot_bytes[list(plan.temps)]))
    sent = np.flatnonzero((full.src != full.dst) & (sizes[full.slot] > 0))
    ends = (full.src[sent].astype(np.int64) * full.n_participants + full.dst[sent]) * CHANNELS + full.channel[sent]
    pairs, number = np.unique(ends, return_inverse=True)
    (src, dst), channel = np.divmod(pairs // CHANNELS, full.n_participants), pairs % CHANNELS
    routes = topology.routes(nodes[src], nodes[dst], channel)
    crossing = np.bincount(number, sizes[full.slot[sent]], len(pairs))
    carried = np.bincount(routes.link, np.repeat(crossing, routes.hops), len(topology.links))
    return float((carried / topology.links.bandwidth_Bps).max(initial=0.0)) * TICKS_PER_S


def _busiest_fs(graph: Graph) -> float:
    crossing = np.repeat(graph.size_bytes, np.diff(graph.hop_start)) * graph.hop_weight
    carried = np.bincount(graph.hop_link, crossing, graph.n_links)
    return float((carried / graph.capacity_Bps).max(initial=0.0)) * TICKS_PER_S
