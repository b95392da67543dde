"""Frames round nodes of a picture: racks, segments, planes."""

from collections.abc import Sequence

import numpy as np

from emu.arrays import F64, I64
from emu.topology.topology import Box

_PAD = 0.42  # from the outermost node to its frame, in gaps between NPUs
_NEST = 0.22  # more for a frame round frames


def frames(boxes: Sequence[Box], at: F64) -> list[F64]:
    """[4, 2] the corners of each box's frame, the upper left first: upright, or turned where that is much smaller."""
    return [_frame(at[slice(*box.nodes)], _PAD + _NEST * deep) for box, deep in zip(boxes, _nested(boxes), strict=True)]


def _nested(boxes: Sequence[Box]) -> I64:
    """[boxes] how many frames lie in one another within each."""
    ends = np.array([box.nodes for box in boxes]).reshape(-1, 2)
    deep = np.zeros(len(boxes), np.int64)
    for i in np.argsort(ends[:, 1] - ends[:, 0], kind="stable"):
        inner = (ends[:, 0] >= ends[i, 0]) & (ends[:, 1] <= ends[i, 1]) & (ends[:, 1] - ends[:, 0] < ends[i, 1] - ends[i, 0])
        deep[i] = deep[inner].max(initial=-1) + 1
    return deep


def _frame(at: F64, pad: float) -> F64:
    centred = at - at.mean(axis=0)
    turned = np.linalg.svd(centred, full_matrices=False)[2] if len(at) > 1 else np.eye(2)
    upright, along = (_bounds(at, axes, pad) for axes in (np.eye(2), turned))
    return along[0] if along[1] < 0.8 * upright[1] else upright[0]


def _bounds(at: F64, axes: F64, pad: float) -> tuple[F64, float]:
    """[4, 2] the corners of the box along these axes, and its area."""
    seen = at @ axes.T
    low, high = seen.min(axis=0) - pad, seen.max(axis=0) + pad
    corners = np.array(((low[0], high[1]), high, (high[0], low[1]), low))
    return corners @ axes, float(np.prod(high - low))
