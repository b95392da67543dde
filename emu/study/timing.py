"""The time of one collective on an idle fabric without data, and lower bounds of that time.

Bounds are the time of the busiest link, and that of chains of messages. S rows, M messages, P participants, K slots.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import gcd
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I32, I64, Bool, distinct
from emu.bound.limit import least_between_fs
from emu.collective.algorithm import Algorithm
from emu.collective.operation import Operation, divide_blocks
from emu.collective.schedule import MAX_ROWS, RowsError, Schedule
from emu.collective.shape import Shape, ranks_of
from emu.fabric.graph import Timeline, name_tasks
from emu.fabric.job_symmetry import assumed_orbits_of_job, orbits_of_job
from emu.fabric.lower import FabricJob, UnevenError, busiest_fs, expanded_schedule, lower, place_schedule
from emu.fabric.lowering.classes import JobOrbits, Joins, invariant
from emu.fabric.lowering.graph_columns import message_name
from emu.fabric.lowering.message_routes import sure_routes
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.fabric.run import Spread, spread, time_alone
from emu.topology.placement import with_helpers
from emu.topology.topology import Topology, cached_by_topology
from emu.units import TICKS_PER_S


class CollectiveJob(NamedTuple):
    """A collective to be timed: its schedule, sizes, topology, and the NPUs of its ranks."""

    op: Operation
    schedule: Schedule
    elements: int  # of the operation's size
    item_bytes: int  # of an element
    topology: Topology
    placement: I32  # [N] the NPU of each rank; helpers are put on switches
    send_overhead_fs: int = 0  # LogGP's o, in ticks
    name: str = ""  # of the schedule in errors; "": its operation's

    def on_fabric(self) -> FabricJob:
        """Return the job in the form that the fabric needs: the bytes of each slot, and the node of each participant."""
        sizes, overhead_fs = slot_bytes(self.op, self.schedule, self.elements, self.item_bytes), self.send_overhead_fs
        nodes = with_helpers(self.topology, self.placement, self.schedule.helped)
        return FabricJob(
            self.schedule, sizes, self.topology, nodes, send_overhead_fs=overhead_fs, name=self.name or self.op.name
        )

    @contextmanager
    def name_even_sizes(self) -> Iterator[None]:
        """Add a hint with the nearest even sizes to the error about a size that does not divide evenly."""
        try:
            yield
        except UnevenError as error:
            counts = even_counts(self.op, self.schedule, self.elements)
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
        full = expanded_schedule(placed, "perturbed starts are not symmetric", "leave the perturbations out")
    graph = lower(replace(placed, schedule=full)).graph
    with name_tasks(placed.name, partial(message_name, full, graph)):
        return spread(graph, seeds)


def even_counts(op: Operation, schedule: Schedule, count: int) -> list[int]:
    """Return the nearest sizes in elements, at most one below `count` and one above, whose slots translations keep equal."""
    parts, moved = schedule.n_slots // op.n_blocks, schedule.n_slots // schedule.n_ranks**schedule.slot_digits
    pieces = parts // gcd(parts, moved)  # of a block, that translations bring to one another
    step = op.blocks_in_size * (sum(schedule.shares) if schedule.shares and pieces > 1 else pieces)
    if not invariant(slot_bytes(op, schedule, step, 1), schedule.translations):
        return []
    return [c for c in (count // step * step, count // step * step + step) if c]


def slot_bytes(op: Operation, schedule: Schedule, count: int, item_bytes: int) -> I64:
    """Return [K] the bytes of each slot; equal sizes are a view of one number, because slots may be billions."""
    blocks = op.block_counts(count)
    if blocks.min() != blocks.max() or schedule.n_slots % len(blocks):
        return divide_blocks(blocks, schedule.n_slots, schedule.shares).count * item_bytes
    parts = divide_blocks(blocks[:1], schedule.n_slots // len(blocks), schedule.shares).count * item_bytes
    if parts.min() == parts.max():
        return np.broadcast_to(parts[0], schedule.n_slots)
    return np.tile(parts, len(blocks))


LIGHT = 2**15  # the most messages, or rows, of a schedule that is timed quickly
MOST_PARTS = 64  # of a block, in which an algorithm that claims bytes of one port a rank cuts it
ROUNDING = 1e-6  # of a time: far above what the rounding to ticks takes off a bound
_MOST_SLOTS = 2**24  # of all participants, so that what each holds fits the memory


class TimeBound(NamedTuple):
    """Two lower bounds of a collective's time in ticks: that of the busiest link, and that of the longest chain of messages.

    The larger one counts (`end_fs`). `messages` is the number of messages that timing it would run.
    """

    messages: int  # to be timed; at least so many, where no bound was computed
    busiest_fs: float = 0.0  # of the link that carries most for its rate, at that rate; 0 where it was not looked for
    chain_fs: float = 0.0  # of messages that wait for one another; 0 where none was looked for

    @property
    def end_fs(self) -> float:
        """The ticks that the schedule takes at least, by its busiest link or by its longest chain of messages."""
        return max(self.busiest_fs, self.chain_fs)


@np.errstate(over="ignore")  # what is beyond the clock by far: timing says so, and where
def time_bound(job: CollectiveJob, most: int = MAX_ROWS) -> TimeBound:
    """Return two lower bounds, and the number of messages to be timed.

    They are the time of the busiest link at full rate, and of the longest chain of messages. If only the rows of rank 0 are
    stored, which makes timing cheap, no chain is looked for.

    Args:
        job: The job to bound.
        most: The most messages; with more messages no bound is computed.

    Raises:
        InputError: As `time_collective`.
    """
    placed = job.on_fabric()
    schedule, topology = job.schedule, job.topology
    if schedule.by_rank:
        with job.name_even_sizes():
            laid = place_schedule(placed, Joins.NONE)
        where = topology, laid.npus[0], [laid]
        if (messages := _count(laid, assumed_orbits_of_job(*where))) > most:  # before routes are tried, which takes far longer
            return TimeBound(messages)
        messages = _count(laid, domain := orbits_of_job(*where))
        return TimeBound(messages, busiest_fs(laid, domain)) if messages <= most else TimeBound(messages)
    messages = message_count(schedule)
    if messages > most:
        return TimeBound(messages)
    nodes, sizes = placed.nodes[0], np.concatenate((placed.slot_bytes, placed.slot_bytes[list(schedule.temps)]))
    return TimeBound(messages, _busiest_fs(schedule, sizes, topology, nodes), chain_fs(schedule, sizes, topology, nodes))


def _count(laid: PlacedSchedule, domain: JobOrbits | None) -> int:
    """Return the number of messages of the copies that represent all."""
    return len(laid.classes.messages.src) * len(laid.copies(domain).first)


def _busiest_fs(schedule: Schedule, sizes: I64, topology: Topology, nodes: I64) -> float:
    """Return the ticks of the busiest link at full rate, from every row."""
    sent = np.flatnonzero((schedule.src != schedule.dst) & (sizes[schedule.slot] > 0))
    n, channels = schedule.n_participants, _channels(schedule)
    ends = (schedule.src[sent].astype(np.int64) * n + schedule.dst[sent]) * channels + schedule.channel[sent]
    pairs, number = distinct(ends, n * n * channels)
    (src, dst), channel = np.divmod(pairs // channels, n), pairs % channels
    ways = sure_routes(topology, (nodes[src], nodes[dst], channel))
    crossing = np.bincount(number, sizes[schedule.slot[sent]], len(pairs))
    carried = np.bincount(ways.link, np.repeat(crossing, np.diff(ways.start)) * ways.weight, len(topology.links))
    return float((carried / ways.capacity_Bps).max(initial=0.0)) * TICKS_PER_S


def _channels(schedule: Schedule) -> int:
    """Return a number above all channels that a schedule uses."""
    return int(schedule.channel.max(initial=0)) + 1


def claimed_fs(found: Algorithm, shape: Shape, topology: Topology) -> float:
    """Return the latency part of an algorithm's claim in ticks, if the claim is exact; else 0."""
    if found.claim is None or ranks_of(shape) < 2 or not found.claim.exact(shape):
        return 0.0
    return float(sum(found.claim.alphas(shape))) * _quickest_fs(topology)


def claimed_bytes_fs(
    found: Algorithm, shape: Shape, topology: Topology, npus: Sequence[int], elements: int, item: int
) -> float:
    """Return a lower bound in ticks on the time of an algorithm, from the bytes of its claim; 0 if the claim is not exact.

    By its claim, a rank must send, receive or pass on a number of bytes. Here the bytes are divided by the bandwidth of all
    links of the rank that has most bandwidth. If the elements do not divide evenly into slots, each slot may be an element
    smaller than the claim says; the bound takes that into account.

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
    """Return [n_nodes] the bandwidth (B/s) of all links out of a node or into it, whichever is larger."""
    links = topology.links
    ways = (np.bincount(ends, links.bandwidth_Bps, topology.n_nodes) for ends in (links.src, links.dst))
    return np.asarray(np.maximum(*ways), np.float64)


@cached_by_topology(1)
def _quickest_fs(topology: Topology) -> float:
    """Return the least latency of any message in ticks: over one link between NPUs, or up to a switch and down.

    Where switches add, a message may end at one, and the least latency of a link counts.
    """
    links, n = topology.links, topology.n_npus
    if topology.adds and len(links):  # a message may end at a switch
        return float(links.latency_fs.min())
    return float(least_between_fs(links.latency_fs, links.src < n, links.dst < n))


def chain_fs(schedule: Schedule, sizes: I64, topology: Topology, nodes: I64) -> float:
    """Return a lower bound in ticks: the longest chain of dependent messages, each timed without other messages.

    A message waits for all its slots, and until the messages of its queue in earlier rounds have left. So no fabric whose
    links are shared is quicker.

    Args:
        schedule: The schedule, with every row stored.
        sizes: [K] the bytes of each slot, with temporary slots.
        topology: The topology on which it runs.
        nodes: [P] the node of each participant.
    """
    if schedule.n_participants * len(sizes) > _MOST_SLOTS:
        return 0.0
    of_row, reads, writes, round_of, messages = _messages(schedule, sizes, topology, nodes)
    firsts, queues, body_fs, alpha_fs = messages
    held, left = np.zeros(schedule.n_participants * len(sizes)), np.zeros(int(queues.max(initial=0)) + 1)
    rows = np.flatnonzero(np.diff(round_of, append=-1))
    low, m = 0, 0
    for high in (rows + 1).tolist():
        last = int(of_row[high - 1]) + 1
        first, queue = firsts[m:last], queues[m:last]
        begin = np.maximum(np.maximum.reduceat(held[reads[low:high]], first - low), left[queue])
        gone = begin + body_fs[m:last]
        arrived = (gone + alpha_fs[m:last])[of_row[low:high] - m]
        np.maximum.at(held, writes[low:high], arrived)
        np.maximum.at(left, queue, gone)
        low, m = high, last
    return float(held.max(initial=0.0))


def message_count(schedule: Schedule) -> int:
    """Return the number of messages of a schedule that stores every row, with slots of no bytes."""
    new = schedule.src != schedule.dst  # leaves its rank, and is not of the message of the row before
    same: Bool = np.ones(max(len(new) - 1, 0), np.bool_)
    for each in (schedule.round_column(), schedule.src, schedule.dst, schedule.channel):
        same &= each[1:] == each[:-1]
    new[1:] &= ~same
    return int(np.count_nonzero(new))


def _messages(
    schedule: Schedule, sizes: I64, topology: Topology, nodes: I64
) -> tuple[I64, I64, I64, I32, tuple[I64, I64, F64, F64]]:
    """Return the messages of a schedule in order, without slots of no bytes.

    A copy inside a rank is a message of no time in a queue of its own.

    Returns:
        For each row that is sent, its message, the number of (sender, slot), that of (receiver, slot), and its round; and for
        each message its first row, the number of its queue (sender, channel), its ticks at the full rate of its route, and
        those of its latency.
    """
    rows = np.flatnonzero(sizes[schedule.slot] > 0)
    src, dst, channel = (c[rows].astype(np.int64) for c in (schedule.src, schedule.dst, schedule.channel))
    slot, written, round_of = schedule.slot[rows], schedule.written_slot[rows], schedule.round_column()[rows]
    inside = np.where(src == dst, 1, 0)
    ends = np.stack((round_of, src, dst, channel))
    new = np.ones(len(rows), np.bool_)
    new[1:] = (np.diff(ends) != 0).any(axis=0)
    first = np.flatnonzero(new)
    of_row = np.cumsum(new) - 1
    bytes_of = np.add.reduceat(sizes[slot], first) if len(first) else np.zeros(0)
    n, channels = schedule.n_participants, _channels(schedule)
    alpha_fs, fs_per_byte = _latency_and_byte_time(
        (src[first] * n + dst[first]) * channels + channel[first], (n, channels), topology, nodes
    )
    _, queue = distinct(((src * channels + channel) * 2 + inside)[first], n * channels * 2)
    reads, writes = src * len(sizes) + slot, dst * len(sizes) + written
    return of_row, reads, writes, round_of, (first, queue, bytes_of * fs_per_byte, alpha_fs)


def _latency_and_byte_time(way: I64, counts: tuple[int, int], topology: Topology, nodes: I64) -> tuple[F64, F64]:
    """Return [M] the latency of each message in ticks, and [M] its ticks per byte; both are 0 within a rank.

    Args:
        way: [M] the number of each message's (sender, receiver, channel), by rows.
        counts: The numbers of participants and of channels.
        topology: The topology on which the messages run.
        nodes: [P] the node of each participant.
    """
    n, channels = counts
    asked, number = distinct(way, n * n * channels)
    (src, dst), channel = np.divmod(asked // channels, n), asked % channels
    away = np.flatnonzero(src != dst)
    ways = sure_routes(topology, (nodes[src[away]], nodes[dst[away]], channel[away]))
    alpha_fs, fs_per_byte = np.zeros(len(asked)), np.zeros(len(asked))
    if len(away):
        alpha_fs[away] = ways.head_fs
        of_hop = np.repeat(away, np.diff(ways.start))  # a pair whose ways have no link in common has none
        np.maximum.at(fs_per_byte, of_hop, TICKS_PER_S / (ways.capacity_Bps[ways.link] / ways.weight))
    return alpha_fs[number], fs_per_byte[number]
