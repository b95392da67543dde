"""Busy links relieved: where a router takes other ways than trees were packed for, ranks change parents to spread the load.

As long as that helps, a rank that is reached over the busiest link is reached, in one tree, over another hop whose links are
less busy. It is a local search; packed trees whose hops take the ways they were packed for need none. Letters: U trees, N
ranks, H hops, L links.
"""

import numpy as np

from emu.arrays import F64, I64, Bool
from emu.synthesis.hops import HopNetwork
from emu.synthesis.shortening import is_below
from emu.synthesis.splitting import Tick

_MOST = 4000  # changes at most
_STEP = 1e-9


class _Loads:
    """The load of every link by the hops of trees.

    Args:
        hops: The hops.
        hop: [U, N] the hop of each rank in each tree; -1: none.
    """

    def __init__(self, hops: HopNetwork, hop: I64) -> None:
        self.hops = hops
        self.width = np.diff(hops.start)
        self.load = np.zeros(len(hops.capacity_Bps))
        for each in hop[hop >= 0].tolist():
            self.load[hops.links_of(each)] += 1

    @property
    def busy(self) -> F64:
        """[L] the load of each link over its capacity."""
        return np.asarray(self.load / self.hops.capacity_Bps)

    def with_one_more(self) -> F64:
        """Return [H] how busy the busiest link of each hop would be if the hop carried one tree more."""
        more = (self.load + 1) / self.hops.capacity_Bps
        return np.asarray(np.maximum.reduceat(more[self.hops.link], self.hops.start[:-1]))

    def move(self, old: int, new: int) -> None:
        """Move a tree from a hop to another."""
        self.load[self.hops.links_of(old)] -= 1
        self.load[self.hops.links_of(new)] += 1


def busiest(hops: HopNetwork, hop: I64) -> float:
    """Return the largest load of a link over its capacity, for [U, N] hops of trees."""
    return float(_Loads(hops, hop).busy.max(initial=0.0))


def relieve(hops: HopNetwork, parent: I64, hop: I64, tick: Tick, *, inward: bool) -> tuple[I64, I64]:
    """Return [U, N] parents and hops of trees whose busiest link is less busy, or as busy as it was.

    Args:
        hops: The hops.
        parent: [U, N] the parent of each rank in each tree.
        hop: [U, N] the hop between a rank and its parent.
        tick: It is called before each change.
        inward: Whether hops lead from ranks to their parents.
    """
    parent, hop, loads = parent.copy(), hop.copy(), _Loads(hops, hop)
    child, above = (hops.src, hops.dst) if inward else (hops.dst, hops.src)
    into = [np.flatnonzero(child == rank) for rank in range(hops.n_ranks)]
    crosses = _crossing(hops)
    for _ in range(_MOST):
        tick()
        busy = loads.busy
        worst = int(np.argmax(busy))
        better = loads.with_one_more() < busy[worst] * (1 - _STEP)
        change = _change((parent, hop), crosses[worst], into, above, better)
        if change is None:
            break
        tree, rank, new = change
        loads.move(int(hop[tree, rank]), new)
        hop[tree, rank], parent[tree, rank] = new, above[new]
    return parent, hop


def _crossing(hops: HopNetwork) -> list[I64]:
    """Return, for each link, the hops that cross it."""
    of = np.repeat(np.arange(len(hops.src)), np.diff(hops.start))
    order = np.argsort(hops.link, kind="stable")
    ends = np.cumsum(np.bincount(hops.link, minlength=len(hops.capacity_Bps)))
    return np.split(of[order], ends[:-1])


def _change(trees: tuple[I64, I64], crossing: I64, into: list[I64], above: I64, better: Bool) -> tuple[int, int, int] | None:
    """Return a tree, a rank and a better hop for it, in place of one that crosses the busiest link; None if there is none.

    Args:
        trees: [U, N] the parents and the hops.
        crossing: The hops that cross the link.
        into: The hops by which each rank can be reached.
        above: [H] the parent to which each hop leads back.
        better: [H] whether the links of a hop stay less busy with one tree more.
    """
    parent, hop = trees
    for tree, rank in zip(*np.nonzero(np.isin(hop, crossing)), strict=True):
        others = into[rank][better[into[rank]]]
        if len(others):
            free = others[~is_below(parent[tree], int(rank))[above[others]]]
            if len(free):
                return int(tree), int(rank), int(free[0])
    return None
