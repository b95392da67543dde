"""The drawing of an InfiniteHBD (Fig. 6b and 7): ToRs as columns of nodes, each a circle of GPUs, and the DCN on top."""

import numpy as np

from emu.topology.topology import Box, Drawing
from topologies.infinitehbd.ocstrx_plan import OcstrxPlan

_GAP = 1.6  # gap between the circles of two nodes


def draw(plan: OcstrxPlan) -> Drawing:
    """Return the drawing.

    The bundles to the left of a node are on its left, so that a ring runs along a row, as its sub-line does.
    """
    radius = max(0.7, plan.gpus / 6)
    pitch = 2 * radius + _GAP
    domain, column, row = np.unravel_index(np.arange(plan.nodes), plan.dims[:3])
    along = (domain * (plan.subline + 0.7) + column) * pitch
    node = np.stack((along, -row * pitch), axis=-1)
    turn = np.pi - (np.arange(plan.gpus) - 0.5 - (plan.k // 2 - 1) / 2) * 2 * np.pi / plan.gpus
    circle = radius * np.stack((np.cos(turn), np.sin(turn)), axis=-1)
    gpus = (node[:, None] + circle).reshape(-1, 2)
    hub = [[along[-1] / 2, pitch + along[-1] / 12]]
    size = plan.tor * plan.gpus
    label = "ToR" if plan.tor > 1 else "node"
    boxes = tuple(Box(f"{label} {i}", (i * size, (i + 1) * size)) for i in range(plan.nodes // plan.tor))
    return Drawing(np.concatenate((gpus, hub)), boxes)
