"""The cuts that limit a collective, by maximum flows: the least between two nodes, and the set that has most to send.

The second is max over S of |S ∩ ranks| / capacity out of S, S without one of the sinks: Newton's method on the ratio
(Dinkelbach, On nonlinear fractional programming, Management Science 13 (1967)), a maximum flow a step.
Source: Zhao et al., ForestColl: Throughput-optimal collective communications on heterogeneous network fabrics, 2024,
arXiv 2402.06787. V nodes, A arcs.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from emu.arrays import I64, Bool
from emu.bound.network import Network, sums

_MOST = 2**30 - 1  # of a flow: scipy counts in 32 bits, and what could still flow may be twice this


@dataclass(frozen=True, eq=False, slots=True)
class Cut:
    """A set of nodes, and what it has to send against what leaves it."""

    inside: Bool  # [V]
    ratio: Fraction  # blocks per unit of capacity


def best_of(cuts: list[Cut]) -> Cut:
    """The first of those that have most to send."""
    return max(cuts, key=lambda cut: cut.ratio)


def least_cut(net: Network, source: int, sink: int) -> Cut:
    """The set with the source and without the sink that least capacity leaves; it has one block to send."""
    _, inside = _flow(net.n_nodes, (net.src, net.dst, net.capacity), source, sink)
    return Cut(inside, Fraction(1, net.out_of(inside)))


def densest(net: Network, sinks: I64) -> Cut:
    """The set, without some sink, whose ranks have most blocks to send, one each, for the capacity that leaves it.

    Args:
        net: At least two ranks in it.
        sinks: Nodes that hold a rank.
    """
    best = best_of([_all_but(net, int(sink)) for sink in sinks])
    for sink in sinks:
        denser = _denser(net, int(sink), best.ratio)
        while denser is not None and denser.ratio > best.ratio:
            best = denser
            denser = _denser(net, int(sink), best.ratio)
    return best


def sending(net: Network, inside: Bool) -> Cut:
    """A set of nodes, with a block of each of its ranks to send."""
    return Cut(inside, Fraction(int(net.has_rank[inside].sum()), net.out_of(inside)))


def _all_but(net: Network, sink: int) -> Cut:
    return sending(net, np.arange(net.n_nodes) != sink)


def _denser(net: Network, sink: int, ratio: Fraction) -> Cut | None:
    """A set without the sink that has more to send than `ratio`, if there is one.

    Every rank is given what one block needs of capacity, `1 / ratio`; where not all of it can flow to the sink, the set
    that holds it back is denser. Both are multiplied by the ratio's numerator, so that they are whole.
    """
    source = net.n_nodes
    given = np.full(len(net.ranks), ratio.denominator)
    src = np.concatenate((net.src, np.full(len(net.ranks), source)))
    dst = np.concatenate((net.dst, net.ranks))
    wanted = len(net.ranks) * ratio.denominator
    through = np.minimum(net.capacity, wanted // ratio.numerator + 1) * ratio.numerator
    flow, inside = _flow(source + 1, (src, dst, np.concatenate((through, given))), source, sink)
    inside = inside[:source]
    if flow >= wanted or not inside.any():
        return None
    return sending(net, inside)


def _flow(n_nodes: int, arcs: tuple[I64, I64, I64], source: int, sink: int) -> tuple[int, Bool]:
    """The greatest flow, and the nodes that more could still reach.

    Capacities beyond what scipy counts to are divided and rounded up: the set is then nearly the least cut, and what it is
    worth is counted exactly elsewhere.
    """
    src, dst, capacity = arcs
    most = int(min(sums(src, capacity, n_nodes)[source], sums(dst, capacity, n_nodes)[sink]))
    unit = most // _MOST + 1
    whole = -(-np.minimum(capacity, most + 1) // unit)
    graph = csr_array((whole.astype(np.int32), (src, dst)), shape=(n_nodes, n_nodes))
    found = maximum_flow(graph, source, sink)
    left = csr_array(graph - found.flow)
    left.eliminate_zeros()
    inside = np.zeros(n_nodes, np.bool_)
    inside[breadth_first_order(left, source, return_predecessors=False)] = True
    return int(found.flow_value) * unit, inside


def parting(net: Network, ranks: Bool) -> Cut:
    """The set with some nodes [V] that hold ranks, without the other ranks, that least capacity leaves; one block to send."""
    source, sink = net.n_nodes, net.n_nodes + 1
    starts, ends = np.flatnonzero(ranks), np.flatnonzero(net.has_rank & ~ranks)
    src = np.concatenate((net.src, np.full(len(starts), source), ends))
    dst = np.concatenate((net.dst, starts, np.full(len(ends), sink)))
    # One more than what can leave or come, so that those arcs are never full and both ends stay on their sides.
    capacity = np.concatenate((net.capacity, net.leaving[starts] + 1, net.back().leaving[ends] + 1))
    _, inside = _flow(net.n_nodes + 2, (src, dst, capacity), source, sink)
    return Cut(inside[: net.n_nodes], Fraction(1, net.out_of(inside[: net.n_nodes])))
