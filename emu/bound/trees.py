"""The optimum of trees: the time of a collective whose blocks are spread, or added up, along spanning trees of ranks.

Trees of rate y from every rank can be packed just if no set of nodes that lacks a rank has to let out more than its arcs carry,
so that the optimum is a cut. This needs switches that let out as much as they let in: they pass on and neither copy nor add. If
one of them has more capacity on one side, a linear program divides the hops between ranks. An all_reduce needs trees to the
ranks and trees from them at the same time, which another program divides. A switch that copies and adds, where the topology
says so, is a node of trees that none has to reach. Then cuts and programs bound all trees, which need not come up to them, as
trees that may leave out nodes are hard to pack. Sources: Edmonds, Edge-disjoint branchings, 1973;
Bang-Jensen, Frank, Jackson, Preserving and increasing local edge-connectivity in mixed graphs, SIAM J. Discrete Math. 8 (1995);
Zhao et al., ForestColl, 2024, arXiv 2402.06787. Letters: V nodes, N ranks.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import permutations

import numpy as np

from emu.arrays import I64, Bool, column
from emu.bound.cuts import cut_from, densest_cut
from emu.bound.limit import message_fs
from emu.bound.network import Network, NetworkKinds, network, network_kinds, sums
from emu.collective.operation import Operation
from emu.errors import must_be
from emu.topology.topology import Topology
from emu.units import seconds

TREE_OPERATIONS = ("all_gather", "reduce_scatter", "broadcast", "reduce", "all_reduce")
_BACK = frozenset({"reduce_scatter", "reduce"})  # operations whose trees lead to the root
_MOST = 2**13  # the largest number of variables of a linear program

# Names of what gives the optimum.
ALL_CUTS = "cuts"  # the worst of all cuts
PROGRAM = "linear program of trees"  # hops and trees are divided by a linear program
HALVES = "both halves"  # the best trees of a reduce_scatter, then those of an all_gather: the program is out of reach


@dataclass(frozen=True, slots=True)
class TreeOptimum:
    """The time of the best trees: seconds for each byte of a block, plus the latency of a message."""

    s_per_byte: float
    latency_fs: int
    by: str  # what gives it

    def least_s(self, block_bytes: float) -> float:
        """Return the time in seconds for blocks of `block_bytes` bytes."""
        return block_bytes * self.s_per_byte + seconds(self.latency_fs) if block_bytes else 0.0


@lru_cache(maxsize=256)
def tree_optimum(topology: Topology, op: Operation, npus: tuple[int, ...]) -> TreeOptimum:
    """Return the time of an operation by the best trees, on any paths; switches copy and add if the topology says that they do.

    Args:
        topology: A topology in which paths join all ranks.
        op: One of `TREE_OPERATIONS`.
        npus: [N] the NPU of each rank.

    Raises:
        InputError: The operation is another.
    """
    if op.name not in TREE_OPERATIONS:
        raise must_be("bound", "operation", f"one of {', '.join(TREE_OPERATIONS)}", op.name)
    if op.n_ranks < 2:
        return TreeOptimum(0.0, 0, ALL_CUTS)
    net = network(topology, npus)
    kinds = network_kinds(net, topology)
    joins = net.has_rank | _adds(topology)
    ratio, by = _all_reduce(net, kinds, joins) if op.name == "all_reduce" else _one_way(net, kinds, op, joins)
    return TreeOptimum(net.seconds(ratio), message_fs(net, helpers=topology.adds), by)


def _adds(topology: Topology) -> Bool:
    """Return [V] whether each node is a switch that copies and adds."""
    is_switch = np.arange(topology.n_nodes) >= topology.n_npus
    return np.asarray(topology.adds & is_switch & (True if topology.adders is None else topology.adders))


def _one_way(net: Network, kinds: NetworkKinds, op: Operation, joins: Bool) -> tuple[Fraction | float, str]:
    """Return the time of trees from the roots or to the roots, in blocks per unit of capacity, and what gives it.

    Args:
        net: The network.
        kinds: Its kinds.
        op: The operation.
        joins: [V] whether each node can be a node of trees: a rank, or a switch that copies and adds.
    """
    way = net.back() if op.name in _BACK else net
    rooted = op.name in ("broadcast", "reduce")
    root = int(net.ranks[op.root])
    least = (cut_from(way, root) if rooted else densest_cut(way, kinds.ranks)).ratio
    if _is_balanced(way, joins) or _size(way, joins) > _MOST:
        return least, ALL_CUTS
    roots = np.arange(net.n_nodes) == root if rooted else net.has_rank
    return max(float(least), _by_program(way, roots, joins)), PROGRAM


def _all_reduce(net: Network, kinds: NetworkKinds, joins: Bool) -> tuple[Fraction | float, str]:
    """Return the time of an all_reduce by trees, in blocks per unit of capacity, and what gives it; see `_one_way`."""
    hops = len(net.src) if joins.all() else int(joins.sum()) * int(joins.sum() - 1)
    whole = kinds.joined(joins)
    if 2 * len(kinds.ranks) * hops + len(whole.ranks) * len(net.src) <= _MOST:
        from emu.bound.linear_programs import all_reduce_by_trees  # it loads scipy

        return all_reduce_by_trees(replace(net, ranks=np.flatnonzero(joins)), whole, kinds.ranks), PROGRAM
    if (joins & ~net.has_rank).any():  # a block leaves every set that has a rank and lacks one
        root = int(net.ranks[0])
        return max(cut_from(way, root).ratio for way in (net, net.back())), ALL_CUTS
    gather = densest_cut(net, kinds.ranks).ratio
    both = gather + (gather if net.both_ways else densest_cut(net.back(), kinds.ranks).ratio)
    return both / len(net.ranks), HALVES


def _is_balanced(net: Network, joins: Bool) -> bool:
    """Return whether every node that trees do not join has as much capacity in as out, so that cuts tell all."""
    into, out = (sums(ends, net.capacity, net.n_nodes) for ends in (net.dst, net.src))
    return bool((into == out)[~joins].all())


def _size(net: Network, joins: Bool) -> int:
    """Return the number of variables of the program of trees from given roots."""
    n, tips = len(net.ranks), int(joins.sum())
    return n * tips * (tips - 1) + tips * len(net.src)


def _by_program(net: Network, roots: Bool, joins: Bool) -> float:
    """Return the time of trees that spread a block from each root, in blocks per unit of capacity, by a linear program.

    Its variables are the rate y of each root, the hops between ranks, a flow over hops to each rank, and the routes of hops.

    Args:
        net: The network.
        roots: [V] whether a node is a root.
        joins: See `_one_way`.
    """
    from scipy.sparse import block_array, block_diag, coo_array, csr_array, eye_array, vstack

    from emu.bound.linear_programs import conservation, solve

    tips = np.flatnonzero(joins)
    src, dst = (column(c, np.int64) for c in np.array(list(permutations(tips.tolist(), 2))).T)
    hops = replace(net, src=src, dst=dst)
    sinks = [node for node in net.ranks.tolist() if roots.sum() - roots[node]]
    kept, routed = [conservation(hops, sink) for sink in sinks], [conservation(net, int(node)) for node in tips]
    sent = csr_array(np.concatenate([roots[nodes] for _, nodes in kept]).astype(np.float64)[:, None])
    carried = vstack([_ends_of(hops, int(u), nodes) for u, (_, nodes) in zip(tips, routed, strict=True)])
    balance, routes = (block_diag([rows for rows, _ in each], format="csr") for each in (kept, routed))
    equal = block_array([[sent, None, balance, None], [None, -carried, None, routes]], format="csr")
    count, arc = len(src), np.arange(len(net.src))
    fits = vstack([-eye_array(count)] * len(sinks))
    one, load = eye_array(count * len(sinks)), coo_array((np.ones(len(arc)), (arc, arc)))
    loads = csr_array(block_array([[load] * len(tips)]))
    blocks = [[csr_array((count * len(sinks), 1)), fits, one, None], [None, None, None, loads]]
    at_most = block_array(blocks, format="csr")
    most = np.concatenate((np.zeros(count * len(sinks)), net.capacity)).astype(np.float64)
    cost = np.zeros(equal.shape[1])
    cost[0] = -1
    found = solve(cost, (csr_array(at_most), most), (csr_array(equal), np.zeros(equal.shape[0]))).x
    return 1 / float(found[0])


def _ends_of(hops: Network, source: int, nodes: I64) -> "object":
    """Return a matrix [nodes, hops] with 1 where a hop leads from the source to a node."""
    from scipy.sparse import coo_array

    at = np.flatnonzero(hops.src == source)
    place = np.searchsorted(nodes, hops.dst[at])
    return coo_array((np.ones(len(at)), (place, at)), (len(nodes), len(hops.src))).tocsr()
