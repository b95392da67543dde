"""Hops: the ways of a message from one rank to another that pass no third rank, over links that a router takes.

A router may take several ways between two ranks, by the channel. All are tried on a few channels. A hop is put on the channel
that has the number of its first link at its sender if the router takes the same way on it, so that each link out of a rank has
a queue of its own. Letters: N ranks, H hops, L links, X links of all hops.
"""

from dataclasses import dataclass, replace

import numpy as np

from emu.arrays import F64, I64, Bool, ascending, column, ramps
from emu.equivalence import occurrence_numbers
from emu.errors import InputError, must_be
from emu.synthesis.grid_links import GridLinks, grid_links
from emu.topology.topology import CHANNELS, Router, Topology, cached_by_topology
from emu.units import format_bandwidth

_MOST_PAIRS = 2**18  # largest number of pairs of ranks whose routes are looked at
_MOST_ROUTES = 2**20  # of all channels together
_CHANNELS = 64  # channels that are tried for other ways, at most
_TURNS = 64  # channels that are tried for a queue of its own
_MOST_CHANNELS = 2**15
_LEAST_BPS = 1000.0  # bandwidth of a link; capacities are whole bytes per second


@dataclass(frozen=True, eq=False, slots=True)
class HopNetwork:
    """The hops between the ranks of a group, and the links that they cross."""

    npus: I64  # [N] the NPU of each rank
    src: I64  # [H] ranks
    dst: I64  # [H]
    channel: I64  # [H] the queue at the sender, on which the router takes the way of the hop
    start: I64  # [H + 1] where the links of each hop begin
    link: I64  # [X] number of a link in the topology
    head_s: F64  # [H] latency of a message over the hop
    capacity_Bps: F64  # [L] bandwidth of each link of the topology
    ends: tuple[I64, I64]  # ([L] node that a link leaves, [L] node that it enters)
    n_nodes: int  # of the topology
    router: Router  # of the topology
    grid: GridLinks | None = None  # whose translations make the hops of the other ranks of those of rank 0; None: all are here
    helpers: int = 0  # switches that add, which are the last of the ranks here

    @property
    def n_ranks(self) -> int:
        """The number of ranks, N."""
        return len(self.npus)

    @property
    def rate_Bps(self) -> F64:  # noqa: N802  units keep their case
        """[H] the bandwidth of the slowest link of each hop."""
        return np.minimum.reduceat(self.capacity_Bps[self.link], self.start[:-1])

    @property
    def queue(self) -> I64:
        """[H] the number of the queue of each hop: hops of one rank and one channel share a queue."""
        return self.src * (int(self.channel.max(initial=0)) + 1) + self.channel

    def links_of(self, hop: int) -> I64:
        """Return the links of a hop, in order."""
        return self.link[self.start[hop] : self.start[hop + 1]]

    def way(self, hop: int) -> tuple[int, ...]:
        """Return the nodes that a hop passes between its ends."""
        return tuple(self.ends[1][self.links_of(hop)[:-1]].tolist())

    def apart(self, hop: I64, number: I64) -> I64:
        """Return a channel of each hop, different for each of the numbers of a rank where the router takes the hop's way on it.

        Args:
            hop: [K] hops.
            number: [K] numbers of the queues of each rank, from 0 on.
        """
        if not self.ways_differ:
            return number
        found, left = self.channel[hop], np.arange(len(hop))
        stride = (int(number.max(initial=0)) + 1) | 1  # odd, as routers count ways by even numbers
        for turn in range(min(_TURNS, _MOST_CHANNELS // stride)):
            channel = number[left] + turn * stride
            same = self.takes_way(hop[left], channel)
            found[left[same]] = channel[same]
            left = left[~same]
        return found

    @property
    def ways_differ(self) -> bool:
        """True if the router takes other ways on other channels."""
        every = np.arange(len(self.src))
        if len(ascending(self.src * self.n_ranks + self.dst)) < len(every):
            return True
        return not all(self.takes_way(every, np.full(len(every), channel)).all() for channel in (1, 2, 3, 5, 64))

    def takes_way(self, hop: I64, channel: I64) -> Bool:
        """Return whether the router takes the way of each hop on a channel."""
        taken = self.router(self.npus[self.src[hop]], self.npus[self.dst[hop]], channel)
        width = np.diff(self.start)[hop]
        same = np.diff(taken.start) == width
        link = self.link[ramps(self.start[hop[same]], width[same])]
        other = taken.link[ramps(column(taken.start[:-1], np.int64)[same], width[same])]
        ends = np.cumsum(width[same])
        differ = np.concatenate(([0], np.cumsum(link != other)))
        same[np.flatnonzero(same)] = differ[ends] == differ[ends - width[same]]
        return np.asarray(same)


@cached_by_topology(4)
def hop_network(topology: Topology, npus: tuple[int, ...]) -> HopNetwork:
    """Return the hops between ranks on given NPUs.

    Raises:
        InputError: There are too many ranks, hops do not join each rank to each other, or a link is too slow.
    """
    place = np.array(npus, np.int64)
    grid = _grid_of_many(topology, place)
    if grid is None:
        hops = hops_among(topology, place)
    else:
        hops = replace(_ways(topology, place, *_pairs_along_axes(grid, len(npus))), grid=grid)
    if grid is None or not grid.reaches_all(hops.dst):
        _check_joined(topology, hops)
    _check_rates(topology, hops)
    return hops if grid is None else _on_lanes(hops)


def hops_among(topology: Topology, nodes: I64) -> HopNetwork:
    """Return the hops between some nodes, whether or not they join all of them; a node has the number of its place.

    Raises:
        InputError: There are too many nodes.
    """
    return _on_lanes(_ways(topology, nodes, *_pairs(topology, nodes)))


def _ends(topology: Topology) -> tuple[I64, I64]:
    """Return the nodes that links leave, and those that they enter."""
    return column(topology.links.src, np.int64), column(topology.links.dst, np.int64)


def _has_switches(topology: Topology, npus: I64) -> bool:
    """Return whether a link of a topology leads to or from a node that is none of the ranks' NPUs."""
    return not bool(np.isin(np.concatenate(_ends(topology)), npus).all())


def _grid_of_many(topology: Topology, npus: I64) -> GridLinks | None:
    """Return the grid whose translations make all hops of those of rank 0, where all pairs are too many; else None."""
    if len(npus) ** 2 <= _MOST_PAIRS or not np.array_equal(npus, np.arange(topology.n_npus)):
        return None
    return grid_links(topology) if _has_switches(topology, npus) else None


def _pairs_along_axes(grid: GridLinks, n: int) -> tuple[I64, I64]:
    """Return the pairs of rank 0 with the ranks along the axes of a grid."""
    to = np.arange(1, n)
    dst = to[grid.is_along_axis(to)]
    return np.zeros(len(dst), np.int64), dst


def _pairs(topology: Topology, npus: I64) -> tuple[I64, I64]:
    """Return the pairs of ranks between which a message may pass no third rank: all, or those that a link joins.

    Raises:
        InputError: There are more than 2**18 pairs, which switches join.
    """
    rank = np.full(topology.n_nodes, -1)
    rank[npus] = np.arange(len(npus))
    src, dst = (rank[ends] for ends in _ends(topology))
    if not _has_switches(topology, npus):
        joined = ascending(src * len(npus) + dst)
        return joined // len(npus), joined % len(npus)
    if len(npus) ** 2 > _MOST_PAIRS:
        raise must_be("synthesize", "ranks", f"at most {int(_MOST_PAIRS**0.5)} where switches join them", len(npus))
    one, other = np.nonzero(~np.eye(len(npus), dtype=np.bool_))
    return column(one, np.int64), column(other, np.int64)


def _ways(topology: Topology, npus: I64, src: I64, dst: I64) -> HopNetwork:
    """Return the different ways of some pairs of ranks."""
    tried = max(1, min(_CHANNELS, _MOST_ROUTES // max(1, len(src))))
    key = np.repeat(np.arange(tried), len(src))
    src, dst = np.tile(src, tried), np.tile(dst, tried)
    start, link = _routes(topology, npus[src], npus[dst], key)
    kept = np.flatnonzero(_passes_no_rank(topology, npus, start, link))
    kept = kept[_first_of_each(src[kept] * len(npus) + dst[kept], start, link, kept)]
    kept = kept[np.lexsort((key[kept], dst[kept], src[kept]))]
    width = np.diff(start)[kept]
    own_link = link[ramps(start[kept], width)]
    begin = np.concatenate(([0], np.cumsum(width)))
    latency = topology.links.latency_s[own_link]
    head = np.add.reduceat(latency, begin[:-1]) + topology.message_fs * 1e-15 if len(kept) else np.zeros(0)
    rate = column(topology.links.bandwidth_Bps, np.float64)
    src, dst, key, link = (column(c, np.int64) for c in (src[kept], dst[kept], key[kept], own_link))
    return HopNetwork(npus, src, dst, key, begin, link, head, rate, _ends(topology), topology.n_nodes, topology.router)


def _routes(topology: Topology, src: I64, dst: I64, channel: I64) -> tuple[I64, I64]:
    """Return the routes of pairs of nodes on channels, as where each begins and its links; none where nothing joins them."""
    found = topology.router(src, dst, channel % CHANNELS)
    return column(found.start, np.int64), column(found.link, np.int64)


def _passes_no_rank(topology: Topology, npus: I64, start: I64, link: I64) -> Bool:
    """Return whether each route has links, and none of them ends at a rank before the last."""
    rank = np.zeros(topology.n_nodes, np.bool_)
    rank[npus] = True
    inside = np.ones(len(link), np.bool_)
    there = start[1:] > start[:-1]
    inside[start[1:][there] - 1] = False
    through = np.concatenate(([0], np.cumsum(inside & rank[topology.links.dst[link]])))
    return np.asarray(there & (through[start[1:]] == through[start[:-1]]))


def _first_of_each(pair: I64, start: I64, link: I64, kept: I64) -> I64:
    """Return the indices of the first of equal routes of a pair, by a hash of their links."""
    mixed = np.concatenate(([0], np.cumsum((link + 1) * (link + 7) * np.int64(2654435761) % np.int64(2**40))))
    code = mixed[start[kept + 1]] - mixed[start[kept]]
    order = np.lexsort((np.arange(len(kept)), code, pair))
    new = np.ones(len(kept), np.bool_)
    new[1:] = (np.diff(pair[order]) != 0) | (np.diff(code[order]) != 0)
    return np.sort(order[new])


def _on_lanes(hops: HopNetwork) -> HopNetwork:
    """Return the hops on channels by which the first links of a sender have queues of their own, where the router allows it."""
    first = hops.link[hops.start[:-1]]
    used, of = np.unique(first, return_inverse=True)
    lane = occurrence_numbers(hops.ends[0][used])[of]
    return replace(hops, channel=hops.apart(np.arange(len(hops.src)), lane))


def _check_joined(topology: Topology, hops: HopNetwork) -> None:
    """Check that hops lead from rank 0 to every rank, and from every rank to rank 0.

    Raises:
        InputError: They do not; the line names the first rank that is left out.
    """
    for src, dst, words in ((hops.src, hops.dst, "from rank 0 leads to"), (hops.dst, hops.src, "to rank 0 leads from")):
        seen = np.zeros(hops.n_ranks, np.bool_)
        seen[0] = True
        while (new := dst[seen[src] & ~seen[dst]]).size:
            seen[new] = True
        if not seen.all():
            mend = "take ranks that links or switches join without a third rank"
            raise InputError(f"synthesize: on {topology.name} no path {words} rank {np.argmin(seen)}; {mend}")


def _check_rates(topology: Topology, hops: HopNetwork) -> None:
    """Check that no link of a hop is so slow that whole bytes per second do not tell its bandwidth.

    Raises:
        InputError: One is.
    """
    least = float(hops.capacity_Bps[hops.link].min(initial=np.inf))
    if least < _LEAST_BPS:
        what = f"{format_bandwidth(_LEAST_BPS)} or more"
        raise must_be(f"synthesize: {topology.name}", "the bandwidth of a link", what, f"{least:g} B/s")
