"""The drawing of a UB-Mesh, as in its figures 7 and 8: boards as rows, back-planes beside, pods as grids, HRS above."""

from functools import partial

import numpy as np

from emu.arrays import F64
from emu.topology.topology import Box, Drawing
from topologies.ub_mesh.parts import MeshPlan

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
    """Return [count, 2] the places of switches in a row above all racks."""
    return np.stack((np.linspace(0, wide, count + 2)[1:-1], np.full(count, height)), axis=-1)


def _rack_size(plan: MeshPlan) -> F64:
    """Return the width and the height of a rack in the drawing."""
    y, x = plan.dims[-2:]
    return np.array((x + plan.planes * _PLANE, max(y, x + 1) + 1.0))


def _corners(plan: MeshPlan) -> F64:
    """Return [racks, 2] the corners of racks: Z to the right, alpha down, pods to the right of one another."""
    pods, a, z = np.indices(plan.five[:3]).reshape(3, -1)
    place = np.stack((pods * plan.five[2] + z, -a), axis=-1)
    corners: F64 = place * (_rack_size(plan) + _APART) + pods[:, None] * np.array((2 * _APART, 0))
    return corners


def _npus(plan: MeshPlan) -> F64:
    """Return [NPUs of a rack, 2] the places of NPUs, a board in each row."""
    y, x = np.divmod(np.arange(plan.rack), plan.dims[-1])
    return np.stack((x, -y), axis=-1).astype(np.float64)


def _switches(plan: MeshPlan) -> F64:
    """Return [LRS of a rack, 2] the places of LRS, in two columns for each plane.

    LRS of boards are at their boards, those that lead out beside them, those for CPUs below.
    """
    y, x = plan.dims[-2:]
    board = np.stack((np.zeros(y), -np.arange(y)), axis=-1)
    other = np.stack((np.ones(x), -np.arange(x) - 0.5), axis=-1)
    spare = np.stack((np.arange(plan.plane - x - y) * 1.0, np.full(plan.plane - x - y, -max(y, x + 1.0) - 0.5)), axis=-1)
    plane = np.concatenate((board, other, spare))
    left = x + 0.5 + _PLANE * np.arange(plan.planes)
    return (plane + np.stack((left, np.zeros(plan.planes)), axis=-1)[:, None]).reshape(-1, 2)


def _backup(plan: MeshPlan) -> F64:
    """Return [1, 2] the place of the backup NPU, below the boards."""
    y, x = plan.dims[-2:]
    return np.array([[(x - 1) / 2, -max(y, x + 1.0) - 0.5]])


def _boxes(plan: MeshPlan) -> list[Box]:
    """Return the frames of racks, pods and SuperPods."""
    y, x = plan.dims[-2:]

    def frames(label: str, first: int, size: int, count: int) -> list[Box]:
        return [Box(f"{label} {i}", (first + i * size, first + (i + 1) * size)) for i in range(count)]

    if plan.racks == 1:
        return [
            Box("rack", (0, plan.nodes)),
            *frames("board", 0, x, y),
            *frames("plane", plan.first_lrs, plan.plane, plan.planes),
            Box("backup NPU", (plan.first_backup, plan.nodes)),
        ]
    back = frames("back-planes", plan.first_lrs, plan.planes * plan.plane, plan.racks)
    hrs = [Box("HRS", (plan.first_hrs, plan.first_cpu))] if plan.hrs else []
    dcn = [Box("DCN", (plan.first_leaf, plan.first_backup))] if plan.beyond else []
    return [*frames("rack", 0, plan.rack, plan.racks), *back, *hrs, *dcn]


def draw(plan: MeshPlan) -> partial[Drawing]:
    """Return a function that makes the drawing when it is needed."""
    return partial(drawing, plan)
