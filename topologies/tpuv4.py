"""Google's TPUv4: cubes of 4x4x4 chips, whose faces optical circuit switches (OCS) join to a torus of cubes.

Sources: InfiniteHBD (Shou et al., SIGCOMM 2025), 2.2 and Table 8; Flex-SiPAC, 6.A; RailX (arXiv:2507.18889), 6.2 and Table 6.
The two chips at the ends of a line through a cube have a port on the same OCS, so each of three directions has 4x4 OCS. An OCS
of R ports takes R/2 cubes: 32 R chips. A circuit passes light only, so an OCS is in the bill but is no node.
"""

from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from emu.arrays import I64, Bool, column
from emu.errors import must_be
from emu.topology.builders.grid import Dimension, grid
from emu.topology.catalogue import HOP_LATENCY, Bandwidth, Count, Dims, Invariants, Latency, check_sizes, topology
from emu.topology.gang_rule import within_units
from emu.topology.topology import Drawing, Links, Topology, check_link_count
from emu.topology.usable_npus import usable_within_units
from emu.units import format_bandwidth, format_time, seconds

_SOURCE = "InfiniteHBD (SIGCOMM 2025), 2.2 and Table 8; Flex-SiPAC, 6.A; RailX (arXiv:2507.18889), Table 6"
_SIDE = 4
_RADIX = 128  # ports of an OCS in use (Table 8: 6400 GB/s of 50; 136 with the spare ones, Flex-SiPAC 6.A)
_BANDWIDTH = 50e9  # bytes per second, one direction: 300 GB/s over 6 links (Table 8)


def _check(cubes: tuple[int, ...], side: int, radix: int) -> None:
    """Check that the sizes are valid, and that an optical switch has ports for all cubes."""
    check_sizes("tpuv4", "cubes", cubes, 3, "three sizes, such as 4x4x4")
    if side % 2:
        raise must_be("tpuv4", "side", "even, as a board has 2x2 chips", side)
    if prod(cubes) > radix // 2:
        what = f"at most {radix // 2}, as each takes 2 of the {radix} ports of an OCS"
        raise must_be("tpuv4", "the number of cubes", what, prod(cubes))


def _invariants(cubes: tuple[int, ...], side: int, planes: int, bandwidth: float, **_: object) -> Invariants:
    """Return the invariants of the topology by closed forms."""
    sizes = [side * c for c in cubes]
    npus, rate = prod(sizes), planes * bandwidth
    halved = 2 * npus // max(sizes) * rate
    return Invariants(6 * npus, 6, sum(s // 2 for s in sizes), halved, npus=npus, switches=0, injection_Bps=6 * rate)


@topology(
    "tpuv4",
    source=_SOURCE,
    examples=("cubes=1x1x1", "cubes=2x1x1", "cubes=2x2x2,side=2", "cubes=1x2x3,side=2,optical=1us"),
    full=("cubes=4x4x4", "cubes=16x2x2", "cubes=4x4x4,planes=6"),
    invariants=_invariants,
)
def tpuv4(
    cubes: Dims,
    side: Count = _SIDE,
    planes: Count = 1,
    radix: Count = _RADIX,
    bandwidth: Bandwidth = _BANDWIDTH,
    latency: Latency = HOP_LATENCY,
    optical: Latency = HOP_LATENCY,
) -> Topology:
    """Join cubes of 4x4x4 chips to one torus by 48 optical circuit switches, set once: 64 cubes are 4096 chips.

    Args:
        cubes: Numbers of cubes along X, Y and Z; other settings of the switches are other topologies.
        side: Chips along an edge of a cube.
        planes: Ports of a chip in each direction, bundled (RailX takes 6).
        radix: Ports of a switch.
        bandwidth: Bandwidth of a port.
        latency: Latency of a link within a cube.
        optical: Latency of a link between two faces.
    """
    _check(cubes, side, radix)
    sizes = tuple(side * c for c in cubes)
    check_link_count("tpuv4", 6 * prod(sizes))
    built = grid("tpuv4", [Dimension(size, "cycle", planes * bandwidth, latency) for size in sizes])
    light = _optical_links(built.links, sizes, side)
    return replace(
        built,
        links=replace(built.links, latency_fs=column(np.where(light, optical, latency), np.int64)),
        bill=_bill(prod(cubes), side, planes),
        assumptions=_assumptions(planes, bandwidth, latency, optical),
        tiers=("X", "Y", "Z"),
        placer=partial(_place, sizes, side),
        draw=partial(_draw, sizes, side),
        usable_counter=partial(_usable, sizes, side),
        gangs=partial(_gang, sizes, side),
    )


def _optical_links(links: Links, sizes: tuple[int, ...], side: int) -> Bool:
    """Return whether each link leaves a cube.

    A link leaves it up from its last place along the link's dimension, or down from its first place.
    """
    crosses = np.zeros(len(links), np.bool_)
    for axis, size in enumerate(sizes):
        rows = np.flatnonzero(links.dimension == axis)
        here = links.src[rows] // prod(sizes[axis + 1 :]) % size
        down = np.arange(len(rows)) % 2  # a cycle's links alternate: one up, one down
        crosses[rows] = here % side == np.where(down, 0, side - 1)
    return crosses


def _bill(cubes: int, side: int, planes: int) -> dict[str, int]:
    """Return the numbers of parts of some cubes."""
    chips, face = side**3, side**2
    board = chips  # 2x2 chips in a circle
    copper = 3 * face * (side - 1) - board
    return {
        "NPU": cubes * chips,
        "OCS": 3 * face * planes,
        "DAC cable": cubes * copper * planes,
        "optical module": cubes * 6 * face * planes,
        "fibre": cubes * 6 * face * planes,
        "link on a board": cubes * board,
        "link of copper": cubes * copper,
        "link through an OCS": cubes * 3 * face,
    }


def _assumptions(planes: int, bandwidth: float, latency: int, optical: int) -> tuple[str, ...]:
    """Return sentences on the assumptions of the topology."""
    bundled = f"a chip has {planes} ports in each direction and spreads each message evenly over them"
    return (
        f"a port carries {format_bandwidth(bandwidth)} one way",
        f"a link takes {format_time(seconds(latency))} within a cube and {format_time(seconds(optical))} through an OCS"
        " (no latency is published)",
        "a message goes Z, then Y, then X, the nearer way round; the torus is not twisted",
        *([bundled] if planes > 1 else []),
    )


def _cube(sizes: tuple[int, ...], side: int) -> I64:
    """Return [N] the cube of each chip."""
    digits = np.unravel_index(np.arange(prod(sizes)), sizes)
    return column(np.ravel_multi_index([d // side for d in digits], [s // side for s in sizes]), np.int64)


def _place(sizes: tuple[int, ...], side: int, n_ranks: int, faulty: I64) -> I64:
    """Return the chips on which ranks run: those of cubes without a fault, because a switch takes whole cubes in and out."""
    cube = _cube(sizes, side)
    return column(np.flatnonzero(~np.isin(cube, cube[faulty])), np.int64)


def _usable(sizes: tuple[int, ...], side: int, group: int, faulty: Bool) -> I64:
    """Return, for each state, the number of usable chips: groups stay within a cube, or take whole cubes without a fault."""
    return usable_within_units("tpuv4", side**3, group, faulty[:, np.argsort(_cube(sizes, side), kind="stable")])


def _gang(sizes: tuple[int, ...], side: int, size: int, group: int, free: Bool) -> I64:
    """Return the chips of a job: groups stay within a cube, or take whole cubes that are free."""
    order = np.argsort(_cube(sizes, side), kind="stable")
    return column(order[within_units(side**3)(size, group, free[order])], np.int64)


def _draw(sizes: tuple[int, ...], side: int) -> Drawing:
    """Return a drawing of cubes in perspective: Z to the right, Y upwards, X to the back."""
    x, y, z = (d + d // side * 0.9 for d in np.unravel_index(np.arange(prod(sizes)), sizes))
    return Drawing(np.stack((z * 1.3 + x * 0.37, y * 1.3 + x * 0.46), axis=-1))
