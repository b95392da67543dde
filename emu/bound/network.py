"""The network of a topology for bounds: arcs between nodes with capacities, the symmetry of the arcs, and link prices.

Every bound here limits the amount that a set of nodes can send to the others, whatever the routes are.
By its symmetry, which says what ranks and arcs are equivalent, a bound needs only one of each kind. The maps that are tried are
those that the topology declares and, if that leaves several kinds of ranks, steps of the numbering of the NPUs along its dims.
A map is used if it maps every arc onto one of equal capacity and latency. The mean of an optimal flow over all maps is optimal
too, and equal for equivalent arcs.

Prices on links bound the time of an exchange among all ranks: at any prices, data from one rank to another pays at least the
distance in prices between them. All links together take in at most price times capacity in a unit of time. Source: Shahrokhi
and Matula, The maximum concurrent flow problem, J. ACM 37 (1990). Letters: A arcs, V nodes, N ranks, R kinds of ranks, P pairs,
G groups, D dimensions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import F64, I64, Bool, column
from emu.equivalence import Orbits, orbits
from emu.topology.paths.shortest_paths import least_weights
from emu.topology.symmetry_search import switch_images
from emu.topology.topology import Topology


@dataclass(frozen=True, eq=False, slots=True)
class Network:
    """A topology as arcs: all links from one node to another are one arc, with their total bandwidth and least latency."""

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
        """[V] whether each node has a rank."""
        found = np.zeros(self.n_nodes, np.bool_)
        found[self.ranks] = True
        return found

    @property
    def leaving(self) -> I64:
        """[V] the sum of the capacities of the arcs that leave each node."""
        return sums(self.src, self.capacity, self.n_nodes)

    @property
    def both_ways(self) -> bool:
        """True if every arc has an arc of equal capacity in the opposite direction."""
        back = np.lexsort((self.src, self.dst))  # the arcs stand in the order of (src, dst)
        columns = (self.src[back], self.dst), (self.dst[back], self.src), (self.capacity[back], self.capacity)
        return all(np.array_equal(a, b) for a, b in columns)

    def out_of(self, inside: Bool) -> int:
        """Return the sum of the capacities of the arcs from the nodes where `inside` [V] is true to the other nodes."""
        return int(self.capacity[inside[self.src] & ~inside[self.dst]].sum())

    def seconds(self, amount_per_capacity: Fraction | float) -> float:
        """Return the seconds that `amount_per_capacity` bytes per unit of capacity take."""
        return float(amount_per_capacity / self.unit_Bps)

    def back(self) -> "Network":
        """Return the network with every arc in the opposite direction."""
        return replace(self, src=self.dst, dst=self.src)


def network(topology: Topology, placement: ArrayLike) -> Network:
    """Return the network of a topology, in which rank r is on the node `placement[r]`.

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
    """Return [size] the exact integer sum of the values at each index."""
    found = np.zeros(size, np.int64)
    np.add.at(found, index, values)
    return found


@dataclass(frozen=True, eq=False, slots=True)
class NetworkKinds:
    """The kinds of ranks and of arcs of a network: those that its symmetry maps bring onto one another are of one kind.

    Without maps, each rank and each arc is a kind of its own.
    """

    maps: tuple[I64, ...]  # for each map, [V] the image of every node
    ranks: I64  # [R] the node of the first rank of each kind
    rank_kind: I64  # [V] kind of the rank on each node; -1: there is none
    arc_kind: I64  # [A] kind of each arc

    @property
    def ranks_alike(self) -> I64:
        """The number of ranks of each kind, [R]."""
        return np.bincount(self.rank_kind[self.rank_kind >= 0])

    def joined(self, joins: Bool) -> "NetworkKinds":
        """Return the kinds of some nodes in place of those of ranks: of all ranks, and of switches that copy and add.

        A rank and a switch are of different kinds. Without maps that keep these nodes, each node and each arc is a kind.

        Args:
            joins: [V] whether each node is one of them.
        """
        has_rank, keeps = self.rank_kind >= 0, all((joins[image] == joins).all() for image in self.maps)
        if keeps and np.array_equal(joins, has_rank):
            return self
        maps = self.maps if keeps else ()
        of_node = _kinds(np.arange(len(joins)), list(maps))
        first, kind = np.unique(of_node[joins], return_index=True)
        ranks = column(np.flatnonzero(joins)[kind], np.int64)
        node_kind = column(np.where(joins, np.searchsorted(first, of_node), -1), np.int64)
        return NetworkKinds(maps, ranks, node_kind, self.arc_kind if keeps else np.arange(len(self.arc_kind)))

    def pair_kind(self, src: I64, dst: I64) -> I64:
        """Return [P] the kind of each pair of nodes; pairs that symmetry maps onto one another are of one kind.

        Args:
            src: [P] the first node of each pair.
            dst: [P] the second node. All pairs of a kind must be in the arrays.
        """
        size = 1 + max((int(m.max(initial=0)) for m in (src, dst)), default=0)
        return _kinds(src * size + dst, [image[src] * size + image[dst] for image in self.maps])

    def group_kind(self, group: I64) -> Orbits:
        """Return the kinds of sets of nodes; sets that symmetry maps onto one another are of one kind.

        Args:
            group: [V] the number of the set that each node is in; -1: none.
        """
        here = np.flatnonzero(group >= 0)
        images = [_image_of(group[here], group[image[here]]) for image in self.maps]
        return Orbits.of(int(group.max()) + 1, [image for image in images if image is not None])


def _image_of(groups: I64, mapped: I64) -> I64 | None:
    """Return [G] the image of each group under a map, or None if the map splits a group.

    Args:
        groups: The group of each node.
        mapped: The group of the image of each node.
    """
    image = np.empty(groups.max() + 1, np.int64)
    image[groups] = mapped
    return image if np.array_equal(image[groups], mapped) else None


def network_kinds(net: Network, topology: Topology) -> NetworkKinds:
    """Return the kinds of the ranks and arcs of a network.

    Args:
        net: The network of the topology.
        topology: The topology with its declared symmetries and its numbering.
    """
    nodes = np.arange(net.n_nodes)
    declared = (column(image, np.int64) for image in topology.symmetry()) if topology.symmetry else ()
    maps = [image for image in declared if _maps_arcs(net, image)]
    if len(np.unique(_kinds(nodes, maps)[net.ranks])) > 1:
        maps += [image for image in _steps(net, topology.dims or (net.n_npus,)) if _maps_arcs(net, image)]
    of_node = _kinds(nodes, maps)
    first, kind = np.unique(of_node[np.sort(net.ranks)], return_index=True)
    rank_kind = np.where(net.has_rank, np.searchsorted(first, of_node), -1)
    arcs = _keys(net, net.src, net.dst)
    arc_kind = _kinds(arcs, [_keys(net, image[net.src], image[net.dst]) for image in maps])
    return NetworkKinds(tuple(maps), column(np.sort(net.ranks)[kind], np.int64), column(rank_kind, np.int64), arc_kind)


def _keys(net: Network, src: I64, dst: I64) -> I64:
    """Return one number for each pair of nodes, by which pairs can be compared and sorted."""
    return src * net.n_nodes + dst


def _kinds(keys: I64, mapped: list[I64]) -> I64:
    """Return the kind of each key; keys that maps bring onto one another are of one kind.

    Args:
        keys: The keys.
        mapped: For each map, the images of all keys.
    """
    order = np.argsort(keys)
    return orbits(len(keys), [order[np.searchsorted(keys, images, sorter=order)] for images in mapped])


def _maps_arcs(net: Network, image: I64) -> bool:
    """Return whether the map `image` [V] maps ranks onto ranks, and every arc onto one of equal capacity and latency."""
    keys, there = _keys(net, net.src, net.dst), _keys(net, image[net.src], image[net.dst])
    here, order = np.argsort(keys), np.argsort(there)
    columns = (keys[here], there[order]), *((of[here], of[order]) for of in (net.capacity, net.latency_fs))
    same_arcs = all(np.array_equal(one, other) for one, other in columns)
    return same_arcs and bool((net.has_rank[image] == net.has_rank).all())


def _steps(net: Network, dims: tuple[int, ...]) -> Iterator[I64]:
    """Yield, for each axis, the image of every node [V] under a step along that axis."""
    for axis in (axis for axis, size in enumerate(dims) if size > 1):
        npus = np.roll(np.arange(net.n_npus).reshape(dims), -1, axis).ravel()
        yield switch_images((net.src, net.dst), net.capacity, npus, net.n_nodes)


_DOWN = 1 - 2.0**-40  # factor that keeps a sum of floats below the exact sum


def price_bound(net: Network, net_kinds: NetworkKinds, price: F64) -> float:
    """Return a lower bound, from prices of arcs, of the time in which each rank can send one block to each other.

    The time is in blocks per unit of capacity.

    Args:
        net: The network.
        net_kinds: The kinds of its ranks and arcs.
        price: [A] 0 or more, equal for arcs of one kind.
    """
    away = least_weights((net.src, net.dst), price, net.n_nodes, net_kinds.ranks[:, None])[:, net.ranks]
    return float(net_kinds.ranks_alike @ away.sum(axis=1) / (price @ net.capacity)) * _DOWN


def best_simple_price(net: Network, net_kinds: NetworkKinds) -> float:
    """Return the largest bound of some simple prices: equal shares of every arc, or of the arcs of one dimension."""
    return max(price_bound(net, net_kinds, price) for price in _prices(net, net_kinds))


def count_price_lists(net: Network) -> int:
    """Return the number of price lists that `best_simple_price` tries."""
    dimensions = len(np.unique(net.dimension))
    return 1 + (dimensions if dimensions > 1 else 0)


def _prices(net: Network, net_kinds: NetworkKinds) -> Iterator[F64]:
    """Yield candidate lists of arc prices: the time of a block on each arc, and the same restricted to one dimension."""
    share = 1 / net.capacity
    yield share
    dimension = dimensions(net, net_kinds)
    kinds = np.unique(dimension)
    for kind in kinds if len(kinds) > 1 else ():
        yield np.where(dimension == kind, share, 0.0)


def dimensions(net: Network, net_kinds: NetworkKinds) -> I64:
    """Return [A] the dimension of each arc; arcs of one kind get the lowest of their dimensions."""
    least = np.full(net_kinds.arc_kind.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, net_kinds.arc_kind, net.dimension)
    return least[net_kinds.arc_kind]
