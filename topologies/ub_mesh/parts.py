"""What UB-Mesh is built of, how its nodes are numbered and its cables laid; every port of Table 3 is counted.

R racks of Y boards of X NPUs. Each rack has `planes` back-planes of Y LRS for the boards, X for other racks and 2 for CPUs
and the backup NPU, complete between these three groups (UB-Mesh 3.3.1; K18 at x4 would need more than an LRS has).
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from emu.arrays import I64
from emu.errors import must_be
from emu.topology.catalogue import Bandwidth, Count, Latency
from emu.topology.wiring import Cables
from emu.units import format_bandwidth, format_time, seconds

SOURCE = "Liao et al., UB-Mesh (arXiv:2503.20377)"
NPU_LANES, LRS_LANES, HRS_LANES = 72, 72, 512  # Table 3
X4 = 4  # lanes of a cable to, between and out of LRS
SPARES = 2  # LRS of a plane for CPUs and the backup NPU (3.3.1)
SPARE_LANES = 8  # what each of them has left for these, of its 72: 72 - (8 + 8) x4

TIERS = ("pods", "alpha", "Z", "Y", "X")  # the dimensions of the NPU numbering, whose links need not pass a switch
UP, INSIDE, BACKUP = (f"NPU to LRS x{X4}", f"LRS to LRS x{X4}", "LRS to backup NPU")


@dataclass(frozen=True, slots=True)
class Lane:
    """What links are made of."""

    lane_rate: Bandwidth = 14e9  # bytes per second, one direction: 112 Gb/s; not published
    latency: Latency = 300_000_000  # ticks, of a link of any width: 300 ns; not published

    @property
    def x4(self) -> float:
        """Bytes per second of a cable of four, one direction."""
        return X4 * self.lane_rate


@dataclass(frozen=True, slots=True)
class Inside:
    """What a rack has besides its boards, and how wide."""

    planes: Count = 4  # back-planes
    lanes: Count = X4  # of a link between two NPUs
    backup: Count = X4  # lanes from an LRS to the backup NPU


@dataclass(frozen=True, slots=True)
class Plan:
    """One UB-Mesh: its sizes and rates; nodes are NPUs, then LRS by rack and plane, then HRS, then the backup NPUs."""

    name: str
    dims: tuple[int, ...]  # the last ones of pods, alpha, Z, Y, X
    inside: Inside
    lane: Lane
    meshed: bool = True  # racks of a row and of a column are linked directly
    uplinks: int = 0  # cables of x4 from each inter-rack LRS to HRS

    @property
    def planes(self) -> int:
        """Back-planes of a rack."""
        return self.inside.planes

    @property
    def five(self) -> tuple[int, ...]:
        """Pods, alpha, Z, Y, X."""
        return (1,) * (5 - len(self.dims)) + self.dims

    @property
    def npus(self) -> int:
        """NPUs that are not backups."""
        return prod(self.dims)

    @property
    def rack(self) -> int:
        """NPUs of a rack."""
        return prod(self.dims[-2:])

    @property
    def racks(self) -> int:
        """In all pods."""
        return self.npus // self.rack

    @property
    def plane(self) -> int:
        """LRS of a back-plane; as many lead out as a board has NPUs, so that what a board sends finds its way out."""
        return sum(self.dims[-2:]) + SPARES

    @property
    def hrs(self) -> int:
        """HRS: one for each cable that a rack has to them."""
        return self.planes * self.dims[-1] * self.uplinks

    @property
    def first_lrs(self) -> int:
        """The first LRS's number."""
        return self.npus

    @property
    def first_hrs(self) -> int:
        """The first HRS's number."""
        return self.npus + self.racks * self.planes * self.plane

    @property
    def first_backup(self) -> int:
        """The number of rack 0's backup NPU; rack r's is r further."""
        return self.first_hrs + self.hrs

    @property
    def nodes(self) -> int:
        """Of all kinds."""
        return self.first_backup + self.racks

    def lrs(self, kind: str) -> I64:
        """[racks, planes, n] the LRS for the "board"s, for "other" racks or for the "spare" and the CPUs."""
        y, x = self.dims[-2:]
        first, count = {"board": (0, y), "other": (y, x), "spare": (y + x, SPARES)}[kind]
        plane = np.arange(self.racks * self.planes).reshape(self.racks, self.planes, 1)
        found: I64 = self.first_lrs + plane * self.plane + first + np.arange(count)
        return found


def check(plan: Plan, length: int) -> Plan:
    """The plan, where its ports close.

    Raises:
        InputError: other than `length` dims, or more lanes than an NPU, an LRS or an HRS has.
    """
    if len(plan.dims) != length:
        what = f"{length} sizes joined by x, of {', '.join(TIERS[5 - length :])}"
        raise must_be(plan.name, "dims", what, "x".join(map(str, plan.dims)))
    _, a, z, y, x = plan.five
    beyond = (a + z - 2) * plan.meshed + plan.uplinks
    _within(plan, "an NPU's lanes", npu_lanes(plan), NPU_LANES, "take smaller boards or racks, fewer planes or lanes")
    _within(plan, "lanes from an LRS to the backup NPU", plan.inside.backup, SPARE_LANES, "the LRS has no more left")
    backup = plan.inside.backup * plan.planes * SPARES
    _within(plan, "the backup NPU's lanes", backup, NPU_LANES, "take a smaller backup or fewer planes")
    _within(plan, "lanes of an LRS for a board", X4 * (2 * x + SPARES), LRS_LANES, "take 8 NPUs on a board at most")
    _within(plan, "lanes of an LRS for CPUs", X4 * (y + x) + SPARE_LANES, LRS_LANES, "take smaller racks")
    out = X4 * (y + beyond + SPARES)
    _within(plan, "lanes of an LRS for other racks", out, LRS_LANES, "take fewer racks in a row or a column, or fewer boards")
    if plan.uplinks:
        _within(plan, "lanes of an HRS", X4 * plan.racks, HRS_LANES, f"take {HRS_LANES // X4} racks at most")
    return plan


def _within(plan: Plan, what: str, lanes: int, limit: int, mend: str) -> None:
    if lanes > limit:
        raise must_be(plan.name, what, f"at most {limit}", lanes, mend)


def npu_lanes(plan: Plan) -> int:
    """Lanes that an NPU uses."""
    return plan.inside.lanes * (plan.dims[-1] + plan.dims[-2] - 2) + X4 * plan.planes


def pairs(size: int) -> tuple[I64, I64]:
    """[size (size - 1) / 2] both ends of each link of a full mesh, the lower first, in the order of `pair`."""
    low, high = np.triu_indices(size, 1)
    return low.astype(np.int64), high.astype(np.int64)


def pair(size: int, here: I64, there: I64) -> I64:
    """[P] which link of a full mesh joins the two."""
    low, high = np.minimum(here, there), np.maximum(here, there)
    found: I64 = low * (2 * size - low - 1) // 2 + high - low - 1
    return found


def cables(plan: Plan) -> dict[str, Cables]:
    """By name: Y, X, up, inside, spare, backup, Z, alpha, pods; those of each kind in the order in which routes count them."""
    pods, a, z, y, x = plan.five
    npu = np.arange(plan.npus).reshape(pods, a, z, y, x)
    board, other, spare = (plan.lrs(kind) for kind in ("board", "other", "spare"))
    every = np.concatenate((board, other), axis=-1)
    out = other.reshape(pods, a, z, -1)
    found = {
        "Y": _mesh(plan, f"link x{plan.inside.lanes}", np.moveaxis(npu, 3, 4), plan.inside.lanes, 3),
        "X": _mesh(plan, f"link x{plan.inside.lanes}", npu, plan.inside.lanes, 4),
        "up": _cables(plan, UP, npu.reshape(-1, 1, y, x), board[..., None], X4, 5),
        "inside": _cables(plan, INSIDE, board[..., None], other[:, :, None, :], X4, 6),
        "spare": _cables(plan, INSIDE, every[..., None], spare[:, :, None, :], X4, 6),
        "backup": _cables(plan, f"{BACKUP} x{plan.inside.backup}", spare, _backups(plan), plan.inside.backup, 7),
    }
    if plan.meshed:
        found["Z"] = _mesh(plan, f"link x{X4} between racks", np.moveaxis(out, 2, 3), X4, 2)
        found["alpha"] = _mesh(plan, f"link x{X4} between racks", np.moveaxis(out, 1, 3), X4, 1)
    if plan.uplinks:
        switch = plan.first_hrs + np.arange(plan.hrs).reshape(plan.planes, x, plan.uplinks)
        found["pods"] = _cables(plan, f"link x{X4} LRS to HRS", other[..., None], switch, X4, 0)
    return found


def _backups(plan: Plan) -> I64:
    found: I64 = plan.first_backup + np.arange(plan.racks).reshape(-1, 1, 1)
    return found


def _mesh(plan: Plan, kind: str, nodes: I64, lanes: int, dimension: int) -> Cables:
    """Full meshes along the last axis."""
    low, high = pairs(nodes.shape[-1])
    return _cables(plan, kind, nodes[..., low], nodes[..., high], lanes, dimension)


def _cables(plan: Plan, kind: str, a: I64, b: I64, lanes: int, dimension: int) -> Cables:
    kind = kind if kind.startswith("link") else f"link {kind}"
    return Cables(kind, a, b, lanes * plan.lane.lane_rate, plan.lane.latency, dimension + len(plan.dims) - 5)


def tiers(plan: Plan) -> tuple[str, ...]:
    """What the links of each dimension are called."""
    named = {
        "pods": f"LRS to HRS x{X4}",
        "alpha": f"alpha, racks of a column x{X4}",
        "Z": f"Z, racks of a row x{X4}",
        "Y": f"Y, boards of a rack x{plan.inside.lanes}",
        "X": f"X, NPUs of a board x{plan.inside.lanes}",
    }
    return (*(named[t] for t in TIERS[5 - len(plan.dims) :]), UP, INSIDE, f"{BACKUP} x{plan.inside.backup}")


def rates(lane: Lane) -> tuple[str, str]:
    """What is assumed of every link of the system."""
    gbit = lane.lane_rate * 8 / 1e9
    return (
        f"a lane carries {gbit:g} Gb/s a direction, so an x{X4} {format_bandwidth(lane.x4)} (no rate is published)",
        f"a link takes {format_time(seconds(lane.latency))} (no latency is published)",
    )
