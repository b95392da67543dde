"""What a schedule takes at least on a fabric, told without timing it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.collective.algorithm import Algorithm
from emu.collective.schedule import MAX_ROWS, Schedule
from emu.collective.shape import Shape, ranks_of
from emu.fabric.isolated_time import lay_alone
from emu.fabric.job_symmetry import domain_of, fewest_of
from emu.fabric.lower import busiest_fs
from emu.fabric.lowering.domain import Domain
from emu.fabric.lowering.placed_schedule import PlacedSchedule as Laid
from emu.study.timing.chain import chain_fs, message_count
from emu.study.timing.collective import Job, mended, slot_bytes
from emu.topology.placement import with_helpers
from emu.topology.topology import CHANNELS, Topology
from emu.topology.topology_cache import cached_by_topology as kept
from emu.units import TICKS_PER_S

LIGHT = 2**15  # messages, or rows, of which a schedule is timed in no time
MOST_PARTS = 64  # of a block, in which an algorithm that claims bytes of one port a rank cuts it
ROUNDING = 1e-6  # of a time: far above what the rounding to ticks takes off a bound


class Least(NamedTuple):
    """What is known of a time before it is taken."""

    messages: int  # to be timed; no fewer, where nothing else is known
    busiest_fs: float = 0.0  # of the link that carries most for its rate, at that rate; 0 where it was not looked for
    chain_fs: float = 0.0  # of messages that wait for one another; 0 where none was looked for

    @property
    def end_fs(self) -> float:
        """When it ends at least."""
        return max(self.busiest_fs, self.chain_fs)


@np.errstate(over="ignore")  # what is beyond the clock by far: timing says so, and where
def least(job: Job, most: int = MAX_ROWS) -> Least:
    """What a schedule takes at least: its busiest link's time at full rate, and that of its longest chain of messages.

    Where only the rows of rank 0 are stored, which makes timing cheap, no chain is looked for.

    Args:
        job: What would be timed.
        most: With more messages to be timed nothing is looked for.

    Raises:
        InputError: as `time_collective`.
    """
    op, plan, count, item_bytes, topology, placement, overhead_fs, name = job
    nodes = with_helpers(topology, placement, plan.helpers).astype(np.int64)
    held = slot_bytes(op, plan, count, item_bytes)
    if plan.translate:
        with mended(op, plan, count, item_bytes):
            laid = lay_alone(plan, held, topology, nodes, send_overhead_fs=overhead_fs, name=name or op.name)
        where = topology, laid.npus[0], [laid]
        if (messages := _count(laid, fewest_of(*where))) > most:  # before routes are tried, which takes far longer
            return Least(messages)
        messages = _count(laid, domain := domain_of(*where))
        return Least(messages, busiest_fs(laid, domain)) if messages <= most else Least(messages)
    messages = message_count(plan)
    if messages > most:
        return Least(messages)
    sizes = np.concatenate((held, held[list(plan.temps)]))
    return Least(messages, _busiest_fs(plan, sizes, topology, nodes), chain_fs(plan, sizes, topology, nodes))


def _count(laid: Laid, domain: Domain | None) -> int:
    """Messages of the ranks that stand for all."""
    return len(laid.classes.messages.src) * len(laid.copies(domain).first)


def _busiest_fs(plan: Schedule, sizes: I64, topology: Topology, nodes: I64) -> float:
    """From every row, without finding out what waits for what."""
    sent = np.flatnonzero((plan.src != plan.dst) & (sizes[plan.slot] > 0))
    ends = (plan.src[sent].astype(np.int64) * plan.n_participants + plan.dst[sent]) * CHANNELS + plan.channel[sent]
    pairs, number = np.unique(ends, return_inverse=True)
    (src, dst), channel = np.divmod(pairs // CHANNELS, plan.n_participants), pairs % CHANNELS
    routes = topology.routes(nodes[src], nodes[dst], channel)
    crossing = np.bincount(number, sizes[plan.slot[sent]], len(pairs))
    carried = np.bincount(routes.link, np.repeat(crossing, routes.hops), len(topology.links))
    return float((carried / topology.links.bandwidth_Bps).max(initial=0.0)) * TICKS_PER_S


def claimed_fs(found: Algorithm, shape: Shape, topology: Topology) -> float:
    """Ticks that it takes at least by the messages in a row that it claims where it claims just so many; else 0."""
    if found.claim is None or ranks_of(shape) < 2 or not found.claim.exact(shape):
        return 0.0
    return float(sum(found.claim.alphas(shape))) * _quickest_fs(topology)


def claimed_bytes_fs(
    found: Algorithm, shape: Shape, topology: Topology, npus: Sequence[int], elements: int, item: int
) -> float:
    """Ticks that it takes at least by the bytes that it claims of one port a rank, where it claims just so many; else 0.

    Some rank sends or receives so many, or passes them on in a row: no faster than all links of the best rank together. Where a
    size does not cut evenly each slot may be an element smaller.

    Args:
        found: The algorithm.
        shape: On which it is built.
        topology: Where it runs.
        npus: [N] of each rank.
        elements: Of the operation's size.
        item: Bytes of an element.
    """
    n, claim = ranks_of(shape), found.claim
    if claim is None or n < 2 or claim.fabric != "rank" or claim.link_class is not None or not claim.exact(shape):
        return 0.0
    ((_, beta),) = claim.terms(shape)
    whole = max(0, elements - MOST_PARTS * n)
    return float(beta) * whole * item * TICKS_PER_S / (float(_ports(topology)[list(npus)].max()) or np.inf)


@kept(1)
def _ports(topology: Topology) -> F64:
    """[n_nodes] what all links out of a node carry, or all into it, whichever is more."""
    links = topology.links
    ways = (np.bincount(ends, links.bandwidth_Bps, topology.n_nodes) for ends in (links.src, links.dst))
    return np.asarray(np.maximum(*ways), np.float64)


@kept(1)
def _quickest_fs(topology: Topology) -> float:
    """Ticks of latency that any message takes at least: over a link between two NPUs, or into the switches and out again."""
    links, n = topology.links, topology.n_npus
    leaves, comes = links.src < n, links.dst < n
    least = [_least(links.latency_fs[leaves & comes])]
    least += [_least(links.latency_fs[leaves & ~comes]) + _least(links.latency_fs[~leaves & comes])]
    if topology.adds:  # a message may end at a switch
        least += [_least(links.latency_fs)]
    return min(least)


def _least(latency_fs: np.ndarray) -> float:
    return float(latency_fs.min()) if len(latency_fs) else np.inf
