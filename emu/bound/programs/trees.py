"""The least time of an all_reduce by trees: a piece is added along a tree to its root, and copied along a tree from it.

A linear program divides the capacity of every hop between the two. Trees of rate y with given roots can be packed if and only
if a flow of the sum of y reaches each rank (Edmonds, Edge-disjoint branchings, 1973). A hop joins two ranks over links and
switches, which pass on and do not add or copy. The result is no bound on schedules that are not trees. Source, on packing: Zhao
et al., ForestColl, 2024, arXiv 2402.06787. Letters: P hops, A arcs, N ranks, R ranks of different kinds.
"""

from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
from scipy.sparse import csr_array, eye_array

from emu.arrays import F64, I64, column
from emu.bound.network import Network
from emu.bound.programs.flows import block_diagonal, conservation, loads, solve, stacked
from emu.bound.symmetry import Symmetry


@dataclass(frozen=True, eq=False, slots=True)
class _Hops:
    """The pairs of ranks that a tree may join, as a network of their own."""

    net: Network
    kind: I64  # [P] kind of each hop


def size_of(net: Network, symmetry: Symmetry) -> int:
    """Return about how many variables the linear program has."""
    n_hops = len(net.src) if net.has_rank.all() else len(net.ranks) * (len(net.ranks) - 1)
    return len(symmetry.ranks) * (2 * n_hops + len(net.src))


def all_reduce_by_trees(net: Network, symmetry: Symmetry) -> float:
    """Return the time of an all_reduce by the best trees, if each rank's buffer is one block.

    Trees to each rank add up the buffers, and trees from each rank spread the sum; the block is divided over all these trees.
    The time is in blocks per unit of capacity; `Network.seconds` turns it into seconds for each byte of the buffer.
    """
    hops = _hops(net, symmetry)
    n_kinds, n_sources, n_hops = int(hops.kind.max()) + 1, len(symmetry.ranks), len(hops.kind)
    widths = (n_sources, n_kinds, n_kinds, n_sources * n_hops, n_sources * n_hops, n_sources * len(net.src))
    equal = _conservation_rows(net, symmetry, hops, widths)
    at_most, most = _at_most(net, symmetry, hops, widths)
    cost = np.zeros(sum(widths))
    cost[:n_sources] = -symmetry.ranks_alike.astype(np.float64)
    found = solve(cost, (at_most, most), (equal, np.zeros(equal.shape[0]))).x
    return 1 / float(-cost @ found)


def _hops(net: Network, symmetry: Symmetry) -> _Hops:
    """Return the hops of trees: the arcs, or all pairs of ranks where nodes without ranks lie between them."""
    if net.has_rank.all():
        src, dst = net.src, net.dst
    else:
        src, dst = (column(c, np.int64) for c in np.array(list(permutations(np.sort(net.ranks).tolist(), 2))).T)
    return _Hops(replace(net, src=src, dst=dst), symmetry.pair_kind(src, dst))


def _row(blocks: dict[int, csr_array], widths: tuple[int, ...]) -> list[csr_array]:
    """Return the blocks of one row of the program, by their variables: y, out-trees, in-trees, their flows, the routes."""
    height = next(iter(blocks.values())).shape[0]
    return [blocks.get(place, csr_array((height, width))) for place, width in enumerate(widths)]


def _conservation_rows(net: Network, symmetry: Symmetry, hops: _Hops, widths: tuple[int, ...]) -> csr_array:
    """Return the rows that say that flow goes on where it does not begin or end.

    They cover the trees to and from each rank, and the routes of the hops.
    """
    kept = [conservation(hops.net, int(node)) for node in symmetry.ranks]
    balance = block_diagonal([rows for rows, _ in kept])
    rooted = csr_array(np.concatenate([_root_marks(net, symmetry, nodes) for _, nodes in kept]))
    routed = [conservation(net, int(node)) for node in symmetry.ranks]
    carried = csr_array(
        np.concatenate(
            [_hop_kinds(hops, int(u), nodes, widths[1]) for u, (_, nodes) in zip(symmetry.ranks, routed, strict=True)]
        )
    )
    return stacked(
        [
            _row({0: rooted, 3: balance}, widths),
            _row({0: -rooted, 4: balance}, widths),
            _row({1: -carried, 2: -carried, 5: block_diagonal([rows for rows, _ in routed])}, widths),
        ]
    )


def _root_marks(net: Network, symmetry: Symmetry, nodes: I64) -> F64:
    """Return [nodes, R] 1 where a node has a rank of that kind, and so is a root of its trees."""
    found = np.zeros((len(nodes), len(symmetry.ranks)))
    at = np.flatnonzero(net.has_rank[nodes])
    found[at, symmetry.rank_kind[nodes[at]]] = 1
    return found


def _hop_kinds(hops: _Hops, source: int, nodes: I64, n_kinds: int) -> F64:
    """Return [nodes, kinds] 1 where the hop from the source to a node is of that kind."""
    found = np.zeros((len(nodes), n_kinds))
    at = np.flatnonzero(hops.net.src == source)
    found[np.searchsorted(nodes, hops.net.dst[at]), hops.kind[at]] = 1
    return found


def _at_most(net: Network, symmetry: Symmetry, hops: _Hops, widths: tuple[int, ...]) -> tuple[csr_array, F64]:
    """Return the rows, with their limits, that keep flows within their trees' shares of hops and all hops within the links."""
    n_flows = widths[3]
    of_kind = csr_array((np.ones(n_flows), (np.arange(n_flows), np.tile(hops.kind, len(symmetry.ranks)))), (n_flows, widths[1]))
    load, capacity = loads(net, symmetry)
    one = csr_array(eye_array(n_flows))
    rows = [_row({1: -of_kind, 3: one}, widths), _row({2: -of_kind, 4: one}, widths), _row({5: load}, widths)]
    return stacked(rows), np.concatenate((np.zeros(2 * n_flows), capacity))
