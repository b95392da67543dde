"""The cuts that limit a collective, found by maximum flows: the least between two nodes, and the set with most to send.

The set with most to send has the largest |S ∩ ranks| / capacity out of S, over all S without some sink. It is found by Newton's
method on the ratio (Dinkelbach, On nonlinear fractional programming, Management Science 13 (1967)), one maximum flow a step.
Source: Zhao et al., ForestColl: Throughput-optimal collective communications on heterogeneous network fabrics, 2024,
arXiv 2402.06787. Letters: V nodes, A arcs.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from emu.arrays import I64, Bool, column
from emu.bound.network import Network
from emu.topology.facts import flow
from emu.topology.facts.flow import Arcs


@dataclass(frozen=True, eq=False, slots=True)
class NetworkCut:
    """A set of nodes, with the ratio of what it has to send to the capacity that leaves it."""

    inside: Bool  # [V] whether each node is in the set
    ratio: Fraction  # blocks per unit of capacity


def largest_cut(cuts: list[NetworkCut]) -> NetworkCut:
    """Return the first of the cuts that have the largest ratio."""
    return max(cuts, key=lambda cut: cut.ratio)


def reverse_cut(cut: NetworkCut) -> NetworkCut:
    """Return a cut of the network turned round as a cut of the network itself."""
    return NetworkCut(~cut.inside, cut.ratio)


def cut_from(net: Network, source: int) -> NetworkCut:
    """Return the set with the source, and without some other rank, that the least capacity leaves; it sends one block."""
    nodes = np.arange(net.n_nodes)
    return largest_cut([least_cut(net, nodes == source, nodes == rank) for rank in net.ranks if rank != source])


def separating_cut(net: Network, ranks: Bool) -> NetworkCut:
    """Return the set with some ranks, given by their nodes [V], and no other ranks, that the least capacity leaves.

    It has one block to send.
    """
    return least_cut(net, ranks, net.has_rank & ~ranks)


def least_cut(net: Network, source: Bool, sink: Bool) -> NetworkCut:
    """Return the cut between some source and some sink nodes that the least capacity leaves; it has one block to send."""
    inside = flow.least_cut(Arcs(net.src, net.dst, net.capacity), source, sink)
    return NetworkCut(inside, Fraction(1, net.out_of(inside)))


def densest_cut(net: Network, sinks: I64) -> NetworkCut:
    """Return the set, without some sink, with the largest ratio, where each of its ranks has one block to send.

    Args:
        net: A network with at least two ranks.
        sinks: Nodes with a rank.
    """
    best = largest_cut([cut_of_nodes(net, np.arange(net.n_nodes) != sink) for sink in sinks])
    for sink in sinks:
        denser = _denser(net, int(sink), best.ratio)
        while denser is not None and denser.ratio > best.ratio:
            best = denser
            denser = _denser(net, int(sink), best.ratio)
    return best


def cut_of_nodes(net: Network, inside: Bool) -> NetworkCut:
    """Return a set of nodes as a cut in which each of its ranks has one block to send."""
    return NetworkCut(inside, Fraction(int(net.has_rank[inside].sum()), net.out_of(inside)))


def _denser(net: Network, sink: int, ratio: Fraction) -> NetworkCut | None:
    """Return a set without the sink whose ratio is above `ratio`; None: there is none.

    Every rank is given the capacity that one block needs, `1 / ratio`. Where not all of it can flow to the sink, the set that
    holds it back has a larger ratio. Both are multiplied by the ratio's numerator, so that they are whole numbers.
    """
    source, wanted = net.n_nodes, len(net.ranks) * ratio.denominator
    given = np.full(len(net.ranks), ratio.denominator)
    through = np.minimum(net.capacity, wanted // ratio.numerator + 1) * ratio.numerator
    ends = (net.src, np.full(len(net.ranks), source)), (net.dst, net.ranks)
    arcs = Arcs(*(column(np.concatenate(parts), np.int64) for parts in (*ends, (through, given))))
    nodes = np.arange(source + 1)
    inside = flow.least_cut(arcs, nodes == source, nodes == sink)
    if arcs.leaving(inside) >= wanted or not inside[:source].any():
        return None
    return cut_of_nodes(net, inside[:source])
