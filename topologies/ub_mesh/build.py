"""The topology of a UB-Mesh from its plan, and the invariants of the plan.

R racks of Y boards of X NPUs; racks are in alpha columns and Z rows of a pod.

The backup NPU of a rack (64+1), which takes the place of a failed NPU (UB-Mesh 3.3.2 and Figure 9).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import comb, prod

import numpy as np

from emu.arrays import I64, column
from emu.topology.builders.wiring import wire
from emu.topology.catalogue import Invariants
from emu.topology.topology import FailedParts, Placer, Repair, Topology
from topologies.ub_mesh.mesh_routes import recovery
from topologies.ub_mesh.mesh_routes.mesh_routing import relays, router
from topologies.ub_mesh.mesh_routes.strategy import STRATEGIES, inside_words
from topologies.ub_mesh.mesh_routes.symmetry import shifts
from topologies.ub_mesh.parts import DCN_PORTS, NPU_LANES, SPARE_LANES, SPARES, X2, X4, DcnSettings, MeshPlan, npu_lanes, rates
from topologies.ub_mesh.wires import cables, drawing, tiers


def placer(plan: MeshPlan, failed: Sequence[int] = ()) -> Placer:
    """Return the placement: ranks are on the NPUs in order; a rank whose NPU failed is on its rack's one backup NPU.

    Args:
        plan: The sizes.
        failed: Failed nodes; a failed backup NPU takes no place.
    """
    backups = np.setdiff1d(plan.first_backup + np.arange(plan.racks), failed)
    return partial(_place, plan, backups)


def _place(plan: MeshPlan, backups: I64, n_ranks: int, faulty: I64) -> I64:
    """Return the NPUs in the order of ranks, with the backup NPU of its rack in the place of a faulty one."""
    npus = np.arange(plan.npus)
    rack, first = np.unique(faulty // plan.rack, return_index=True)
    spared = np.isin(plan.first_backup + rack, backups)
    npus[faulty[first[spared]]] = plan.first_backup + rack[spared]
    return column(np.setdiff1d(npus, faulty, assume_unique=True), np.int64)


def repair_with_backups(plan: MeshPlan, whole: Topology, broken: FailedParts, ranks: int, was: FailedParts) -> Repair:
    """Return the reaction of a machine with backup NPUs to failed parts.

    Messages take other paths, and backup NPUs take the places of failed NPUs.
    """
    return recovery.notify_and_reroute(replace(whole, placer=placer(plan, broken.nodes)), broken, ranks, was)


def with_switches(plan: MeshPlan) -> Topology:
    """Return the topology of a plan that has passed `check`.

    Raises:
        InputError: There are more than 2**24 links, or links have no bandwidth.
    """
    links, laid = wire(plan.name, cables(plan).values())
    lrs = plan.racks * plan.planes * plan.plane
    parts = {"NPU": plan.npus, "backup NPU": plan.racks, "LRS": lrs, "HRS": plan.hrs}
    parts |= {"CPU": plan.cpus, "DCN switch": plan.leaves + plan.spines}
    return Topology(
        plan.name,
        plan.npus,
        plan.nodes,
        links,
        router(plan, links),
        plan.dims,
        {kind: count for kind, count in (parts | laid).items() if count},
        (*rates(plan.lane), *_ports(plan), *_path_words(plan)),
        tiers(plan),
        placer(plan),
        partial(drawing, plan),
        symmetry=partial(shifts, plan),
        relays=relays(plan),
        mender=partial(repair_with_backups, plan),
    )


def _ports(plan: MeshPlan) -> tuple[str, ...]:
    """Return the sentences about the links of an NPU and of a back-plane."""
    y, x = plan.dims[-2:]
    used, backup = npu_lanes(plan), plan.inside.backup
    return (
        f"links between NPUs are x{plan.inside.lanes} and an NPU has x{X4} to each of {plan.planes} back-planes: "
        f"{used} of its {NPU_LANES} lanes (the split is not printed)",
        f"a back-plane has {y} LRS, one a board, {x} to other racks and {SPARES} to CPUs and the backup NPU, an x{X4} between "
        "any two of different groups (all to all would take more lanes than an LRS has)",
        f"the backup NPU has x{backup} to each of these {SPARES}, which keep x{SPARE_LANES - backup} each for CPUs "
        f"({'one, which leads to the DCN' if plan.cpus else 'not nodes here'})",
    )


def _path_words(plan: MeshPlan) -> tuple[str, ...]:
    """Return the sentences about how racks are joined and how messages take these links."""
    inside = inside_words(plan.routing)
    if plan.racks == 1:
        return (inside,)
    width = X4 * plan.planes * plan.dims[-1]
    mesh = (
        f"the x{width} between two racks of a row or a column is an x{X4} from each LRS to its like (which LRS is not said)",
        f"racks of a pod are joined by {_STRATEGY[plan.routing]}; messages take them and the LRS that lead out by turns, "
        "over the NPUs of both racks and the channels, from where a hash of how the racks lie says (how they are chosen is not "
        "said)",
    )
    hrs = (f"each HRS has an x{X4} from every rack, {plan.uplinks} HRS on each LRS (how racks are cabled to HRS is not said)",)
    return (
        inside,
        *(mesh if plan.meshed else ()),
        *(hrs if plan.uplinks else ()),
        *(_dcn(plan, plan.beyond) if plan.beyond else ()),
    )


def _dcn(plan: MeshPlan, beyond: DcnSettings) -> tuple[str, ...]:
    """Return the sentences about the links to the DCN."""
    ports = plan.planes * SPARES
    via = {
        "nic": f"a rack has one CPU of x{ports * X4}, an x{X4} from each LRS for CPUs, and on it {ports} NICs of "
        f"{beyond.nic_rate * 8 / 1e9:g} Gb/s to the DCN (solution (b); neither is printed), which a message cuts through",
        "ub": f"each LRS for CPUs has an x{X2} to a UB switch of the DCN, {ports} a rack (solution (a); lanes are not printed)",
    }[beyond.via]
    return (
        via,
        f"the DCN is a Clos of two tiers, nothing oversubscribed, of switches of {DCN_PORTS} ports: {plan.leaves} leaves, each "
        f"of one LRS or NIC of all racks of a SuperPod, and {plan.spines} spines (its switches and tiers are not printed)",
    )


_DETOUR = "paths of at most one rack more than the shortest, of which no two share a link, on 2 virtual lanes free of deadlock"
_STRATEGY = {
    "shortest": "the shortest paths",
    "multipath": "the shortest paths, which channels alternate between",
    "detour": _DETOUR,
    "borrow": f"{_DETOUR}, and over HRS, with a part for each cable of x{X4} to them",
}


def mesh_invariants(plan: MeshPlan) -> Invariants:
    """Return the invariants of a plan's topology.

    The halves with the least bandwidth between them are pods, else racks of a row or a column, where their number is even.
    """
    pods, a, z, y, x = plan.five
    degree = x - 1 + y - 1 + plan.planes
    lrs = plan.planes * ((y + x) * SPARES + y * x)
    beyond = plan.racks * plan.planes * SPARES * (1 + bool(plan.cpus)) * bool(plan.beyond) + plan.leaves * plan.spines
    inside = plan.rack * plan.planes + lrs + plan.planes * SPARES + y * comb(x, 2) + x * comb(y, 2)
    exits = plan.planes * x
    between = pods * exits * (a * comb(z, 2) + z * comb(a, 2)) * plan.meshed + plan.racks * exits * plan.uplinks
    return Invariants(
        2 * (plan.racks * inside + between + beyond),
        degree,
        _diameter(plan),
        _bisection(plan),
        shortest=not STRATEGIES[plan.routing].detours,
        npus=plan.npus,
        switches=plan.nodes - plan.npus,
        injection_Bps=npu_lanes(plan) * plan.lane.lane_rate,
        paths=_paths(plan),
    )


def _diameter(plan: MeshPlan) -> int:
    """Return the most links that a shortest path has between two NPUs.

    A message takes two links in a rack; to another rack two up, those between racks, and two down; to another SuperPod it goes
    up
    to a spine and down.
    """
    pods, a, z, y, x = plan.five
    if plan.superpods > 1:
        return 8 + 2 * bool(plan.cpus)
    across = 2 if pods > 1 or not plan.meshed else (a > 1) + (z > 1)
    return 4 + across if plan.racks > 1 else (y > 1) + (x > 1)


def _paths(plan: MeshPlan) -> int | None:
    """Return the number of shortest paths between the NPUs farthest apart; None unless it is the same for all such pairs."""
    pods, a, z, y, x = plan.five
    exits = plan.planes * x
    if plan.superpods > 1:
        ports = plan.planes * SPARES  # with NICs, any of them leads on from any LRS
        return plan.spines * ports ** (4 if plan.cpus else 2)
    if pods > 1 or (plan.racks > 1 and not plan.meshed):
        return exits * plan.uplinks
    if plan.racks > 1 and not plan.uplinks:
        return exits * ((a > 1) + (z > 1))
    return 2 if plan.racks == 1 and min(y, x) > 1 else None


def _bisection(plan: MeshPlan) -> float | None:
    """Return the bisection bandwidth.

    Half of the SuperPods cut all that leads out of them. Half of the pods cut half the cables to HRS. Half of the rows or
    columns cut
    (s/2)² of s (s-1)/2 links of racks.
    """
    pods, a, z, _, x = plan.five
    exits = plan.planes * x
    if plan.beyond and plan.superpods > 1:
        rate = plan.beyond.nic_rate if plan.cpus else X2 * plan.lane.lane_rate
        return plan.superpods // 2 * plan.spines * plan.planes * SPARES * rate if plan.superpods % 2 == 0 else None
    if plan.uplinks and pods % 2 == 0:
        return min(plan.racks // 2 * exits * plan.uplinks, plan.npus // 2 * plan.planes) * plan.lane.x4
    sizes = [s for s in (a, z) if s % 2 == 0]
    if plan.uplinks or not sizes:
        return None
    return min(prod((a, z)) // s * (s // 2) ** 2 for s in sizes) * exits * plan.lane.x4
