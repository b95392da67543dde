"""The HTML drawing of how busy the links of a topology are in a step; a large topology is drawn as groups and bundles.

L links of the topology, K bundles of links, G groups of nodes.
"""

from collections.abc import Sequence

import numpy as np

from emu.arrays import F64
from emu.topology.topology import Links, Topology
from launch.show.html.link_marks import CableMark, LinkMap, NodeMark, TextLine, cables_of, heat, ink_on, percent, points_of
from launch.show.html.page import Svg
from launch.show.picture.cables import curves
from launch.show.picture.frames import frame_labels, frames
from launch.show.picture.group_drawing import LINE, ROOM, WIDE, arrange, symbol_height, words_of
from launch.show.picture.groups import GroupedTopology, group_nodes, switch_names
from launch.show.picture.layout import layout
from launch.show.picture.style import NPU, node_size_pt, palette
from launch.show.topology_picture import MOST_NODES

_PAGE_PT = 850.0  # width of the page
_MARGIN = 0.6
_THICK_PT, _FAR_PT = 45.0, 100.0  # gaps between NPUs above which cables, and symbols, grow no more
_SMALLEST_PT = 3.0  # size of letters below which nothing is written
_WORD = 0.64  # width of a letter, in its size


def link_map(topology: Topology, shares: F64) -> Svg:
    """Return the drawing, each cable in the colour of the busier of its directions.

    Args:
        topology: The topology.
        shares: [L] the share of the step for which each link is busy.
    """
    told = f"{topology.name}: the share of the step for which each link is busy at full rate"
    drawn = _full_map if topology.n_nodes <= MOST_NODES else _group_map
    return Svg("links.html", told, drawn(topology, shares))


def _full_map(topology: Topology, shares: F64) -> LinkMap:
    """Return the drawing of every node and cable."""
    drawing, n = layout(topology), topology.n_npus
    points = _PAGE_PT / (float(np.ptp(drawing.at[:, 0])) + 2 * _MARGIN)
    near = min(points, _FAR_PT)
    sizes = [node_size_pt(some, near) / near for some in (drawing.at[:n], drawing.at)]
    switches, colours = switch_names(topology), palette(topology).switches
    nodes = [_dot(at, sizes[0], NPU, str(i), topology.call(i), points) for i, at in enumerate(drawing.at[:n])]
    for i, (at, kind) in enumerate(zip(drawing.at[n:], switches, strict=True), n):
        told = topology.call(i) + (f", {kind}" if kind != "switch" else "")
        nodes.append(_dot(at, sizes[1], colours[kind], str(i), told, points, turn=0.1))
    names = [node.told for node in nodes]
    drawn = cables_of(topology.links, shares, curves(topology.links, drawing.at), names, min(1.0, _THICK_PT / points))
    labels = [
        TextLine(*_rounded_place(words.at), round(words.size_pt / points, 3), words.text)
        for words in frame_labels(drawing, points)
    ]
    boxes = frames(drawing.boxes, drawing.at)
    at = np.concatenate([drawing.at, *boxes])
    low, size = at.min(axis=0) - _MARGIN, np.ptp(at, axis=0) + 2 * _MARGIN
    scale = "of the step, in the busier direction"
    return _map(low, size, tuple(map(points_of, boxes)), drawn, nodes, labels, shares, scale)


def _group_map(topology: Topology, shares: F64) -> LinkMap:
    """Return the drawing of groups and bundles, each in the colour of its busiest link."""
    merged = group_nodes(topology)
    graph, drawing = merged.graph, arrange(merged)
    between, within = _busiest(merged, topology.links, shares)
    names = [" ".join(words_of(merged, group)) for group in range(graph.n_nodes)]
    course = curves(graph.links, drawing.at, ROOM)
    drawn = cables_of(graph.links, between, course, names, 1.5, merged.bundled)
    kinds = (range(graph.n_npus), range(graph.n_npus, graph.n_nodes))
    high = [symbol_height(merged, some) if len(some) else 0.0 for some in kinds]
    most = float(shares.max(initial=0.0))
    nodes = [
        _symbol(
            at, high[group >= graph.n_npus], words_of(merged, group), heat(float(within[group]), most), float(within[group])
        )
        for group, at in enumerate(drawing.at)
    ]
    at = np.concatenate([drawing.at, course.reshape(-1, 2)])
    room = np.array((WIDE, max(high))) / 2 + 0.3
    scale = "of the step, by the busiest link of each bundle, and within each group"
    return _map(at.min(axis=0) - room, np.ptp(at, axis=0) + 2 * room, (), drawn, nodes, [], shares, scale)


def _busiest(merged: GroupedTopology, links: Links, shares: F64) -> tuple[F64, F64]:
    """Return [K] the largest share of the links of each bundle, and [G] the largest of the links within each group."""
    between, within = np.zeros(len(merged.graph.links)), np.zeros(merged.graph.n_nodes)
    apart = merged.bundle >= 0
    np.maximum.at(between, merged.bundle[apart], shares[apart])
    np.maximum.at(within, merged.group[links.src[~apart]], shares[~apart])
    return between, within


def _map(
    low: F64,
    size: F64,
    boxes: tuple[str, ...],
    drawn: Sequence[CableMark],
    nodes: Sequence[NodeMark],
    labels: Sequence[TextLine],
    shares: F64,
    scale: str,
) -> LinkMap:
    """Return the drawing of these marks, in a box with this lower left corner and size."""
    wide, high = map(float, size)
    box = f"{low[0]:.2f} {-(low[1] + high):.2f} {wide:.2f} {high:.2f}"
    most = percent(float(shares.max(initial=0.0)))
    return LinkMap(box, round(wide, 2), round(high, 2), 0.02, boxes, tuple(drawn), tuple(nodes), tuple(labels), most, scale)


def _dot(at: F64, size: float, colour: str, number: str, told: str, points: float, turn: float = 0.5) -> NodeMark:
    """Return the mark of a node, with its number where that can be read.

    Args:
        at: [2] the place of the node.
        size: Its width in units of the drawing.
        colour: Its colour.
        number: Its number.
        told: The text that appears when it is pointed at.
        points: Points in a unit of the drawing.
        turn: The radius of its corners, as a share of its width.
    """
    (x, y), words = _rounded_place(at), min(0.45 * size, 0.9 * size / _WORD / max(1, len(number)))
    lines = (TextLine(x, y, round(words, 3), number),) if words * points >= _SMALLEST_PT else ()
    half = size / 2
    edges = (round(x - half, 3), round(y - half, 3), round(size, 3), round(size, 3), round(turn * size, 3))
    return NodeMark(*edges, colour, ink_on(colour), told, lines)


def _symbol(at: F64, high: float, words: Sequence[str], colour: str, share: float) -> NodeMark:
    """Return the mark of a group of nodes, with its text.

    Args:
        at: [2] the place of the group.
        high: Its height in units of the drawing.
        words: The lines of its text.
        colour: Its colour.
        share: The share of the step for which its busiest inner link is busy.
    """
    (x, y), ink = _rounded_place(at), ink_on(colour)
    size = min(0.62 * LINE, 0.92 * WIDE / _WORD / max(map(len, words)))
    first = y - LINE * (len(words) - 1) / 2
    lines = tuple(TextLine(x, round(first + LINE * i, 3), round(size, 3), line) for i, line in enumerate(words))
    edges = (round(x - WIDE / 2, 3), round(y - high / 2, 3), WIDE, round(high, 3), 0.12)
    return NodeMark(*edges, colour, ink, f"{', '.join(words)}: busiest link within {percent(share)}", lines)


def _rounded_place(place: Sequence[float] | F64) -> tuple[float, float]:
    """Return a place rounded to three digits, with y downwards."""
    return round(float(place[0]), 3), round(-float(place[1]), 3)
