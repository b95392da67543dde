"""The Clos with which UB-Mesh is compared: x64 of every NPU into two tiers of HRS, without oversubscription.

Source: UB-Mesh 6.2(d), 6.4 and Table 6. A rack's 16 leaves have x4 to each of its NPUs and as many lanes up; leaf i of every
rack meets the spines of plane i only, so that 128 racks fill a spine's 512 lanes. R racks of N NPUs.
"""

from functools import partial
from math import prod

import numpy as np

from emu.arrays import I64
from emu.errors import must_be
from emu.topology.builders.route_parts import between_npus, join, take_turns
from emu.topology.builders.wiring import Cables, wire
from emu.topology.catalogue import Dims, Invariants, topology
from emu.topology.paths.shortest_paths import shortest
from emu.topology.topology import Routes, Topology
from topologies.ub_mesh.parts import HRS_LANES, LRS_LANES, SOURCE, X4, Lane, rates

_NAME = "ub-mesh:clos"
_DIMS = (128, 8, 8)
LEAVES = 16  # leaves of a rack: 4 x 4 HRS (6.2)
_CPU = 2  # LRS for CPUs on each NPU, of 16 a rack


def _check(dims: tuple[int, ...]) -> None:
    """Check that there are three sizes and that switches have lanes for them."""
    if len(dims) != 3:
        raise must_be(_NAME, "dims", "3 sizes joined by x, of racks, Y, X", "x".join(map(str, dims)))
    lanes = {
        "of a leaf HRS": (2 * X4 * dims[1] * dims[2], HRS_LANES, "take smaller racks"),
        "of a spine HRS": (X4 * dims[0], HRS_LANES, "take 128 racks at most"),
        "of an LRS": (X4 * dims[2], LRS_LANES, "take smaller boards"),
    }
    for what, (used, limit, mend) in lanes.items():
        if used > limit:
            raise must_be(_NAME, f"lanes {what}", f"at most {limit}", used, mend)


def _invariants(dims: tuple[int, ...], lane: Lane) -> Invariants:
    """Return the invariants of the topology by closed forms."""
    racks, boards, places = dims
    per_rack = boards * places
    npus = racks * per_rack
    cables = npus * (LEAVES + _CPU) + racks * LEAVES * per_rack
    degree = LEAVES + _CPU
    return Invariants(
        2 * cables,
        degree,
        4,
        npus // 2 * LEAVES * lane.x4 if racks % 2 == 0 else None,
        npus=npus,
        switches=racks * LEAVES + LEAVES * per_rack + racks * _CPU * boards,
        injection_Bps=degree * lane.x4,
        paths=LEAVES * per_rack,
    )


@topology(
    _NAME,
    source=f"{SOURCE}, 6.2(d), 6.4 and Table 6",
    examples=("dims=4x2x2", "dims=2x3x2,lane_rate=50Gb/s", "dims=3x2x3,latency=1us"),
    invariants=_invariants,
    full=("",),
)
def clos(dims: Dims = _DIMS, *, lane: Lane) -> Topology:
    """Join racks of 16 leaf HRS by half as many spines, with 16 LRS a rack for CPUs: 8192 NPUs, 3072 HRS."""
    _check(dims)
    laid = _cables(dims, lane)
    links, bill = wire(_NAME, laid)
    rack = dims[1] * dims[2]
    n, leaves, spines = dims[0] * rack, dims[0] * LEAVES, LEAVES * rack
    lrs = dims[0] * dims[1] * _CPU
    nodes = n + leaves + spines + lrs
    router = between_npus(partial(_route, dims), shortest(links, nodes, np.arange(nodes) >= n), n)
    parts = {"NPU": n, "HRS": leaves + spines, "LRS": lrs}
    tiers = tuple(kind.kind.removeprefix("link ") for kind in laid)
    words = (*rates(lane), *_words(dims[0]))
    return Topology(_NAME, n, nodes, links, router, dims, parts | bill, words, tiers, symmetry=partial(_shifts, dims))


def _cables(dims: tuple[int, ...], lane: Lane) -> list[Cables]:
    """Return the cables: NPUs to leaves, leaves to spines and NPUs to LRS.

    Nodes are NPUs, leaves by rack, spines by plane, LRS by board.
    """
    racks, boards, places = dims
    rack = boards * places
    npu = np.arange(racks * rack)
    leaf = npu.size + np.arange(racks * LEAVES).reshape(racks, LEAVES)
    spine = npu.size + leaf.size + np.arange(LEAVES * rack).reshape(LEAVES, rack)
    lrs = npu.size + leaf.size + spine.size + np.arange(racks * boards * _CPU).reshape(-1, 1, _CPU)
    return [
        Cables(f"link NPU to leaf x{X4}", npu.reshape(racks, rack, 1), leaf[:, None], lane.x4, lane.latency, 0),
        Cables(f"link leaf to spine x{X4}", leaf[..., None], spine, lane.x4, lane.latency, 1),
        Cables(f"link NPU to LRS x{X4}", npu.reshape(-1, places, 1), lrs, lane.x4, lane.latency, 2),
    ]


def _words(racks: int) -> tuple[str, ...]:
    """Return the sentences that say what the topology assumes."""
    return (
        f"a leaf has as many lanes up as down, each x{X4} to a spine of its own plane of {LEAVES}: {X4 * racks} of a spine's "
        f"{HRS_LANES} lanes are used (how leaves meet spines is not printed)",
        "messages take the leaves of a rack and the spines by turns (UB-Mesh's own planes are taken so too)",
        f"x{_CPU * X4} of each NPU go to {_CPU} LRS of its board, which lead to CPUs and carry no message between NPUs",
    )


def _route(dims: tuple[int, ...], src: I64, dst: I64, key: I64) -> Routes:
    """Return routes up a leaf of the rack and down, or over a spine of the leaf's plane in turn (see `mesh_routing`)."""
    racks, boards, places = dims
    rack, n = boards * places, racks * boards * places
    y, x = ((dst // stride - src // stride) % size for stride, size in ((places, boards), (1, places)))
    turn = take_turns(key, (dst // rack - src // rack) % racks) + y * places + x
    leaf, (row, place) = turn % LEAVES, np.divmod(turn // LEAVES % rack, places)
    spine = (row + src // places) % boards * places + (place + src) % places
    a, b = ((end // rack * LEAVES + leaf) * rack + spine + n * LEAVES for end in (src, dst))
    away = src // rack != dst // rack
    up, down = 2 * (src * LEAVES + leaf), 2 * (dst * LEAVES + leaf) + 1
    return join([up, np.where(away, 2 * a, -1), np.where(away, 2 * b + 1, -1), down])


def _shifts(dims: tuple[int, ...]) -> list[I64]:
    """Return symmetries [nodes]: racks one further round, boards with the rows of spines, NPUs of a board with the columns."""
    racks, boards, places = dims
    parts = dims, (racks, LEAVES), (LEAVES, boards, places), (racks, boards, _CPU)
    sizes = [prod(shape) for shape in parts]
    nodes = [
        part.reshape(shape) for part, shape in zip(np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]), parts, strict=True)
    ]
    rolled = ((0, 0, None, 0), (1, None, 1, 1), (2, None, 2, None))  # axes of NPUs, leaves, spines and LRS
    return [np.concatenate([_roll_nodes(node, axis) for node, axis in zip(nodes, axes, strict=True)]) for axes in rolled]


def _roll_nodes(node: I64, axis: int | None) -> I64:
    """Return the nodes of an array shifted by one along an axis, as a flat array."""
    return (node if axis is None else np.roll(node, -1, axis)).ravel()
