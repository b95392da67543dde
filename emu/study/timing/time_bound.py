"""A lower bound on a schedule's time on a fabric, computed without timing it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.collective.algorithm import Algorithm
from emu.collective.schedule import MAX_ROWS, Schedule
from emu.collective.shape import Shape, ranks_of
from emu.fabric.fabric_job import FabricJob
from emu.fabric.isolated_time import lay_alone
from emu.fabric.job_symmetry import domain_of, fewest_of
from emu.fabric.lower import busiest_fs
from emu.fabric.lowering.classes import Domain
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.study.timing.chain import chain_fs, message_count
from emu.study.timing.collective import Job, name_even_sizes, slot_bytes
from emu.topology.placement import with_helpers
from emu.topology.topology import CHANNELS, Topology
from emu.topology.topology_cache import cached_by_topology
from emu.units import TICKS_PER_S

LIGHT = 2**15  # messages, or rows, of which a schedule is timed in no time
MOST_PARTS = 64  # of a block, in which an algorithm that claims bytes of one port a rank cuts it
ROUNDING = 1e-6  # of a time: far above what the rounding to ticks takes off a bound


class TimeBound(NamedTuple):
    """A lower bound on a time, and the number of messages that timing would take."""

    messages: int  # to be timed; no fewer, where nothing else is known
    busiest_fs: float = 0.0  # of the link that carries most for its rate, at that rate; 0 where it was not looked for
    chain_fs: float = 0.0  # of messages that wait for one another; 0 where none was looked for

    @property
    def end_fs(self) -> float:
        """The ticks that the schedule takes at least."""
        return max(self.busiest_fs, self.chain_fs)


@np.errstate(over="ignore")  # what is beyond the clock by far: timing says so, and where
def time_bound(job: Job, most: int = MAX_ROWS) -> TimeBound:
    """Return the larger of two bounds: the time of the busiest link at full rate, and of the longest chain of messages.

    If only the rows of rank 0 are stored, which makes timing cheap, no chain is looked for.

    Args:
        job: The job to bound.
        most: The most messages; with more messages no bound is computed.

    Raises:
        InputError: As `time_collective`.
    """
    op, plan, count, item_bytes, topology, placement, overhead_fs, name = job
    nodes = with_helpers(topology, placement, plan.helpers).astype(np.int64)
    held = slot_bytes(op, plan, count, item_bytes)
    if plan.translate:
        with name_even_sizes(op, plan, count, item_bytes):
            laid = lay_alone(FabricJob(plan, held, topology, nodes, send_overhead_fs=overhead_fs, name=name or op.name))
        where = topology, laid.npus[0], [laid]
        if (messages := _count(laid, fewest_of(*where))) > most:  # before routes are tried, which takes far longer
            return TimeBound(messages)
        messages = _count(laid, domain := domain_of(*where))
        return TimeBound(messages, busiest_fs(laid, domain)) if messages <= most else TimeBound(messages)
    messages = message_count(plan)
    if messages > most:
        return TimeBound(messages)
    sizes = np.concatenate((held, held[list(plan.temps)]))
    return TimeBound(messages, _busiest_fs(plan, sizes, topology, nodes), chain_fs(plan, sizes, topology, nodes))


def _count(laid: PlacedSchedule, domain: Domain | None) -> int:
    """Return the number of messages of the ranks that stand for all."""
    return len(laid.classes.messages.src) * len(laid.copies(domain).first)


def _busiest_fs(plan: Schedule, sizes: I64, topology: Topology, nodes: I64) -> float:
    """Return the ticks of the busiest link at full rate, from every row."""
    sent = np.flatnonzero((plan.src != plan.dst) & (sizes[plan.slot] > 0))
    ends = (plan.src[sent].astype(np.int64) * plan.n_participants + plan.dst[sent]) * CHANNELS + plan.channel[sent]
    pairs, number = np.unique(ends, return_inverse=True)
    (src, dst), channel = np.divmod(pairs // CHANNELS, plan.n_participants), pairs % CHANNELS
    routes = topology.routes(nodes[src], nodes[dst], channel)
    crossing = np.bincount(number, sizes[plan.slot[sent]], len(pairs))
    carried = np.bincount(routes.link, np.repeat(crossing, routes.hops), len(topology.links))
    return float((carried / topology.links.bandwidth_Bps).max(initial=0.0)) * TICKS_PER_S


def claimed_fs(found: Algorithm, shape: Shape, topology: Topology) -> float:
    """Return the ticks of the latencies that an algorithm claims, if its claim is exact; else 0."""
    if found.claim is None or ranks_of(shape) < 2 or not found.claim.exact(shape):
        return 0.0
    return float(sum(found.claim.alphas(shape))) * _quickest_fs(topology)


def claimed_bytes_fs(
    found: Algorithm, shape: Shape, topology: Topology, npus: Sequence[int], elements: int, item: int
) -> float:
    """Return the ticks of the bytes that an algorithm claims for one port of a rank, if its claim is exact; else 0.

    Some rank sends or receives that many bytes, or passes them on in a row: no faster than all links of the best rank together.
    If a size does not cut evenly, each slot may be an element smaller.

    Args:
        found: The algorithm.
        shape: The shape that it is built for.
        topology: The topology on which it runs.
        npus: [N] the NPU of each rank.
        elements: The elements of the operation's size.
        item: The bytes of an element.
    """
    n, claim = ranks_of(shape), found.claim
    if claim is None or n < 2 or claim.fabric != "rank" or claim.link_class is not None or not claim.exact(shape):
        return 0.0
    ((_, beta),) = claim.terms(shape)
    whole = max(0, elements - MOST_PARTS * n)
    return float(beta) * whole * item * TICKS_PER_S / (float(_ports(topology)[list(npus)].max()) or np.inf)


@cached_by_topology(1)
def _ports(topology: Topology) -> F64:
    """Return [n_nodes] the bytes per second of all links out of a node or into it, whichever is more."""
    links = topology.links
    ways = (np.bincount(ends, links.bandwidth_Bps, topology.n_nodes) for ends in (links.src, links.dst))
    return np.asarray(np.maximum(*ways), np.float64)


@cached_by_topology(1)
def _quickest_fs(topology: Topology) -> float:
    """Return the least latency of any message in ticks: over a link between two NPUs, or into the switches and out again."""
    links, n = topology.links, topology.n_npus
    leaves, comes = links.src < n, links.dst < n
    least = [_least(links.latency_fs[leaves & comes])]
    least += [_least(links.latency_fs[leaves & ~comes]) + _least(links.latency_fs[~leaves & comes])]
    if topology.adds:  # a message may end at a switch
        least += [_least(links.latency_fs)]
    return min(least)


def _least(latency_fs: np.ndarray) -> float:
    return float(latency_fs.min()) if len(latency_fs) else np.inf
