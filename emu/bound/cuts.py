"""Cuts that limit a collective: minimum cuts between nodes, the cut with the most to send, and cuts of sampled sets.

The set with most to send has the largest |S ∩ ranks| / capacity out of S, over all S without some sink. It is found by Newton's
method on the ratio (Dinkelbach, On nonlinear fractional programming, Management Science 13 (1967)), one maximum flow a step.
Source: Zhao et al., ForestColl: Throughput-optimal collective communications on heterogeneous network fabrics, 2024,
arXiv 2402.06787.

Sampled sets are one rank, all ranks but one, and the groups and halves of the NPU numbering. The blocks that such a set has to
send are counted from the operation, so that any operation is served. For an exchange among all ranks the number is known
without its N² blocks, which may be billions. Of equivalent groups one is computed. Letters: N ranks, V nodes, A arcs, B blocks,
G groups.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from emu.arrays import I64, Bool, column
from emu.bound.network import Network, NetworkKinds, sums
from emu.collective.operation import Operation
from emu.equivalence import Orbits
from emu.topology.facts import flow
from emu.topology.facts.flow import Arcs


@dataclass(frozen=True, eq=False, slots=True)
class NetworkCut:
    """A set of nodes with its ratio: the blocks that it has to send, divided by the capacity of the arcs that leave it."""

    inside: Bool  # [V] whether each node is in the set
    ratio: Fraction  # blocks per unit of capacity


def largest_cut(cuts: list[NetworkCut]) -> NetworkCut:
    """Return the cut with the largest ratio of blocks to capacity; the first of equal ones."""
    return max(cuts, key=lambda cut: cut.ratio)


def reverse_cut(cut: NetworkCut) -> NetworkCut:
    """Return the cut of the original network that corresponds to a cut of the network with all arcs reversed."""
    return NetworkCut(~cut.inside, cut.ratio)


def cut_from(net: Network, source: int) -> NetworkCut:
    """Return the cut that limits a broadcast: among the minimum cuts between the source and each other rank, the slowest.

    One block must leave the set of nodes around the source.
    """
    nodes = np.arange(net.n_nodes)
    return largest_cut([least_cut(net, nodes == source, nodes == rank) for rank in net.ranks if rank != source])


def separating_cut(net: Network, ranks: Bool) -> NetworkCut:
    """Return the minimum cut between the given ranks and all other ranks; the set has one block to send.

    Args:
        net: The network.
        ranks: [V] whether each node is one of these ranks.
    """
    return least_cut(net, ranks, net.has_rank & ~ranks)


def least_cut(net: Network, source: Bool, sink: Bool) -> NetworkCut:
    """Return the minimum cut between source nodes and sink nodes; the set has one block to send.

    Args:
        net: The network.
        source: [V] whether each node is a source.
        sink: [V] whether each node is a sink.
    """
    inside = flow.least_cut(Arcs(net.src, net.dst, net.capacity), source, sink)
    return NetworkCut(inside, Fraction(1, net.out_of(inside)))


def densest_cut(net: Network, sinks: I64) -> NetworkCut:
    """Return the set with the largest ratio that lacks at least one sink, if each rank in it has one block to send.

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
    """Return a set of nodes as a cut; each rank in the set has one block to send."""
    return NetworkCut(inside, Fraction(int(net.has_rank[inside].sum()), net.out_of(inside)))


def _denser(net: Network, sink: int, ratio: Fraction) -> NetworkCut | None:
    """Return a set of nodes without the sink whose ratio of blocks to capacity is above `ratio`, or None if there is none.

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


ALL_PAIRS = "all_to_all"  # the operation in which each rank has a block for each other rank


def sampled_cut(net: Network, net_kinds: NetworkKinds, op: Operation, dims: tuple[int, ...], *, most_sets: int) -> NetworkCut:
    """Return the cut with the largest ratio of blocks to capacity among sampled sets of ranks.

    Args:
        net: A network with at least two ranks.
        net_kinds: The kinds of its ranks and arcs.
        op: The operation whose blocks are sent.
        dims: Shape of the numbering of the NPUs.
        most_sets: The largest number of sets for which maximum flows are computed, besides single ranks.
    """
    best, both_ways = largest_cut([_single_rank(net, op, back=False), _but_one(net, op)]), net.both_ways
    for ranks in _sets(net, net_kinds, op.root, dims, most_sets):
        others, of_ranks = net.has_rank & ~ranks, ranks[net.ranks]
        there, back = _to_send(op, of_ranks), _to_send(op, ~of_ranks)
        cut = separating_cut(net, ranks) if there or (back and both_ways) else None
        if cut and there:
            best = largest_cut([best, NetworkCut(cut.inside, there * cut.ratio)])
        if back:
            turned = reverse_cut(cut) if cut and both_ways else separating_cut(net, others)
            best = largest_cut([best, NetworkCut(turned.inside, back * turned.ratio)])
    return best


def _to_send(op: Operation, inside: Bool) -> int:
    """Return the number of blocks that ranks in a set, marked by `inside` [N], have and ranks outside it want."""
    if op.name == ALL_PAIRS:
        return int(inside.sum()) * int((~inside).sum())
    held, wanted = np.zeros((2, op.n_blocks), np.bool_)
    held[op.have[inside[op.have[:, 0]], 1]] = True
    wanted[op.want[~inside[op.want[:, 0]], 1]] = True
    return int((held & wanted).sum())


def _single_rank(net: Network, op: Operation, *, back: bool) -> NetworkCut:
    """Return the single rank with the largest ratio of blocks to send to capacity.

    In a network turned round (`back`), the blocks are those that the rank gets.
    """
    amount = np.full(op.n_ranks, op.n_ranks - 1) if op.name == ALL_PAIRS else _count_blocks(op, back=back)
    leaving = np.maximum(net.leaving[net.ranks], 1)  # a rank that nothing leaves has nothing to send
    rank = int(np.argmax(amount / leaving))
    return NetworkCut(np.arange(net.n_nodes) == net.ranks[rank], Fraction(int(amount[rank]), int(leaving[rank])))


def _count_blocks(op: Operation, *, back: bool) -> I64:
    """Return [N] the number of blocks that each rank has and other ranks want.

    With `back`, it is the number of blocks that the rank wants and other ranks have.
    """
    have, want = (op.want, op.have) if back else (op.have, op.want)
    n_blocks = 1 + int(max(have[:, 1].max(), want[:, 1].max()))
    wanters = np.bincount(want[:, 1], minlength=n_blocks)
    keys, wanted = (rows[:, 0].astype(np.int64) * n_blocks + rows[:, 1] for rows in (have, want))  # ascending, as rows are
    place = np.minimum(np.searchsorted(wanted, keys), len(wanted) - 1)
    sent = wanters[have[:, 1]] > (wanted[place] == keys)
    return sums(have[sent, 0].astype(np.int64), np.ones(int(sent.sum()), np.int64), op.n_ranks)


def _but_one(net: Network, op: Operation) -> NetworkCut:
    """Return the cut of all nodes but one rank, for the rank with the most blocks to receive for its capacity."""
    return reverse_cut(_single_rank(net.back(), op, back=True))


def groups(net: Network, net_kinds: NetworkKinds, dims: tuple[int, ...]) -> Iterator[tuple[I64, Orbits]]:
    """Yield partitions of the ranks by their leading digits: [V] the group of each node (-1: none), and groups' kinds.

    Each number of leading dims is tried that gives more than one group and fewer groups than ranks.
    """
    for axis in range(1, len(dims)):
        group = np.unique(net.ranks // int(np.prod(dims[axis:])), return_inverse=True)[1].astype(np.int64)
        if 1 < group.max(initial=0) + 1 < len(net.ranks):
            of_node = np.full(net.n_nodes, -1)
            of_node[net.ranks] = group
            yield of_node, net_kinds.group_kind(of_node)


def _sets(net: Network, net_kinds: NetworkKinds, root: int, dims: tuple[int, ...], most_sets: int) -> Iterator[Bool]:
    """Yield the sets of ranks to sample, as marks of nodes [V]: groups first, then halves along a dimension."""
    found = list[Bool]()
    for group, kinds in groups(net, net_kinds, dims):
        chosen = np.union1d(kinds.first, group[net.ranks[root]])
        if len(chosen) <= most_sets - len(found):
            found += [group == one for one in chosen]
    for axis, size in enumerate(dims or (net.n_npus,)):
        lower = np.zeros(net.n_nodes, np.bool_)
        lower[net.ranks] = np.unravel_index(net.ranks, dims or (net.n_npus,))[axis] < size // 2
        found.append(lower)
    yield from (ranks for ranks in found[:most_sets] if 0 < ranks.sum() < len(net.ranks))
