"""An all_reduce by trees to the roots and trees from them at the same time: a linear program divides links and roots.

Each root adds up a share of the buffer along trees that lead to it, and spreads the sum along trees that lead from it. The
program gives each root a rate, and every link a part for either kind of trees. A switch lets out as much of each kind as it
lets in, so that it can be split off. The rates become whole numbers of trees. Letters: N ranks, V nodes, A arcs, K trees in
all.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from emu.arrays import F64, I64, column
from emu.synthesis.capacities import CapacityNetwork, suffices

_MOST = 2**15  # the largest number of variables
_TINY = 1e-6  # of a tree: what lies between a whole number and a rate that should be one
_GAIN = 1.02  # times the rate of both halves in a row; a smaller gain is left


@dataclass(frozen=True, eq=False, slots=True)
class DividedTrees:
    """Whole capacities for trees to the roots and for trees from them, and the number of trees of each root."""

    given: I64  # [N]
    inward: I64  # [V, V] capacities in the direction of messages, for trees that lead to the roots
    outward: I64  # [V, V]
    slowness: float  # seconds in which the busiest link carries its trees, for a byte of the buffer


def divide(net: CapacityNetwork, most: int, in_a_row: float) -> DividedTrees | None:
    """Return links and roots divided for an all_reduce; None if both halves in a row are nearly as fast, or it is too large.

    Args:
        net: The network of hops.
        most: The largest number of trees in all.
        in_a_row: Seconds that both halves take in a row for a byte of the buffer.
    """
    src, dst = (column(ends, np.int64) for ends in np.nonzero(net.capacity))
    if 2 * net.n_ranks * len(src) > _MOST or net.n_ranks < 2:
        return None
    rate, parts = _solved(net, src, dst)
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


def _solved(net: CapacityNetwork, src: I64, dst: I64) -> tuple[F64, F64]:
    """Return [N] the rate of each root in bytes per second, and [2, A] the part of each arc for trees to and from roots."""
    from scipy.optimize import linprog
    from scipy.sparse import block_array, coo_array, csr_array, eye_array, hstack, vstack

    n, arcs = net.n_ranks, len(src)
    unit = float(net.capacity.max())
    arc = np.arange(arcs)
    into = coo_array((np.ones(arcs), (dst, arc)), (net.n_nodes, arcs)).tocsr()
    out = coo_array((np.ones(arcs), (src, arc)), (net.n_nodes, arcs)).tocsr()
    leaves = csr_array(coo_array((np.ones(n), (np.arange(n), np.arange(n))), (net.n_nodes, n)))
    equal, fits, n_flows = list[list[object]](), list[list[object]](), 2 * n
    for number, (way, rank) in enumerate(product((1, 0), range(n))):
        kept = np.delete(np.arange(net.n_nodes), rank)
        flow = csr_array((into - out)[kept]) if way == 0 else csr_array((out - into)[kept])
        place: list[object] = [None] * n_flows
        place[number] = flow
        equal.append([leaves[kept], csr_array((len(kept), 2 * arcs)), *place])
        below: list[object] = [None] * n_flows
        below[number] = eye_array(arcs)
        own = hstack(
            [
                -eye_array(arcs) if way == 1 else csr_array((arcs, arcs)),
                -eye_array(arcs) if way == 0 else csr_array((arcs, arcs)),
            ]
        )
        fits.append([csr_array((arcs, n)), own, *below])
    switch = csr_array((into - out)[n:])
    none = csr_array((switch.shape[0], n_flows * arcs))
    pass_on = [hstack([csr_array((switch.shape[0], n)), *pair, none]) for pair in ((switch, 0 * switch), (0 * switch, switch))]
    shared = hstack([csr_array((arcs, n)), eye_array(arcs), eye_array(arcs), csr_array((arcs, n_flows * arcs))])
    at_most = vstack([block_array(fits), shared])
    most = np.concatenate((np.zeros(n_flows * arcs), net.capacity[src, dst] / unit))
    cost = np.zeros(at_most.shape[1])
    cost[:n] = -1
    rows = vstack([block_array(equal), *pass_on]) if switch.shape[0] else block_array(equal)
    found = linprog(cost, A_ub=at_most, b_ub=most, A_eq=rows, b_eq=np.zeros(rows.shape[0]), method="highs").x * unit
    return np.maximum(found[:n], 0), np.maximum(found[n : n + 2 * arcs], 0).reshape(2, arcs)


def _whole(net: CapacityNetwork, ends: tuple[I64, I64], rate: F64, parts: F64) -> DividedTrees | None:
    """Return whole numbers of trees and whole capacities near given ones; None if the trees do not fit these."""
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
