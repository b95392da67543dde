"""The racks with which UB-Mesh's rack is compared: 1D-FM-A, 1D-FM-B and Clos of Figure 16.

Source: UB-Mesh 6.2 and Table 6. Racks of Y boards of X NPUs; every cable is an x4, on boards a full mesh of x4 but for Clos.

The Clos with which UB-Mesh is compared: x64 of every NPU into two tiers of HRS, without oversubscription.

Source: UB-Mesh 6.2(d), 6.4 and Table 6. A rack's 16 leaves have x4 to each of its NPUs and as many lanes up; leaf i of every
rack meets the spines of plane i only, so that 128 racks fill a spine's 512 lanes. R racks of N NPUs.
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.errors import must_be
from emu.topology.builders.route_parts import between_npus, join, take_turns
from emu.topology.builders.wiring import Cables, wire
from emu.topology.catalogue import Dims, Invariants, topology
from emu.topology.paths.shortest_paths import shortest
from emu.topology.topology import Routes, Topology
from topologies.ub_mesh.parts import HRS_LANES, LRS_LANES, NPU_LANES, SOURCE, X4, Lane, pairs, rates

_NAME = "ub-mesh:clos"
_DIMS = (128, 8, 8)
LEAVES = 16  # leaves of a rack: 4 x 4 HRS (6.2)
_CPU = 2  # LRS for CPUs on each NPU: 16 a rack (four a back-plane, 6.2), each with 8 NPUs at x4


def _check_clos(dims: tuple[int, ...]) -> None:
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
    _check_clos(dims)
    laid = _cables(dims, lane)
    links, bill = wire(_NAME, laid)
    rack = dims[1] * dims[2]
    n, leaves, spines = dims[0] * rack, dims[0] * LEAVES, LEAVES * rack
    lrs = dims[0] * dims[1] * _CPU
    nodes = n + leaves + spines + lrs
    router = between_npus(partial(_route, dims), shortest(links, nodes, np.arange(nodes) >= n), n)
    parts = {"NPU": n, "HRS": leaves + spines, "LRS": lrs}
    tiers = tuple(kind.kind.removeprefix("link ") for kind in laid)
    words = (*rates(lane), *_clos_words(dims[0]))
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


def _clos_words(racks: int) -> tuple[str, ...]:
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


_SOURCE = f"{SOURCE}, 6.2 and Figure 16"
_RACK = (8, 8)
_EXAMPLES = ("", "dims=2x4,lane_rate=50Gb/s", "dims=3x2,latency=1us")


class _Tier(NamedTuple):
    """The switches of one kind in a rack, and the NPUs on each."""

    part: str  # name in the bill
    cable: str
    npus: I64  # [switches, NPUs]
    carries: bool  # whether it carries NPU-to-NPU traffic of the rack


def _boards(dims: tuple[int, ...], of_each: int) -> I64:
    """Return [boards * of_each, X] the NPUs of a board, once for each of its switches."""
    y, x = dims
    return np.repeat(np.arange(y * x).reshape(y, x), of_each, axis=0)


def _all_npus(dims: tuple[int, ...], switches: int) -> I64:
    """Return [switches, NPUs] all NPUs of a rack for each switch."""
    return np.tile(np.arange(dims[0] * dims[1]), (switches, 1))


def _places(dims: tuple[int, ...], of_each: int) -> I64:
    """Return [X * of_each, boards] the NPUs of equal place on all boards."""
    y, x = dims
    return np.repeat(np.arange(y * x).reshape(y, x).T, of_each, axis=0)


def _tiers_a(dims: tuple[int, ...]) -> list[_Tier]:
    """Return the switches of rack A: LRS for places, and HRS that lead out."""
    return [
        _Tier("LRS", f"link NPU to LRS x{X4}", _places(dims, 4), carries=True),
        _Tier("HRS", f"link NPU to HRS x{X4}", _all_npus(dims, 4), carries=False),
    ]


def _tiers_b(dims: tuple[int, ...]) -> list[_Tier]:
    """Return the switches of rack B: HRS that join all NPUs, and LRS for CPUs."""
    return [
        _Tier("HRS", f"link NPU to HRS x{X4}", _all_npus(dims, 8), carries=True),
        _Tier("LRS", f"link NPU to LRS x{X4}", _boards(dims, _CPU), carries=False),
    ]


def _tiers_clos(dims: tuple[int, ...]) -> list[_Tier]:
    """Return the switches of the Clos rack: HRS that join all NPUs, and LRS for CPUs."""
    return [
        _Tier("HRS", f"link NPU to HRS x{X4}", _all_npus(dims, 16), carries=True),
        _Tier("LRS", f"link NPU to LRS x{X4}", _boards(dims, _CPU), carries=False),
    ]


_Tiers = Callable[[tuple[int, ...]], list[_Tier]]  # dims -> tiers
_LANES_UP = {"LRS": LRS_LANES, "HRS": HRS_LANES // 2}  # an HRS has as many lanes out of the rack as into it


def _check(name: str, dims: tuple[int, ...], tiers: list[_Tier], meshed: bool) -> None:
    """Check that switches and NPUs have lanes for a rack's links."""
    for tier in tiers:
        if X4 * tier.npus.shape[1] > _LANES_UP[tier.part]:
            what = f"at most {_LANES_UP[tier.part]}"
            raise must_be(name, f"lanes of an {tier.part} to NPUs", what, X4 * tier.npus.shape[1], "take smaller racks")
    used = X4 * _degree(dims, tiers, meshed)
    if used > NPU_LANES:
        raise must_be(name, "an NPU's lanes", f"at most {NPU_LANES}", used, "take smaller boards")


def _degree(dims: tuple[int, ...], tiers: list[_Tier], meshed: bool) -> int:
    """Return the number of an NPU's links."""
    return (dims[1] - 1) * meshed + sum(tier.npus.size // (dims[0] * dims[1]) for tier in tiers)


def _two(name: str, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dims after the check that there are two."""
    if len(dims) != 2:
        raise must_be(name, "dims", "2 sizes joined by x, of Y, X", "x".join(map(str, dims)))
    return dims


def _rack(name: str, of: _Tiers, meshed: bool, dims: tuple[int, ...], lane: Lane) -> Topology:
    """Return the topology of a rack with the switches of `of`, and with boards that are meshed or not."""
    tiers = of(_two(name, dims))
    _check(name, dims, tiers, meshed)
    n = dims[0] * dims[1]
    boards, (low, high) = np.arange(n).reshape(dims), pairs(dims[1])
    laid = [Cables(f"link x{X4}", boards[:, low], boards[:, high], lane.x4, lane.latency, 0)] if meshed else []
    first = n
    for tier in tiers:
        switches = first + np.arange(len(tier.npus))
        laid.append(Cables(tier.cable, tier.npus, switches[:, None], lane.x4, lane.latency, len(laid)))
        first += len(switches)
    links, bill = wire(name, laid)
    relays = np.concatenate([np.full(n, meshed), *(np.full(len(tier.npus), tier.carries) for tier in tiers)])
    parts = {"NPU": n} | {tier.part: len(tier.npus) for tier in tiers}
    named = (*(["X, NPUs of a board x4"] if meshed else []), *(tier.cable.removeprefix("link ") for tier in tiers))
    words = (*rates(lane), *_words(dims, tiers, meshed))
    return Topology(name, n, first, links, shortest(links, first, relays), dims, parts | bill, words, named, relays=relays)


def _words(dims: tuple[int, ...], tiers: list[_Tier], meshed: bool) -> tuple[str, ...]:
    """Return the sentences that say what the topology assumes."""
    idle = [tier.part for tier in tiers if not tier.carries]
    used = X4 * _degree(dims, tiers, meshed)
    return (
        f"{', '.join(f'an {t.part} has {t.npus.shape[1]} NPUs at x{X4}' for t in tiers)}; {used} of an NPU's {NPU_LANES} "
        "lanes are used (how they are cabled is not printed)",
        f"{' and '.join(idle)} carry no message of the rack: they lead to {'CPUs' if 'LRS' in idle else 'other racks'}",
    )


def _rack_invariants(of: _Tiers, meshed: bool, dims: tuple[int, ...], lane: Lane) -> Invariants:
    """Return the invariants of a rack."""
    (y, x), tiers = dims, of(dims)
    degree = _degree(dims, tiers, meshed)
    links = meshed * y * x * (x - 1) + 2 * sum(tier.npus.size for tier in tiers)
    switches = sum(len(tier.npus) for tier in tiers)
    nearest = all(tier.carries or tier.npus.shape[1] == x for tier in tiers)  # else idle switches would be a shorter path
    return Invariants(links, degree, 2, shortest=nearest, npus=y * x, switches=switches, injection_Bps=degree * lane.x4)


@topology("ub-mesh:rack-1d-fm-a", source=_SOURCE, examples=_EXAMPLES, invariants=partial(_rack_invariants, _tiers_a, True))
def rack_a(dims: Dims = _RACK, *, lane: Lane) -> Topology:
    """Link boards in full meshes and join NPUs of equal place by LRS (32 a rack), x16 out of the rack by 4 HRS: 1D-FM-A."""
    return _rack("ub-mesh:rack-1d-fm-a", _tiers_a, True, dims, lane)


@topology("ub-mesh:rack-1d-fm-b", source=_SOURCE, examples=_EXAMPLES, invariants=partial(_rack_invariants, _tiers_b, True))
def rack_b(dims: Dims = _RACK, *, lane: Lane) -> Topology:
    """Link boards in full meshes and join all NPUs by 8 HRS, which lead out of the rack too; 16 LRS for CPUs: 1D-FM-B."""
    return _rack("ub-mesh:rack-1d-fm-b", _tiers_b, True, dims, lane)


@topology("ub-mesh:rack-clos", source=_SOURCE, examples=_EXAMPLES, invariants=partial(_rack_invariants, _tiers_clos, False))
def rack_clos(dims: Dims = _RACK, *, lane: Lane) -> Topology:
    """Join each NPU to all 16 HRS of a rack of the Clos, without links between NPUs; 16 LRS for CPUs."""
    return _rack("ub-mesh:rack-clos", _tiers_clos, False, dims, lane)
