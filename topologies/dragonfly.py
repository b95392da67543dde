"""Dragonfly: groups of routers, completely linked inside, with direct cables between every two groups.

Source: Kim et al., Technology-driven, highly-scalable dragonfly topology (ISCA 2008), 3. p NPUs and h global ports a router, a
routers a group, g = a h + 1 groups where one cable joins two groups; balanced where a = 2p = 2h. Global port q of a group leads
to the group q mod (g-1) + 1 further on; router r has ports r h .. r h + h - 1.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, column
from emu.errors import must_be
from emu.topology.builders.route_parts import join, link_if, mix, pair, pairs
from emu.topology.builders.wiring import Cables, fabric
from emu.topology.catalogue import HOP_LATENCY, PORT_RATE, Bandwidth, Count, Invariants, Latency, topology
from emu.topology.topology import Drawing, Routes, Topology, check_link_count, frames
from emu.units import format_bandwidth, format_time, seconds

_SOURCE = "Kim et al., Technology-driven, highly-scalable dragonfly topology (ISCA 2008), 3"


class _Shape(NamedTuple):
    """The sizes of a dragonfly: p NPUs of a router, a routers of a group, g groups."""

    p: int
    a: int
    h: int
    links: int  # cables between two groups

    @property
    def groups(self) -> int:
        """The number of groups that leaves no global port free: g = a h / `links` + 1."""
        return self.a * self.h // self.links + 1

    @property
    def routers(self) -> int:
        """The number of routers of all groups."""
        return self.a * self.groups

    @property
    def npus(self) -> int:
        """The number of NPUs, N."""
        return self.p * self.routers

    @property
    def local(self) -> int:
        """The number of cables inside all groups."""
        return self.groups * (self.a * (self.a - 1) // 2)

    @property
    def between(self) -> int:
        """The number of cables between all groups."""
        return self.links * (self.groups * (self.groups - 1) // 2)


def _shape(p: int, a: int, h: int, links: int) -> _Shape:
    """Return the sizes of a dragonfly, after the check that its global ports divide into bundles of `links`."""
    if a * h % links:
        raise must_be("dragonfly", "links", f"a divisor of {a * h}, the global ports of a group (a h)", links)
    return _Shape(p, a, h, links)


def _invariants(p: int, a: int, h: int, links: int, bandwidth: float, **_: object) -> Invariants:
    """Return the invariants of the topology by closed forms."""
    shape = _shape(p, a, h, links)
    everywhere = h % (shape.groups - 1) == 0  # each router has a port to each group
    farthest = 3 if a == 1 else 4 if everywhere else 5
    cables = shape.npus + shape.local + shape.between
    return Invariants(
        2 * cables, 1, farthest, shortest=a == 1, npus=shape.npus, switches=shape.routers, injection_Bps=bandwidth
    )


@topology(
    "dragonfly",
    source=_SOURCE,
    examples=("p=2,a=4,h=2", "p=1,a=2,h=1", "p=4,a=4,h=3,links=4", "p=2,a=3,h=2,links=2", "p=1,a=1,h=4"),
    full=("p=8,a=16,h=8", "p=16,a=32,h=16"),
    invariants=_invariants,
)
def dragonfly(
    p: Count,
    a: Count,
    h: Count,
    links: Count = 1,
    bandwidth: Bandwidth = PORT_RATE,
    latency: Latency = HOP_LATENCY,
    global_latency: Latency = HOP_LATENCY,
) -> Topology:
    """Join groups of `a` routers with p NPUs and h global ports each: at most a local, a global and a local hop.

    Args:
        p: NPUs of a router.
        a: Routers of a group.
        h: Global ports of a router.
        links: Cables between every two groups; there are a h / links + 1 groups.
        bandwidth: Bandwidth of a cable.
        latency: Latency of a hop to a router in the same group.
        global_latency: Latency of a hop to another group.
    """
    shape = _shape(p, a, h, links)
    check_link_count("dragonfly", 2 * (shape.npus + shape.local + shape.between))
    return fabric(
        "dragonfly",
        shape.npus,
        _cables(shape, bandwidth, (latency, global_latency)),
        partial(_route, shape),
        bill={"switch": shape.routers},
        dims=(shape.groups, a, p),
        assumptions=_assumptions(shape, bandwidth, latency, global_latency),
        tiers=("NPU to router", "in a group", "between groups"),
        draw=partial(_draw, shape),
    )


def _assumptions(shape: _Shape, bandwidth: float, latency: int, global_latency: int) -> tuple[str, ...]:
    """Return sentences on the assumptions of the topology."""
    near, far = (format_time(seconds(ticks)) for ticks in (latency, global_latency))
    which = f"; of the {shape.links} that join two groups one that needs fewest hops, by a hash" if shape.links > 1 else ""
    return (
        f"a cable carries {format_bandwidth(bandwidth)} one way",
        f"a hop takes {near} in a group and {far} between groups",
        f"minimal routing: a message to another group takes one cable between groups{which}",
    )


def _port(shape: _Shape, here: I64, there: I64, which: I64) -> I64:
    """Return the router, within its group, of the cable from one group to another."""
    found: I64 = (which * (shape.groups - 1) + (there - here) % shape.groups - 1) // shape.h
    return found


def _cables(shape: _Shape, bandwidth: float, latencies: tuple[int, int]) -> list[Cables]:
    """Return the cables to NPUs, within groups and between groups."""
    n, (near, far) = shape.npus, latencies
    npu = np.arange(n)
    low, high = pairs(shape.a)
    first = n + np.arange(shape.groups)[:, None] * shape.a
    here, there = pairs(shape.groups)
    which = np.arange(shape.links)[:, None]
    ends = [n + i * shape.a + _port(shape, i, j, which) for i, j in ((here, there), (there, here))]
    return [
        Cables("cable to an NPU", npu, n + npu // shape.p, bandwidth, near, 0),
        Cables("cable in a group", first + low, first + high, bandwidth, near, 1),
        Cables("cable between groups", ends[0], ends[1], bandwidth, far, 2),
    ]


def _route(shape: _Shape, src: I64, dst: I64, key: I64) -> Routes:
    """Return routes up to the router, to the router with the cable, over the cable, to the destination's router, and down.

    After the cable between groups a route is on virtual channel 1, so that no routes can deadlock (Kim et al., 4.1). The cable
    itself and the hops before it are on channel 0.
    """
    (here, a), (there, b) = (np.divmod(npu // shape.p, shape.a) for npu in (src, dst))
    away = here != there
    which = _pick_cable(shape, (here, a), (there, b), mix(src, dst, key))
    out, back = _port(shape, here, there, which), _port(shape, there, here, which)
    leave = np.where(away, out, b)
    cable = shape.npus + shape.local + which * (shape.between // shape.links) + pair(shape.groups, here, there)
    return join(
        [
            np.where(src != dst, 2 * src, -1),
            _local(shape, here, a, leave),
            np.where(away, 2 * cable + (here > there), -1),
            np.where(away, _local(shape, there, back, b), -1),
            np.where(src != dst, 2 * dst + 1, -1),
        ],
        virtual=[0, 0, 0, away, away],
    )


def _pick_cable(shape: _Shape, src: tuple[I64, I64], dst: tuple[I64, I64], flow: I64) -> I64:
    """Return a cable between two groups that needs the fewest hops before and after it; a hash picks among several."""
    (here, a), (there, b) = ((group[:, None], router[:, None]) for group, router in (src, dst))
    copies = np.arange(shape.links)
    hops = (_port(shape, here, there, copies) != a).astype(np.int64) + (_port(shape, there, here, copies) != b)
    chance = mix(flow[:, None], copies).reshape(hops.shape) % 2**32
    return column(np.argmin(hops * 2**32 + chance, axis=1), np.int64)


def _local(shape: _Shape, group: I64, a: I64, b: I64) -> I64:
    """Return the link from router a to router b of a group; -1 if a and b are the same."""
    cable = shape.npus + group * (shape.a * (shape.a - 1) // 2) + pair(shape.a, a, b)
    return link_if(a != b, 2 * cable + (a > b))


def _draw(shape: _Shape) -> Drawing:
    """Return a drawing with groups round a circle, their routers on its inner side, and the NPUs outside."""
    wide = shape.a * shape.p + 1.5
    radius = max(wide / 2, wide * shape.groups / (2 * np.pi))
    router, place = np.divmod(np.arange(shape.npus), shape.p)
    group, local = np.divmod(np.arange(shape.routers), shape.a)
    middle = (local - (shape.a - 1) / 2) * shape.p
    along = np.concatenate((middle[router] + place - (shape.p - 1) / 2, middle))
    out = radius + np.where(np.arange(len(along)) < shape.npus, 2.2, 0.0)
    angle = np.concatenate((group[router], group)) * 2 * np.pi / shape.groups
    outward, aside = np.stack((np.sin(angle), np.cos(angle)), -1), np.stack((np.cos(angle), -np.sin(angle)), -1)
    boxes = frames("group", shape.a * shape.p, shape.groups)
    return Drawing(out[:, None] * outward + along[:, None] * aside, boxes)
