"""The backup NPU of a rack (64+1), which takes the place of a failed NPU (UB-Mesh 3.3.2 and Figure 9)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from emu.arrays import I64, column
from emu.topology.topology import FailedParts, Placer, Repair, Routes, Topology
from topologies.ub_mesh.mesh_routes import recovery
from topologies.ub_mesh.parts import MeshPlan


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


def redirection(topology: Topology, failed: int) -> tuple[I64, Routes]:
    """Return the NPUs that a link joined to a failed one, and the route of each to the backup NPU.

    A route is NPU, its board's LRS, the backup's LRS, backup NPU. Where the paper has one LRS ("5-LRS-B", one hop more than
    before) there are two of one back-plane: no LRS has the ports for both all boards and the backup.

    Args:
        topology: A topology with backup NPUs.
        failed: An NPU.

    Raises:
        InputError: The NPU does not exist.
    """
    backup = topology.place(topology.n_npus, [failed])[failed]
    links = topology.links
    near = links.dst[(links.src == failed) & (links.dst < topology.n_npus)].astype(np.int64)
    return near, topology.routes(near, np.full_like(near, backup), np.zeros_like(near))
