"""The least that a request takes each of its ranks, whenever the other ranks enter it and whatever else shares links.

No message leaves before both its ends have entered, and a participant has left once all that it sends and gets is through. So
from its own entry it takes what its own messages take of their busiest link. And where all enter at one moment and nothing is
shared, each ends no later than where others enter later, or share links: every task then starts and flows no sooner.
G groups, P participants of each, R pairs, D copies.
"""

from dataclasses import replace

import numpy as np

from emu.arrays import F64, column
from emu.fabric.graph import Graph
from emu.fabric.lower import delay_entries, lower_placed
from emu.fabric.lowering.message_routes import routes_of_pairs
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.fabric.rounds import message_count
from emu.fabric.run import run
from emu.units import TICKS_PER_S

MOST = 2**15  # messages of all groups, up to which each is looked at; of more, what each participant sends and gets in all


def least_fs(placed: PlacedSchedule, launch_fs: int = 0) -> F64:
    """Return the ticks [G, P] from the moment that the first rank enters until each participant leaves, at least.

    Args:
        placed: What is sent, with entries and exits.
        launch_fs: Ticks that each rank takes to enter.

    Raises:
        InputError: as `lower_placed`.
    """
    least = launch_fs + _own_fs(placed)
    if message_count([placed]) <= MOST:
        piece = delay_entries(lower_placed(placed), launch_fs)
        least = np.maximum(least, run(unshared(piece.graph)).end_fs[piece.exit])
    return least.reshape(placed.nodes.shape)


def unshared(graph: Graph) -> Graph:
    """Return a graph where each message has a link to itself, as fast as the slowest of its own."""
    hops = np.diff(graph.hop_start)
    sent = np.flatnonzero(hops)
    rate = graph.capacity_Bps[graph.hop_link]
    alone = np.minimum.reduceat(rate, graph.hop_start[sent]) if len(sent) else rate
    start = np.concatenate(([0], np.cumsum(hops > 0)))
    number = np.arange(len(sent))
    return replace(
        graph,
        capacity_Bps=column(alone, np.float64),
        hop_start=column(start, np.int64),
        hop_link=column(number, np.int32),
        hop_weight=column(np.ones_like(number), np.int32),
    )


def _own_fs(placed: PlacedSchedule) -> F64:
    """Return the ticks [G P] that the busiest link takes for what a participant sends, or for what it gets."""
    copies = np.arange(len(placed.copies(None).first))
    ways, (src, dst, _), queues = (
        routes_of_pairs(placed.topology, placed.asked(copies)),
        placed.classes.pairs,
        placed.classes.queues,
    )
    sent = np.bincount(queues.pair, placed.classes.messages.size_bytes[queues.message], len(queues.tail))
    crossing = np.repeat(np.repeat(sent, len(copies)), np.diff(ways.start)) / ways.capacity_Bps[ways.link]
    found = np.zeros(placed.nodes.size)
    for end, waits in ((src, 0), (dst, 1)):
        who = placed.who(end, copies).ravel()
        head = np.full(len(found), np.inf)
        np.minimum.at(head, who, waits * ways.head_fs.astype(np.float64))
        own = np.repeat(who, np.diff(ways.start)) * len(ways.capacity_Bps) + ways.link
        of_link, number = np.unique(own, return_inverse=True)
        busy_fs = np.bincount(number, crossing, len(of_link)) * TICKS_PER_S
        busiest = np.zeros(len(found))
        np.maximum.at(busiest, of_link // len(ways.capacity_Bps), busy_fs)
        found = np.maximum(found, busiest + np.where(np.isfinite(head), head, 0.0))
    return found
