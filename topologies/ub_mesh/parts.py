"""The parts of a UB-Mesh and the numbering of its nodes; every port of Table 3 is counted.

There are R racks of Y boards of X NPUs. Each rack has `planes` back-planes of LRS (low-radix switches): Y of them for the
boards, X for other racks, and 2 for CPUs and the backup NPU. Any two LRS of different groups are joined (UB-Mesh 3.3.1; K18 at
x4 would need more ports than an LRS has).
"""

from dataclasses import dataclass
from math import prod
from typing import Annotated

import numpy as np

from emu.arrays import I64
from emu.errors import must_be
from emu.topology.catalogue import Bandwidth, Count, Latency, check_sizes, one_of
from emu.units import format_bandwidth, format_time, seconds

SOURCE = "Liao et al., UB-Mesh (arXiv:2503.20377)"
NPU_LANES, LRS_LANES, HRS_LANES = 72, 72, 512  # Table 3
X4 = 4  # lanes of a cable to, between and out of LRS
UPLINKS = 2  # HRS on each LRS that leads out: 256 of a rack's 1024 lanes (3.3.1, 3.3.4) over 32 LRS of x4
SPARES = 2  # LRS of a plane for CPUs and the backup NPU (3.3.1)
SPARE_LANES = 8  # lanes that each of these LRS has left for CPUs and the backup NPU: 72 - (8 + 8) x4
CPU_LANES = 32  # Table 3
X2 = 2  # lanes of a cable to a UB switch of the DCN, so that CPUs keep some
DCN_PORTS = 256  # ports of a switch of the DCN: x512 in cables of x2, or 51.2 Tb/s in ports of 200 Gb/s

TIERS = ("SuperPods", "pods", "alpha", "Z", "Y", "X")  # the dimensions of the NPU numbering


@dataclass(frozen=True, slots=True)
class Lane:
    """The settings of links: the rate of a lane and the latency of a link."""

    lane_rate: Bandwidth = 14e9  # bytes per second, one direction: 112 Gb/s; not published
    latency: Latency = 300_000_000  # ticks of a link of any width: 300 ns; not published

    @property
    def x4(self) -> float:
        """The bytes per second of a cable of four lanes, one direction."""
        return X4 * self.lane_rate


@dataclass(frozen=True, slots=True)
class RackSettings:
    """The settings of a rack: the number of its back-planes, and the number of lanes of each kind of link.

    `lanes` is the width of a link between two NPUs, `backup` that of a link from a switch of the rack to the backup NPU.
    """

    planes: Count = 4  # back-planes
    lanes: Count = X4  # lanes of a link between two NPUs
    backup: Count = X4  # lanes from an LRS to the backup NPU


@dataclass(frozen=True, slots=True)
class DcnSettings:
    """The settings of the links to the DCN (UB-Mesh 3.3.4): over NICs on CPU boards, or over UB switches."""

    via: Annotated[str, one_of("nic", "ub")] = "nic"  # solution (b), or (a)
    nic_rate: Bandwidth = 25e9  # bytes per second, one direction: 200 Gb/s; not published


@dataclass(frozen=True, slots=True)
class MeshPlan:
    """The sizes and rates of one UB-Mesh.

    Nodes are NPUs, then LRS by rack and plane, then HRS by SuperPod, then CPUs and switches of the DCN, then the backup NPUs.
    """

    name: str
    dims: tuple[int, ...]  # the last sizes of SuperPods, pods, alpha, Z, Y, X
    inside: RackSettings
    lane: Lane
    meshed: bool = True  # whether racks of a row and of a column are linked directly
    uplinks: int = 0  # cables of x4 from each inter-rack LRS to HRS
    beyond: DcnSettings | None = None  # None: there is no DCN
    route: str = "shortest"  # one of `strategy.STRATEGIES`

    @property
    def planes(self) -> int:
        """The number of back-planes of a rack."""
        return self.inside.planes

    @property
    def five(self) -> tuple[int, ...]:
        """The number of pods of all SuperPods, and alpha, Z, Y and X."""
        return (prod(self.dims[:-4]), *((1,) * (4 - len(self.dims)) + self.dims)[-4:])

    @property
    def superpods(self) -> int:
        """The number of SuperPods that the DCN joins."""
        return prod(self.dims[:-5])

    @property
    def standing(self) -> tuple[int, ...]:
        """The dims over which racks are numbered: SuperPods (if a DCN joins several), pods, and racks along alpha and Z."""
        return self.dims[:4] if self.beyond else self.five[:3]

    @property
    def npus(self) -> int:
        """The number of NPUs that are not backups."""
        return prod(self.dims)

    @property
    def rack(self) -> int:
        """The number of NPUs of a rack."""
        return prod(self.dims[-2:])

    @property
    def racks(self) -> int:
        """The number of racks in all pods."""
        return self.npus // self.rack

    @property
    def plane(self) -> int:
        """The number of LRS of a back-plane.

        As many lead out as a board has NPUs, so that all traffic of a board can leave the rack.
        """
        return sum(self.dims[-2:]) + SPARES

    @property
    def hrs(self) -> int:
        """The number of HRS (high-radix switches)."""
        return self.superpods * self.planes * self.dims[-1] * self.uplinks

    @property
    def cpus(self) -> int:
        """The number of CPUs with links to the data-centre network, one in each rack."""
        return self.racks if self.beyond and self.beyond.via == "nic" else 0

    @property
    def leaves(self) -> int:
        """The number of lower switches of the DCN: in each SuperPod, one for each LRS for CPUs of a rack."""
        return self.superpods * self.planes * SPARES if self.beyond else 0

    @property
    def spines(self) -> int:
        """The number of spine switches of the data-centre network (DCN)."""
        return self.racks // self.superpods if self.beyond else 0

    @property
    def first_lrs(self) -> int:
        """The number of the first LRS."""
        return self.npus

    @property
    def first_hrs(self) -> int:
        """The number of the first HRS."""
        return self.npus + self.racks * self.planes * self.plane

    @property
    def first_cpu(self) -> int:
        """The number of the CPU of rack 0; leaves follow after the CPUs, then spines."""
        return self.first_hrs + self.hrs

    @property
    def first_leaf(self) -> int:
        """The number of the first leaf."""
        return self.first_cpu + self.cpus

    @property
    def first_backup(self) -> int:
        """The number of the backup NPU of rack 0; that of rack r is r higher."""
        return self.first_leaf + self.leaves + self.spines

    @property
    def nodes(self) -> int:
        """The number of nodes of all kinds."""
        return self.first_backup + self.racks

    def lrs(self, kind: str) -> I64:
        """Return [racks, planes, n] the numbers of the LRS of one kind.

        Args:
            kind: "board" for boards, "other" for other racks, "spare" for CPUs and the backup NPU.
        """
        y, x = self.dims[-2:]
        first, count = {"board": (0, y), "other": (y, x), "spare": (y + x, SPARES)}[kind]
        plane = np.arange(self.racks * self.planes).reshape(self.racks, self.planes, 1)
        found: I64 = self.first_lrs + plane * self.plane + first + np.arange(count)
        return found


def check(plan: MeshPlan, length: int) -> MeshPlan:
    """Return the plan, after the check that its NPUs and switches have enough ports.

    Raises:
        InputError: There are other than `length` dims, or more lanes than an NPU, an LRS or an HRS has.
    """
    check_sizes(plan.name, "dims", plan.dims, length, f"{length} sizes joined by x, of {', '.join(TIERS[6 - length :])}")
    _, a, z, y, x = plan.five
    beyond = (a + z - 2) * plan.meshed + plan.uplinks
    _check_room(plan, "an NPU's lanes", npu_lanes(plan), NPU_LANES, "take smaller boards or racks, fewer planes or lanes")
    _check_room(plan, "lanes from an LRS to the backup NPU", plan.inside.backup, SPARE_LANES, "the LRS has no more left")
    backup = plan.inside.backup * plan.planes * SPARES
    _check_room(plan, "the backup NPU's lanes", backup, NPU_LANES, "take a smaller backup or fewer planes")
    _check_room(plan, "lanes of an LRS for a board", X4 * (2 * x + SPARES), LRS_LANES, "take 8 NPUs on a board at most")
    _check_room(plan, "lanes of an LRS for CPUs", X4 * (y + x) + SPARE_LANES, LRS_LANES, "take smaller racks")
    out = X4 * (y + beyond + SPARES)
    _check_room(
        plan, "lanes of an LRS for other racks", out, LRS_LANES, "take fewer racks in a row or a column, or fewer boards"
    )
    if plan.uplinks:
        racks = plan.racks // plan.superpods
        _check_room(plan, "lanes of an HRS", X4 * racks, HRS_LANES, f"take {HRS_LANES // X4} racks at most")
    if plan.beyond:
        _check_beyond(plan, plan.beyond)
    return plan


def _check_beyond(plan: MeshPlan, beyond: DcnSettings) -> None:
    """Check that LRS, CPUs and switches of the DCN have enough lanes and ports for the links to the DCN."""
    out = X4 if beyond.via == "nic" else X2
    left = plan.inside.backup + out
    _check_room(plan, "lanes from an LRS to the backup NPU and out of the rack", left, SPARE_LANES, "take a smaller backup")
    if beyond.via == "nic":
        _check_room(plan, "a CPU's lanes", plan.planes * SPARES * X4, CPU_LANES, "take fewer planes")
    _check_room(plan, "ports of a leaf of the DCN", 2 * plan.spines, DCN_PORTS, "take fewer racks in a SuperPod")
    _check_room(plan, "ports of a spine of the DCN", plan.leaves, DCN_PORTS, "take fewer SuperPods or planes")


def _check_room(plan: MeshPlan, what: str, lanes: int, limit: int, mend: str) -> None:
    """Check that a switch or an NPU has as many lanes or ports as the plan needs of it.

    Args:
        plan: The plan.
        what: A phrase on the switch or NPU, for the error.
        lanes: The lanes or ports that the plan needs of it.
        limit: The lanes or ports that it has.
        mend: A phrase on how to need fewer, for the error.
    """
    if lanes > limit:
        raise must_be(plan.name, what, f"at most {limit}", lanes, mend)


def npu_lanes(plan: MeshPlan) -> int:
    """Return the number of lanes that an NPU uses."""
    return plan.inside.lanes * (plan.dims[-1] + plan.dims[-2] - 2) + X4 * plan.planes


def rates(lane: Lane) -> tuple[str, str]:
    """Return the sentences of the assumptions on the bandwidth and the latency of every link."""
    gbit = lane.lane_rate * 8 / 1e9
    return (
        f"a lane carries {gbit:g} Gb/s a direction, so an x{X4} {format_bandwidth(lane.x4)} (no rate is published)",
        f"a link takes {format_time(seconds(lane.latency))} (no latency is published)",
    )
