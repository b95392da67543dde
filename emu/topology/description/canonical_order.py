"""The description of a topology, and a canonical order of its switches and tiers, whatever the order in the file.

NPUs keep their numbers, because these are ranks. Colour refinement from the NPUs distinguishes switches by their cables. If
switches with different neighbours still have one colour, one of them gets a colour of its own, and refinement goes on. Source:
McKay and Piperno, Practical graph isomorphism, II, J. Symbolic Comput. 60 (2014). Letters: C rows of cables, V nodes, E ends of
rows.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import F64, I64, Bool, ascending, column
from emu.topology.builders.route_parts import mix
from emu.topology.description.values import RoutingSettings
from emu.topology.paths.shortest_paths import least_weights


@dataclass(frozen=True, eq=False, slots=True)
class CableRows:
    """The cables or one-way links of a description, as columns; a row is one or several parallel cables."""

    a: I64  # [C] node
    b: I64  # [C] node
    bandwidth_Bps: F64  # [C] one direction
    latency_fs: I64  # [C] ticks
    tier: I64  # [C] index of its tier
    count: I64  # [C] number of parallel cables
    cost: I64  # [C] cost of a link; 0: none is given
    entry: I64  # [C] number of the entry in which it is written

    @staticmethod
    def of(pieces: Iterable[Iterable[ArrayLike]]) -> "CableRows":
        """Return the rows of several tables of cables, one table after another.

        Args:
            pieces: The tables. Each has, for every field of this class, a column, or one value for all its rows.
        """
        parts = [np.broadcast_arrays(*piece) for piece in ([np.empty(0, np.int64)] * 8, *pieces)]
        types: Iterable[Any] = (np.float64 if name == "bandwidth_Bps" else np.int64 for name in CableRows.__slots__)
        columns = (np.concatenate(each) for each in zip(*parts, strict=True))
        return CableRows(*(column(each, dtype) for each, dtype in zip(columns, types, strict=True)))


@dataclass(frozen=True, eq=False, slots=True)
class TopologyDescription:
    """A topology as the user describes it in a file or a graph, before it is built."""

    where: str  # the file or the graph, for messages
    n_npus: int
    n_nodes: int
    rows: CableRows
    tiers: tuple[str, ...]
    switches: Mapping[str, int]  # as the bill counts them
    node: Callable[[int], str]  # gives the name of a node
    entry: Callable[[int], str]  # gives the name of an entry, such as "line 3"
    routing: RoutingSettings = field(default_factory=RoutingSettings)
    one_way: bool = False  # whether a row is links from a to b only
    repeats: bool = False  # whether the same two nodes may have several rows
    adders: Bool | None = None  # [V] switches that add what they pass on; None: there are none
    network: Mapping[str, str] = field(default_factory=dict)  # as `Topology` has it


_WORK = 2**27  # ends of rows that all rounds of refinement may touch, which takes some seconds
_FAR = 2**31  # number that stands for no neighbour nearer to the NPUs, and for a level that no NPU reaches


def canonical_order(described: TopologyDescription) -> tuple[TopologyDescription, bool]:
    """Return a description with nodes and tiers in canonical order, and whether all switches could be put in order.

    Switches are counted from the NPUs outward, those with faster cables first, then by the least of the nodes below them. Tiers
    are counted in the same way, and at last by their names. If too many switches look alike, some stay in the order in which
    they are written.
    """
    rows, tiers, called = described.rows, described.tiers, described.node
    ends = _Ends.of(described)
    colour, complete = _colours(ends, described.adders)
    old, old_tier = _node_order(ends, colour), _tier_order(rows, ends.level, tiers)
    node, tier = np.argsort(old), np.argsort(old_tier)
    moved = replace(rows, a=column(node[rows.a], np.int64), b=column(node[rows.b], np.int64), tier=tier[rows.tier])
    named = tuple(tiers[number] for number in old_tier)
    adders = None if described.adders is None else column(described.adders[old], np.bool_)
    return replace(described, rows=moved, tiers=named, node=lambda new: called(int(old[new])), adders=adders), complete


@dataclass(frozen=True, eq=False)
class _Ends:
    """Both ends of all rows of cables, sorted by node, so that sums over a node's cables do not depend on their order."""

    n_npus: int
    level: I64  # [V] cables from the nearest NPU
    node: I64  # [E] node at this end
    other: I64  # [E] node at the other end
    rate: I64  # [E] bits of the bandwidth, which are in the order of the bandwidths
    kind: I64  # [E] hash of what a cable is, seen from this end
    count: I64  # [E] parallel cables

    @staticmethod
    def of(described: TopologyDescription) -> "_Ends":
        """Return both ends of all rows of a description; the two ends of a one-way link have different kinds."""
        rows, n_npus = described.rows, described.n_npus
        node, other = np.concatenate((rows.a, rows.b)), np.concatenate((rows.b, rows.a))
        rate = rows.bandwidth_Bps.view(np.int64)
        kind = [mix(rate, rows.latency_fs, rows.cost, way * described.one_way) for way in range(2)]
        level = least_weights((node, other), np.ones(len(node)), described.n_nodes, [np.arange(n_npus)])[0]
        order = np.argsort(node, kind="stable")
        columns = (node, other, np.tile(rate, 2), np.concatenate(kind), np.tile(rows.count, 2))
        return _Ends(n_npus, np.minimum(level, _FAR).astype(np.int64), *(each[order] for each in columns))

    @cached_property
    def starts(self) -> I64:
        """The index at which the ends of each node begin."""
        return np.flatnonzero(np.diff(self.node, prepend=-1))

    def sums(self, label: I64) -> I64:
        """Return [V] a hash of the labels of each node's neighbours and of the cables to them."""
        found = np.zeros(len(label), np.int64)
        if len(self.node):
            found[self.node[self.starts]] = np.add.reduceat(self.count * mix(label[self.other], self.kind), self.starts)
        return found


def _colours(ends: _Ends, adders: Bool | None) -> tuple[I64, bool]:
    """Return [V] a colour of each node, and whether only switches with the same neighbours share a colour.

    Args:
        ends: Both ends of all rows.
        adders: [V] switches that add, which never share a colour with others; None: there are none.
    """
    nodes = np.arange(len(ends.level))
    colour = np.where(nodes < ends.n_npus, nodes, mix(ends.level, -1))
    colour = colour if adders is None else np.where(adders, mix(colour, 0), colour)
    twin, left = ends.sums(nodes), _WORK
    while True:
        colour, rounds = _refined(ends, colour)
        left -= (rounds + 1) * len(ends.node)
        apart = _set_apart(colour, twin)
        if apart is None or left < 0:
            return colour, apart is None
        colour = np.where(apart, mix(colour, 1), colour)


def _refined(ends: _Ends, colour: I64) -> tuple[I64, int]:
    """Return the colours after refinement, and the number of rounds that it took.

    Refinement gives two switches different colours if their neighbours have different colours.
    """
    known, rounds, switch = 0, 0, np.arange(len(colour)) >= ends.n_npus
    while (now := len(ascending(colour))) > known:
        known, rounds = now, rounds + 1
        colour = np.where(switch, mix(colour, ends.sums(colour)), colour)
    return colour, rounds


def _set_apart(colour: I64, twin: I64) -> Bool | None:
    """Return [V] marks of the switches that get a new colour, so that refinement can continue; None if none needs one.

    Of the least colour whose switches have different neighbours, the first switch is marked, and all with the same neighbours.
    """
    order = np.lexsort((twin, colour))
    mixed = (np.diff(colour[order]) == 0) & (np.diff(twin[order]) != 0)
    if not mixed.any():
        return None
    alike = colour == colour[order[np.argmax(mixed)]]
    return np.asarray(alike & (twin == twin[np.argmax(alike)]))


def _node_order(ends: _Ends, colour: I64) -> I64:
    """Return [V] the old number of each node: NPUs first, then switches level by level."""
    number, placed = np.arange(len(colour)), [np.arange(ends.n_npus)]
    down = ends.level[ends.other] < ends.level[ends.node]
    rate, least = np.zeros_like(number), np.full_like(number, _FAR)
    np.maximum.at(rate, ends.node[down], ends.rate[down])
    for level in np.unique(ends.level[ends.n_npus :]):
        here = ends.n_npus + np.flatnonzero(ends.level[ends.n_npus :] == level)
        on = down & (ends.level[ends.node] == level)
        np.minimum.at(least, ends.node[on], number[ends.other[on]])
        here = here[np.lexsort((colour[here], least[here], -rate[here]))]
        number[here] = sum(map(len, placed)) + np.arange(len(here))
        placed.append(here)
    return np.concatenate(placed)


def _tier_order(rows: CableRows, level: I64, tiers: tuple[str, ...]) -> I64:
    """Return the old number of each tier in the new order.

    The tiers nearest to the NPUs come first, of equally near ones the fastest, and then by name.
    """
    near, rate = np.full(len(tiers), 2 * _FAR), np.zeros(len(tiers))
    np.minimum.at(near, rows.tier, level[rows.a] + level[rows.b])
    np.maximum.at(rate, rows.tier, rows.bandwidth_Bps)
    return column(sorted(range(len(tiers)), key=lambda tier: (near[tier], -rate[tier], tiers[tier])), np.int64)
