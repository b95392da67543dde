"""A lower bound on a schedule's time from messages that wait for one another; computing it is cheaper than timing.

S rows, M messages, P participants, K slots.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I32, I64, Bool
from emu.collective.schedule import Schedule
from emu.topology.topology import CHANNELS, Topology
from emu.units import TICKS_PER_S

_MOST_SLOTS = 2**24  # of all participants, so that what each holds fits the memory


class _Messages(NamedTuple):
    """The messages of a schedule in order, and the rows that they carry."""

    first: I64  # [M] rows
    of_row: I64  # [S]
    queue: I64  # [M] (sender, channel) as a number
    body_fs: F64  # [M] at the full rate of its route
    alpha_fs: F64  # [M]
    reads: I64  # [S] (sender, slot) as a number
    writes: I64  # [S] (receiver, slot)
    round_of: I32  # [S]


def chain_fs(plan: Schedule, sizes: I64, topology: Topology, nodes: I64) -> float:
    """Return the ticks of the longest chain of messages that wait for one another, each as quick as if it were alone.

    A message waits for all its slots, and until the messages of its queue in earlier rounds have left. So no fabric whose
    links are shared is quicker.

    Args:
        plan: The schedule, with every row stored.
        sizes: [K] the bytes of each slot, with temporary slots.
        topology: The topology on which it runs.
        nodes: [P] the node of each participant.
    """
    if plan.n_participants * len(sizes) > _MOST_SLOTS:
        return 0.0
    found = _messages(plan, sizes, topology, nodes)
    held, left = np.zeros(plan.n_participants * len(sizes)), np.zeros(int(found.queue.max(initial=0)) + 1)
    rows = np.flatnonzero(np.diff(found.round_of, append=-1))
    low, m = 0, 0
    for high in (rows + 1).tolist():
        last = int(found.of_row[high - 1]) + 1
        first, queue = found.first[m:last], found.queue[m:last]
        begin = np.maximum(np.maximum.reduceat(held[found.reads[low:high]], first - low), left[queue])
        gone = begin + found.body_fs[m:last]
        arrived = (gone + found.alpha_fs[m:last])[found.of_row[low:high] - m]
        np.maximum.at(held, found.writes[low:high], arrived)
        np.maximum.at(left, queue, gone)
        low, m = high, last
    return float(held.max(initial=0.0))


def message_count(plan: Schedule) -> int:
    """Return the number of messages of a schedule that stores every row, with slots of no bytes."""
    new = plan.src != plan.dst  # leaves its rank, and is not of the message of the row before
    same: Bool = np.ones(max(len(new) - 1, 0), np.bool_)
    for each in (plan.round_column(), plan.src, plan.dst, plan.channel):
        same &= each[1:] == each[:-1]
    new[1:] &= ~same
    return int(np.count_nonzero(new))


def _messages(plan: Schedule, sizes: I64, topology: Topology, nodes: I64) -> _Messages:
    """Return the messages without slots of no bytes; a copy inside a rank is a message of no time in a queue of its own."""
    rows = np.flatnonzero(sizes[plan.slot] > 0)
    src, dst, channel = (c[rows].astype(np.int64) for c in (plan.src, plan.dst, plan.channel))
    slot, written, round_of = plan.slot[rows], plan.written_slot[rows], plan.round_column()[rows]
    inside = np.where(src == dst, 1, 0)
    ends = np.stack((round_of, src, dst, channel))
    new = np.ones(len(rows), np.bool_)
    new[1:] = (np.diff(ends) != 0).any(axis=0)
    first = np.flatnonzero(new)
    of_row = np.cumsum(new) - 1
    bytes_of = np.add.reduceat(sizes[slot], first) if len(first) else np.zeros(0)
    pair = (src[first] * plan.n_participants + dst[first]) * CHANNELS + channel[first]
    alpha_fs, fs_per_byte = _ways(pair, plan.n_participants, topology, nodes)
    queue = np.unique(((src * CHANNELS + channel) * 2 + inside)[first], return_inverse=True)[1]
    reads, writes = src * len(sizes) + slot, dst * len(sizes) + written
    return _Messages(first, of_row, queue, bytes_of * fs_per_byte, alpha_fs, reads, writes, round_of)


def _ways(pair: I64, n: int, topology: Topology, nodes: I64) -> tuple[F64, F64]:
    """Return [M] ticks of latency, and [M] ticks that a byte takes over the narrowest link; both are 0 inside a rank."""
    asked, number = np.unique(pair, return_inverse=True)
    (src, dst), channel = np.divmod(asked // CHANNELS, n), asked % CHANNELS
    away = np.flatnonzero(src != dst)
    routes = topology.routes(nodes[src[away]], nodes[dst[away]], channel[away])
    alpha_fs, fs_per_byte = np.zeros(len(asked)), np.zeros(len(asked))
    links = topology.links
    if len(away):
        alpha_fs[away] = np.add.reduceat(links.latency_fs[routes.link], routes.start[:-1])
        fs_per_byte[away] = TICKS_PER_S / np.minimum.reduceat(links.bandwidth_Bps[routes.link], routes.start[:-1])
    return alpha_fs[number], fs_per_byte[number]
