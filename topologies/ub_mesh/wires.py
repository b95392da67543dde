"""The cables of a UB-Mesh by kind with the names of their tiers, and the drawing of a UB-Mesh.

The drawing is that of the paper's figures 7 and 8: boards as rows, back-planes beside them, pods as grids of racks, and HRS
above. Its positions are (x, y); the distance between two neighbouring NPUs of a board is 1.
"""

import numpy as np

from emu.arrays import F64, I64
from emu.topology.builders.route_parts import pairs
from emu.topology.builders.wiring import Cables
from emu.topology.topology import Box, Drawing, frames
from topologies.ub_mesh.parts import TIERS, X2, X4, DcnSettings, MeshPlan

_PLANE = 3.0  # distance from a back-plane to the next
_APART = 2.5  # distance between racks


def drawing(plan: MeshPlan) -> Drawing:
    """Return the drawing of a plan."""
    corners = _corners(plan)
    wide = float(np.ptp(corners[:, 0])) + _rack_size(plan)[0]
    cpus = corners[: plan.cpus, None] + _backup(plan) + np.array((1.0, 0))
    above = [_row(count, wide, height * wide / 8) for count, height in ((plan.hrs, 1), (plan.leaves, 2), (plan.spines, 3))]
    racks = [corners[:, None] + of_rack(plan) for of_rack in (_npus, _switches, _backup)]
    parts = [*racks[:2], above[0], cpus, *above[1:], racks[2]]
    return Drawing(np.concatenate([part.reshape(-1, 2) for part in parts]), tuple(_boxes(plan)))


def _row(count: int, wide: float, height: float) -> F64:
    """Return [count, 2] the drawing positions of switches in a row above all racks.

    They are as far from one another as from the ends of the row.

    Args:
        count: The number of switches.
        wide: The width of all racks together.
        height: The height of the row.
    """
    return np.stack((np.linspace(0, wide, count + 2)[1:-1], np.full(count, height)), axis=-1)


def _rack_size(plan: MeshPlan) -> F64:
    """Return the width and the height of a rack in the drawing."""
    y, x = plan.dims[-2:]
    return np.array((x + plan.planes * _PLANE, max(y, x + 1) + 1.0))


def _corners(plan: MeshPlan) -> F64:
    """Return [racks, 2] the drawing position of each rack's first NPU."""
    pods, a, z = np.indices(plan.five[:3]).reshape(3, -1)
    place = np.stack((pods * plan.five[2] + z, -a), axis=-1)
    corners: F64 = place * (_rack_size(plan) + _APART) + pods[:, None] * np.array((2 * _APART, 0))
    return corners


def _npus(plan: MeshPlan) -> F64:
    """Return [NPUs of a rack, 2] the positions of a rack's NPUs in the drawing, 1 apart; each board is a row."""
    y, x = np.divmod(np.arange(plan.rack), plan.dims[-1])
    return np.stack((x, -y), axis=-1).astype(np.float64)


def _switches(plan: MeshPlan) -> F64:
    """Return [LRS of a rack, 2] the positions of the LRS of a rack, in two columns for each plane.

    The first column has the LRS of boards, each beside its board. The second has those whose ports lead out of the rack. The
    LRS for CPUs are below both.
    """
    y, x = plan.dims[-2:]
    board = np.stack((np.zeros(y), -np.arange(y)), axis=-1)
    other = np.stack((np.ones(x), -np.arange(x) - 0.5), axis=-1)
    spare = np.stack((np.arange(plan.plane - x - y) * 1.0, np.full(plan.plane - x - y, -max(y, x + 1.0) - 0.5)), axis=-1)
    plane = np.concatenate((board, other, spare))
    left = x + 0.5 + _PLANE * np.arange(plan.planes)
    return (plane + np.stack((left, np.zeros(plan.planes)), axis=-1)[:, None]).reshape(-1, 2)


def _backup(plan: MeshPlan) -> F64:
    """Return [1, 2] the position of the backup NPU in the drawing, below the boards."""
    y, x = plan.dims[-2:]
    return np.array([[(x - 1) / 2, -max(y, x + 1.0) - 0.5]])


def _boxes(plan: MeshPlan) -> list[Box]:
    """Return the frames of racks, pods and SuperPods."""
    y, x = plan.dims[-2:]
    if plan.racks == 1:
        return [
            Box("rack", (0, plan.nodes)),
            *frames("board", x, y),
            *frames("plane", plan.plane, plan.planes, plan.first_lrs),
            Box("backup NPU", (plan.first_backup, plan.nodes)),
        ]
    back = frames("back-planes", plan.planes * plan.plane, plan.racks, plan.first_lrs)
    hrs = [Box("HRS", (plan.first_hrs, plan.first_cpu))] if plan.hrs else []
    dcn = [Box("DCN", (plan.first_leaf, plan.first_backup))] if plan.beyond else []
    return [*frames("rack", plan.rack, plan.racks), *back, *hrs, *dcn]


UP, INSIDE, BACKUP = (f"NPU to LRS x{X4}", f"LRS to LRS x{X4}", "LRS to backup NPU")
CPU, NIC, OUT = (f"LRS to CPU x{X4}", "link NIC, CPU to DCN leaf", f"link LRS to DCN leaf x{X2}")


def cables(plan: MeshPlan) -> dict[str, Cables]:
    """Return the cables by name: Y, X, up, inside, spare, backup, Z, alpha, pods, cpu, nic, spine.

    The cables of each kind are in the order in which routes count them.
    """
    pods, a, z, y, x = plan.five
    npu = np.arange(plan.npus).reshape(pods, a, z, y, x)
    board, other, spare = (plan.lrs(kind) for kind in ("board", "other", "spare"))
    every = np.concatenate((board, other), axis=-1)
    out = other.reshape(pods, a, z, -1)
    backup = plan.first_backup + np.arange(plan.racks).reshape(-1, 1, 1)
    found = {
        "Y": _mesh(plan, f"link x{plan.inside.lanes}", np.moveaxis(npu, 3, 4), plan.inside.lanes, 3),
        "X": _mesh(plan, f"link x{plan.inside.lanes}", npu, plan.inside.lanes, 4),
        "up": _cables(plan, UP, npu.reshape(-1, 1, y, x), board[..., None], X4, 5),
        "inside": _cables(plan, INSIDE, board[..., None], other[:, :, None, :], X4, 6),
        "spare": _cables(plan, INSIDE, every[..., None], spare[:, :, None, :], X4, 6),
        "backup": _cables(plan, f"{BACKUP} x{plan.inside.backup}", spare, backup, plan.inside.backup, 7),
    }
    if plan.meshed:
        found["Z"] = _mesh(plan, f"link x{X4} between racks", np.moveaxis(out, 2, 3), X4, 2)
        found["alpha"] = _mesh(plan, f"link x{X4} between racks", np.moveaxis(out, 1, 3), X4, 1)
    if plan.uplinks:
        switch = plan.first_hrs + np.arange(plan.hrs).reshape(plan.superpods, 1, plan.planes, x, plan.uplinks)
        found["pods"] = _cables(
            plan, f"link x{X4} LRS to HRS", out.reshape(plan.superpods, -1, *switch.shape[2:4], 1), switch, X4, 0
        )
    return found | (_dcn_cables(plan, plan.beyond, spare) if plan.beyond else {})


def _dcn_cables(plan: MeshPlan, beyond: DcnSettings, spare: I64) -> dict[str, Cables]:
    """Return the cables of the DCN's tree.

    They lead from each LRS for CPUs, directly or by the rack's CPU and its NICs, to a leaf and on to all spines.
    """
    ends = spare.reshape(plan.racks, -1)
    leaf = plan.first_leaf + np.arange(plan.leaves).reshape(plan.superpods, 1, -1)
    spine = plan.first_leaf + plan.leaves + np.arange(plan.spines)
    cpu = plan.first_cpu + np.arange(plan.racks).reshape(-1, 1)
    nic, latency, last = beyond.via == "nic", plan.lane.latency, len(plan.dims) + 3
    rate = beyond.nic_rate if nic else X2 * plan.lane.lane_rate
    ports = np.broadcast_to(cpu if nic else ends, ends.shape).reshape(plan.superpods, plan.spines, -1)
    found = {"cpu": _cables(plan, CPU, ends, cpu, X4, 8)} if nic else {}
    found["nic"] = Cables(NIC if nic else OUT, ports, leaf, rate, latency, last + nic)
    found["spine"] = Cables("link DCN leaf to spine", leaf.reshape(-1, 1), spine, rate, latency, 0)
    return found


def _mesh(plan: MeshPlan, kind: str, nodes: I64, lanes: int, dimension: int) -> Cables:
    """Return the cables of full meshes among the nodes along the last axis of an array of nodes."""
    low, high = pairs(nodes.shape[-1])
    return _cables(plan, kind, nodes[..., low], nodes[..., high], lanes, dimension)


def _cables(plan: MeshPlan, kind: str, a: I64, b: I64, lanes: int, dimension: int) -> Cables:
    """Return the cables, `lanes` lanes wide, between nodes a and b."""
    kind = kind if kind.startswith("link") else f"link {kind}"
    return Cables(kind, a, b, lanes * plan.lane.lane_rate, plan.lane.latency, dimension + len(plan.dims) - 5)


def tiers(plan: MeshPlan) -> tuple[str, ...]:
    """Return the names of the links of each dimension."""
    named = {
        "SuperPods": "DCN, leaf to spine",
        "pods": f"LRS to HRS x{X4}",
        "alpha": f"alpha, racks of a column x{X4}",
        "Z": f"Z, racks of a row x{X4}",
        "Y": f"Y, boards of a rack x{plan.inside.lanes}",
        "X": f"X, NPUs of a board x{plan.inside.lanes}",
    }
    beyond = {"nic": (CPU, NIC), "ub": (OUT,)}[plan.beyond.via] if plan.beyond else ()
    found = (*(named[t] for t in TIERS[6 - len(plan.dims) :]), UP, INSIDE, f"{BACKUP} x{plan.inside.backup}", *beyond)
    return tuple(name.removeprefix("link ") for name in found)
