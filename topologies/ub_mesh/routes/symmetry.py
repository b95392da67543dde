"""The shifts of a UB-Mesh that leave it as it is: pods, columns, rows, boards and NPUs of a board, each one further round."""

import numpy as np

from emu.arrays import I64
from topologies.ub_mesh.parts import SPARES, Plan
from topologies.ub_mesh.routes.routing import planes_a_board


def shifts(plan: Plan) -> list[I64]:
    """[nodes] each, of every dimension of 2 or more."""
    return [_shift(plan, axis) for axis, size in enumerate(plan.five) if size > 1]


def _shift(plan: Plan, axis: int) -> I64:
    node = np.arange(plan.nodes)
    parts = np.split(node, [plan.first_lrs, plan.first_hrs, plan.first_backup])
    racks, switches = plan.five[:3], (plan.planes, plan.dims[-1], plan.uplinks)
    shapes = plan.five, (*racks, plan.planes, plan.plane), switches, racks
    npu, lrs, hrs, backup = (part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
    npu = np.roll(npu, -1, axis)
    if axis < len(racks):
        lrs, backup = np.roll(lrs, -1, axis), np.roll(backup, -1, axis)
    else:
        lrs, hrs = _in_rack(plan, lrs, hrs, boards=axis == len(racks))
    return np.concatenate([part.ravel() for part in (npu, lrs, hrs, backup)])


def _in_rack(plan: Plan, lrs: I64, hrs: I64, *, boards: bool) -> tuple[I64, I64]:
    """Boards take their LRS with them and the planes on; NPUs of a board the LRS that lead out, and the HRS beyond."""
    board, other, spare = np.split(lrs, [plan.dims[-2], plan.plane - SPARES], axis=-1)
    if not boards:
        return np.concatenate((board, np.roll(other, -1, -1), spare), axis=-1), np.roll(hrs, -1, 1)
    moved = np.concatenate((np.roll(board, -1, -1), other, spare), axis=-1)
    return np.roll(moved, -planes_a_board(plan), -2), np.roll(hrs, -planes_a_board(plan), 0)
