"""Every cable is drawn once, from end to end, and hidden by no other."""

from dataclasses import replace

import numpy as np
import pytest

from emu.arrays import column
from emu.topology.catalogue import TOPOLOGIES, build_topology
from emu.topology.topology import Links
from launch.show.picture.cables import cable_counts, cables, curves, frame_labels
from launch.show.picture.layout import layout

LINES = [blueprint.example for _, blueprint in TOPOLOGIES]


def _links(*ends):
    src, dst = np.array(ends).reshape(-1, 2).T
    ones = np.ones(len(src))
    return Links(
        column(src, np.int32),
        column(dst, np.int32),
        column(ones, np.float64),
        column(ones, np.int64),
        column(0 * ones, np.int16),
    )


@pytest.mark.parametrize("line", LINES)
def test_every_cable_is_drawn_once_from_end_to_end_and_parallel_ones_apart(line):
    links, at = build_topology(line).links, layout(build_topology(line)).at
    (rows, _), course = cables(links), curves(links, at)
    assert len(rows) == len(course) == len(links) // 2
    low, high = np.minimum(links.src, links.dst)[rows], np.maximum(links.src, links.dst)[rows]
    assert np.allclose(course[:, 0], at[low])
    assert np.allclose(course[:, -1], at[high])
    assert len(np.unique(course.round(9).reshape(len(rows), 66), axis=0)) == len(rows)


def test_a_link_that_has_none_back_is_drawn_too():
    rows, place = cables(_links((0, 1), (1, 0), (2, 1), (0, 2), (0, 2)))
    assert sorted(rows.tolist()) == [0, 2, 3, 4]
    assert sorted(place.tolist()) == [-0.5, 0.0, 0.0, 0.5]


def test_as_many_are_drawn_as_there_are_cables_and_links_without_one_back():
    links = _links((0, 1), (1, 0), (1, 0), (1, 0), (0, 2), (1, 2), (2, 1))
    links = replace(links, dimension=column([0, 0, 0, 1, 1, 1, 1], np.int16))
    assert cable_counts(links) == {0: (1, 1), 1: (1, 2)}
    rows, _ = cables(links)
    assert np.bincount(links.dimension[rows]).tolist() == [2, 3]


def test_parallel_cables_of_two_tiers_are_apart():
    links = _links((0, 1), (0, 1))
    links = replace(links, dimension=column([0, 1], np.int16))
    first, second = curves(links, np.array([(0.0, 0.0), (2.0, 0.0)]))
    assert np.abs(first - second)[16].max() > 0.2


@pytest.mark.parametrize("turn", np.linspace(0, 2 * np.pi, 7))
def test_a_cable_passes_by_a_node_on_its_way(turn):
    at = np.arange(3)[:, None] * np.array((np.cos(turn), np.sin(turn)))
    across, nearby = curves(_links((0, 2), (0, 1)), at)[np.argsort([1, 0])]
    bent, straight = (across, nearby) if len(across) == 33 and np.allclose(across[-1], at[2]) else (nearby, across)
    assert np.hypot(*(bent - at[1]).T).min() > 0.15
    assert np.allclose(straight, at[0] + np.linspace(0, 1, 33)[:, None] * (at[1] - at[0]))


def test_the_name_of_a_frame_lies_where_no_cable_passes():
    """Cables of a segment leave upwards and to the left, so that its name stands below it."""
    topology = build_topology("hpn:segment:dims=4x4")
    drawing = layout(topology)
    courses = curves(topology.links, drawing.at)
    [(words, (_, y), _)] = frame_labels(drawing, courses, 40.0)
    assert words == "segment 0"
    assert y < drawing.at[:, 1].min()
    [(_, (_, bare), _)] = frame_labels(drawing, courses[:0], 40.0)
    assert bare > drawing.at[:16, 1].max()
