"""Frames hold their nodes, and frames in them."""

import numpy as np
import pytest

from emu.topology.catalogue import build_topology
from emu.topology.topology import Box
from launch.show.picture.cables import frames

LINES = ["fat-tree:radix=4,tiers=3", "dragonfly:p=2,a=4,h=2", "ub-mesh:rack-full", "hammingmesh:boards=4x4,side=2"]


def _inside(points, frame):
    side, to = np.roll(frame, -1, axis=0) - frame, points[:, None] - frame
    turn = side[:, 0] * to[..., 1] - side[:, 1] * to[..., 0]
    return (turn > 0).all(axis=1) | (turn < 0).all(axis=1)


def _area(frame):
    x, y = frame.T
    return abs(x @ np.roll(y, 1) - y @ np.roll(x, 1)) / 2


@pytest.mark.parametrize("line", LINES)
def test_a_frame_holds_its_nodes(line):
    drawing = build_topology(line).draw()
    assert drawing.boxes
    for box, frame in zip(drawing.boxes, frames(drawing.boxes, drawing.at), strict=True):
        assert _inside(drawing.at[slice(*box.nodes)], frame).all()


def test_a_frame_holds_the_frames_in_it():
    at = np.stack((np.arange(6.0), np.zeros(6)), axis=-1)
    outer, *inner = frames([Box("", (0, 6)), Box("", (0, 3)), Box("", (3, 6)), Box("", (3, 4))], at)
    assert all(_inside(frame, outer).all() for frame in inner)
    assert _inside(inner[2], inner[1]).all()


def test_a_slanting_row_has_a_slanting_frame_and_an_upright_one_an_upright_frame():
    row = np.arange(8.0)
    slanting, upright = np.stack((row, row), axis=-1), np.stack((row, 0 * row), axis=-1)
    (turned,), (level,) = (frames([Box("", (0, 8))], at) for at in (slanting, upright))
    assert _area(turned) < 10
    assert np.ptp(turned[:2, 1]) > 0.5
    assert np.ptp(level[:2, 1]) == 0


def test_one_node_has_a_frame():
    (frame,) = frames([Box("", (1, 2))], np.array([(0.0, 0.0), (3.0, 1.0)]))
    assert _inside(np.array([(3.0, 1.0)]), frame).all()
