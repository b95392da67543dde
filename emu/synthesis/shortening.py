"""Packed trees made shallow: ranks exchange their parents between trees, so that every arc carries what it carried before.

Each tree enters a rank by one arc. Which tree takes which of these arcs is an assignment problem for each rank. An arc costs
more the later its sender has the data and the more hops follow; it is closed to a tree in which its sender comes after the
rank. Source: Kuhn, The Hungarian method for the assignment problem, Nav. Res. Logist. Q. 2 (1955). Letters: U trees, N ranks.
"""

import numpy as np

from emu.arrays import F64, I64, Bool
from emu.synthesis.packing import Tree
from emu.synthesis.splitting import Tick

_MOST = 2**10  # the largest number of trees whose parents are exchanged
_CLOSED = 1e12  # the cost of an arc that would close a cycle; far above all others
_POWER = 3  # of the length of a way in the cost: long ways count much


def parents_of(trees: list[Tree], n: int) -> tuple[I64, I64]:
    """Return trees one by one: [U] their roots, and [U, N] the parent of each rank, of a root the root itself."""
    weight = [tree.weight for tree in trees]
    parent = np.tile(np.arange(n), (len(trees), 1))
    for number, tree in enumerate(trees):
        a, b = np.array(tree.arcs, np.int64).reshape(-1, 2).T
        parent[number, b] = a
    return np.repeat([tree.root for tree in trees], weight), np.repeat(parent, weight, axis=0)


def lengths(parent: I64, step: F64) -> F64:
    """Return [U, N] the length of the way from the root of each tree to each rank.

    Args:
        parent: [U, N] the parent of each rank in each tree.
        step: [N, N] the length of an arc.
    """
    n = parent.shape[1]
    up, found = parent, np.where(parent == np.arange(n), 0.0, step[parent, np.arange(n)])
    while True:
        above = np.take_along_axis(up, up, axis=1)
        if np.array_equal(above, up):
            return found
        found = found + np.take_along_axis(found, up, axis=1)
        up = above


def shorten(parent: I64, step: F64, sweeps: int, tick: Tick) -> I64:
    """Return the parents of ranks in trees whose longest ways are shorter; every arc is taken as often as before.

    Args:
        parent: [U, N] the parent of each rank in each tree, of a root the root itself.
        step: [N, N] the length of an arc.
        sweeps: How often all ranks are visited at most.
        tick: It is called for each rank.
    """
    if len(parent) > _MOST:
        return parent
    best, found = parent, parent.copy()
    for _ in range(sweeps):
        for rank in range(parent.shape[1]):
            tick()
            _exchange(found, step, rank)
        if _worst(found, step) >= _worst(best, step):
            break
        best = found.copy()
    return best


def _worst(parent: I64, step: F64) -> tuple[float, float]:
    """Return the longest way of all trees, and the sum of the longest way of each."""
    longest = lengths(parent, step).max(axis=1)
    return round(float(longest.max(initial=0.0)), 9), round(float(longest.sum()), 6)


def _exchange(parent: I64, step: F64, rank: int) -> None:
    """Let the trees exchange the arcs by which they enter a rank, in place."""
    from scipy.optimize import linear_sum_assignment

    trees = np.flatnonzero(parent[:, rank] != rank)
    own = parent[trees]
    way, below = lengths(own, step), is_below(own, rank)
    after = np.where(below, way - way[:, [rank]], 0.0).max(axis=1)
    sender = own[:, rank]
    length = way[:, sender] + step[sender, rank][None] + after[:, None]
    cost = np.where(below[:, sender], _CLOSED, length**_POWER)
    row, arc = linear_sum_assignment(cost)
    if cost[row, arc].max(initial=0.0) < _CLOSED:
        parent[trees[row], rank] = sender[arc]


def is_below(parent: I64, rank: int) -> Bool:
    """Return [..., N] whether each rank comes after the given one in each tree of [..., N] parents; the rank itself counts."""
    found = np.zeros(parent.shape, np.bool_)
    found[..., rank] = True
    while True:
        more = found | np.take_along_axis(found, parent, axis=-1)
        if np.array_equal(more, found):
            return found
        found = more
