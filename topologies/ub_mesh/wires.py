"""The cables of a UB-Mesh, kind after kind, and the names of their tiers."""

import numpy as np

from emu.arrays import I64
from emu.topology.builders.wiring import Cables
from topologies.ub_mesh.parts import TIERS, X2, X4, DcnSettings, MeshPlan, pairs

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


def _backups(plan: MeshPlan) -> I64:
    """Return [racks, 1, 1] the backup NPU of each rack."""
    found: I64 = plan.first_backup + np.arange(plan.racks).reshape(-1, 1, 1)
    return found


def _mesh(plan: MeshPlan, kind: str, nodes: I64, lanes: int, dimension: int) -> Cables:
    """Return full meshes along the last axis."""
    low, high = pairs(nodes.shape[-1])
    return _cables(plan, kind, nodes[..., low], nodes[..., high], lanes, dimension)


def _cables(plan: MeshPlan, kind: str, a: I64, b: I64, lanes: int, dimension: int) -> Cables:
    """Return cables of so many lanes between nodes a and b."""
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
