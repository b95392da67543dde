"""Lower bounds by linear programs; the module is separate because it loads scipy.

Letters: A arcs, V nodes, N ranks, R ranks of different kinds, K kinds of arcs, P hops.

- *Concurrent flow*: the least time of an exchange of one block from every rank to every other, on any paths at once. All that
  one rank sends is one flow. Source: Shahrokhi and Matula, The maximum concurrent flow problem, J. ACM 37 (1990).
- *Prices on links*, for an exchange that is too large for that program. At any prices, data from one rank to another pays at
  least the distance in prices between them. All links together take in at most price times capacity in a unit of time. The best
  prices give what the program gives: they are its dual. Links that look alike have one price, so that there are few prices.
  Any prices give a bound; the best of these are most often as good as any.
- *Trees*: the least time of an all_reduce by trees. A piece is added along a tree to its root, and copied along one from it. A
  program divides the capacity of every hop between the two. Trees of rate y with given roots can be packed just if a flow
  of the sum of y reaches each rank (Edmonds, Edge-disjoint branchings, 1973). A hop joins two ranks over links and switches,
  which pass on and do not add or copy. The result is no bound on schedules that are not trees. Source, on packing: Zhao et al.,
  ForestColl, 2024, arXiv 2402.06787.
"""

from dataclasses import replace
from itertools import permutations

import numpy as np
from scipy.optimize import OptimizeResult, linprog
from scipy.sparse import block_array, block_diag, coo_array, csr_array, eye_array, hstack, kron
from scipy.sparse.csgraph import dijkstra

from emu.arrays import F64, I64, column
from emu.bound.network import Network, NetworkKinds, dimensions, price_bound, sums
from emu.errors import RunError
from emu.topology.builders.route_parts import mix


def exchange(net: Network, net_kinds: NetworkKinds) -> float:
    """Return the least time in which each rank can send one block to each other, in blocks per unit of capacity.

    The solution of the program is right to its tolerance. What its prices give is a bound to the last digit, and is returned.
    """
    sources, n_arcs = net_kinds.ranks, len(net.src)
    kept = [conservation(net, int(source)) for source in sources]
    balance = block_diag([rows for rows, _ in kept], format="csr")
    wanted = np.concatenate([net.has_rank[nodes] for _, nodes in kept]).astype(np.float64)
    load, capacity = loads(net, net_kinds)
    cost = np.concatenate((np.zeros(len(sources) * n_arcs), [1.0]))
    no_time = csr_array((balance.shape[0], 1))
    fits = hstack([load, csr_array(-capacity[:, None])])
    found = solve(cost, at_most=(fits, np.zeros(len(capacity))), equal=(hstack([balance, no_time]), wanted))
    price = np.maximum(-found.ineqlin.marginals, 0.0) / np.bincount(net_kinds.arc_kind)
    return price_bound(net, net_kinds, price[net_kinds.arc_kind])


def conservation(net: Network, source: int) -> tuple[csr_array, I64]:
    """Return the rows of a linear program that conserve a flow from a source.

    Returns:
        A matrix [V - 1, A] with what each arc adds to the flow into each node but the source, less the flow out of it; and
        these nodes.
    """
    arc, ones = np.arange(len(net.src)), np.ones(len(net.src))
    shape = (net.n_nodes, len(net.src))
    into = coo_array((ones, (net.dst, arc)), shape).tocsr()
    out = coo_array((ones, (net.src, arc)), shape).tocsr()
    nodes = np.delete(np.arange(net.n_nodes), source)
    return csr_array((into - out)[nodes]), nodes


def loads(net: Network, net_kinds: NetworkKinds) -> tuple[csr_array, F64]:
    """Return a matrix [kinds, R A] of the load that each flow puts on an arc of each kind, and the capacities of the kinds."""
    kind, members = net_kinds.arc_kind, np.bincount(net_kinds.arc_kind)
    of_one = coo_array((1 / members[kind], (kind, np.arange(len(kind)))), (len(members), len(kind))).tocsr()
    capacity = np.zeros(len(members))
    capacity[kind] = net.capacity
    return csr_array(kron(net_kinds.ranks_alike[None, :].astype(np.float64), of_one)), capacity


class UnsolvedError(RunError):
    """The error of a linear program that has no solution, or none in the time that it may take."""


def solve(
    cost: F64,
    at_most: tuple[csr_array, F64],
    equal: tuple[csr_array, F64],
    limit_s: float | None = None,
    method: str = "highs-ipm",
) -> OptimizeResult:
    """Return the cheapest solution `x` of a linear program in variables of 0 or more, with the marginal values of its rows.

    Args:
        cost: What a unit of each variable costs.
        at_most: A matrix, and what the variables times each of its rows are at most.
        equal: A matrix, and what the variables times each of its rows are.
        limit_s: The seconds that it may take; None: any.
        method: A method of scipy's `linprog`.

    Raises:
        UnsolvedError: It has no solution, or the time is over.
    """
    options = {} if limit_s is None else {"time_limit": limit_s}
    # By interior points: the simplex takes up to twenty times as long where many solutions are equal, as many are here.
    found = linprog(cost, A_ub=at_most[0], b_ub=at_most[1], A_eq=equal[0], b_eq=equal[1], method=method, options=options)
    if not found.success:
        raise UnsolvedError(f"bound: the linear program was not solved: {found.message}")
    return found


NEAR = 1e-6  # the search ends when it is this near to the bound of the best prices, as a share
_LISTS = 60  # the largest number of price lists
_MOST_KINDS = 64  # the largest number of kinds of arcs


def by_prices(net: Network, net_kinds: NetworkKinds) -> float:
    """Return a lower bound of the time in which each rank can send one block to each other, by improving prices of arcs.

    The time is in blocks per unit of capacity. Each price list gives a cutting plane. The next list is half way from the best
    list so far to the one that the planes call best: Wentges, Weighted Dantzig-Wolfe decomposition, Int. Trans. Oper. Res. 4
    (1997).
    """
    kind = kinds_of_arcs(net, net_kinds)
    capacity = np.bincount(kind, net.capacity)
    least, most, planes = 0.0, np.inf, list[F64]()
    price = best = np.full(len(capacity), 1 / capacity.sum())
    while least < most * (1 - NEAR) and len(planes) < _LISTS:
        load = _load(net, net_kinds, kind, price)
        if load @ price > least:
            least, best = float(load @ price), price
        planes.append(load / capacity)
        most, shares = _best_by(np.array(planes))
        price = (best + shares / capacity) / 2
    return least


def _best_by(planes: F64) -> tuple[float, F64]:
    """Return the best bound that the cutting planes still allow, and the prices at which it is reached.

    Args:
        planes: [P, K] the cutting planes.

    Returns:
        The bound, and [K] the price of each kind times its capacity, as shares that add up to 1.
    """
    n_planes, n_kinds = planes.shape
    below = csr_array(np.concatenate((-planes, np.ones((n_planes, 1))), axis=1))
    whole = csr_array(np.append(np.ones(n_kinds), 0.0)[None])
    found = solve(np.append(np.zeros(n_kinds), -1.0), (below, np.zeros(n_planes)), (whole, np.ones(1))).x
    return float(found[-1]), found[:-1]


def _load(net: Network, net_kinds: NetworkKinds, kind: I64, price: F64) -> F64:
    """Return [K] the load on all arcs of each kind if every pair of ranks uses its cheapest path at the given prices."""
    graph = csr_array((price[kind], (net.src, net.dst)), shape=(net.n_nodes, net.n_nodes))
    ends = net.src * net.n_nodes + net.dst
    loads = np.zeros(len(price))
    for source, count in zip(net_kinds.ranks, net_kinds.ranks_alike, strict=True):
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


def kinds_of_arcs(net: Network, net_kinds: NetworkKinds) -> I64:
    """Return [A] the kind of each arc, a number from 0 to 63 at most.

    Arcs of one kind look alike by their capacity, their dimension and all that their ends are linked to.
    """
    label, node = mix(net.capacity, dimensions(net, net_kinds)), net.has_rank.astype(np.int64)
    kind = np.zeros(len(label), np.int64)
    finer, n_before = _number_hashes(mix(label, node[net.src], node[net.dst])), 0
    while n_before < finer.max() + 1 <= _MOST_KINDS:
        kind, n_before = finer, finer.max() + 1
        out, into = (mix(label, node[far], way) for way, far in enumerate((net.dst, net.src)))
        node = mix(node, sums(net.src, out, net.n_nodes), sums(net.dst, into, net.n_nodes))
        finer = _number_hashes(mix(label, node[net.src], node[net.dst]))
    return kind


def _number_hashes(hashes: I64) -> I64:
    """Return a number for each hash, from 0 on; equal hashes have equal numbers."""
    return column(np.unique(hashes, return_inverse=True)[1], np.int64)


def all_reduce_by_trees(net: Network, net_kinds: NetworkKinds, sinks: I64 | None = None) -> float:
    """Return the time of an all_reduce by the best trees, if each rank's buffer is one block.

    Trees to each root add up the buffers, and trees from each root spread the sum; the block is divided over all these trees.
    The time is in blocks per unit of capacity; `Network.seconds` turns it into seconds for each byte of the buffer.

    Args:
        net: The network; its ranks are all nodes that copy and add, switches as well. Each may be a root.
        net_kinds: The kinds of these.
        sinks: The first rank of each kind, as trees need not reach switches; None: all of these are ranks.
    """
    sinks = net_kinds.ranks if sinks is None else sinks
    hops, hop_kind = _hops(net, net_kinds)
    equal = _conservation_rows(net, net_kinds, (hops, hop_kind), sinks)
    at_most, most = _at_most(net, net_kinds, hop_kind, len(sinks))
    cost = np.zeros(equal.shape[1])
    cost[: len(net_kinds.ranks)] = -net_kinds.ranks_alike.astype(np.float64)
    found = solve(cost, (at_most, most), (equal, np.zeros(equal.shape[0]))).x
    return 1 / float(-cost @ found)


def _hops(net: Network, net_kinds: NetworkKinds) -> tuple[Network, I64]:
    """Return the network of hops between ranks on which trees are packed, and the kind [P] of each hop."""
    if net.has_rank.all():
        src, dst = net.src, net.dst
    else:
        src, dst = (column(c, np.int64) for c in np.array(list(permutations(np.sort(net.ranks).tolist(), 2))).T)
    return replace(net, src=src, dst=dst), net_kinds.pair_kind(src, dst)


def _conservation_rows(net: Network, net_kinds: NetworkKinds, on: tuple[Network, I64], sinks: I64) -> csr_array:
    """Return the conservation rows of the program: flow that enters a node also leaves it, except at its ends.

    They cover the trees to and from each rank, and the routes of the hops. Their variables are y, the out-trees, the in-trees,
    the flows of both, and the routes. See `all_reduce_by_trees`; `on` has the hops and their kinds.
    """
    hops, hop_kind = on
    sides = (hops, sinks), (net, net_kinds.ranks)
    kept, routed = ([conservation(each, int(node)) for node in nodes] for each, nodes in sides)
    balance, routes = (block_diag([rows for rows, _ in each], format="csr") for each in (kept, routed))
    rooted = csr_array(np.concatenate([_root_marks(net, net_kinds, nodes) for _, nodes in kept]))
    begins = zip(net_kinds.ranks, routed, strict=True)
    carried = csr_array(np.concatenate([_hop_kinds(hops, hop_kind, int(u), nodes) for u, (_, nodes) in begins]))
    rows = [
        [rooted, None, None, balance, None, None],
        [-rooted, None, None, None, balance, None],
        [None, -carried, -carried, None, None, routes],
    ]
    return csr_array(block_array(rows, format="csr"))


def _root_marks(net: Network, net_kinds: NetworkKinds, nodes: I64) -> F64:
    """Return [nodes, R] 1 where a node is a rank of that kind and so the root of its trees, else 0."""
    found = np.zeros((len(nodes), len(net_kinds.ranks)))
    at = np.flatnonzero(net.has_rank[nodes])
    found[at, net_kinds.rank_kind[nodes[at]]] = 1
    return found


def _hop_kinds(hops: Network, hop_kind: I64, source: int, nodes: I64) -> F64:
    """Return [nodes, kinds] 1 where the hop from the source to a node is of that kind, else 0."""
    found = np.zeros((len(nodes), int(hop_kind.max()) + 1))
    at = np.flatnonzero(hops.src == source)
    found[np.searchsorted(nodes, hops.dst[at]), hop_kind[at]] = 1
    return found


def _at_most(net: Network, net_kinds: NetworkKinds, hop_kind: I64, n_sinks: int) -> tuple[csr_array, F64]:
    """Return the capacity rows of the program and their limits: for the trees on each hop, and for the hops on each link."""
    n_flows, n_kinds = n_sinks * len(hop_kind), int(hop_kind.max()) + 1
    of_kind = csr_array((np.ones(n_flows), (np.arange(n_flows), np.tile(hop_kind, n_sinks))), (n_flows, n_kinds))
    load, capacity = loads(net, net_kinds)
    one, no_rate = eye_array(n_flows, format="csr"), csr_array((n_flows, len(net_kinds.ranks)))
    rows = [
        [no_rate, -of_kind, None, one, None, None],
        [None, None, -of_kind, None, one, None],
        [None, None, None, None, None, load],
    ]
    return csr_array(block_array(rows, format="csr")), np.concatenate((np.zeros(2 * n_flows), capacity))
