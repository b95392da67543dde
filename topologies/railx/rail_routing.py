"""RailX's routing: Algorithm 1 for any setting of the switches, that of the dragonfly, and the non-minimal one of 4.1.2.

A hop between nodes is a walk on the mesh to the nearest chip with a suitable rail, then the rail. All hops along X come before
all along Y, except in the dragonfly, where X comes again. The virtual channel (VC) rises by one with every hop between nodes,
so that one VC more than the longest route has such hops keeps routes from deadlock. In the non-minimal routing Y follows X on
the same VC.
"""

from collections.abc import Sequence

import numpy as np

from emu.arrays import I64, column, ramps
from emu.topology.builders.route_parts import gather, mix, offsets, take_turns
from emu.topology.topology import Routes
from topologies.railx.rail_wiring import PlacedGroup, RailGroup, System

_FAR = 2**20  # further than any chip of a mesh


class _Walk:
    """P messages under way: the present node and chip of each, and the links taken so far.

    Methods move some of the messages, which their argument `who` numbers. The argument `virtual` is a virtual channel.
    """

    def __init__(self, system: System, src: I64, dst: I64, key: I64) -> None:
        self.system = system
        self.node, self.chip = _split(system, src)
        self.to_node, self.to_chip = _split(system, dst)
        self.key = key
        sizes = ([group.size for group in groups] for groups in (system.x, system.y))
        apart = [each for axis, dims in enumerate(sizes) for each in offsets(dims, self.node[axis], self.to_node[axis])]
        self.flow = take_turns(key, *apart, *self.chip, *self.to_chip)  # picks one of equally near rails
        self.taken: list[tuple[I64, I64, I64]] = []  # pair, link, VC

    def _add_links(self, who: I64, first: I64, step: I64, count: I64, virtual: int) -> None:
        """Add links to the routes of some messages.

        Args:
            who: [n] the messages.
            first: [n] the first link of each.
            step: [n] the difference between the numbers of one link and the next.
            count: [n] the number of links of each.
            virtual: The virtual channel of these links.
        """
        pair = np.repeat(np.arange(len(who)), count)
        link = first[pair] + step[pair] * ramps(np.zeros_like(count), count)
        self.taken.append((who[pair], link, np.full(len(pair), virtual, np.int64)))

    def mesh(self, who: I64, to: Sequence[I64], virtual: int) -> None:
        """Move messages inside their nodes to chip (x, y), x first."""
        m, cables = self.system.m, self.system.mesh_cables
        node = self.node[1][who] * self.system.sizes[0] + self.node[0][who]
        for axis, stride in ((0, 1), (1, m)):
            here, there = self.chip[axis][who], to[axis]
            down = there < here
            x, y = (here - down, self.chip[1][who]) if axis == 0 else (self.chip[0][who], here - down)
            cable = (node * m + y) * (m - 1) + x if axis == 0 else cables + node * m * (m - 1) + y * m + x
            self._add_links(who, 2 * cable + down, np.where(down, -2 * stride, 2 * stride), abs(there - here), virtual)
            self.chip[axis][who] = there

    def cross(self, who: I64, axis: int, place: I64, port: tuple[I64, I64], virtual: tuple[int, int]) -> None:
        """Move messages to the chip that has a port, then over the rail of that port to another node of the row or column.

        Args:
            who: The messages.
            axis: 0 along X, 1 along Y.
            place: The position, in the row or column, of the node that the rail leads to.
            port: The column of the rail, and whether the message leaves by the - port.
            virtual: The virtual channels of the walk and of the rail.
        """
        system, (rail, minus) = self.system, port
        rails = system.rails
        edge, across = np.where(minus, 0, system.m - 1), rails[axis][rail] // system.n
        self.mesh(who, (edge, across) if axis == 0 else (across, edge), virtual[0])
        plus_end = np.where(minus, place, self.node[axis][who])  # a rail's cable is the node's whose + port it is at
        line = self.node[1 - axis][who]
        node = line * system.sizes[0] + plus_end if axis == 0 else plus_end * system.sizes[0] + line
        cable = 2 * system.mesh_cables + axis * system.nodes * len(rails[0]) + node * len(rails[axis]) + rail
        self._add_links(who, 2 * cable + minus, np.zeros_like(who), np.ones_like(who), virtual[1])
        self.node[axis][who] = place
        self.chip[axis][who] = system.m - 1 - edge

    def routes(self, virtual: int) -> Routes:
        """Walk to the chips of the destinations, and return the routes of all messages."""
        self.mesh(np.arange(len(self.key)), self.to_chip, virtual)
        return gather(len(self.key), self.taken)


def _split(system: System, npu: I64) -> tuple[list[I64], list[I64]]:
    """Return the coordinates of each NPU: those of its node (X, Y), and those of its chip within the node (x, y)."""
    node, chip = np.divmod(npu, system.m**2)
    return [node % system.sizes[0], node // system.sizes[0]], [chip % system.m, chip // system.m]


def channels(system: System) -> int:
    """Return the number of virtual channels of Algorithm 1: one more than the hops between the nodes farthest apart (4.1.1)."""
    return 1 + sum(g.hops for g in (*system.x, *system.y))


def minimal(system: System, src: I64, dst: I64, key: I64) -> Routes:
    """Return the routes of Algorithm 1: by X-rails to the destination's X, then by Y-rails to its Y, from the nearest chips.

    Along X and along Y, routes take one logical dimension after another.
    """
    walk, virtual = _Walk(system, src, dst, key), 0
    for axis, groups in enumerate(system.placed):
        for placed in groups:
            _cross_group(walk, axis, placed, virtual)
            virtual += placed.of.hops
    return walk.routes(virtual)


def _cross_group(walk: _Walk, axis: int, placed: PlacedGroup, virtual: int) -> None:
    """Move all messages along one logical dimension to the digit of their destinations.

    Args:
        walk: The messages on their way.
        axis: 0 along X, 1 along Y.
        placed: The dimension.
        virtual: The first virtual channel of this part of the route.
    """
    group, stride = placed.of, placed.stride
    digit, wanted = (place[axis] // stride % group.size for place in (walk.node, walk.to_node))
    who = np.flatnonzero(digit != wanted)
    if group.wiring == "ring":
        _go_round(walk, axis, placed, who, virtual)
        return
    port = _nearest(walk, axis, placed, (who, digit[who], wanted[who]))
    place = walk.node[axis][who] + (wanted - digit)[who] * stride
    walk.cross(who, axis, place, port, (virtual, virtual + 1))


def _go_round(walk: _Walk, axis: int, placed: PlacedGroup, who: I64, virtual: int) -> None:
    """Move messages along a dimension wired as a ring, the shorter way round; each stays on one rail.

    Args:
        walk: The messages on their way.
        axis: 0 along X, 1 along Y.
        placed: The dimension.
        who: [n] the messages to move.
        virtual: The virtual channel of the walk to the first rail; it rises by one with each hop between nodes.
    """
    group, stride = placed.of, placed.stride
    digit, wanted = (place[axis][who] // stride % group.size for place in (walk.node, walk.to_node))
    away = (wanted - digit) % group.size
    minus = _takes_minus_port(walk, axis, who, 2 * away - group.size)
    left = np.where(minus, group.size - away, away)
    rail = _rail_on(walk, axis, who, placed)
    for hop in range(group.hops):
        going = np.flatnonzero(left > hop)
        here = walk.node[axis][who[going]]
        digit = here // stride % group.size
        place = here + ((digit + np.where(minus[going], -1, 1)) % group.size - digit) * stride
        virtuals = (virtual + hop, virtual + hop + 1)
        walk.cross(who[going], axis, place, (rail[going], minus[going]), virtuals)


def _takes_minus_port(walk: _Walk, axis: int, who: I64, excess: I64) -> I64:
    """Return [n] 1 for each message that goes round a ring by its - port, 0 for each that goes by its + port.

    A message takes the direction with fewer hops between nodes. If both have as many, it takes the one with fewer hops inside
    nodes; if these are equal, too, the parity of its key decides.

    Args:
        walk: The messages on their way.
        axis: 0 along X, 1 along Y.
        who: [n] the messages.
        excess: [n] the hops between nodes by the + port less those by the - port.
    """
    inside = walk.to_chip[axis][who] - walk.chip[axis][who]
    return np.where(excess, excess > 0, np.where(inside, inside > 0, walk.key[who] % 2)).astype(np.int64)


def _rail_on(walk: _Walk, axis: int, who: I64, placed: PlacedGroup) -> I64:
    """Return [n] the column of a rail for each message, as near to its chip as possible; a hash picks among several.

    Of several such rails, `walk.flow` picks one.

    Args:
        walk: The messages on their way.
        axis: 0 along X, 1 along Y.
        who: [n] the messages.
        placed: The dimension.
    """
    n, first = walk.system.n, placed.first - placed.shift
    end = first + placed.of.rails
    line = np.clip(walk.chip[1 - axis][who], first // n, (end - 1) // n)
    low, high = np.maximum(first, line * n), np.minimum(end, line * n + n)
    return column(placed.shift + low + walk.flow[who] % (high - low), np.int64)


def _nearest(walk: _Walk, axis: int, placed: PlacedGroup, asked: tuple[I64, I64, I64]) -> tuple[I64, I64]:
    """Return the rail column of each message in a fully joined dimension, and 1 if it leaves by a - port, else 0.

    The rail leads to the place that the message goes to. Its port is on the chip nearest to the message's chip. Of several
    such rails, `walk.flow` picks one.

    Args:
        walk: The messages on their way.
        axis: 0 along X, 1 along Y.
        placed: The dimension.
        asked: [n] the messages, the place of each in the dimension, and the place that it goes to.
    """
    system, group, first, (who, here, there) = walk.system, placed.of, placed.first, asked
    rail = first + _rails(group, here, there, walk.node[1 - axis][who])
    minus = np.arange(2)[:, None]
    along, across = walk.chip[axis][who, None, None], walk.chip[1 - axis][who, None, None]
    away = abs(along - np.where(minus, 0, system.m - 1)) + abs(across - (rail - placed.shift) // system.n)
    each = (len(who), 2 * rail.shape[2])
    away = np.where(rail < first + group.rails, away, _FAR).reshape(each)
    near = np.cumsum(away == away.min(axis=1, initial=_FAR, keepdims=True), axis=1)
    best = (near > walk.flow[who, None] % near[:, -1:]).argmax(axis=1)
    return rail.reshape(each)[np.arange(len(who)), best], best // rail.shape[2]


def _rails(group: RailGroup, here: I64, there: I64, line: I64) -> I64:
    """Return [P, 2, C] the numbers of the rails that lead from one node to another, by their + port and by their - port.

    A number of `group.rails` or more means that there is no further rail.

    Args:
        group: The rails of the dimension.
        here: [P] the position of each message's node in the dimension.
        there: [P] the position that it goes to.
        line: [P] the row or column that it is in.
    """
    rings = len(group.after)
    ring = np.stack((group.leads[here, there], group.leads[there, here]), axis=-1)
    least = (ring - line[:, None] * group.rails) % rings
    return least[..., None] + np.arange(-(-group.rails // rings)) * rings


def minimal_dragonfly(system: System, src: I64, dst: I64, key: I64) -> Routes:
    """Return minimal routes of a dragonfly, in which rows are the groups.

    A route goes along its row to a column with a Y-rail to the destination's row, takes this rail, and goes along that row.
    """
    walk = _Walk(system, src, dst, key)
    (local,), (between,) = system.placed
    column_taken = _gateway(walk, between.of, mix(src, dst, key))
    _cross_row(walk, local, column_taken, 0)
    who = np.flatnonzero(walk.node[1] != walk.to_node[1])
    here, there = walk.node[1][who], walk.to_node[1][who]
    walk.cross(who, 1, there, _nearest(walk, 1, between, (who, here, there)), (1, 2))
    _cross_row(walk, local, walk.to_node[0], 2)
    return walk.routes(3)


def _cross_row(walk: _Walk, group: PlacedGroup, to: I64, virtual: int) -> None:
    """Move messages along their rows to the given columns.

    Args:
        walk: The messages on their way.
        group: The rails of a row.
        to: [P] the column to which each message goes.
        virtual: The virtual channel of the walk to the rail; the rail has the next one.
    """
    who = np.flatnonzero(walk.node[0] != to)
    port = _nearest(walk, 0, group, (who, walk.node[0][who], to[who]))
    walk.cross(who, 0, to[who], port, (virtual, virtual + 1))


def _gateway(walk: _Walk, group: RailGroup, chance: I64) -> I64:
    """Return [P] the column from which each message of a dragonfly goes to the row of its destination.

    This is the column of the source, else that of the destination, if a Y-rail leads from there to that row. Else the hash
    picks one of the columns with such a rail.

    Args:
        walk: The messages on their way.
        group: The Y-rails.
        chance: [P] a hash of each message.
    """
    system, (here, there) = walk.system, (walk.node[1], walk.to_node[1])
    rings, rails = len(group.after), system.sizes[0] * group.rails
    ring = np.where(chance % 2, group.leads[here, there], group.leads[there, here])
    ways = np.maximum(1, (rails - ring + rings - 1) // rings)
    found = (ring + chance // 2 % ways * rings) // group.rails
    for at in (walk.to_node[0], walk.node[0]):
        leads = (_rails(group, here, there, at) < group.rails).any(axis=(1, 2))
        found = np.where(leads, at, found)
    return np.where(here == there, walk.node[0], found)


def nonminimal(system: System, src: I64, dst: I64, key: I64) -> Routes:
    """Return the non-minimal routes of a HyperX, each over a column of nodes that a hash picks, as Valiant's (RailX 4.1.2).

    A route takes an X-rail to that column, a Y-rail to the row of the destination, and an X-rail along this row. The walk from
    the Y-rail to the second X-rail is already on the next VC: there are four VCs, one more than Algorithm 1 has.
    """
    walk = _Walk(system, src, dst, key)
    (row,), (of_column,) = system.placed
    same = (walk.node[0] == walk.to_node[0]) & (walk.node[1] == walk.to_node[1])
    _cross_row(walk, row, np.where(same, walk.node[0], mix(src, dst, key) % system.sizes[0]), 0)
    who = np.flatnonzero(walk.node[1] != walk.to_node[1])
    here, there = walk.node[1][who], walk.to_node[1][who]
    walk.cross(who, 1, there, _nearest(walk, 1, of_column, (who, here, there)), (1, 1))
    who = np.flatnonzero(walk.node[0] != walk.to_node[0])
    port = _nearest(walk, 0, row, (who, walk.node[0][who], walk.to_node[0][who]))
    walk.cross(who, 0, walk.to_node[0][who], port, (2, 2))
    return walk.routes(3)
