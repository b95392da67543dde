"""RailX's wires: m x m chips in a mesh are a node; its rails end in a + and a - port, which optical switches join to rings.

Paper's symbols: m chips along a node's edge, n ports along a chip's, r = m n rails in each of X and Y, k mesh link over port
bandwidth, R ports of an optical circuit switch (OCS), H_i and H_o hops inside and between nodes. Node (X, Y), X fastest, has
chips (x, y), x fastest. X-rail a ends on row a // n: its + port is on the last chip of the row, its - port on the first;
Y-rails are likewise on columns. An OCS of X joins X-rail a of all nodes of a row, one of Y joins Y-rail a of a column (3.2,
Figure 6).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Annotated, Literal, NamedTuple

import numpy as np

from emu.arrays import I64
from emu.decompose import MOST, NONE, directed_cycles
from emu.equivalence import shift
from emu.errors import InputError, must_be
from emu.topology.builders.wiring import Cables, wire
from emu.topology.catalogue import Bandwidth, Count, Latency, one_of
from emu.topology.topology import Links, check_link_count

NAME = "railx"


@dataclass(frozen=True)
class RailGroup:
    """Rails of X or Y that form one logical dimension (Dimension Splitting): a ring, or all nodes joined to one another.

    In a complete dimension, ring i is the i-th directed cycle of a Hamiltonian decomposition: each node has every other node
    next to its + port on one of the size - 1 rings, and next to its - port on another (Lemma 3.1).
    """

    wiring: Literal["ring", "complete"]
    size: int  # nodes
    rails: int
    shares: bool = False  # whether it takes the rails of the dimension before it, in turns with it

    @cached_property
    def after(self) -> I64:
        """[rings, size] the node to which each node's + port leads."""
        nodes = np.arange(self.size)
        order = nodes[None] if self.wiring == "ring" else directed_cycles(self.size)
        found = np.empty_like(order)
        np.put_along_axis(found, order, np.roll(order, -1, axis=1), axis=1)
        return found

    @cached_property
    def leads(self) -> I64:
        """[size, size] the ring on which the + port of one node leads to another node; -1 if there is none."""
        found = np.full((self.size, self.size), -1)
        for ring, after in enumerate(self.after):
            found[np.arange(self.size), after] = ring
        return found

    def ring(self, line: I64, rail: I64) -> I64:
        """Return the ring that a rail of a row or column belongs to; rails take the rings in turn."""
        return (line * self.rails + rail) % len(self.after)

    @property
    def hops(self) -> int:
        """The number of hops between the two nodes farthest apart."""
        return self.size // 2 if self.wiring == "ring" else 1


class PlacedGroup(NamedTuple):
    """A logical dimension of nodes with the columns of rails that it has along X or Y.

    A column is the rails of one number in all rows (or columns) of nodes. `first` is the number of the first column of the
    dimension, and `shift` is what one adds to a rail's number to get its column. `stride` is the stride of the dimension's
    digit in a node's position.
    """

    of: RailGroup
    first: int  # number of the first of its columns of rails
    shift: int  # by which the number of a column is above that of its rail
    stride: int  # stride of its digit in a node's place


def show_groups(groups: Sequence[RailGroup]) -> str:
    """Return the dimensions of X or Y in the notation of the setting, such as `K3@4+C4@4`."""
    return "+".join(f"{'C' if g.wiring == 'ring' else 'K'}{g.size}@{g.rails}" for g in groups)


Jobs = Annotated[str, one_of("one", "several")]


@dataclass(frozen=True)
class Hardware:
    """The settings of links, switches and jobs that do not depend on the circuits of the switches."""

    k: Count = 4  # bandwidth between chips of a node over that of n ports: 2 to 4 suffice (6.3); 400 over 100 GB/s in 6.4
    radix: Count = 128  # R: ports of an optical switch (3.2)
    bandwidth: Bandwidth = 50e9  # bandwidth of a port, one direction: 400 Gb/s (6.2)
    latency: Latency = 10_000_000  # latency of a hop inside a node: 10 ns (6.4)
    optical: Latency = 300_000_000  # latency of a hop between nodes: 300 ns (6.4)
    turning: Latency = 6_000_000_000_000  # time of an OCS's turn: at most the 6 ms between two uses (5.2, A.4)
    jobs: Jobs = "one"  # several: further jobs take the nodes that faults cut off from the largest (A.5)


@dataclass(frozen=True)
class System:
    """The sizes and settings of a RailX system: its meshes, its dimensions with their rails, and its optical switches."""

    m: int
    n: int
    x: tuple[RailGroup, ...]  # logical dimensions of X, with their rails in order; the last is the fastest digit of a node
    y: tuple[RailGroup, ...]
    hardware: Hardware = Hardware()

    @property
    def r(self) -> int:
        """The number of rails that a node has along X, which is also that along Y."""
        return self.m * self.n

    @property
    def mesh_rate(self) -> float:
        """The bytes per second of a link between chips of a node."""
        return self.hardware.k * self.n * self.hardware.bandwidth

    @property
    def placed(self) -> tuple[tuple[PlacedGroup, ...], tuple[PlacedGroup, ...]]:
        """The logical dimensions along X and along Y, with the columns of rails that each has."""
        return _placed_groups(self.x), _placed_groups(self.y)

    @property
    def rails(self) -> tuple[I64, I64]:
        """The rail number of each column of X and of Y; dimensions that share a rail have one column each."""
        x, y = (np.concatenate([g.first - g.shift + np.arange(g.of.rails) for g in groups]) for groups in self.placed)
        return x, y

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of nodes along X and along Y."""
        return prod(g.size for g in self.x), prod(g.size for g in self.y)

    @property
    def nodes(self) -> int:
        """The number of nodes of the system."""
        return prod(self.sizes)

    @property
    def npus(self) -> int:
        """The number of chips, N."""
        return self.nodes * self.m**2

    @property
    def dims(self) -> tuple[int, ...]:
        """The dims of the numbering of chips: Y, X, then row and column of the mesh."""
        return (*(g.size for g in self.y), *(g.size for g in self.x), self.m, self.m)

    @property
    def mesh_cables(self) -> int:
        """The number of links in all meshes, in each of the two directions."""
        return self.nodes * self.m * (self.m - 1)

    @property
    def cables(self) -> int:
        """The number of full-duplex links: those of the meshes, and the rails of each node in X and in Y.

        A rail that several dimensions take in turns has a link for each of them.
        """
        return 2 * self.mesh_cables + self.nodes * sum(group.rails for group in (*self.x, *self.y))


def _placed_groups(groups: Sequence[RailGroup]) -> tuple[PlacedGroup, ...]:
    """Return logical dimensions with their columns of rails, one after another unless dimensions share rails."""
    found, column, rail = [], 0, 0
    for group, stride in zip(groups, strides(groups), strict=True):
        rail -= group.rails * group.shares
        found.append(PlacedGroup(group, column, column - rail, stride))
        column, rail = column + group.rails, rail + group.rails
    return tuple(found)


def check(system: System) -> None:
    """Check that a system can be built.

    Raises:
        InputError: R is odd, a line has more nodes than an OCS has pairs of ports, rails do not close, an all-to-all has 4 or 6
            nodes, a dimension has 1, or there are more links than a topology holds.
    """
    radix = system.hardware.radix
    if radix % 2:
        raise must_be(NAME, "radix", "even, as a node has two ports on an OCS", radix)
    for axis, groups, size in zip("XY", (system.x, system.y), system.sizes, strict=True):
        for group in groups:
            _check_group(group)
        rails = sum(g.rails for g in groups if not g.shares)
        if rails != system.r:
            raise must_be(NAME, f"rails along {axis}", f"m n = {system.r} in all", rails)
        if size > radix // 2:
            what = f"at most {radix // 2}, as each takes 2 of the {radix} ports of an OCS"
            raise must_be(NAME, f"nodes along {axis}", what, size)
    check_link_count(NAME, 2 * system.cables)


def _check_group(group: RailGroup) -> None:
    """Check that the rails of a group suffice for its wiring."""
    for what, number, least in (("nodes", group.size, 2), ("rails", group.rails, 1)):
        if number < least:
            raise must_be(NAME, f"{what} of a dimension", f"{least} or more", number)
    if group.wiring == "ring":
        return
    if group.size in NONE:
        rings = f"{group.size - 1} rings cannot join {group.size} nodes, each to each other by a + and a - port"
        raise InputError(f"{NAME}: {rings} (Lemma 3.1 has all numbers but {NONE[0]} and {NONE[1]}); take another, or a ring")
    if group.size > MOST and group.size % 2 == 0:
        raise must_be(NAME, "nodes of an all-to-all", f"at most {MOST} where even", group.size)


def links_of(system: System) -> tuple[Links, dict[str, int]]:
    """Return the links and the bill of a system.

    Cables are in this order: meshes along x (node, y, x), along y (node, y, x), X-rails (node, rail), Y-rails; the cable of a
    rail runs from the + port of its node.
    """
    chip = np.arange(system.npus).reshape(system.nodes, system.m, system.m)
    hardware = system.hardware
    mesh = [
        Cables("link in a node", a, b, system.mesh_rate, hardware.latency, 0)
        for a, b in ((chip[:, :, :-1], chip[:, :, 1:]), (chip[:, :-1], chip[:, 1:]))
    ]
    rails = [
        Cables("link through an OCS", a, b, hardware.bandwidth, hardware.optical, 1 + axis)
        for axis, (a, b) in enumerate(rail_ends(system, axis) for axis in (0, 1))
    ]
    links, bought = wire(NAME, [*mesh, *rails])
    ports = 4 * system.r * system.nodes
    parts = {"NPU": system.npus, "OCS": sum(system.sizes) * system.r, "optical transceiver": ports, "fibre": ports}
    return links, {**parts, **bought}


def after(system: System, axis: int) -> I64:
    """Return [lines, places, r] the position to which the + port of each rail of each node leads.

    A position is that of a node in its row (axis 0) or column (axis 1). A rail has a column for each dimension that takes it.
    """
    place, line = np.arange(system.sizes[axis])[:, None], np.arange(system.sizes[1 - axis])[:, None, None]
    return np.concatenate([_follow(g.of, g.stride, place, line) for g in system.placed[axis]], axis=2)


def _follow(group: RailGroup, stride: int, place: I64, line: I64) -> I64:
    """Return, for each rail of a group, the position to which its + port leads from each position `place`."""
    digit = place // stride % group.size
    return place + (group.after[group.ring(line, np.arange(group.rails)), digit] - digit) * stride


def strides(groups: Sequence[RailGroup]) -> list[int]:
    """Return the stride of each dimension's digit in a node's position along X or Y."""
    return [prod(g.size for g in groups[i + 1 :]) for i in range(len(groups))]


def circuits(system: System, axis: int) -> I64:
    """Return [lines, r, 2 places] the port to which each OCS of X (axis 0) or Y (1) sends the light from each of its ports.

    Port 2i is the + port of the i-th node of the row or column, port 2i + 1 its - port.
    """
    there = after(system, axis).transpose(0, 2, 1)
    ports = np.empty((*there.shape[:2], 2 * there.shape[2]), np.int64)
    ports[..., ::2] = 2 * there + 1
    np.put_along_axis(ports, 2 * there + 1, np.broadcast_to(2 * np.arange(there.shape[2]), there.shape), axis=2)
    return ports


def rail_ends(system: System, axis: int) -> tuple[I64, I64]:
    """Return [nodes, r] and [nodes, r] the two chips that each rail of each node joins.

    The first is a chip of the node that has the rail's + port. The second is a chip of another node: a circuit leads from the +
    port to the - port of the same rail there. A rail has a column for each dimension that takes it.

    Args:
        system: The system; r is the number of rails of a node along an axis.
        axis: 0 for the rails of X, 1 for those of Y.
    """
    there = after(system, axis)
    place, line = np.arange(there.shape[1])[:, None], np.arange(there.shape[0])[:, None, None]
    across = system.rails[axis] // system.n
    a = chip_at(system, axis, line, place, system.m - 1, across)
    b = chip_at(system, axis, line, there, 0, across)
    return _rows_by_node(system, axis, a, there.shape), _rows_by_node(system, axis, b, there.shape)


def _rows_by_node(system: System, axis: int, chips: I64, shape: tuple[int, ...]) -> I64:
    """Return an array [lines, places, r] as [nodes, r], with one row for each node, row by row of the grid."""
    whole = np.broadcast_to(chips, shape)
    return (whole if axis == 0 else whole.transpose(1, 0, 2)).reshape(system.nodes, shape[2])


def chip_at(system: System, axis: int, line: I64, place: I64, along: int, across: I64) -> I64:
    """Return the chip of a node at a position of a row (axis 0) or column (1) of nodes.

    Args:
        system: The system.
        axis: 0: rows, 1: columns.
        line: The number of the row or column.
        place: The position of the node in it.
        along: The coordinate of the chip in its node along that axis.
        across: Its coordinate across that axis.
    """
    (X, x), (Y, y) = ((place, along), (line, across)) if axis == 0 else ((line, across), (place, along))
    return ((Y * system.sizes[0] + X) * system.m + y) * system.m + x


def shifts(system: System) -> list[I64]:
    """Return the symmetries of the system: shifts of chips by one node along each logical dimension that is a ring."""
    return [shift((system.dims, axis)) for axis, group in enumerate((*system.y, *system.x)) if group.wiring == "ring"]
