"""An all_reduce by trees to the roots and trees from them at the same time: a linear program divides links and roots.

Each root adds up a share of the buffer along trees that lead to it, and spreads the sum along trees that lead from it. The
program gives each root a rate, and every link a part for either kind of trees. A switch lets out as much of each kind as it
lets in, so that it can be split off. The rates become whole numbers of trees. Letters: N ranks, V nodes, A arcs, K trees in
all.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from emu.arrays import F64, I64, column
from emu.synthesis.capacities import CapacityNetwork, suffices
from emu.synthesis.programs import solve_in_time
from emu.synthesis.splitting import Tick

_MOST = 2**13  # the largest number of variables
_TINY = 1e-6  # of a tree: what lies between a whole number and a rate that should be one
_GAIN = 1.02  # times the rate of both halves in a row; a smaller gain is left


@dataclass(frozen=True, eq=False, slots=True)
class DividedTrees:
    """Whole capacities for trees to the roots and for trees from them, and the number of trees of each root."""

    given: I64  # [N]
    inward: I64  # [V, V] capacities in the direction of messages, for trees that lead to the roots
    outward: I64  # [V, V]
    slowness: float  # seconds in which the busiest link carries its trees, for a byte of the buffer


def divide(net: CapacityNetwork, most: int, in_a_row: float, tick: Tick) -> DividedTrees | None:
    """Return links and roots divided for an all_reduce; None if both halves in a row are nearly as fast, or it is too large.

    Args:
        net: The network of hops.
        most: The largest number of trees in all.
        in_a_row: Seconds that both halves take in a row for a byte of the buffer.
        tick: It is called before the program; it raises an error when the time is over.
    """
    src, dst = (column(ends, np.int64) for ends in np.nonzero(net.capacity))
    if 2 * net.n_ranks * len(src) > _MOST or net.n_ranks < 2:
        return None
    rate, parts = _solved(net, src, dst, tick)
    if rate.sum() * in_a_row < _GAIN:
        return None
    tried = (_whole(net, (src, dst), rate / rate.sum() * trees, parts / rate.sum() * trees) for trees in range(1, most + 1))
    best: DividedTrees | None = None
    for found in tried:
        if found is not None and (best is None or found.slowness < best.slowness * (1 - _TINY)):
            best = found
            if best.slowness * rate.sum() < 1 + _TINY:
                break
    return best


def _solved(net: CapacityNetwork, src: I64, dst: I64, tick: Tick) -> tuple[F64, F64]:
    """Return [N] the rate of each root in bytes per second, and [2, A] the part of each arc for trees to and from roots.

    The variables are the rates, both parts of each arc, and for each rank a flow from it to the roots and one from these to it.
    """
    from scipy.sparse import block_array, csr_array, eye_array, hstack, vstack

    n, arcs, unit = net.n_ranks, len(src), float(net.capacity.max())
    flows = list(product((0, 1), range(n)))  # (0: to the roots, 1: from the roots), the rank
    equal = [_conserved(net, (src, dst), *flow, place) for place, flow in enumerate(flows)]
    below = []
    for place, (kind, _) in enumerate(flows):
        own = [-eye_array(arcs) if each == kind else csr_array((arcs, arcs)) for each in (0, 1)]
        below.append([csr_array((arcs, n)), hstack(own), *_at(place, eye_array(arcs), len(flows))])
    shared = hstack([csr_array((arcs, n)), eye_array(arcs), eye_array(arcs), csr_array((arcs, len(flows) * arcs))])
    at_most = vstack([block_array(below), shared])
    most = np.concatenate((np.zeros(len(flows) * arcs), net.capacity[src, dst] / unit))
    rows = vstack([block_array(equal), *_passed_on(net, src, dst, len(flows))])
    cost = np.where(np.arange(at_most.shape[1]) < n, -1.0, 0.0)
    equal_rows = csr_array(rows), np.zeros(rows.shape[0])
    found = solve_in_time(tick, cost, (csr_array(at_most), most), equal_rows, "highs").x * unit
    return np.maximum(found[:n], 0), np.maximum(found[n : n + 2 * arcs], 0).reshape(2, arcs)


def _at(place: int, block: object, count: int) -> list[object]:
    """Return a row of `count` blocks, all of which are empty but the one at a place."""
    return [block if each == place else None for each in range(count)]


def _net_inflow(net: CapacityNetwork, src: I64, dst: I64) -> Any:
    """Return [V, A] 1 where an arc enters a node and -1 where it leaves it."""
    from scipy.sparse import coo_array

    arc, ones = np.arange(len(src)), np.ones(len(src))
    shape = (net.n_nodes, len(src))
    return coo_array((ones, (dst, arc)), shape).tocsr() - coo_array((ones, (src, arc)), shape).tocsr()


def _conserved(net: CapacityNetwork, ends: tuple[I64, I64], kind: int, rank: int, place: int) -> list[object]:
    """Return the rows that conserve one flow: every other root takes in its rate (kind 0), or gives it (kind 1)."""
    from scipy.sparse import csr_array, eye_array

    n = net.n_ranks
    kept = np.delete(np.arange(net.n_nodes), rank)
    rates = csr_array(eye_array(net.n_nodes, n))[kept]
    flow = csr_array(_net_inflow(net, *ends))[kept] * (1 if kind == 1 else -1)
    return [rates, csr_array((len(kept), 2 * len(ends[0]))), *_at(place, flow, 2 * n)]


def _passed_on(net: CapacityNetwork, src: I64, dst: I64, flows: int) -> list[Any]:
    """Return the rows by which switches let out as much of each kind of trees as they let in; none without switches."""
    from scipy.sparse import csr_array, hstack

    switch = csr_array(_net_inflow(net, src, dst))[net.n_ranks :]
    if not switch.shape[0]:
        return []
    none, rest = csr_array(switch.shape), csr_array((switch.shape[0], flows * len(src)))
    rates = csr_array((switch.shape[0], net.n_ranks))
    return [hstack([rates, *pair, rest]) for pair in ((switch, none), (none, switch))]


def _whole(net: CapacityNetwork, ends: tuple[I64, I64], rate: F64, parts: F64) -> DividedTrees | None:
    """Return links and roots divided in whole numbers, near a division in fractions; None if the trees do not fit the links.

    Args:
        net: The network of hops.
        ends: [A] the sources of the arcs, and [A] their destinations.
        rate: [N] the number of trees of each root, in fractions.
        parts: [2, A] the capacity of each arc in fractions: for trees to the roots, and for trees from them.
    """
    given = np.floor(rate + _TINY).astype(np.int64)
    left = round(float(rate.sum())) - int(given.sum())
    given[np.argsort(given - rate, kind="stable")[:left]] += 1
    whole = np.zeros((2, *net.capacity.shape), np.int64)
    for found, part in zip(whole, parts, strict=True):
        found[ends] = np.ceil(part - _TINY).astype(np.int64)
    if not (suffices(np.ascontiguousarray(whole[0].T), given) and suffices(whole[1], given)):
        return None
    if (whole.sum(axis=1) != whole.sum(axis=2))[:, net.n_ranks :].any():  # a switch could not be split off
        return None
    period = float((whole.sum(axis=0)[ends] / net.capacity[ends]).max())
    return DividedTrees(given, whole[0], whole[1], period / given.sum())
