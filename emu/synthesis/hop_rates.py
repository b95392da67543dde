"""Forests on the ways that a router offers: a linear program divides links among hops, and trees are packed in their rates.

Where messages cross several switches, capacity that is split off pair by pair may lie on ways that the router does not take.
Here every hop gets a rate, so that all hops together fit the links, and all that the roots spread can flow to every rank over
the sums of the rates of each pair. Trees are packed in these sums, and each pair's trees are put on its hops by their rates.
It is for small networks, as the program has a flow to every rank. Letters: N ranks, U trees, H hops, P pairs that hops join.
"""

from typing import TYPE_CHECKING

import numpy as np

from emu.arrays import F64, I64
from emu.synthesis.capacities import CapacityNetwork, whole_capacities
from emu.synthesis.forest import Forest, forest_in
from emu.synthesis.hops import HopNetwork
from emu.synthesis.programs import solve_in_time
from emu.synthesis.relief import relieve
from emu.synthesis.splitting import Tick

if TYPE_CHECKING:  # it takes long to load
    from scipy.sparse import csr_array

_MOST = 2**15  # flows of a program: pairs of ranks that hops join, times the ranks
_GRAIN_BPS = 1000  # rates are rounded down to multiples of it, as a solver's digits end somewhere


def forest_by_rates(hops: HopNetwork, shares: I64, most: int, tick: Tick, *, inward: bool) -> Forest | None:
    """Return a forest whose hops carry what a linear program gives them, or nearly so; None if the program is too large.

    Args:
        hops: The hops between ranks.
        shares: [N] the blocks of each rank: 1 or 0.
        most: The largest number of units of a block.
        tick: It is called before each step; it raises an error when the time is over.
        inward: Whether trees lead to their roots.
    """
    src, dst = (hops.dst, hops.src) if inward else (hops.src, hops.dst)
    pair, of = np.unique(src * hops.n_ranks + dst, return_inverse=True)
    if len(pair) * hops.n_ranks > _MOST:
        return None
    rate_Bps = _rates(hops, (pair, of), shares, tick)
    capacity = np.zeros(hops.n_ranks**2, np.int64)
    capacity[pair] = np.bincount(of, rate_Bps).astype(np.int64) // _GRAIN_BPS * _GRAIN_BPS
    net = CapacityNetwork(hops.n_ranks, capacity.reshape(hops.n_ranks, -1), hops.npus, _GRAIN_BPS)
    whole = whole_capacities(net, shares, most)
    packed = forest_in(hops, net, (whole.capacity, shares * whole.trees), tick, inward=inward)
    hop = _by_rate(packed, (pair, of), rate_Bps * (float(whole.time) * whole.trees))
    parent, hop = relieve(hops, packed.parent, hop, tick, inward=inward)
    return Forest(packed.root, parent, hop, inward)


def _rates(hops: HopNetwork, pairs: tuple[I64, I64], shares: I64, tick: Tick) -> F64:
    """Return [H] the rate of each hop in bytes per second, with which the roots spread most.

    The variables are the rates, what each root spreads, and a flow over the pairs to each rank.

    Args:
        hops: The hops.
        pairs: [P] pairs as numbers, and [H] the index of the pair of each hop.
        shares: [N] the blocks of each rank.
        tick: It tells how many seconds are left.
    """
    from scipy.sparse import csr_array, eye_array, hstack, kron, vstack

    (pair, of), n, unit = pairs, hops.n_ranks, float(hops.capacity_Bps[hops.link].max())
    count, every = len(pair), np.arange(len(of))
    used, row = np.unique(hops.link, return_inverse=True)
    crossed = np.repeat(every, np.diff(hops.start))
    load = csr_array((np.ones(len(crossed)), (row, crossed)), shape=(len(used), len(every)))
    of_pair = csr_array((np.ones(len(every)), (of, every)), shape=(count, len(every)))
    flows, conserved = eye_array(n * count), _conserved(pair, shares)
    fits = [
        hstack([load, csr_array((len(used), 1 + n * count))]),
        hstack([-kron(np.ones((n, 1)), of_pair), csr_array((n * count, 1)), flows]),
    ]
    room = np.concatenate((hops.capacity_Bps[used] / unit, np.zeros(n * count)))
    equal = hstack([csr_array((conserved.shape[0], len(every))), conserved])
    cost = np.zeros(equal.shape[1])
    cost[len(every)] = -1
    found = solve_in_time(tick, cost, (csr_array(vstack(fits)), room), (csr_array(equal), np.zeros(equal.shape[0])))
    return np.asarray(np.maximum(found.x[: len(every)], 0.0) * unit)


def _conserved(pair: I64, shares: I64) -> "csr_array":
    """Return the rows that conserve the flows to all ranks, over what each root spreads and the flows [N P].

    Args:
        pair: [P] pairs as numbers.
        shares: [N] the blocks of each rank; a rank gets none of its own.
    """
    from scipy.sparse import block_diag, csr_array, hstack, vstack

    n, every, ones = len(shares), np.arange(len(pair)), np.ones(len(pair))
    out, into = (csr_array((ones, (ends, every)), shape=(n, len(pair))) for ends in (pair // n, pair % n))
    others = [np.delete(np.arange(n), sink) for sink in range(n)]
    spread = vstack([csr_array(-shares[ranks].astype(np.float64)[:, None]) for ranks in others])
    return csr_array(hstack([spread, block_diag([(out - into)[ranks] for ranks in others])]))


def _by_rate(forest: Forest, pairs: tuple[I64, I64], trees: F64) -> I64:
    """Return [U, N] the hop between each rank and its parent: of its pair the one of whose trees most are left.

    Args:
        forest: The forest.
        pairs: See `_rates`.
        trees: [H] the number of trees that each hop carries by its rate; not a whole number.
    """
    (pair, of), left, n = pairs, trees.copy(), forest.n_ranks
    hops_of = np.split(np.argsort(of, kind="stable"), np.cumsum(np.bincount(of))[:-1])
    found = forest.hop.copy()
    for tree, rank in zip(*np.nonzero(forest.hop >= 0), strict=True):
        own = hops_of[int(np.searchsorted(pair, forest.parent[tree, rank] * n + rank))]
        best = own[np.argmax(left[own])]
        left[best] -= 1
        found[tree, rank] = best
    return found
