"""Frames around nodes of a picture (racks, segments, planes), and their labels."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.topology.topology import Box, Drawing
from launch.show.picture.layout import Label, free_place, label_around, size_of_words

_PAD = 0.42  # from the outermost node to its frame, in gaps between NPUs
_NEST = 0.22  # additional distance for each frame inside
SMALLEST_PT = 3.8  # size of letters below which nothing is written


class FrameLabel(NamedTuple):
    """A text at a frame, with its place and size."""

    text: str
    at: tuple[float, float]  # middle of the text
    size_pt: float


def frames(boxes: Sequence[Box], at: F64) -> list[F64]:
    """Return [4, 2] the corners of each box's frame, the upper left first.

    A frame is turned where that makes it smaller by a fifth or more.
    """
    return [_frame(at[slice(*box.nodes)], _PAD + _NEST * deep) for box, deep in zip(boxes, _nesting_depth(boxes), strict=True)]


def _nesting_depth(boxes: Sequence[Box]) -> I64:
    """Return [boxes] how many frames lie in one another within each box."""
    ends = np.array([box.nodes for box in boxes]).reshape(-1, 2)
    deep = np.zeros(len(boxes), np.int64)
    for i in np.argsort(ends[:, 1] - ends[:, 0], kind="stable"):
        inner = (ends[:, 0] >= ends[i, 0]) & (ends[:, 1] <= ends[i, 1]) & (ends[:, 1] - ends[:, 0] < ends[i, 1] - ends[i, 0])
        deep[i] = deep[inner].max(initial=-1) + 1
    return deep


def _frame(at: F64, pad: float) -> F64:
    """Return [4, 2] the corners of the frame around nodes at these places."""
    centred = at - at.mean(axis=0)
    turned = np.linalg.svd(centred, full_matrices=False)[2] if len(at) > 1 else np.eye(2)
    upright, along = (_bounds(at, axes, pad) for axes in (np.eye(2), turned))
    return along[0] if along[1] < 0.8 * upright[1] else upright[0]


def _bounds(at: F64, axes: F64, pad: float) -> tuple[F64, float]:
    """Return [4, 2] the corners of the box along these axes, and its area.

    Args:
        at: [nodes, 2] places of nodes.
        axes: [2, 2] directions of the edges.
        pad: The distance between the outermost nodes and the box.
    """
    seen = at @ axes.T
    low, high = seen.min(axis=0) - pad, seen.max(axis=0) + pad
    corners = np.array(((low[0], high[1]), high, (high[0], low[1]), low))
    return corners @ axes, float(np.prod(high - low))


def frame_labels(drawing: Drawing, points: float) -> list[FrameLabel]:
    """Return the labels of a drawing's frames, apart from one another where there is room.

    Args:
        drawing: The places of nodes, and the boxes.
        points: Points in a unit of the drawing.
    """
    taken: list[Label] = []
    written = []
    for box, frame in reversed(list(zip(drawing.boxes, frames(drawing.boxes, drawing.at), strict=True))):  # inner ones first
        width = float(np.ptp(frame[:, 0])) * points
        size_pt = min(9.0, 0.32 * points, 1.7 * width / max(len(box.label), 1))
        if box.label and size_pt >= SMALLEST_PT:
            chosen = free_place(_places(box.label, frame, drawing.at.mean(axis=0), size_pt, points), taken)
            written.append(FrameLabel(box.label, chosen.middle, size_pt))
            taken.append(chosen)
    return written


def _places(text: str, frame: F64, middle: F64, size_pt: float, points: float) -> list[Label]:
    """Return the places that a label may have, the best first: at a corner of an upright frame, outside a turned one."""
    size = size_of_words([text], size_pt, points)
    if np.isclose(frame[0, 1], frame[1, 1]) or np.isclose(frame[0, 0], frame[1, 0]):
        (left, bottom), (right, top) = frame.min(axis=0), frame.max(axis=0)
        return [Label(np.array((x, y)), size) for y in (top, bottom - size[1]) for x in (left, right - size[0])]
    sides = (frame + np.roll(frame, 1, axis=0)) / 2
    out = sides[np.argmax(np.hypot(*(sides - middle).T))]
    away = (out - middle) / max(float(np.hypot(*(out - middle))), 1e-9)
    return [label_around(out + 0.5 * away * (1 + 0.3 * len(text) * abs(away[0]) * size_pt / 9), size)]
