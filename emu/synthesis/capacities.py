"""The best throughput of trees by maximum flows, and whole capacities in which whole trees of that throughput can be packed.

Every rank r is the root of `shares[r]` trees a unit of time. They can be packed if from a super source, which sends each root
its trees, all of them flow to every rank (Edmonds 1973; Zhao et al., ForestColl, 2024, arXiv 2402.06787, section 5). The set of
nodes that holds most back is found by Newton's method on the ratio (Dinkelbach 1967). Nodes are numbered ranks first, then
switches. Letters: V nodes, N ranks, k trees of a share.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

import numpy as np

from emu.arrays import I64, Bool
from emu.synthesis.hops import HopNetwork
from emu.synthesis.max_flow import first_short, source_side

_BISECTIONS = 12  # halvings of the interval in which the least scale lies, if capacities are not whole multiples
_TRIED = 6  # numbers of trees that are tried then


@dataclass(frozen=True, eq=False, slots=True)
class CapacityNetwork:
    """The nodes and arcs of hops as a dense matrix of capacities, ranks first."""

    n_ranks: int
    capacity: I64  # [V, V] bytes per second, from each node to each other
    node: I64  # [V] the node of the topology
    unit: int  # bytes per second of which the bandwidth of every link is a multiple

    @property
    def n_nodes(self) -> int:
        """The number of nodes, V."""
        return len(self.node)

    def back(self) -> "CapacityNetwork":
        """Return the network with every arc turned round."""
        return CapacityNetwork(self.n_ranks, np.ascontiguousarray(self.capacity.T), self.node, self.unit)


@dataclass(frozen=True, eq=False, slots=True)
class WholeCapacities:
    """Whole capacities in which `trees` trees of each share can be packed; a unit carries 1 / trees of a share."""

    trees: int
    capacity: I64  # [V, V]
    time: Fraction  # units of time, of a second for a byte of each share


def capacity_network(hops: HopNetwork) -> CapacityNetwork:
    """Return the network of the links that hops cross; bandwidths are rounded down to whole bytes per second.

    Every link between nodes that hops pass is counted, too, if one of them is a switch: a router that picks ways by a hash
    takes each of them at times.
    """
    crossed = np.zeros(len(hops.capacity_Bps), np.bool_)
    crossed[hops.link] = True
    node = np.concatenate((hops.npus, np.setdiff1d(np.stack([ends[crossed] for ends in hops.ends]), hops.npus)))
    index = np.full(hops.n_nodes, -1)
    index[node] = np.arange(len(node))
    src, dst = (index[ends] for ends in hops.ends)
    used = np.flatnonzero(crossed | ((src >= 0) & (dst >= 0) & (np.maximum(src, dst) >= hops.n_ranks)))
    ends = np.stack((src[used], dst[used]))
    capacity = np.zeros((len(node), len(node)), np.int64)
    rate = hops.capacity_Bps[used].astype(np.int64)
    np.add.at(capacity, tuple(ends), rate)
    return CapacityNetwork(hops.n_ranks, capacity, node, int(np.gcd.reduce(rate)))


def with_source(capacity: I64, given: I64) -> I64:
    """Return the capacities with one node more, the last, which sends `given` [N] to the ranks."""
    n = len(capacity)
    found = np.zeros((n + 1, n + 1), np.int64)
    found[:n, :n] = capacity
    found[n, : len(given)] = given
    return found


def suffices(capacity: I64, given: I64) -> bool:
    """Return whether all that the super source gives the ranks, `given` [N], can flow to each of them."""
    return first_short(with_source(capacity, given), np.arange(len(given)), len(capacity), int(given.sum())) < 0


def best_time(net: CapacityNetwork, shares: I64) -> Fraction:
    """Return the least time in which trees spread `shares` [N] bytes of each rank to all ranks: the worst ratio of a cut.

    The result is in seconds.
    """
    unit = int(np.gcd.reduce(net.capacity, axis=None))
    capacity = net.capacity // unit
    others, into = int(shares.sum()) - shares, capacity.sum(axis=0)[: net.n_ranks]
    needs = [(int(need), int(most)) for need, most in zip(others, into, strict=True) if need]  # a lone root needs nothing
    time = max(Fraction(*each) for each in needs)  # so that flows stay small
    for sink in range(net.n_ranks):
        while True:
            scaled = with_source(capacity * time.numerator, shares * time.denominator)
            inside = source_side(scaled, net.n_nodes, sink, int(shares.sum()) * time.denominator)
            if inside is None:
                break
            worse = _ratio(capacity, shares, inside[:-1])
            if worse <= time:
                break
            time = worse
    return time / unit


def _ratio(capacity: I64, shares: I64, inside: Bool) -> Fraction:
    """Return the shares of the ranks in a set of nodes over the capacity out of it."""
    return Fraction(int(shares[inside[: len(shares)]].sum()), int(capacity[inside][:, ~inside].sum()))


def whole_capacities(net: CapacityNetwork, shares: I64, most: int) -> WholeCapacities:
    """Return whole capacities for at most `most` trees of each share, in as little time as is found.

    If the best time needs more trees, capacities are rounded down for some numbers of trees, and the best of these is taken.
    """
    time = best_time(net, shares)
    exact = time.denominator // gcd(time.denominator, time.numerator * net.unit)  # so that parallel links carry whole trees
    if exact <= most:
        return _scaled(net, exact, exact * time)
    return min(_rounded(net, shares, time, most), key=lambda found: found.time)


def _scaled(net: CapacityNetwork, trees: int, scale: Fraction) -> WholeCapacities:
    """Return the capacities times `scale`, rounded down."""
    whole = [int(c) * scale.numerator // scale.denominator for c in net.capacity.ravel()]
    return WholeCapacities(trees, np.array(whole, np.int64).reshape(net.capacity.shape), scale / trees)


def _rounded(net: CapacityNetwork, shares: I64, time: Fraction, most: int) -> Iterator[WholeCapacities]:
    """Yield the capacities of several numbers of trees, each for the least scale at which they suffice when rounded down."""
    for trees in sorted({max(1, most * i // _TRIED) for i in range(1, _TRIED + 1)}):
        low, high = 1.0, 1.0
        while not suffices(_scaled(net, trees, Fraction(high) * trees * time).capacity, shares * trees):
            low, high = high, high * 1.25
        for _ in range(_BISECTIONS if high > 1 else 0):
            middle = (low + high) / 2
            if suffices(_scaled(net, trees, Fraction(middle) * trees * time).capacity, shares * trees):
                high = middle
            else:
                low = middle
        yield _scaled(net, trees, Fraction(high) * trees * time)
