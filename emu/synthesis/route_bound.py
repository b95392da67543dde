"""The least time over the hops that a router offers, by prices of links: what paths and trees of these hops cannot fall below.

At any prices, all links together take in at most price times capacity a second. A block that all ranks get pays at least the
cheapest tree that joins the ranks, with the cheaper direction of each pair; one that goes from a rank to another pays at least
the cheapest path. So every list of prices gives a bound, and the best of some is taken: first prices that grow with the loads
of these trees and paths (Garg and Könemann, SIAM J. Comput. 37, 2007), then those by which no mix of these loads is better
(Wentges, Int. Trans. Oper. Res. 4, 1997). It is weak where the two directions of links are unlike. An all_reduce is bounded
among trees alone. Letters: N ranks, H hops, L links.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from emu.arrays import F64, I64
from emu.bound.cuts import ALL_PAIRS
from emu.collective.operation import ROOTED
from emu.synthesis.hops import HopNetwork

if TYPE_CHECKING:  # it takes long to load
    from scipy.sparse import csr_array

_TURNS = ((0.5, 40), (0.1, 120), (0.03, 160))  # powers of e by which the price of the busiest link rises, and turns with each
_SOLVED = 30  # programs of loads, at most
_KNOWN = 64  # the largest number of loads of a program, which are the last ones
_NEAR = 0.999  # share of the time of the best mix of known loads, by which no prices could give much more
_MOST = 2**18  # the largest number of hops
_LEAST = 1e-300  # the price of a pair of ranks at least, as graphs have no edges of length 0


def routes_s_per_byte(hops: HopNetwork, operation: str) -> float | None:
    """Return a bound of the seconds that an operation takes for each byte of a block, over these hops alone.

    Args:
        hops: The hops between ranks, none of which a switch that copies or adds takes part in.
        operation: One of `SYNTHESIS_OPERATIONS`.

    Returns:
        The bound; None if the hops of other ranks are translations, or there are too many.
    """
    if hops.grid is not None or not 0 < len(hops.src) <= _MOST:
        return None
    search, price = _PriceSearch(_Pairs.of(hops), operation), np.ones(0)
    for price in _simple_prices(hops):
        search.tried(price)
    for power in [power for power, turns in _TURNS for _ in range(turns)]:
        load = search.tried(price)
        price = price * np.exp(power * load / load.max())
    for _ in range(_SOLVED):
        most, price = search.solved()
        if search.least >= _NEAR * most:
            break
        search.tried((search.best + price) / 2)  # half way from the best prices: Wentges 1997
    return search.least


def _simple_prices(hops: HopNetwork) -> Iterator[F64]:
    """Yield equal prices [L] of the first links of hops, of their last links, and of all their links."""
    for link in (hops.link[hops.start[:-1]], hops.link[hops.start[1:] - 1], hops.link):
        price = np.zeros(len(hops.capacity_Bps))
        price[link] = 1
        yield price


@dataclass(eq=False, slots=True)
class _PriceSearch:
    """The search for the prices that give the largest bound."""

    pairs: "_Pairs"
    operation: str
    loads: list[F64] = field(default_factory=list)  # [L] each: the seconds for which links are taken by cheapest trees or paths
    least: float = 0.0
    best: F64 = field(default_factory=lambda: np.ones(0))  # the prices that give `least`

    def tried(self, price: F64) -> F64:
        """Return the loads [L] of the cheapest trees or paths by prices [L] of links, and keep the bound if it is larger."""
        price = price / price.sum()
        cost, load = self.pairs.paths(price) if self.operation == ALL_PAIRS else self.pairs.trees(price, self.operation)
        self.loads.append(load)
        if cost > self.least:
            self.least, self.best = cost, price
        return load

    def solved(self) -> tuple[float, F64]:
        """Return the time of the busiest link by the best mix of the last loads, and the prices [L] by which it is."""
        from scipy.sparse import csr_array

        from emu.bound.linear_programs import solve

        load = np.stack(self.loads[-_KNOWN:], axis=1)
        unit, used = load.max(), np.flatnonzero(load.any(axis=1))
        rows = np.concatenate((load[used] / unit, -np.ones((len(used), 1))), axis=1)
        whole = csr_array(np.append(np.ones(load.shape[1]), 0.0)[None])
        cost = np.append(np.zeros(load.shape[1]), 1.0)
        found = solve(cost, (csr_array(rows), np.zeros(len(used))), (whole, np.ones(1)))
        price = np.zeros(len(load))
        price[used] = np.maximum(-found.ineqlin.marginals, 0.0)
        return float(found.x[-1]) * unit, price


@dataclass(frozen=True, eq=False, slots=True)
class _Pairs:
    """The pairs of ranks that hops join, the hops of each pair following one another."""

    hops: HopNetwork
    order: I64  # [H] hops in the order of pairs
    first: I64  # where the hops of each pair begin in `order`

    @staticmethod
    def of(hops: HopNetwork) -> "_Pairs":
        """Return the pairs of some hops."""
        key = hops.src * hops.n_ranks + hops.dst
        order = np.argsort(key, kind="stable")
        return _Pairs(hops, order, np.flatnonzero(np.diff(key[order], prepend=-1)))

    def cheapest(self, price: F64) -> tuple[F64, I64]:
        """Return [N, N] the price of the cheapest hop of each pair, and that hop; infinity and -1 where there is none."""
        hops, n = self.hops, self.hops.n_ranks
        cost = np.add.reduceat((price / hops.capacity_Bps)[hops.link], hops.start[:-1])[self.order]
        number = np.repeat(np.arange(len(self.first)), np.diff(np.append(self.first, len(cost))))
        by_cost = np.lexsort((cost, number))[self.first]
        least, hop = np.full((n, n), np.inf), np.full((n, n), -1)
        chosen = self.order[by_cost]
        least[hops.src[chosen], hops.dst[chosen]] = cost[by_cost]
        hop[hops.src[chosen], hops.dst[chosen]] = chosen
        return least, hop

    def trees(self, price: F64, operation: str) -> tuple[float, F64]:
        """Return the price of the cheapest trees for a byte of each block, and [L] the seconds for which they take links."""
        from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

        least, hop = self.cheapest(price)
        n, either = len(least), np.minimum(least, least.T)
        tree = minimum_spanning_tree(_graph(either))
        order, above = breadth_first_order(tree, 0, directed=False)
        below = np.ones(n)
        for rank in order[:0:-1].tolist():
            below[above[rank]] += below[rank]
        child = order[1:]
        up, down = hop[child, above[child]], hop[above[child], child]
        if operation in ROOTED:
            return float(tree.sum()), self._loads(np.concatenate((up, down)), np.full(2 * len(child), 0.5))
        if operation == "all_reduce":
            return 2 * float(tree.sum()), self._loads(np.concatenate((up, down)), np.ones(2 * len(child)))
        return n * float(tree.sum()), self._loads(np.concatenate((up, down)), np.concatenate((below[child], n - below[child])))

    def paths(self, price: F64) -> tuple[float, F64]:
        """Return the price of the cheapest paths for a byte of each pair, and [L] the seconds for which they take links."""
        from scipy.sparse.csgraph import dijkstra

        least, hop = self.cheapest(price)
        away, before = dijkstra(_graph(least), return_predecessors=True)
        source, at = np.nonzero(~np.eye(len(least), dtype=np.bool_))
        crossed = list[I64]()
        while len(at):
            above = before[source, at]
            crossed.append(hop[above, at])
            source, at = source[above != source], above[above != source]
        taken = np.concatenate(crossed)
        return float(away.sum()), self._loads(taken, np.ones(len(taken)))

    def _loads(self, hop: I64, blocks: F64) -> F64:
        """Return [L] the seconds for which links are taken by a byte of each of some blocks over each of some hops.

        A hop of -1 is none, as a tree may lead from a rank to another over a pair that hops join the other way round alone.
        """
        of_hop = np.bincount(hop[hop >= 0], blocks[hop >= 0], len(self.hops.src))
        crossed = np.repeat(of_hop, np.diff(self.hops.start))
        return np.asarray(np.bincount(self.hops.link, crossed, len(self.hops.capacity_Bps)) / self.hops.capacity_Bps)


def _graph(price: F64) -> "csr_array":
    """Return the graph of pairs with a finite price, [N, N]; its edges are listed, as small prices are no edges of a table."""
    from scipy.sparse import csr_array

    src, dst = np.nonzero(np.isfinite(price))
    return csr_array((price[src, dst] + _LEAST, (src, dst)), shape=price.shape)
