"""The racks with which UB-Mesh's rack is compared: 1D-FM-A, 1D-FM-B and Clos of Figure 16.

Source: UB-Mesh 6.2 and Table 6. Racks of Y boards of X NPUs; every cable is an x4, on boards a full mesh of x4 but for Clos.

The Clos with which UB-Mesh is compared: x64 of every NPU into two tiers of HRS, without oversubscription.

Source: UB-Mesh 6.2(d), 6.4 and Table 6. A rack's 16 leaves have x4 to each of its NPUs and as many lanes up; leaf i of every
rack meets the spines of plane i only, so that 128 racks fill a spine's 512 lanes. R racks of N NPUs.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.equivalence import shift
from emu.errors import must_be
from emu.topology.builders.route_parts import between_npus, join, link_if, offsets, pairs, take_turns
from emu.topology.builders.wiring import Cables, fabric, wire
from emu.topology.catalogue import Dims, Invariants, check_sizes, planned, topology
from emu.topology.paths.shortest_paths import shortest
from emu.topology.topology import Routes, Topology, check_link_count
from topologies.ub_mesh.parts import HRS_LANES, LRS_LANES, NPU_LANES, SOURCE, X4, Lane, rates

_NAME = "ub-mesh:clos"
_DIMS = (128, 8, 8)
LEAVES = 16  # leaves of a rack: 4 x 4 HRS (6.2)
_CPU = 2  # LRS for CPUs on each NPU: 16 a rack (four a back-plane, 6.2), each with 8 NPUs at x4


def _check_clos(dims: tuple[int, ...]) -> None:
    """Check that there are three sizes, and that switches have enough lanes for them."""
    check_sizes(_NAME, "dims", dims, 3, "3 sizes joined by x, of racks, Y, X")
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
    """Return sentences on the assumptions of the topology."""
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
    of_rack, y, x = offsets(dims, src, dst)
    turn = take_turns(key, of_rack) + y * places + x
    leaf, (row, place) = turn % LEAVES, np.divmod(turn // LEAVES % rack, places)
    spine = (row + src // places) % boards * places + (place + src) % places
    a, b = ((end // rack * LEAVES + leaf) * rack + spine + n * LEAVES for end in (src, dst))
    away = src // rack != dst // rack
    up, down = 2 * (src * LEAVES + leaf), 2 * (dst * LEAVES + leaf) + 1
    return join([up, link_if(away, 2 * a), link_if(away, 2 * b + 1), down])


def _shifts(dims: tuple[int, ...]) -> list[I64]:
    """Return symmetries [nodes]: shifts by one of racks, of boards with rows of spines, of NPUs on boards with columns."""
    racks, boards, places = dims
    shapes = dims, (racks, LEAVES), (LEAVES, boards, places), (racks, boards, _CPU)
    rolled = ((0, 0, None, 0), (1, None, 1, 1), (2, None, 2, None))  # axes of NPUs, leaves, spines and LRS
    return [shift(*zip(shapes, axes, strict=True)) for axes in rolled]


_SOURCE = f"{SOURCE}, 6.2 and Figure 16"
_RACK = (8, 8)
_EXAMPLES = ("", "dims=2x4,lane_rate=50Gb/s", "dims=3x2,latency=1us")


class _Tier(NamedTuple):
    """The switches of one kind in a rack: their number, and the NPUs that each is linked to."""

    part: str  # name in the bill
    npus: I64  # [switches, NPUs]
    carries: bool  # whether it carries NPU-to-NPU traffic of the rack

    @property
    def cable(self) -> str:
        """The name of the cables to NPUs."""
        return f"NPU to {self.part} x{X4}"


class _Rack(NamedTuple):
    """A rack of Y boards of X NPUs under tiers of switches."""

    name: str
    dims: tuple[int, ...]
    lane: Lane
    tiers: list[_Tier]
    meshed: bool = True  # whether the NPUs of a board have links between them

    @property
    def degree(self) -> int:
        """The number of cables of one NPU: to the other NPUs of its board, if these are meshed, and to switches."""
        return (self.dims[1] - 1) * self.meshed + sum(tier.npus.size // (self.dims[0] * self.dims[1]) for tier in self.tiers)


def _npus(name: str, dims: tuple[int, ...], switches: int, *, meshed: bool = True) -> I64:
    """Return [Y, X] the NPUs of a rack, after the check that there are two sizes and not too many links.

    Args:
        name: The name of the rack.
        dims: The boards, and the NPUs of a board.
        switches: The switches that each NPU has a cable to.
        meshed: Whether the NPUs of a board have links between them.
    """
    check_sizes(name, "dims", dims, 2, "2 sizes joined by x, of Y, X")
    check_link_count(name, dims[0] * dims[1] * ((dims[1] - 1) * meshed + 2 * switches))
    return np.arange(dims[0] * dims[1]).reshape(dims)


_LANES_UP = {"LRS": LRS_LANES, "HRS": HRS_LANES // 2}  # an HRS has as many lanes out of the rack as into it


def _check(rack: _Rack) -> None:
    """Check that switches and NPUs have lanes for a rack's links."""
    for tier in rack.tiers:
        if X4 * tier.npus.shape[1] > _LANES_UP[tier.part]:
            what = f"at most {_LANES_UP[tier.part]}"
            raise must_be(rack.name, f"lanes of an {tier.part} to NPUs", what, X4 * tier.npus.shape[1], "take smaller racks")
    if X4 * rack.degree > NPU_LANES:
        raise must_be(rack.name, "an NPU's lanes", f"at most {NPU_LANES}", X4 * rack.degree, "take smaller boards")


def _build(rack: _Rack) -> Topology:
    """Return the topology of a rack."""
    _check(rack)
    n, lane = rack.dims[0] * rack.dims[1], rack.lane
    boards, (low, high) = np.arange(n).reshape(rack.dims), pairs(rack.dims[1])
    laid = [Cables(f"link x{X4}", boards[:, low], boards[:, high], lane.x4, lane.latency, 0)] if rack.meshed else []
    first = n
    for tier in rack.tiers:
        switches = first + np.arange(len(tier.npus))
        laid.append(Cables(f"link {tier.cable}", tier.npus, switches[:, None], lane.x4, lane.latency, len(laid)))
        first += len(switches)
    return fabric(
        rack.name,
        n,
        laid,
        None,
        bill={tier.part: len(tier.npus) for tier in rack.tiers},
        dims=rack.dims,
        assumptions=(*rates(lane), *_assumptions(rack)),
        tiers=(*(["X, NPUs of a board x4"] if rack.meshed else []), *(tier.cable for tier in rack.tiers)),
        relays=np.concatenate([np.full(n, rack.meshed), *(np.full(len(tier.npus), tier.carries) for tier in rack.tiers)]),
    )


def _assumptions(rack: _Rack) -> tuple[str, ...]:
    """Return sentences on the assumptions of the topology."""
    idle = [tier.part for tier in rack.tiers if not tier.carries]
    return (
        f"{', '.join(f'an {t.part} has {t.npus.shape[1]} NPUs at x{X4}' for t in rack.tiers)}; {X4 * rack.degree} of an NPU's "
        f"{NPU_LANES} lanes are used (how they are cabled is not printed)",
        f"{' and '.join(idle)} carry no message of the rack: they lead to {'CPUs' if 'LRS' in idle else 'other racks'}",
    )


def _rack_invariants(rack: _Rack) -> Invariants:
    """Return the invariants of a rack."""
    (y, x), degree = rack.dims, rack.degree
    links = rack.meshed * y * x * (x - 1) + 2 * sum(tier.npus.size for tier in rack.tiers)
    switches = sum(len(tier.npus) for tier in rack.tiers)
    nearest = all(tier.carries or tier.npus.shape[1] == x for tier in rack.tiers)  # else idle switches would be a shorter path
    rate = degree * rack.lane.x4
    return Invariants(links, degree, 2, shortest=nearest, npus=y * x, switches=switches, injection_Bps=rate)


@planned("ub-mesh:rack-1d-fm-a", _build, _rack_invariants, source=_SOURCE, examples=_EXAMPLES)
def rack_a(dims: Dims = _RACK, *, lane: Lane) -> _Rack:
    """Link boards in full meshes and join NPUs of equal place by LRS (32 a rack), x16 out of the rack by 4 HRS: 1D-FM-A."""
    npu = _npus("ub-mesh:rack-1d-fm-a", dims, 8)
    places, out = np.repeat(npu.T, 4, axis=0), np.tile(npu.ravel(), (4, 1))
    tiers = [_Tier("LRS", places, carries=True), _Tier("HRS", out, carries=False)]
    return _Rack("ub-mesh:rack-1d-fm-a", dims, lane, tiers)


def _under_hrs(name: str, dims: tuple[int, ...], hrs: int, *, meshed: bool = True) -> list[_Tier]:
    """Return the tiers of a rack whose HRS join all NPUs, and whose LRS lead to CPUs."""
    npu = _npus(name, dims, hrs + _CPU, meshed=meshed)
    cpus = np.repeat(npu, _CPU, axis=0)
    return [_Tier("HRS", np.tile(npu.ravel(), (hrs, 1)), carries=True), _Tier("LRS", cpus, carries=False)]


@planned("ub-mesh:rack-1d-fm-b", _build, _rack_invariants, source=_SOURCE, examples=_EXAMPLES)
def rack_b(dims: Dims = _RACK, *, lane: Lane) -> _Rack:
    """Link boards in full meshes and join all NPUs by 8 HRS, which lead out of the rack too; 16 LRS for CPUs: 1D-FM-B."""
    return _Rack("ub-mesh:rack-1d-fm-b", dims, lane, _under_hrs("ub-mesh:rack-1d-fm-b", dims, 8))


@planned("ub-mesh:rack-clos", _build, _rack_invariants, source=_SOURCE, examples=_EXAMPLES)
def rack_clos(dims: Dims = _RACK, *, lane: Lane) -> _Rack:
    """Join each NPU to all 16 HRS of a rack of the Clos, without links between NPUs; 16 LRS for CPUs."""
    tiers = _under_hrs("ub-mesh:rack-clos", dims, LEAVES, meshed=False)
    return _Rack("ub-mesh:rack-clos", dims, lane, tiers, meshed=False)
