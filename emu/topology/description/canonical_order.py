"""The canonical order of a description's switches and tiers, which does not depend on the order in which they are written.

NPUs keep their numbers, because these are ranks. Colour refinement from the NPUs tells switches apart by their cables. Of those
that it leaves alike one is set apart, and so on, until those that are still alike have the same neighbours. Source: McKay and
Piperno, Practical graph isomorphism, II, J. Symbolic Comput. 60 (2014). Letters: C rows of cables, V nodes, E ends of rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from emu.arrays import I64, Bool, column
from emu.topology.builders.route_parts import mix
from emu.topology.description.cable_rows import CableRows
from emu.topology.paths.shortest_paths import least_weights

_WORK = 2**27  # ends of rows that all rounds of refinement may touch, which takes some seconds
_FAR = 2**31  # number that stands for no neighbour nearer to the NPUs, and for a level that no NPU reaches


@dataclass(frozen=True, slots=True)
class CanonicalOrder:
    """The numbers of the nodes and tiers of a description in canonical order."""

    node: I64  # [V] old number of each node
    tier: I64  # old number of each tier
    complete: bool  # False: some switches that look alike are in the order in which they are written

    def names(self, old: Callable[[int], str]) -> Callable[[int], str]:
        """Return the function that gives the name of a node by its new number, from that by its old one."""
        return lambda node: old(int(self.node[node]))

    def rows(self, rows: CableRows) -> CableRows:
        """Return rows with the new numbers of nodes and tiers."""
        node, tier = np.argsort(self.node), np.argsort(self.tier)
        return replace(rows, a=column(node[rows.a], np.int64), b=column(node[rows.b], np.int64), tier=tier[rows.tier])


def canonical_order(rows: CableRows, n_npus: int, n_nodes: int, tiers: tuple[str, ...], *, one_way: bool) -> CanonicalOrder:
    """Return the canonical order of the nodes and tiers that some rows of cables join.

    Switches are counted from the NPUs outward, those with faster cables first, then by the least of the nodes below them. Tiers
    are counted alike, and at last by their names.
    """
    ends = _Ends.of(rows, n_npus, n_nodes, one_way=one_way)
    colour, complete = _colours(ends)
    return CanonicalOrder(_node_order(ends, colour), _tier_order(rows, ends.level, tiers), complete)


@dataclass(frozen=True, eq=False)
class _Ends:
    """Both ends of all rows of cables, sorted by the node; a sum over the ends of a node does not depend on their order."""

    n_npus: int
    level: I64  # [V] cables from the nearest NPU
    node: I64  # [E] node at this end
    other: I64  # [E] node at the other end
    rate: I64  # [E] bits of the bandwidth, which are in the order of the bandwidths
    kind: I64  # [E] hash of what a cable is, seen from this end
    count: I64  # [E] parallel cables

    @staticmethod
    def of(rows: CableRows, n_npus: int, n_nodes: int, *, one_way: bool) -> "_Ends":
        """Return the ends of rows; links one way differ from their two ends."""
        node, other = np.concatenate((rows.a, rows.b)), np.concatenate((rows.b, rows.a))
        rate = rows.bandwidth_Bps.view(np.int64)
        kind = [mix(rate, rows.latency_fs, rows.cost, way * one_way) for way in range(2)]
        level = least_weights((node, other), np.ones(len(node)), n_nodes, [np.arange(n_npus)])[0]
        order = np.argsort(node, kind="stable")
        columns = (node, other, np.tile(rate, 2), np.concatenate(kind), np.tile(rows.count, 2))
        return _Ends(n_npus, np.minimum(level, _FAR).astype(np.int64), *(each[order] for each in columns))

    @cached_property
    def starts(self) -> I64:
        """[nodes that have ends] where the ends of each begin."""
        return np.flatnonzero(np.diff(self.node, prepend=-1))

    def sums(self, label: I64) -> I64:
        """Return [V] a hash of the labels of each node's neighbours, and of the cables to them."""
        found = np.zeros(len(label), np.int64)
        if len(self.node):
            found[self.node[self.starts]] = np.add.reduceat(self.count * mix(label[self.other], self.kind), self.starts)
        return found


def _colours(ends: _Ends) -> tuple[I64, bool]:
    """Return [V] a colour of each node; only switches with the same neighbours share one, if the second result is true."""
    nodes = np.arange(len(ends.level))
    colour = np.where(nodes < ends.n_npus, nodes, mix(ends.level, -1))
    twin, left = ends.sums(nodes), _WORK
    while True:
        colour, rounds = _refined(ends, colour)
        left -= (rounds + 1) * len(ends.node)
        apart = _set_apart(colour, twin)
        if apart is None or left < 0:
            return colour, apart is None
        colour = np.where(apart, mix(colour, 1), colour)


def _refined(ends: _Ends, colour: I64) -> tuple[I64, int]:
    """Return colours of switches that tell apart what their neighbours tell apart, and the number of rounds that it took."""
    known, rounds, switch = 0, 0, np.arange(len(colour)) >= ends.n_npus
    while (now := len(np.unique(colour))) > known:
        known, rounds = now, rounds + 1
        colour = np.where(switch, mix(colour, ends.sums(colour)), colour)
    return colour, rounds


def _set_apart(colour: I64, twin: I64) -> Bool | None:
    """Return the marks [V] of switches to set apart: one of a colour and all with its neighbours; None where none is left.

    The colour is the least of those that have switches with other neighbours; the switch is its first.
    """
    order = np.lexsort((twin, colour))
    mixed = (np.diff(colour[order]) == 0) & (np.diff(twin[order]) != 0)
    if not mixed.any():
        return None
    alike = colour == colour[order[np.argmax(mixed)]]
    return np.asarray(alike & (twin == twin[np.argmax(alike)]))


def _node_order(ends: _Ends, colour: I64) -> I64:
    """Return [V] the old number of each node: NPUs, then switches level by level."""
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
    """Return the old number of each tier: the nearest to the NPUs first, of equally near ones the fastest, then by name."""
    near, rate = np.full(len(tiers), 2 * _FAR), np.zeros(len(tiers))
    np.minimum.at(near, rows.tier, level[rows.a] + level[rows.b])
    np.maximum.at(rate, rows.tier, rows.bandwidth_Bps)
    return column(sorted(range(len(tiers)), key=lambda tier: (near[tier], -rate[tier], tiers[tier])), np.int64)
