"""Trees that pass switches which copy and add, and the shares of each block that they carry, by a linear program.

A column of the program is a tree: of a block, from or to its root; of an all_reduce, a tree to a root and one from it, which
may be a switch. Prices of links, the dual of the program, tell where a further tree would be cheap. The best trees are hard to
find (they are Steiner trees), so that cheap ones are taken and the result need not be the best; `emu.bound.trees` bounds it.
The first trees come from prices that grow with the loads: Garg and Könemann, Faster and simpler algorithms for multicommodity
flow and other fractional packing problems, SIAM J. Comput. 37 (2007). Letters:
P ranks and switches, H hops, L links, T trees, B blocks, W halves of a tree: one, or the way to its root and the way from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from emu.arrays import F64, I64, digest, ramps
from emu.synthesis.adding.adding_hops import with_used
from emu.synthesis.adding.steiner_tree import DirectedHops, steiner_tree
from emu.synthesis.forest import Forest
from emu.synthesis.hops import HopNetwork
from emu.synthesis.programs import solve_in_time
from emu.synthesis.shortening import lengths
from emu.synthesis.splitting import Tick
from emu.synthesis.whole_parts import BlockShares, whole_counts

_NEAR = 0.998  # share of the time of the known trees, by which no further tree could be better
_FIRST = 30  # turns in which prices follow the loads
_RAISE = 0.5  # power of e by which the price of the busiest link rises in such a turn
_PATIENCE = 4  # programs that gain nothing
_LONG = 1e-3  # what a hop costs beside its links, as a share of the mean
_DEEP = 1e-4  # what a level of a tree costs beside the time, so that of equal trees the shallow ones are taken
_CLOSE = 1.01  # whole trees that take no more time than this times that of the shares are as good
_MOST_GROWN = 2**24  # trees of a turn, times their ranks and all nodes

Roots = Sequence[Sequence[int]]  # [B] the nodes that may be roots of the trees of each block


@dataclass(eq=False, slots=True)
class _TreePool:
    """The trees that have been found so far."""

    hops: HopNetwork
    ways: tuple[bool, ...]  # [W] whether a half of a tree leads to its root
    step: F64  # [P, P] the length of a hop, 1
    block: list[int] = field(default_factory=list)  # [T] the block of which each may carry a share
    root: list[int] = field(default_factory=list)  # [T]
    hop: list[I64] = field(default_factory=list)  # [T][W, P] the hop that joins each node; -1: none
    second: list[F64] = field(default_factory=list)  # [T][L] the seconds for which a byte takes each link
    depth: list[float] = field(default_factory=list)  # [T] levels, of both halves together
    index: dict[str, int] = field(default_factory=dict)  # of each tree, by its digest

    def add(self, block: int, root: int, hop: I64) -> int:
        """Add a tree if it is not known yet, and return its index."""
        key = digest((block, root, hop))
        if key not in self.index:
            self.index[key] = len(self.block)
            self.block.append(block)
            self.root.append(root)
            self.hop.append(hop)
            self.second.append(self._seconds(hop[hop >= 0]))
            self.depth.append(sum(float(lengths(each, self.step).max()) for each in self.parents([self.index[key]])))
        return self.index[key]

    def _seconds(self, hop: I64) -> F64:
        """Return [L] the seconds for which a byte over each of some hops takes each link."""
        start = self.hops.start[:-1][hop]
        link = self.hops.link[ramps(start, self.hops.start[1:][hop] - start)]
        load = np.bincount(link, minlength=len(self.hops.capacity_Bps))
        return np.asarray(load / self.hops.capacity_Bps)

    def parents(self, tree: Sequence[int]) -> list[I64]:
        """Return for each half [trees, P] the parent of each node in some trees; of a root, or outside, the node itself."""
        found = []
        for half, inward in enumerate(self.ways):
            hop = np.stack([self.hop[each][half] for each in tree])
            above = (self.hops.dst if inward else self.hops.src)[hop]
            found.append(np.where(hop >= 0, above, np.arange(self.hops.n_ranks)))
        return found


@dataclass(eq=False, slots=True)
class _TreeSearch:
    """The search for trees that are cheap by the prices of links."""

    pool: _TreePool
    roots: Roots
    tick: Tick

    def grow(self, price: F64) -> tuple[list[int], float] | None:
        """Add the cheapest tree of each root by the prices [L] of links; None if one of the ranks is out of reach.

        Returns:
            The cheapest tree of each block, and the sum of their costs.
        """
        hops, n = self.pool.hops, self.pool.hops.n_ranks - self.pool.hops.helpers
        cost = np.add.reduceat((price / hops.capacity_Bps)[hops.link], hops.start[:-1])
        few = np.lexsort((cost, hops.src * hops.n_ranks + hops.dst))
        few = few[np.flatnonzero(np.diff((hops.src * hops.n_ranks + hops.dst)[few], prepend=-1))]  # the cheapest of each pair
        directed = [DirectedHops.of(hops.src[few], hops.dst[few], hops.n_ranks, inward=way) for way in self.pool.ways]
        raised, best, total = (cost + _LONG * cost.mean())[few], list[int](), 0.0
        for block, roots in enumerate(self.roots):
            self.tick()
            least, found = np.inf, -1
            for root in roots:
                halves = [steiner_tree(each, raised, root, n) for each in directed]
                there = [half for half in halves if half is not None]
                if len(there) < len(halves):
                    return None
                hop = np.where(np.stack(there) >= 0, few[np.stack(there)], -1)
                tree, taken = self.pool.add(block, root, hop), float(cost[hop[hop >= 0]].sum())
                least, found = min((least, found), (taken, tree))
            best.append(found)
            total += least
        return best, total

    def shares(self) -> F64 | None:
        """Return [T] the share of its block that each tree carries, so that the busiest link takes the least time.

        The result is None if one of the ranks is out of reach.
        """
        price, best, most = np.ones(len(self.pool.hops.capacity_Bps)), np.ones(0), 0.0
        for _ in range(_FIRST):
            price /= price.sum()
            grown = self.grow(price)
            if grown is None:
                return None
            best, most = (price, grown[1]) if grown[1] > most else (best, most)
            load = np.sum([self.pool.second[tree] for tree in grown[0]], axis=0)
            price = price * np.exp(_RAISE * load / load.max())
        return self._best_shares(best, most)

    def _best_shares(self, best: F64, most: float) -> F64:
        """Return the shares of the program, from the best prices so far, by which the known trees cost `most`, on."""
        share, last, misses = np.ones(0), np.inf, 0
        while most < _NEAR * last and misses < _PATIENCE:
            known = len(self.pool.block)
            share, price, time_s = self._solved()
            misses, last = (0, time_s) if time_s < _NEAR * last else (misses + 1, min(time_s, last))
            for tried in ((best + price) / 2, price):  # at once, the prices would swing to and fro
                _, least = self.grow(tried) or ([], np.inf)
                best, most = (tried, least) if least > most else (best, most)
                if len(self.pool.block) > known:
                    break
            else:
                break
        return np.append(share, np.zeros(len(self.pool.block) - len(share)))

    def _solved(self) -> tuple[F64, F64, float]:
        """Return the best shares [T] of the known trees, the prices [L] by which they are, and the time of the busiest link."""
        from scipy.sparse import csr_array, hstack

        second = np.stack(self.pool.second, axis=1)
        unit, count, block = second.max(), second.shape[1], np.array(self.pool.block)
        used = np.flatnonzero(second.any(axis=1))
        rows = hstack([csr_array(second[used] / unit), csr_array(-np.ones((len(used), 1)))])
        whole = csr_array((np.ones(count), (block, np.arange(count))), shape=(len(self.roots), count + 1))
        deep = _DEEP * np.array(self.pool.depth) / len(self.roots)
        cost = np.append(deep * second.mean() / unit, 1.0)
        solved = solve_in_time(self.tick, cost, (csr_array(rows), np.zeros(len(used))), (whole, np.ones(len(self.roots))))
        price = np.zeros(len(second))
        price[used] = np.maximum(-solved.ineqlin.marginals, 0.0)
        return np.maximum(solved.x[:-1], 0.0), price, float(solved.x[-1]) * unit


def steiner_forests(
    hops: HopNetwork, roots: Roots, ways: tuple[bool, ...], most: int, tick: Tick
) -> tuple[HopNetwork, tuple[Forest, ...]] | None:
    """Return forests whose trees pass switches that copy and add, one for each half of the trees, and the hops they take.

    Args:
        hops: The hops between ranks and such switches, which come after the ranks.
        roots: For each block, the nodes that may be its roots; there is one block for each root, or one for all.
        ways: For each half, whether it leads to the root.
        most: The largest number of units of a block.
        tick: It is called before each step; it raises an error when the time is over.

    Returns:
        The hops between the ranks and the switches that are used, and the forests on them; None if trees cannot reach all
        ranks, or the search would be too long.
    """
    if sum(map(len, roots)) * (hops.n_ranks - hops.helpers) * hops.n_ranks > _MOST_GROWN:
        return None
    pool = _TreePool(hops, ways, np.ones((hops.n_ranks, hops.n_ranks)))
    share = _TreeSearch(pool, roots, tick).shares()
    if share is None:
        return None
    tree = np.repeat(np.arange(len(share)), _whole(pool, share, most))
    tree = tree[np.lexsort((tree, np.array(pool.root)[tree], np.array(pool.block)[tree]))]
    return _forests(pool, tree)


def _whole(pool: _TreePool, share: F64, most: int) -> I64:
    """Return [T] the units that each tree carries: as few as take little more time than the shares, `most` at most."""
    order = np.argsort(pool.block, kind="stable")
    second = np.stack(pool.second)[order]
    way, link = (np.ascontiguousarray(ends) for ends in np.nonzero(second))
    shares = BlockShares(np.array(pool.block)[order], share[order], way, link, second[way, link], second.shape[1])
    time_s, best, least, units = float((share[order] @ second).max()), order, np.inf, 1
    while units <= most and least > _CLOSE * time_s:
        count, taken = whole_counts(shares, time_s, units)
        if taken < least * (1 - 1e-9):
            best, least = count, taken
        units *= 2
    found = np.zeros_like(best)
    found[order] = best
    return found


def _forests(pool: _TreePool, tree: I64) -> tuple[HopNetwork, tuple[Forest, ...]]:
    """Return the hops that some trees take, and the forests of these trees."""
    used = np.zeros(pool.hops.n_ranks, np.bool_)
    root = np.array(pool.root)[tree]
    used[root] = True
    for each in np.unique(tree).tolist():
        used |= (pool.hop[each] >= 0).any(axis=0)
    hops, number, hop_number = with_used(pool.hops, used)
    kept, found = np.flatnonzero(number >= 0), list[Forest]()
    kept = kept[np.argsort(number[kept])]
    for half, (parent, inward) in enumerate(zip(pool.parents(tree.tolist()), pool.ways, strict=True)):
        hop = np.stack([pool.hop[each][half] for each in tree.tolist()])[:, kept]
        moved = np.where(hop >= 0, hop_number[hop], -1)
        found.append(Forest(number[root], number[parent[:, kept]], moved, inward))
    return hops, tuple(found)
