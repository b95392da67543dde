"""Minimum cuts between two sets of nodes, by a maximum flow over classes of nodes that look alike.

Nodes are partitioned until all nodes of a class have the same capacity to each class and from each class (an equitable
partition). A flow between two classes can be shared out among their nodes by capacity, so that the classes let through what the
nodes do. Where there is symmetry there are few classes. Source: Dinic, Algorithm for solution of a problem of maximum flow in
networks with power estimation, Soviet Math. Dokl. 11 (1970). Letters: V nodes, A arcs.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool, column
from emu.topology.builders.route_parts import mix

_MOST_BY_HAND = 2**12  # arcs between classes; above this number scipy finds the flow


class Arcs(NamedTuple):
    """Arcs of a flow network with capacities in whole units; several arcs may join the same two nodes."""

    src: I64  # [A]
    dst: I64  # [A]
    capacity: I64  # [A]

    def leaving(self, inside: Bool) -> int:
        """Return the sum of capacities of all arcs from a set of nodes (marks [V]) to the other nodes."""
        return int(self.capacity[inside[self.src] & ~inside[self.dst]].sum())


def least_cut(arcs: Arcs, source: Bool, sink: Bool) -> Bool:
    """Return [V] the marks of a set of nodes with all of `source` and none of `sink`, from which the least capacity leads out.

    Args:
        arcs: Arcs between nodes below V.
        source: [V] at least one node.
        sink: [V] at least one node, and none of `source`.
    """
    of = classes(arcs, source, sink)
    pair, number = np.unique(of[arcs.src] * (of.max() + 1) + of[arcs.dst], return_inverse=True)
    total = np.zeros(len(pair), np.int64)
    np.add.at(total, number, arcs.capacity)
    ends = np.divmod(pair, of.max() + 1)
    between = ends[0] != ends[1]
    few = Arcs(*(column(c[between], np.int64) for c in (*ends, total)))
    ends_of = int(of[np.argmax(source)]), int(of[np.argmax(sink)])
    if len(few.src) > _MOST_BY_HAND:
        found: Bool = _residual_reach_by_scipy(few, int(of.max()) + 1, *ends_of)
    else:
        found = np.isin(np.arange(of.max() + 1), list(_residual_reach(few, *ends_of)))
    return found[of]


def classes(arcs: Arcs, source: Bool, sink: Bool) -> I64:
    """Return [V] the class of each node: nodes with equal capacities to and from each class; sources and sinks are two.

    Capacities are summed times a hash of the class at their other end. Equal sums of unequal capacities are almost impossible,
    and would only give a cut that is not the least.
    """
    fixed = source | sink
    of, count = np.where(source, 0, np.where(sink, 1, 2)), 0
    while of.max() + 1 > count:
        count = int(of.max()) + 1
        seen = np.zeros((2, len(of)), np.uint64)
        for way, (here, there) in enumerate(((arcs.src, arcs.dst), (arcs.dst, arcs.src))):
            weight = mix(of, way).astype(np.uint64)[there] * arcs.capacity.astype(np.uint64)
            np.add.at(seen[way], here, weight)
        label = np.where(fixed, of, mix(of, *seen))
        of = np.unique(label, return_inverse=True)[1]
    return column(of, np.int64)


def _residual_reach(arcs: Arcs, source: int, sink: int) -> Iterable[int]:
    """Return the nodes that the residual arcs of a maximum flow reach from the source: its side of a least cut."""
    left: dict[int, dict[int, int]] = {source: {}, sink: {}}
    for a, b, capacity in zip(arcs.src.tolist(), arcs.dst.tolist(), arcs.capacity.tolist(), strict=True):
        left.setdefault(a, {})[b] = left.get(a, {}).get(b, 0) + capacity
        left.setdefault(b, {}).setdefault(a, 0)
    level = _levels(left, source)
    while sink in level:
        _block(left, level, source, sink)
        level = _levels(left, source)
    return level


def _levels(left: dict[int, dict[int, int]], source: int) -> dict[int, int]:
    """Return, for each node that the residual arcs reach, the number of arcs on a shortest path to it."""
    level, here = {source: 0}, [source]
    while here:
        ahead = [b for a in here for b, capacity in left[a].items() if capacity]
        here = [b for b in dict.fromkeys(ahead) if b not in level]
        level |= dict.fromkeys(here, 1 + max(level.values()))
    return level


def _block(left: dict[int, dict[int, int]], level: dict[int, int], source: int, sink: int) -> None:
    """Send as much flow as possible along paths that rise by one level with each arc (one phase of Dinic's method)."""
    ahead = {a: list(left[a]) for a in level}
    way = [source]
    while way:
        here = way[-1]
        if here == sink:
            _send(left, way)
            closed = next(i for i, (a, b) in enumerate(pairwise(way)) if not left[a][b])
            del way[closed + 1 :]
            continue
        while ahead[here] and not (left[here][ahead[here][-1]] and level.get(ahead[here][-1]) == level[here] + 1):
            ahead[here].pop()
        if ahead[here]:
            way.append(ahead[here][-1])
        else:
            way.pop()
            if way:
                ahead[way[-1]].pop()


def _send(left: dict[int, dict[int, int]], way: list[int]) -> None:
    """Send as much flow along a path as its arcs can still take, and update their residual capacities in both directions."""
    most = min(left[a][b] for a, b in pairwise(way))
    for a, b in pairwise(way):
        left[a][b] -= most
        left[b][a] += most


_MOST = 2**30 - 1  # largest flow: scipy counts in 32 bits, and a residual capacity may be twice this


def _residual_reach_by_scipy(arcs: Arcs, nodes: int, source: int, sink: int) -> Bool:
    """Return [V] the marks that `_residual_reach` returns, by scipy's maximum flow.

    Capacities that scipy cannot count are divided and rounded up; the set is then nearly the least cut. The function imports
    scipy itself, because that takes long.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    most = int(min(arcs.capacity[arcs.src == source].sum(), arcs.capacity[arcs.dst == sink].sum()))
    unit = most // _MOST + 1
    whole = -(-np.minimum(arcs.capacity, most + 1) // unit)
    graph = csr_array((whole.astype(np.int32), (arcs.src, arcs.dst)), shape=(nodes, nodes))
    left = csr_array(graph - maximum_flow(graph, source, sink).flow)
    left.eliminate_zeros()
    found = np.zeros(nodes, np.bool_)
    found[breadth_first_order(left, source, return_predecessors=False)] = True
    return found
