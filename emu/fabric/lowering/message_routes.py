"""The routes of messages: the links that each message crosses, and the latency of its route.

Letters: L links, O orbits of links, P pairs, H hops.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I32, I64, Bool, column, ramps
from emu.equivalence import Orbits
from emu.errors import InputError
from emu.topology.paths.spray import candidate_ways, sprayed
from emu.topology.topology import Routes, Spray, Topology
from emu.units import MAX_TICKS, TICKS_PER_S

RoutePairs = tuple[I64, I64, I64]  # [P] source, destination, key
_MOST_WEIGHT = 2**31 - 1


class PairWays(NamedTuple):
    """The ways among which messages of pairs choose. S sets, W ways, K links of all ways."""

    set_of: I32  # [P] the set of ways of each pair; -1: it has one way, its route
    set_start: I64  # [S + 1] where the ways of each set begin
    way_start: I64  # [W + 1] where the links of each way begin
    link: I32  # [K]
    head_fs: I64  # [W]


class MessageRoutes(NamedTuple):
    """The routes of pairs of nodes: the links (or orbits of links) that each crosses, and its latency.

    Where messages choose their way, the route of a pair is the first of its ways.
    """

    capacity_Bps: F64  # [L or O] bandwidth of each, see `Topology.capacity_Bps`
    head_fs: I64  # [P] ticks that the head of a message takes over the route, with the software's time for a message
    start: I64  # [P + 1] where the hops of each pair begin
    link: I32  # [H] link or orbit of each hop
    weight: I32  # [H] number of copies of the route that cross one link of the orbit, or of parts of its messages (`Spray`)
    ways: PairWays | None = None  # where messages choose their way; None: none does


def routes_of_pairs(topology: Topology, pairs: RoutePairs) -> MessageRoutes:
    """Return the routes of pairs over links.

    Raises:
        InputError: No route joins a pair; or see `sprayed` and `head_times`.
    """
    if topology.spray is not None and topology.spray.is_chosen:
        return _routes_with_choice(topology, topology.spray, pairs)
    if topology.spray is not None:
        over = sprayed(topology, topology.spray, *pairs)
        calls_fs = _message_overhead_fs(topology, pairs)
        _check_clock(topology, pairs, over.latency_fs.astype(np.float64) + calls_fs)
        head_fs = column(over.latency_fs + calls_fs, np.int64)
        return MessageRoutes(topology.capacity_Bps, head_fs, over.start, over.link, over.weight)
    found, links = topology.routes(*pairs), topology.links
    once = np.ones(len(found.link), np.int32)
    return MessageRoutes(
        links.bandwidth_Bps, head_times(topology, pairs, found), found.start, column(found.link, np.int32), once
    )


def _routes_with_choice(topology: Topology, spray: Spray, pairs: RoutePairs) -> MessageRoutes:
    """Return the routes of pairs among whose ways messages choose; pairs with the same ends share a set of ways."""
    is_own: Bool = np.maximum(pairs[0], pairs[1]) < topology.n_npus  # the key has no say between NPUs
    keys, place = np.unique(np.where(is_own, 0, pairs[2]), return_inverse=True)
    code = (pairs[0] * topology.n_nodes + pairs[1]) * len(keys) + place
    _, asked, number = np.unique(code, return_index=True, return_inverse=True)
    counts, found = candidate_ways(topology, spray, *(each[asked] for each in pairs))
    by_way = np.repeat(asked, counts)
    head_fs = head_times(topology, (pairs[0][by_way], pairs[1][by_way], pairs[2][by_way]), found)
    set_start = column(np.concatenate(([0], np.cumsum(counts))), np.int64)
    set_of, first = np.where(counts[number] > 1, number, -1), set_start[number]
    hops = found.hops[first]
    link = column(found.link[ramps(found.start[first], hops)], np.int32)
    start, once = column(np.concatenate(([0], np.cumsum(hops))), np.int64), np.ones(len(link), np.int32)
    several = bool((set_of >= 0).any())
    ways = PairWays(column(set_of, np.int32), set_start, found.start, found.link, head_fs) if several else None
    return MessageRoutes(topology.links.bandwidth_Bps, column(head_fs[first], np.int64), start, link, once, ways)


def sure_routes(topology: Topology, pairs: RoutePairs) -> MessageRoutes:
    """Return what messages of pairs cross at least, whichever ways they choose, for lower bounds of times.

    Where messages choose, these are the links that all ways of a pair have in common, maybe none, and the least latency of a
    way. Elsewhere it is their routes.
    """
    found = routes_of_pairs(topology, pairs)
    if found.ways is None:
        return found
    ways = found.ways
    counts, by_way = np.diff(ways.set_start), np.repeat(np.arange(len(ways.set_start) - 1), np.diff(ways.set_start))
    of_link = np.repeat(by_way, np.diff(ways.way_start)) * len(topology.links) + ways.link
    crossed, times = np.unique(of_link, return_counts=True)
    of, link = np.divmod(crossed[times == counts[crossed // len(topology.links)]], len(topology.links))
    least_fs = np.minimum.reduceat(ways.head_fs, ways.set_start[:-1]) if len(counts) else counts
    begins = np.searchsorted(of, np.arange(len(counts) + 1))
    set_of, chooses = np.maximum(ways.set_of, 0), ways.set_of >= 0
    hops = np.where(chooses, np.diff(begins)[set_of], np.diff(found.start))
    at = ramps(np.where(chooses, begins[set_of] + len(found.link), found.start[:-1]), hops)
    start = column(np.concatenate(([0], np.cumsum(hops))), np.int64)
    every = column(np.concatenate((found.link, link))[at], np.int32)
    head_fs = column(np.where(chooses, least_fs[set_of], found.head_fs), np.int64)
    return MessageRoutes(found.capacity_Bps, head_fs, start, every, np.ones(len(every), np.int32))


def shared_routes(topology: Topology, pairs: RoutePairs, copies: Orbits, links: Orbits) -> MessageRoutes | None:
    """Return the routes of pairs over orbits of links.

    It is None if the images of the routes do not cross all links of an orbit equally often.

    Args:
        topology: The topology whose links they are.
        pairs: The pairs, each in all copies that stand for others.
        copies: The orbits of copies.
        links: The orbits of links.
    """
    found, n_copies = routes_of_pairs(topology, pairs), len(copies.first)
    crossing = np.repeat(np.arange(len(found.start) - 1), np.diff(found.start)) * len(links.first) + links.number[found.link]
    crossed, number, times = np.unique(crossing, return_inverse=True, return_counts=True)
    if topology.spray is not None:
        np.add.at(times, number, found.weight - 1)
    pair, link = np.divmod(crossed, len(links.first))
    weight, odd = np.divmod(times * copies.size[pair % max(1, n_copies)], links.size[link])
    if odd.any() or weight.max(initial=0) > _MOST_WEIGHT:
        return None
    start = column(np.searchsorted(pair, np.arange(len(found.start))), np.int64)
    rate = column(found.capacity_Bps[links.first], np.float64)
    return MessageRoutes(rate, found.head_fs, start, column(link, np.int32), column(weight, np.int32))


def head_times(topology: Topology, pairs: tuple[I64, I64, I64], routes: Routes) -> I64:
    """Return [P] the ticks of each route's latency and of the software's time for a message.

    Args:
        topology: The topology whose routes they are.
        pairs: [P] source, destination and key.
        routes: One hop or more for each pair.

    Raises:
        InputError: A route takes longer than the clock can count.
    """
    latency_fs, first = topology.links.latency_fs, routes.start[:-1]
    if not len(first):
        return column([], np.int64)
    calls_fs = _message_overhead_fs(topology, pairs)
    if int(latency_fs.max(initial=0)) * int(routes.hops.max()) + int(calls_fs.max()) > MAX_TICKS:
        _check_clock(topology, pairs, np.add.reduceat(latency_fs[routes.link].astype(np.float64), first) + calls_fs)
    return column(np.add.reduceat(latency_fs[routes.link], first) + calls_fs, np.int64)


def _check_clock(topology: Topology, pairs: RoutePairs, about: F64) -> None:
    """Check that the routes of pairs take less time than the clock can count, from about their ticks [P].

    Raises:
        InputError: One takes longer.
    """
    if about.max(initial=0) >= MAX_TICKS:
        worst = int(np.argmax(about))
        raise InputError(
            f"{topology.name}: latencies of the route from node {pairs[0][worst]} to node {pairs[1][worst]} must come to "
            f"less than 9223 s, the end of the clock, got {about[worst] / TICKS_PER_S:.0f} s; take shorter ones"
        )


def _message_overhead_fs(topology: Topology, pairs: RoutePairs) -> I64:
    """Return [P] the ticks that software takes for a message of each pair."""
    of_switch = np.maximum(pairs[0], pairs[1]) >= topology.n_npus  # a helper's: ranks are on NPUs
    return column(topology.message_fs + topology.adding_fs * of_switch, np.int64)
