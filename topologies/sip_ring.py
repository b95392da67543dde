"""SiP-Ring as the InfiniteHBD paper models it: static rings of as many GPUs as tensor parallelism has, which never change.

Source: Shou et al., InfiniteHBD (SIGCOMM 2025), 6.1, after Khani et al., SiP-ML (SIGCOMM 2021).
"""

from functools import partial

import numpy as np

from emu.arrays import I64
from emu.topology.builders.route_parts import join, link_if
from emu.topology.builders.wiring import Cables, fabric
from emu.topology.catalogue import HOP_LATENCY, Bandwidth, Count, Invariants, Latency, topology
from emu.topology.gang_rule import in_free_units
from emu.topology.placement import healthy_units
from emu.topology.topology import Drawing, Routes, Topology, check_link_count, frames
from emu.topology.usable_npus import usable_in_healthy_units
from emu.units import format_bandwidth, format_time, seconds

_RING_SOURCE = "InfiniteHBD (SIGCOMM 2025), 2.2 and 6.1, after Khani et al., SiP-ML (SIGCOMM 2021)"
_HBD = 800e9  # bytes per second out of a GPU, one direction: 6.4 Tb/s (InfiniteHBD 6.1)
_DCN = 50e9  # 400 Gb/s (InfiniteHBD 6.1)


def _ring_links(rings: int, size: int) -> int:
    """Return the number of cables of the rings; a ring of two GPUs has two, a ring of one has none."""
    return rings * size * (size > 1)


def _ring_invariants(size: int, rings: int, bandwidth: float, dcn: float, **_: object) -> Invariants:
    """Return the invariants of the ring topology by closed forms."""
    n, joined = rings * size, rings > 1
    return Invariants(
        2 * _ring_links(rings, size) + 2 * n * joined,
        2 * (size > 1) + joined,
        2 if joined else size // 2,
        shortest=not joined or size < 6,  # else the network would be a shorter path to the other side of the ring
        npus=n,
        switches=int(joined),
        injection_Bps=bandwidth * (size > 1) + dcn * joined,
    )


@topology(
    "sip-ring",
    source=_RING_SOURCE,
    examples=("size=8", "size=4,rings=4", "size=2,rings=3", "size=1,rings=3", "size=5,rings=2,dcn=25GB/s", "size=16,rings=4"),
    full=("size=32,rings=90", "size=64,rings=45"),
    invariants=_ring_invariants,
)
def sip_ring(
    size: Count, rings: Count = 1, bandwidth: Bandwidth = _HBD, dcn: Bandwidth = _DCN, latency: Latency = HOP_LATENCY
) -> Topology:
    """Join as many GPUs as tensor parallelism has to fixed rings, so that a fault costs its whole ring.

    Args:
        size: GPUs of a ring.
        rings: Rings side by side; where there are several, the datacentre network joins their GPUs.
        bandwidth: Bandwidth of a GPU in its ring, half to each side.
        dcn: Bandwidth of a GPU into the datacentre network.
        latency: Latency of a hop.
    """
    n, joined = rings * size, rings > 1
    check_link_count("sip-ring", 2 * (_ring_links(rings, size) + n * joined))
    npus = np.arange(n)
    ring = npus[: _ring_links(rings, size)]
    ahead = ring - ring % size + (ring + 1) % size
    laid = [Cables("link of a ring", ring, ahead, bandwidth / 2, latency, 0)]
    laid += [Cables("link to the DCN", npus, n, dcn, latency, 1)] * joined
    return fabric(
        "sip-ring",
        n,
        laid,
        partial(_ring_route, size, rings),
        bill={},
        dims=(rings, size),
        assumptions=_ring_assumptions(rings, bandwidth, dcn, latency),
        tiers=("ring", "DCN"),
        placer=partial(healthy_units, npus.reshape(rings, size)),  # on a broken ring, a line, no ring runs (InfiniteHBD 2.2)
        draw=partial(_ring_draw, size, rings),
        relays=True,
        usable_counter=partial(usable_in_healthy_units, "sip-ring", size),
        gangs=in_free_units(size),
    )


def _ring_assumptions(rings: int, bandwidth: float, dcn: float, latency: int) -> tuple[str, ...]:
    """Return sentences on the assumptions of the topology.

    Args:
        rings: The number of rings.
        bandwidth: Bytes per second that leave a GPU within its ring.
        dcn: Bytes per second of a GPU into the datacentre network.
        latency: Ticks of a hop.
    """
    joined = (
        f"the datacentre network is one switch that never blocks, {format_bandwidth(dcn)} a GPU; "
        "messages between rings take it, those within a ring do not"
    )
    return (
        f"a GPU has {format_bandwidth(bandwidth)} one way, half of it to each side of its ring",
        f"a hop takes {format_time(seconds(latency))} (no latency is published)",
        "of two equally near ways round a ring an even channel goes up, an odd one down",
        *([joined] if rings > 1 else []),
    )


def _ring_route(size: int, rings: int, src: I64, dst: I64, key: I64) -> Routes:
    """Return routes of pairs: the shorter way round a ring, or up to the datacentre network and down to another ring."""
    away, over = (dst - src) % size, src // size != dst // size
    down = (2 * away > size) | ((2 * away == size) & (key % 2 == 1))
    steps = np.where(over, 0, np.where(down, size - away, away))
    hop = np.arange(steps.max(initial=1))
    place = (src[:, None] + np.where(down[:, None], -1 - hop, hop)) % size
    cable = (src - src % size)[:, None] + place
    around = link_if(hop < steps[:, None], 2 * cable + down[:, None])
    up = 2 * (_ring_links(rings, size) + src)
    return join([around, link_if(over, up), link_if(over, up + 2 * (dst - src) + 1)])


def _ring_draw(size: int, rings: int) -> Drawing:
    """Return a drawing with rings side by side in rows, and the network above them."""
    ring, place = np.divmod(np.arange(rings * size), size)
    turn, radius = 2 * np.pi * place / size, 0.5 / np.sin(np.pi / size) if size > 1 else 0.0
    columns = int(np.ceil(np.sqrt(rings)))
    row, at = np.divmod(ring, columns)
    pitch = 2 * radius + 1.4
    x, y = at * pitch + radius * np.sin(turn), -row * pitch + radius * np.cos(turn)
    hub = np.array([[(min(columns, rings) - 1) * pitch / 2, pitch]])
    boxes = frames("ring", size, rings * (size > 1))
    return Drawing(np.concatenate((np.stack((x, y), axis=-1), hub[: rings > 1])), boxes)
