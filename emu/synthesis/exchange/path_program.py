"""Paths for the blocks of an all_to_all: the concurrent-flow program, whose columns are paths, and whole parts on these.

The program divides each block among paths so that the busiest link takes the least time. Its columns are made as they are
needed: the prices of links that it gives, its dual, have shortest paths, and those that cost less than a block pays are added.
The first paths are those of a few steps of Frank and Wolfe on a power of the loads. Then each block is cut into equal parts.
Sources: Shahrokhi and Matula,
The maximum concurrent flow problem, J. ACM 37 (1990); Frank and Wolfe, An algorithm for quadratic programming, Naval Research
Logistics Quarterly 3 (1956). Letters: B blocks, P paths, D hops of the longest path, L links or orbits.
"""

from dataclasses import dataclass

import numpy as np

from emu.arrays import F64, I64, column
from emu.synthesis.exchange.exchange_network import ExchangeNetwork, links_of_all
from emu.synthesis.programs import solve_in_time
from emu.synthesis.splitting import Tick
from emu.synthesis.whole_parts import BlockShares, whole_counts

_FIRST = 16  # steps before the program
_SOLVED = 12  # times that the program is solved, at most
_NEAR = 0.998  # of the bound of prices, from which the program is not solved again
_MOST_BLOCKS = 2**13  # of a program; beyond these the first steps give the paths
_POWER = 24  # of loads, so that the busiest links count
_SPREAD = 6364136223846793005  # an odd number by which arcs are hashed (Knuth's multiplier, MMIX)
_LEAST = 1e-300  # cost of a hop that has none, as graphs have no arcs of length 0
_LONG = 1e-4  # cost of a hop, as a share of the mean cost: of equal paths the shortest is taken


@dataclass(frozen=True, eq=False, slots=True)
class BlockPaths:
    """Paths of blocks with the share of the block that each carries, in the order of the blocks."""

    block: I64  # [P] index of the pair
    arc: I64  # [P, D] arcs of the network in order; -1 after the last
    share: F64  # [P]
    slowness: float  # seconds for which a byte of every block takes the busiest link
    least: float  # what no paths fall below, by prices of links


@dataclass(eq=False, slots=True)
class _Pool:
    """The paths that have been found so far."""

    net: ExchangeNetwork
    block: I64
    arc: I64

    def add(self, arc: I64) -> I64:
        """Add a path of each block, [B, D], and return the index [B] of each in the pool."""
        depth = max(self.arc.shape[1], arc.shape[1])
        both = np.concatenate(
            [np.pad(each, ((0, 0), (0, depth - each.shape[1])), constant_values=-1) for each in (self.arc, arc)]
        )
        block = np.concatenate((self.block, np.arange(len(arc))))
        spread = np.cumprod(np.full(depth, _SPREAD, np.uint64))
        code = ((both + 2).astype(np.uint64) * spread).sum(axis=1)
        key = np.stack((block.astype(np.uint64), code))
        _, first, of = np.unique(key, axis=1, return_index=True, return_inverse=True)
        kept = np.sort(first)
        place = np.searchsorted(kept, first)[of.ravel()]
        old = len(self.block)
        self.block, self.arc = block[kept], both[kept]
        return np.asarray(place[old:])

    def crossed(self) -> tuple[I64, I64, F64]:
        """Return the path, the link and the seconds for a byte of each crossing of a link."""
        path, step = np.nonzero(self.arc >= 0)
        place, of = links_of_all(self.net.start, self.net.hop[self.arc[path, step]])
        return path[of], self.net.link[place], self.net.second[place]

    def loads(self, share: F64) -> F64:
        """Return [L] the seconds for which each link is taken if paths carry their shares of a byte."""
        path, link, second = self.crossed()
        return column(np.bincount(link, second * share[path], self.net.n_links), np.float64)


def quickest_paths(net: ExchangeNetwork, head_s: F64) -> BlockPaths:
    """Return the quickest path of each block, by the latency of each hop, [H]; of equal ones the one with fewer hops."""
    arc = _shortest(net, head_s)[1]
    block = np.arange(len(arc))
    return BlockPaths(block, arc, np.ones(len(block)), 0.0, 0.0)


def _shortest(net: ExchangeNetwork, cost: F64) -> tuple[F64, I64]:
    """Return the least cost [B] of each block's way, given that of each hop, [H], and its arcs [B, D]."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    weight = (cost + _LONG * cost.mean() + _LEAST)[net.hop]
    order = np.lexsort((weight, net.dst, net.src))
    key = net.src[order] * net.n_ranks + net.dst[order]
    first = order[np.flatnonzero(np.diff(key, prepend=-1))]  # the cheapest arc of each pair of ranks, in their order
    graph = csr_array((weight[first], (net.src[first], net.dst[first])), shape=(net.n_ranks, net.n_ranks))
    before = dijkstra(graph, indices=net.sources, return_predecessors=True)[1].astype(np.int64)
    arc = _arcs_to(net, first, before)
    return np.where(arc >= 0, cost[net.hop[arc]], 0.0).sum(axis=1), arc


def _arcs_to(net: ExchangeNetwork, first: I64, before: I64) -> I64:
    """Return [B, D] the arcs of the way of each block, with -1 after the last.

    Args:
        net: The network.
        first: The arcs that are used, one for each pair of ranks, in the order of pairs.
        before: [sources, N] the rank before each rank on its way.
    """
    ends = net.src[first] * net.n_ranks + net.dst[first]
    source, at = net.pairs
    row, arcs = np.searchsorted(net.sources, source), list[I64]()
    while (there := at != source).any():
        above = np.where(there, before[row, at], at)
        arcs.append(np.where(there, first[np.searchsorted(ends, above * net.n_ranks + at) % len(first)], -1))
        at = above
    arc = np.stack(arcs[::-1], axis=1)
    return np.take_along_axis(arc, np.argsort(arc < 0, axis=1, kind="stable"), axis=1)


def block_paths(net: ExchangeNetwork, tick: Tick) -> BlockPaths:
    """Return paths of all blocks that take the busiest link for the least time, or nearly so.

    Args:
        net: The network.
        tick: It is called before each step; it raises an error when the time is over.
    """
    pool = _Pool(net, np.empty(0, np.int64), np.empty((0, 1), np.int64))
    share, least = _first_shares(pool, tick)
    if len(net.pairs[0]) <= _MOST_BLOCKS:
        share, least = _best_shares(pool, share, least, tick)
    order = np.argsort(pool.block, kind="stable")
    slowness = float(pool.loads(share).max())
    return BlockPaths(pool.block[order], pool.arc[order], share[order], slowness, least)


def _first_shares(pool: _Pool, tick: Tick) -> tuple[F64, float]:
    """Return the shares [P] of paths after some steps of Frank and Wolfe, and the best bound of prices."""
    price, share, least = np.ones(pool.net.n_links), np.empty(0), 0.0
    for step in range(_FIRST):
        tick()
        cost, arc = _shortest(pool.net, pool.net.cost(price))
        least = max(least, float(cost.sum() / price.sum()))
        new = pool.add(arc)
        part = 2 / (step + 2)
        share = np.concatenate((share * (1 - part), np.zeros(len(pool.block) - len(share))))
        share[new] += part
        load = pool.loads(share)
        price = (load / load.max()) ** (_POWER - 1)
    return share, least


def _best_shares(pool: _Pool, share: F64, least: float, tick: Tick) -> tuple[F64, float]:
    """Return the shares [P] of the program, and the best bound of prices."""
    for _ in range(_SOLVED):
        tick()
        if least >= _NEAR * pool.loads(share).max():
            break
        share, price = _solved(pool, tick)
        cost, arc = _shortest(pool.net, pool.net.cost(price))
        least = max(least, float(cost.sum() / price.sum()))
        known = len(pool.block)
        pool.add(arc)
        share = np.concatenate((share, np.zeros(len(pool.block) - known)))
        if len(pool.block) == known:
            break
    return share, least


def _solved(pool: _Pool, tick: Tick) -> tuple[F64, F64]:
    """Return the best shares [P] of the paths of the pool, and the prices [L] of links by which these are best."""
    from scipy.sparse import csr_array, hstack

    path, link, second = pool.crossed()
    count, n_links, unit = len(pool.block), pool.net.n_links, second.max()
    load = csr_array((second / unit, (link, path)), shape=(n_links, count))
    used = np.flatnonzero(np.diff(load.indptr))
    rows = hstack([load[used], csr_array(-np.ones((len(used), 1)))])
    whole = csr_array((np.ones(count), (pool.block, np.arange(count))), shape=(int(pool.block.max()) + 1, count + 1))
    length = (pool.arc >= 0).sum(axis=1)
    cost = np.append(_LONG * length / length.sum(), 1.0)
    found = solve_in_time(tick, cost, (csr_array(rows), np.zeros(len(used))), (whole, np.ones(whole.shape[0])))
    price = np.zeros(n_links)
    price[used] = np.maximum(-found.ineqlin.marginals, 0.0)
    return np.maximum(found.x[:-1], 0.0), price


def whole_parts(net: ExchangeNetwork, paths: BlockPaths, parts: int) -> tuple[I64, float]:
    """Return how many of the equal parts of its block each path carries, [P], and the time of the busiest link.

    The time is that for a byte of every block.
    """
    crossed = _Pool(net, paths.block, paths.arc).crossed()
    return whole_counts(BlockShares(paths.block, paths.share, *crossed, net.n_links), paths.slowness, parts)
