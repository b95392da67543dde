"""The cuts that limit a collective, by maximum flows: the least between two nodes, and the set that has most to send.

The second is max over S of |S ∩ ranks| / capacity out of S, S without one of the sinks: Newton's method on the ratio
(Dinkelbach, On nonlinear fractional programming, Management Science 13 (1967)), a maximum flow a step.
Source: Zhao et al., ForestColl: Throughput-optimal collective communications on heterogeneous network fabrics, 2024,
arXiv 2402.06787. V nodes, A arcs.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from emu.arrays import I64, Bool, column
from emu.bound.network import Network
from emu.topology.facts import flow
from emu.topology.facts.flow import Arcs


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
    nodes = np.arange(net.n_nodes)
    return _between(net, nodes == source, nodes == sink)


def parting(net: Network, ranks: Bool) -> Cut:
    """The set with some nodes [V] that hold ranks, without the other ranks, that least capacity leaves; one block to send."""
    return _between(net, ranks, net.has_rank & ~ranks)


def _between(net: Network, source: Bool, sink: Bool) -> Cut:
    inside = flow.least_cut(Arcs(net.src, net.dst, net.capacity), source, sink)
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
    source, wanted = net.n_nodes, len(net.ranks) * ratio.denominator
    given = np.full(len(net.ranks), ratio.denominator)
    through = np.minimum(net.capacity, wanted // ratio.numerator + 1) * ratio.numerator
    ends = (net.src, np.full(len(net.ranks), source)), (net.dst, net.ranks)
    arcs = Arcs(*(column(np.concatenate(parts), np.int64) for parts in (*ends, (through, given))))
    nodes = np.arange(source + 1)
    inside = flow.least_cut(arcs, nodes == source, nodes == sink)
    if arcs.leaving(inside) >= wanted or not inside[:source].any():
        return None
    return sending(net, inside[:source])
