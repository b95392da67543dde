"""The network of a topology for bounds: arcs of whole capacities between nodes, and the nodes of ranks.

Every bound here is on the amount that a set of nodes can send to the others, whatever the routes are. Letters: A arcs, V nodes,
N ranks.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64, Bool, column
from emu.topology.topology import Topology


@dataclass(frozen=True, eq=False, slots=True)
class Network:
    """A topology in which all links from one node to another are one arc, with the sum of bandwidths and the least latency."""

    n_nodes: int
    n_npus: int
    src: I64  # [A]
    dst: I64  # [A]
    capacity: I64  # [A] in units of `unit_Bps`
    latency_fs: I64  # [A] ticks
    dimension: I64  # [A] the least dimension, tier or plane of its links
    unit_Bps: int  # bytes per second of one unit of capacity
    ranks: I64  # [N] the node of each rank

    @property
    def has_rank(self) -> Bool:
        """Marks [V] of the nodes that have a rank."""
        found = np.zeros(self.n_nodes, np.bool_)
        found[self.ranks] = True
        return found

    @property
    def leaving(self) -> I64:
        """The capacity out of each node, [V]."""
        return sums(self.src, self.capacity, self.n_nodes)

    @property
    def both_ways(self) -> bool:
        """True if every arc has an arc of its capacity in the other direction."""
        back = np.lexsort((self.src, self.dst))  # the arcs stand in the order of (src, dst)
        columns = (self.src[back], self.dst), (self.dst[back], self.src), (self.capacity[back], self.capacity)
        return all(np.array_equal(a, b) for a, b in columns)

    def out_of(self, inside: Bool) -> int:
        """Return the capacity from the nodes of a set [V] to the others."""
        return int(self.capacity[inside[self.src] & ~inside[self.dst]].sum())

    def seconds(self, amount_per_capacity: Fraction | float) -> float:
        """Return the seconds that `amount_per_capacity` bytes per unit of capacity take."""
        return float(amount_per_capacity / self.unit_Bps)

    def back(self) -> "Network":
        """Return the network with every arc turned round."""
        return replace(self, src=self.dst, dst=self.src)


def network(topology: Topology, placement: ArrayLike) -> Network:
    """Return the network of a topology with ranks on the nodes [N] of `placement`.

    A bandwidth that is no whole number of bytes per second is rounded up, so that a bound stays a bound.
    """
    links, nodes = topology.links, topology.n_nodes
    pair, arc = np.unique(links.src.astype(np.int64) * nodes + links.dst, return_inverse=True)
    capacity = sums(arc, np.ceil(links.bandwidth_Bps).astype(np.int64), len(pair))
    unit = max(1, int(np.gcd.reduce(capacity)))
    latency = np.full(len(pair), np.iinfo(np.int64).max)
    np.minimum.at(latency, arc, links.latency_fs)
    dimension = np.full(len(pair), np.iinfo(np.int64).max)
    np.minimum.at(dimension, arc, links.dimension)
    src, dst = np.divmod(pair, nodes)
    columns = (src, dst, capacity // unit, latency, dimension, placement)
    src, dst, capacity, latency, dimension, ranks = (column(c, np.int64) for c in columns)
    return Network(nodes, topology.n_npus, src, dst, capacity, latency, dimension, unit, ranks)


def sums(index: I64, values: I64, size: int) -> I64:
    """Return [size] the sum of the values at each index; it is exact, where `np.bincount` would add floats."""
    found = np.zeros(size, np.int64)
    np.add.at(found, index, values)
    return found
