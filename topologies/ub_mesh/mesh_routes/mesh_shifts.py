"""The symmetries of a UB-Mesh: shifts by one of SuperPods, pods, columns, rows, boards, and NPUs of a board."""

from math import prod

import numpy as np

from emu.arrays import I64
from topologies.ub_mesh.mesh_routes.mesh_routing import planes_a_board, spares_a_place
from topologies.ub_mesh.parts import SPARES, MeshPlan


def shifts(plan: MeshPlan) -> list[I64]:
    """Return the shift by one of each dimension of 2 or more, as the image of every node."""
    sizes = (*plan.standing, *plan.dims[-2:])
    return [_shift(plan, axis) for axis, size in enumerate(sizes) if size > 1]


def _shift(plan: MeshPlan, axis: int) -> I64:
    """Return [nodes] the image of every node under a shift by one along an axis."""
    racks, (y, x) = plan.standing, plan.dims[-2:]
    ports, superpods = (plan.planes, SPARES), plan.superpods
    npu, lrs, hrs, cpu, leaf, spine, backup = _nodes_by_kind(
        plan,
        (*racks, y, x),
        (*racks, plan.planes, plan.plane),
        (superpods, plan.planes, x, plan.uplinks),
        racks if plan.cpus else (0,),
        (superpods, *ports) if plan.beyond else (0,),
        racks[1:] if plan.beyond else (0,),
        racks,
    )
    npu = np.roll(npu, -1, axis)
    if axis < len(racks):
        lrs, cpu, backup = np.roll(lrs, -1, axis), np.roll(cpu, -1, axis if plan.cpus else 0), np.roll(backup, -1, axis)
        if plan.beyond and axis == 0:
            hrs, leaf = np.roll(hrs, -1, 0), np.roll(leaf, -1, 0)
        elif plan.beyond:
            spine = np.roll(spine, -1, axis - 1)
    else:
        lrs, hrs, leaf = _in_rack(plan, lrs, hrs, leaf, boards=axis == len(racks))
    return np.concatenate([part.ravel() for part in (npu, lrs, hrs, cpu, leaf, spine, backup)])


def _nodes_by_kind(plan: MeshPlan, *shapes: tuple[int, ...]) -> list[I64]:
    """Return the numbers of all nodes, one array for each kind of nodes.

    Args:
        plan: The plan.
        *shapes: The shape of each array, of all kinds from the NPUs on.
    """
    ends = np.cumsum([prod(shape) for shape in shapes])[:-1]
    kinds = zip(np.split(np.arange(plan.nodes), ends), shapes, strict=True)
    return [part.reshape(shape) for part, shape in kinds]


def _in_rack(plan: MeshPlan, lrs: I64, hrs: I64, leaf: I64, *, boards: bool) -> tuple[I64, I64, I64]:
    """Return the images of LRS, HRS and leaves under a shift of boards, or of NPUs of a board.

    A shift of boards moves the LRS of boards, and shifts the planes. A shift of the NPUs of a board moves the LRS that lead out
    and those for CPUs.

    Args:
        plan: The plan.
        lrs: The numbers of all LRS.
        hrs: The numbers of all HRS.
        leaf: The numbers of all leaves.
        boards: True for a shift of boards, False for one of the NPUs of a board.
    """
    board, other, spare = np.split(lrs, [plan.dims[-2], plan.plane - SPARES], axis=-1)
    if not boards:
        places = spares_a_place(plan)
        moved = np.concatenate((board, np.roll(other, -1, -1), np.roll(spare, -places, -1)), axis=-1)
        return moved, np.roll(hrs, -1, 2), np.roll(leaf, -places, -1)
    moved, planes = np.concatenate((np.roll(board, -1, -1), other, spare), axis=-1), planes_a_board(plan)
    return np.roll(moved, -planes, -2), np.roll(hrs, -planes, 1), np.roll(leaf, -planes, 1) if plan.beyond else leaf
