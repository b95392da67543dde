"""A bound of an exchange of all pairs that is too large for its linear program, from prices on links.

At any prices, data from one rank to another pays at least the distance in prices between them. All links together take in at
most price times capacity in a unit of time. The best prices give what the program gives: they are its dual (Shahrokhi and
Matula, The maximum concurrent flow problem, J. ACM 37 (1990)). Here links that look alike have one price, so that there are few
prices. Any prices give a bound; the best of these are most often as good as any. Letters: A arcs, V nodes, K kinds of arcs, P
price lists.
"""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from emu.arrays import F64, I64, column
from emu.bound.link_prices import dimensions
from emu.bound.network import Network, sums
from emu.bound.programs.flows import solve
from emu.bound.symmetry import Symmetry
from emu.topology.builders.route_parts import mix

NEAR = 1e-6  # the search ends when it is this near to the bound of the best prices, as a share
_LISTS = 60  # the largest number of price lists
_MOST_KINDS = 64  # the largest number of kinds of arcs


def by_prices(net: Network, alike: Symmetry) -> float:
    """Return a lower bound of the time of an exchange of one block from each rank to each other.

    The time is in blocks per unit of capacity. Each price list gives a cutting plane. The next list is half way from the best
    list so far to the one that the planes call best: Wentges, Weighted Dantzig-Wolfe decomposition, Int. Trans. Oper. Res. 4
    (1997).
    """
    kind = kinds_of_arcs(net, alike)
    capacity = np.bincount(kind, net.capacity)
    least, most, planes = 0.0, np.inf, list[F64]()
    price = best = np.full(len(capacity), 1 / capacity.sum())
    while least < most * (1 - NEAR) and len(planes) < _LISTS:
        load = _load(net, alike, kind, price)
        if load @ price > least:
            least, best = float(load @ price), price
        planes.append(load / capacity)
        most, shares = _best_by(np.array(planes))
        price = (best + shares / capacity) / 2
    return least


def _best_by(planes: F64) -> tuple[float, F64]:
    """Return the best bound that the cutting planes [P, K] still allow, and the prices [K] that they call best.

    The prices are shares of one: the price of each kind times its capacity.
    """
    n_planes, n_kinds = planes.shape
    below = csr_array(np.concatenate((-planes, np.ones((n_planes, 1))), axis=1))
    whole = csr_array(np.append(np.ones(n_kinds), 0.0)[None])
    found = solve(np.append(np.zeros(n_kinds), -1.0), (below, np.zeros(n_planes)), (whole, np.ones(1))).x
    return float(found[-1]), found[:-1]


def _load(net: Network, alike: Symmetry, kind: I64, price: F64) -> F64:
    """Return [K] the load that cheapest paths from every rank to every other put on all arcs of a kind."""
    graph = csr_array((price[kind], (net.src, net.dst)), shape=(net.n_nodes, net.n_nodes))
    ends = net.src * net.n_nodes + net.dst
    loads = np.zeros(len(price))
    for source, count in zip(alike.ranks, alike.ranks_alike, strict=True):
        before = dijkstra(graph, indices=source, return_predecessors=True)[1].astype(np.int64)
        there = np.flatnonzero(before >= 0)
        crossed = np.zeros((net.n_nodes, len(price)))
        crossed[there, kind[np.searchsorted(ends, before[there] * net.n_nodes + there)]] = 1
        loads += count * _path_sums(before, crossed)[net.ranks].sum(axis=0)
    return loads


def _path_sums(before: I64, crossed: F64) -> F64:
    """Return [V, K] the sum of `crossed` along the path to each node.

    `before` is the node before each node on its path (below 0: none). Each turn of the loop doubles the length that is summed.
    """
    nodes = np.arange(len(before))
    up = np.where(before < 0, nodes, before)
    while not np.array_equal(up[up], up):
        crossed, up = crossed + crossed[up], up[up]
    return crossed


def kinds_of_arcs(net: Network, alike: Symmetry) -> I64:
    """Return [A] the kind of each arc, at most 64 kinds.

    Arcs of one kind look alike by their capacity, their dimension and all that their ends are linked to.
    """
    label, node = mix(net.capacity, dimensions(net, alike)), net.has_rank.astype(np.int64)
    kind = np.zeros(len(label), np.int64)
    finer, n_before = _number_hashes(mix(label, node[net.src], node[net.dst])), 0
    while n_before < finer.max() + 1 <= _MOST_KINDS:
        kind, n_before = finer, finer.max() + 1
        out, into = (mix(label, node[far], way) for way, far in enumerate((net.dst, net.src)))
        node = mix(node, sums(net.src, out, net.n_nodes), sums(net.dst, into, net.n_nodes))
        finer = _number_hashes(mix(label, node[net.src], node[net.dst]))
    return kind


def _number_hashes(hashes: I64) -> I64:
    """Return numbers from 0 on for hashes, equal for equal hashes."""
    return column(np.unique(hashes, return_inverse=True)[1], np.int64)
