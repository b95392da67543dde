"""Cheap trees that join ranks over hops, and pass switches that add only where that is cheaper.

A tree grows from its root: the rank that is the nearest to it joins it by the cheapest way, again and again. Source: Takahashi
and Matsuyama, An approximate solution for the Steiner problem in graphs, Math. Japonica 24 (1980). Letters: P ranks and
switches, H hops.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.compiled.function import BOOL_OUT, F64_OUT, I64_OUT, compiled


class DirectedHops(NamedTuple):
    """The hops in the direction from a root to the others: as they lead, or turned round for a tree that leads to its root."""

    start: I64  # [P + 1] where the hops out of each node begin in `order`
    order: I64  # [H] hops
    begin: I64  # [H] the node that is nearer to the root
    end: I64  # [H]

    @staticmethod
    def of(src: I64, dst: I64, n: int, *, inward: bool) -> "DirectedHops":
        """Return the hops among n nodes, turned round if they are inward."""
        begin, end = (dst, src) if inward else (src, dst)
        start = np.concatenate(([0], np.cumsum(np.bincount(begin, minlength=n))))
        return DirectedHops(start, np.argsort(begin, kind="stable"), begin, end)


class _Growth(NamedTuple):
    """The state of a tree that grows."""

    away: F64_OUT  # [P] the price of the cheapest way from the tree to each node
    by: I64_OUT  # [P] the hop by which that way reaches it; -1: it is the root, or none does
    joined: BOOL_OUT  # [P] whether it is in the tree
    queue: I64_OUT  # [P] a ring of nodes whose price has fallen
    waits: BOOL_OUT  # [P] whether a node is in the queue


@compiled
def _spread(hops: DirectedHops, price: F64, state: _Growth, n: int) -> None:
    """Spread lower prices from the first n nodes of the queue over the hops, until none falls."""
    size, first = len(state.queue), 0
    while n > 0:
        a = state.queue[first]
        first, n = (first + 1) % size, n - 1
        state.waits[a] = False
        for i in range(hops.start[a], hops.start[a + 1]):
            h = hops.order[i]
            b, cost = hops.end[h], state.away[a] + price[h]
            if cost < state.away[b]:
                state.away[b], state.by[b] = cost, h
                if not state.waits[b]:
                    state.waits[b] = True
                    state.queue[(first + n) % size] = b
                    n += 1


@compiled
def _nearest(state: _Growth, n: int) -> int:
    """Return the first of the nearest of the first n nodes that are not in the tree; -1: all are in it, or out of reach."""
    best = -1
    for v in range(n):
        if not state.joined[v] and state.away[v] < np.inf and (best < 0 or state.away[v] < state.away[best]):
            best = v
    return best


@compiled
def _join(hops: DirectedHops, state: _Growth, v: int) -> int:
    """Take the cheapest way to a node into the tree, and return the number of nodes that joined, which are in the queue."""
    n = 0
    while not state.joined[v]:
        state.joined[v], state.away[v] = True, 0.0
        state.waits[v], state.queue[n] = True, v
        n += 1
        v = hops.begin[state.by[v]]
    return n


@compiled
def _grow(hops: DirectedHops, price: F64, state: _Growth, root: int, n: int) -> bool:
    """Grow a tree from a root until it has the first n nodes; return whether all can be reached."""
    for v in range(len(state.away)):
        state.away[v], state.by[v] = np.inf, -1
        state.joined[v], state.waits[v] = False, False
    state.away[root], state.joined[root] = 0.0, True
    state.waits[root], state.queue[0] = True, root
    _spread(hops, price, state, 1)
    v = _nearest(state, n)
    while v >= 0:
        _spread(hops, price, state, _join(hops, state, v))
        v = _nearest(state, n)
    missing = 0
    for v in range(n):
        missing += not state.joined[v]
    return missing == 0


def steiner_tree(hops: DirectedHops, price: F64, root: int, n: int) -> I64 | None:
    """Return [P] the hop by which a cheap tree reaches each node; -1: the root, or a node that is not in it.

    Args:
        hops: The hops.
        price: [H] what each hop costs, above 0.
        root: The root.
        n: The number of ranks, which are the first nodes and all have to be in the tree.

    Returns:
        The hops, or None if a rank is out of reach.
    """
    size = len(hops.start) - 1
    none = np.zeros(size, np.bool_)
    state = _Growth(np.zeros(size), np.zeros(size, np.int64), none, np.zeros(size, np.int64), none.copy())
    if not _grow(hops, price, state, root, n):
        return None
    return np.where(state.joined, state.by, -1)
