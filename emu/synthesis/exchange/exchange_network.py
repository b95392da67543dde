"""The network of an all_to_all: hops between ranks, and the time for which each takes links.

On a grid whose translations map links onto links, rank 0 stands for all ranks, and an orbit of links for its links: if every
rank sends at the same time what translations make of the sends of rank 0, all links of an orbit carry as much. Letters: N
ranks, A arcs, H hops, X links of all hops, L links or orbits of links.
"""

from dataclasses import dataclass

import numpy as np

from emu.arrays import F64, I64, Bool, column, ramps
from emu.collective.schedule import Translations
from emu.synthesis.hops import HopNetwork
from emu.synthesis.translation import GridHops

_HASHED = np.int64(2**40 + 15)


@dataclass(frozen=True, eq=False, slots=True)
class ExchangeNetwork:
    """Arcs between ranks, each of which is a hop, or a hop of rank 0 that is translated to another rank."""

    n_ranks: int
    sources: I64  # ranks whose blocks stand for those of all ranks
    dims: tuple[int, ...]  # of the grid of translations; (): every rank is a source
    src: I64  # [A]
    dst: I64  # [A]
    hop: I64  # [A] an index of the next columns
    number: I64  # [H] number of the hop among those of the group
    start: I64  # [H + 1] where the links of each hop begin
    link: I64  # [X]
    second: F64  # [X] seconds for which a byte of a source's block takes the link
    n_links: int

    @property
    def pairs(self) -> tuple[I64, I64]:
        """The source and the destination of each block, in ascending order."""
        source, to = np.repeat(self.sources, self.n_ranks), np.tile(np.arange(self.n_ranks), len(self.sources))
        return source[source != to], to[source != to]

    def cost(self, price: F64) -> F64:
        """Return [H] the cost of a byte over each hop at the prices of links, [L]."""
        return np.asarray(np.add.reduceat(self.second * price[self.link], self.start[:-1]))


def whole_network(hops: HopNetwork) -> ExchangeNetwork:
    """Return the network in which every rank is a source."""
    every = np.arange(len(hops.src))
    ends, second = (hops.src, hops.dst), 1 / hops.capacity_Bps[hops.link]
    n, n_links = hops.n_ranks, len(hops.capacity_Bps)
    return ExchangeNetwork(n, np.arange(n), (), *ends, every, every, hops.start, hops.link, second, n_links)


def grid_network(hops: HopNetwork, grid: GridHops) -> ExchangeNetwork | None:
    """Return the network in which rank 0 is the source; None if a router's ways of translated hops leave a rank out.

    A hop is taken if, from every rank, the router takes ways over the same orbits of links.
    """
    kept = np.flatnonzero(_translates(hops, grid))
    n = grid.n_ranks
    if not grid.links.reaches_all(grid.to[kept]):
        return None
    taken = [grid.taken[hop] for hop in kept.tolist()]
    link, second = (np.array([each[i] for hop in taken for each in hop]) for i in (0, 1))
    start = np.concatenate(([0], np.cumsum([len(each) for each in taken])))
    moves, src = Translations(grid.dims, n, 1), np.repeat(np.arange(n), len(kept))
    hop = np.tile(np.arange(len(kept)), n)
    dst = moves.rank(src, grid.to[kept][hop])
    own = np.flatnonzero(hops.src == 0)[kept]
    src, dst, hop, own, start, link = (column(each, np.int64) for each in (src, dst, hop, own, start, link))
    return ExchangeNetwork(n, np.zeros(1, np.int64), grid.dims, src, dst, hop, own, start, link, second, int(link.max()) + 1)


def _translates(hops: HopNetwork, grid: GridHops) -> Bool:
    """Return whether the ways of each hop of rank 0, on its channel, are translations of one another."""
    n, count = grid.n_ranks, len(grid.to)
    src = np.repeat(np.arange(n), count)
    dst = Translations(grid.dims, n, 1).rank(src, np.tile(grid.to, n))
    ways = hops.router(hops.npus[src], hops.npus[dst], np.tile(grid.channel, n))
    code = (grid.links.orbit[ways.link] + 3) * np.int64(2654435761) % _HASHED
    sums = np.concatenate(([0], np.cumsum(code)))
    of_way = (sums[ways.start[1:]] - sums[ways.start[:-1]]).reshape(n, count)
    return np.asarray((of_way == of_way[0]).all(axis=0))


def links_of_all(start: I64, hop: I64) -> tuple[I64, I64]:
    """Return the places of the links of several hops in the columns of links, and for each the index of its hop in `hop`."""
    width = np.diff(start)[hop]
    return ramps(start[hop], width), np.repeat(np.arange(len(hop)), width)
