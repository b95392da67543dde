"""SuperPods of the racks with which UB-Mesh's is compared: 1D-FM-A, 1D-FM-B and Clos (6.2), in a 2D full mesh as in UB-Mesh.

Source: UB-Mesh 6.2, Figures 16 and 17. A rack's HRS have as many lanes out of it as into it, of which a quarter leads to other
pods, as in UB-Mesh's rack (3.3.3), and the rest to the racks of its row and column. The switches of a tier that a message could
take are one node here: a message is spread over all of them, as over those of the ideal Clos. R racks of Y boards of X NPUs.
"""

from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.equivalence import shift
from emu.errors import must_be
from emu.topology.builders.route_parts import between_npus, join, link_if, offsets, pair, pairs, take_turns
from emu.topology.builders.wiring import Cables, wire
from emu.topology.catalogue import Dims, Invariants, check_sizes, topology
from emu.topology.paths.shortest_paths import shortest
from emu.topology.topology import Routes, Topology, check_link_count
from topologies.ub_mesh.parts import HRS_LANES, LRS_LANES, SOURCE, X4, Lane, rates

_DIMS = (8, 4, 4, 8, 8)
_LIKE = 6  # other racks of a rack's row and column, among which its lanes to racks are divided (3.3.3)
_TO_PODS = 4  # one in so many of a rack's lanes out leads to other pods (3.3.3)
_SOURCE = f"{SOURCE}, 6.2 and Figures 16 and 17"


class _RackKind(NamedTuple):
    """One kind of rack of a SuperPod: its switches, and the lanes of its NPUs to them."""

    name: str
    hrs: int  # lanes of an NPU to the rack's HRS
    lrs: int  # lanes of an NPU to the LRS that join NPUs of equal place; 0: HRS join them, too
    cpu_lrs: int  # LRS of a rack of 64 that lead to CPUs alone
    meshed: bool = True  # whether the NPUs of a board have links between them


_WORDS = {"X": "x", "LRS": "NPU to LRS x", "HRS": "NPU to HRS x", "pods": "HRS to HRS of pods x"}
_A = _RackKind("ub-mesh:superpod-1d-fm-a", 16, 16, 0)
_B = _RackKind("ub-mesh:superpod-1d-fm-b", 32, 0, 16)
_CLOS = _RackKind("ub-mesh:superpod-rack-clos", 64, 0, 16, meshed=False)


class _CablePlan(NamedTuple):
    """The cables of a SuperPod, and the numbers of their first cables and switches."""

    cables: list[Cables]
    first: dict[str, int]
    lrs: int  # number of the first LRS; `hrs`: of the first HRS; `top`: of the node above pods
    hrs: int
    top: int


def _check(kind: _RackKind, dims: tuple[int, ...]) -> None:
    """Check that there are five sizes, that switches have enough lanes for them, and that there are not too many links."""
    check_sizes(kind.name, "dims", dims, 5, "5 sizes joined by x, of pods, alpha, Z, Y, X")
    _, a, z, y, _ = dims
    for what, used, most in (
        ("racks of a row and a column besides one", a + z - 2, _LIKE),
        ("lanes of an LRS", X4 * y, LRS_LANES // 2),
        ("racks", prod(dims[:3]), HRS_LANES // X4),
    ):
        if used > most:
            raise must_be(kind.name, what, f"at most {most}", used, "take a smaller SuperPod")
    check_link_count(kind.name, _links(kind, dims))


def _links(kind: _RackKind, dims: tuple[int, ...]) -> int:
    """Return the number of directed links."""
    pods, a, z, _, x = dims
    n, between = prod(dims), pods * a * z * (a - 1 + z - 1)
    return n * (x - 1) * kind.meshed + 2 * n * (1 + bool(kind.lrs)) + between + 2 * pods * a * z


def _lay(kind: _RackKind, dims: tuple[int, ...], lane: Lane) -> _CablePlan:
    """Return the cables of a SuperPod with racks of a kind."""
    pods, a, z, y, x = dims
    racks, n = pods * a * z, prod(dims)
    npu = np.arange(n).reshape(racks, y, x)
    lrs = n + np.arange(racks * x * bool(kind.lrs)).reshape(racks, 1, -1)
    hrs = n + lrs.size + np.arange(racks).reshape(pods, a, z)
    top, out = n + lrs.size + racks, kind.hrs * y * x  # lanes out of a rack
    to_rack, to_pods = out * (_TO_PODS - 1) // _TO_PODS / _LIKE, out / _TO_PODS
    ends = {
        "X": (npu[..., pairs(x)[0]], npu[..., pairs(x)[1]], X4 * kind.meshed),
        "LRS": (npu, lrs, kind.lrs),
        "HRS": (npu, hrs.reshape(-1, 1, 1), kind.hrs),
        "Z": (hrs[..., pairs(z)[0]], hrs[..., pairs(z)[1]], to_rack),
        "alpha": (hrs[:, pairs(a)[0]], hrs[:, pairs(a)[1]], to_rack),
        "pods": (hrs, np.full_like(hrs, top), to_pods),
    }
    has = {name: each for name, each in ends.items() if each[2]}
    laid = [
        Cables(f"link {_WORDS.get(name, name + ' x')}{lanes:g}", low, high, lanes * lane.lane_rate, lane.latency, place)
        for place, (name, (low, high, lanes)) in enumerate(has.items())
    ]
    counts = np.cumsum([0, *(len(each.ends[0]) for each in laid)]).tolist()
    first = dict.fromkeys(ends, 0) | dict(zip(has, counts, strict=False))
    return _CablePlan(laid, first, n, n + lrs.size, top)


def _build(kind: _RackKind, dims: tuple[int, ...], lane: Lane) -> Topology:
    """Return the topology of a SuperPod with racks of a kind.

    Args:
        kind: The rack: the lanes of its NPUs to each kind of switch.
        dims: The numbers of pods, of columns and rows of racks, of boards of a rack, and of NPUs of a board.
        lane: The rate of a lane, and the latency of a link.
    """
    _check(kind, dims)
    laid, n = _lay(kind, dims, lane), prod(dims)
    links, bill = wire(kind.name, laid.cables)
    nodes = laid.top + 1
    relays = np.ones(nodes, np.bool_)
    router = between_npus(partial(_route, kind, dims, laid), shortest(links, nodes, relays), n)
    racks, rack = prod(dims[:3]), dims[3] * dims[4]
    per_rack = {"LRS": (kind.lrs // X4 * dims[4] or kind.cpu_lrs) * racks, "HRS": (kind.hrs // X4) * racks}
    per_rack["HRS"] += kind.hrs * rack // _TO_PODS * racks // HRS_LANES
    tiers = tuple(each.kind.removeprefix("link ") for each in laid.cables)
    words = (*rates(lane), *_assumptions(kind, dims))
    parts = {"NPU": n} | per_rack | {name: count for name, count in bill.items() if count}
    return Topology(
        kind.name, n, nodes, links, router, dims, parts, words, tiers, symmetry=partial(_shifts, dims, laid), relays=relays
    )


def _assumptions(kind: _RackKind, dims: tuple[int, ...]) -> tuple[str, ...]:
    """Return sentences on the assumptions of the topology."""
    out, joined = kind.hrs * dims[3] * dims[4], "boards" if kind.meshed else "NPUs of a board"
    return (
        f"an NPU has x{kind.hrs} to the HRS of its rack"
        + (f" and x{kind.lrs} to the LRS that join NPUs of equal place" if kind.lrs else f", which join the {joined} too"),
        f"a rack's HRS have x{out} out of it: x{out * (_TO_PODS - 1) // _TO_PODS // _LIKE} to each other rack of its row and "
        f"column, and x{out // _TO_PODS} to other pods (how they are divided is not printed; as in UB-Mesh's rack)",
        "switches of a tier that a message could take are one here: it is spread over all of them",
    )


def _route(kind: _RackKind, dims: tuple[int, ...], laid: _CablePlan, src: I64, dst: I64, key: I64) -> Routes:
    """Return routes: over the meshed board, within a rack along X and over LRS or HRS, between racks over HRS.

    Racks of a pod are crossed in either order.
    """
    _, _, _, y, x = dims
    a, b = np.unravel_index(src, dims), np.unravel_index(dst, dims)
    away = take_turns(key, *offsets(dims, src, dst)[:3])
    near, boards = src // (y * x) == dst // (y * x), a[3] != b[3]
    on_board = near & (a[4] != b[4]) & (~boards | bool(kind.lrs)) & kind.meshed
    by_lrs, up = near & boards & bool(kind.lrs), ~near | ((boards | (not kind.meshed)) & (not kind.lrs))
    relay = np.where(on_board, src - a[4] + b[4], src)
    mesh = laid.first["X"] + src // x * (x * (x - 1) // 2) + pair(x, a[4], b[4])
    return join(
        [
            link_if(on_board, 2 * mesh + (a[4] > b[4])),
            link_if(by_lrs, 2 * (laid.first["LRS"] + relay)),
            link_if(by_lrs, 2 * (laid.first["LRS"] + dst) + 1),
            link_if(up, 2 * (laid.first["HRS"] + src)),
            *_rack_stages(dims, laid, (a, b), away % 2 == 0),
            link_if(up, 2 * (laid.first["HRS"] + dst) + 1),
        ]
    )


_Digits = tuple[I64, ...]  # of NPUs over dims, an array for each


def _rack_stages(dims: tuple[int, ...], laid: _CablePlan, ends: tuple[_Digits, _Digits], z_first: Bool) -> list[I64]:
    """Return the stages from rack to rack: Z and alpha, in the order that `z_first` says, or over the HRS of pods."""
    (_, columns, rows, _, _), (a, b) = dims, ends
    pods = a[0] != b[0]
    along_z, along_a = ~pods & (a[2] != b[2]), ~pods & (a[1] != b[1])

    def row(column: I64) -> I64:
        which = (a[0] * columns + column) * (rows * (rows - 1) // 2) + pair(rows, a[2], b[2])
        return 2 * (laid.first["Z"] + which) + (a[2] > b[2])

    def column(of_row: I64) -> I64:
        which = (a[0] * (columns * (columns - 1) // 2) + pair(columns, a[1], b[1])) * rows + of_row
        return 2 * (laid.first["alpha"] + which) + (a[1] > b[1])

    here, there = ((end[0] * columns + end[1]) * rows + end[2] for end in ends)
    return [
        link_if(along_z & z_first, row(a[1])),
        link_if(along_a, column(np.where(z_first, b[2], a[2]))),
        link_if(along_z & ~z_first, row(b[1])),
        link_if(pods, 2 * (laid.first["pods"] + here)),
        link_if(pods, 2 * (laid.first["pods"] + there) + 1),
    ]


def _shifts(dims: tuple[int, ...], laid: _CablePlan) -> list[I64]:
    """Return symmetries [nodes], one for each dimension of more than one.

    They shift pods, columns, rows, boards, or the NPUs of a board by one; the last one takes the place of the first.
    """
    racks = dims[:3]
    shapes = dims, (*racks, (laid.hrs - laid.lrs) // prod(racks)), racks, (1,)  # NPUs, LRS, HRS, the node above pods
    axes = {0: (0, 0, 0, None), 1: (1, 1, 1, None), 2: (2, 2, 2, None), 3: (3, None, None, None), 4: (4, 3, None, None)}
    return [shift(*zip(shapes, axes[axis], strict=True)) for axis, size in enumerate(dims) if size > 1]


def _invariants(kind: _RackKind, dims: tuple[int, ...], lane: Lane) -> Invariants:
    """Return the invariants of the topology by closed forms."""
    pods, a, z, _, x = dims
    racks, n = pods * a * z, prod(dims)
    on_board = (x - 1) * kind.meshed
    across = 2 if pods > 1 else (a > 1) + (z > 1)
    inside = (3 if x > 1 else 2) if kind.lrs else 2
    return Invariants(
        _links(kind, dims),
        on_board + 1 + bool(kind.lrs),
        2 + across if racks > 1 else inside,
        npus=n,
        switches=racks * (1 + x * bool(kind.lrs)) + 1,
        injection_Bps=(X4 * on_board + kind.lrs + kind.hrs) * lane.lane_rate,
        shortest=not kind.lrs,  # a rack's HRS would be a shorter path to another board and place, which they do not serve
    )


_EXAMPLES = ("dims=2x2x2x2x4", "dims=2x1x2x4x2,lane_rate=50Gb/s", "dims=3x2x2x2x3,latency=1us")


@topology(_A.name, source=_SOURCE, examples=_EXAMPLES, invariants=partial(_invariants, _A), full=("",))
def superpod_a(dims: Dims = _DIMS, *, lane: Lane) -> Topology:
    """Join racks of 1D-FM-A in pods: NPUs of a board in a full mesh, x16 to LRS between boards, x16 to a rack's HRS; 8192 NPUs.

    1D-FM-A is a rack with which UB-Mesh compares its own (6.2), and x16 are 16 lanes. LRS and HRS are switches of a low and a
    high radix: an LRS joins NPUs of equal place on the boards of a rack; the HRS lead to the racks of its row and column and to
    other pods.

    Args:
        dims: The numbers of pods, of columns and rows of racks, of boards of a rack, and of NPUs of a board.
        lane: The rate of a lane, and the latency of a link.
    """
    return _build(_A, dims, lane)


@topology(_B.name, source=_SOURCE, examples=_EXAMPLES, invariants=partial(_invariants, _B), full=("",))
def superpod_b(dims: Dims = _DIMS, *, lane: Lane) -> Topology:
    """Join racks of 1D-FM-B in pods: a full mesh of NPUs on each board, x32 from each NPU to its rack's HRS; 8192 NPUs.

    1D-FM-B is a rack with which UB-Mesh compares its own (6.2), and x32 are 32 lanes. HRS are high-radix switches: those of a
    rack join its boards, and lead to the racks of its row and column and to other pods.

    Args:
        dims: The numbers of pods, of columns and rows of racks, of boards of a rack, and of NPUs of a board.
        lane: The rate of a lane, and the latency of a link.
    """
    return _build(_B, dims, lane)


@topology(_CLOS.name, source=_SOURCE, examples=_EXAMPLES, invariants=partial(_invariants, _CLOS), full=("",))
def superpod_clos_racks(dims: Dims = _DIMS, *, lane: Lane) -> Topology:
    """Join racks of the Clos in pods: no links between NPUs, x64 from each to its rack's HRS and as many lanes out; 8192 NPUs.

    The Clos is a rack with which UB-Mesh compares its own (6.2), and x64 are 64 lanes. HRS are high-radix switches: those of a
    rack join its NPUs, and lead to the racks of its row and column and to other pods.

    Args:
        dims: The numbers of pods, of columns and rows of racks, of boards of a rack, and of NPUs of a board.
        lane: The rate of a lane, and the latency of a link.
    """
    return _build(_CLOS, dims, lane)
