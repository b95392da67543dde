"""The HTML drawing of how busy the links of a topology are in a step; a large topology is drawn as groups and bundles.

All marks of a drawing are in its units, with y downwards.

L links of the topology, K bundles of links, G groups of nodes.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from matplotlib.colors import to_rgb

from emu.arrays import F64, I64
from emu.topology.topology import Links, Topology
from launch.show.blocks import Block, drawing_block
from launch.show.picture.cables import NPU, cables, curves, frame_labels, frames, node_size_pt, switch_colours
from launch.show.picture.group_drawing import LINE, ROOM, WIDE, arrange, symbol_height, words_of
from launch.show.picture.groups import GroupedTopology, group_nodes, switch_names
from launch.show.picture.layout import layout
from launch.show.topology_picture import MOST_NODES

_PAGE_PT = 850.0  # width of the page
_MARGIN = 0.6
_THICK_PT, _FAR_PT = 45.0, 100.0  # gaps between NPUs above which cables, and symbols, grow no more
_SMALLEST_PT = 3.0  # size of letters below which nothing is written
_WORD = 0.64  # width of a letter, as a share of its size
NOTHING = "#c3ccd5"  # colour of a link that carries nothing
RAMP = ("#fdd49e", "#fdbb84", "#fc8d59", "#ef6548", "#d7301f", "#990000", "#5f0000")  # ColorBrewer's OrRd, a darker end
_THINNEST, _WIDEST = 0.03, 0.11  # widths of a cable, in gaps between NPUs
_DARK = 0.55  # brightness below which white text can be read
Text = tuple[float, float, float, str]  # a line of centred text: its place, its size, and the text


def link_map(topology: Topology, shares: F64) -> Block:
    """Return the drawing, each cable in the colour of the busier of its directions.

    Args:
        topology: The topology.
        shares: [L] the share of the step for which each link is busy.
    """
    told = f"{topology.name}: the share of the step for which each link is busy at full rate"
    drawn = _full_map if topology.n_nodes <= MOST_NODES else _group_map
    return drawing_block("links.html", told, drawn(topology, shares))


class DrawnNodes(NamedTuple):
    """The nodes of a topology as a drawing of a page has them, without cables."""

    at: F64  # [nodes, 2] their places
    names: Sequence[str]
    gap: float  # between nodes, for the widths of cables
    low: F64  # [2] the lower left corner of the drawing
    size: F64  # [2] its width and height
    marks: Mapping[str, Sequence[object]]  # frames, nodes and labels


def drawn_nodes(topology: Topology) -> DrawnNodes:
    """Return every node of a topology of a few hundred nodes at most, with frames and labels."""
    drawing, n = layout(topology), topology.n_npus
    points = _PAGE_PT / (float(np.ptp(drawing.at[:, 0])) + 2 * _MARGIN)
    near = min(points, _FAR_PT)
    npu_size, switch_size = (node_size_pt(some, near) / near for some in (drawing.at[:n], drawing.at))
    colours = switch_colours(topology)
    marks = [(npu_size, 0.5, NPU, topology.node_name(i)) for i in range(n)]
    for i, kind in enumerate(switch_names(topology), n):
        marks.append((switch_size, 0.1, colours[kind], topology.node_name(i) + (f", {kind}" if kind != "switch" else "")))
    nodes = [
        _node(at, (size, size, turn * size), colour, told, _number_line(str(i), at, size, points))
        for i, (at, (size, turn, colour, told)) in enumerate(zip(drawing.at, marks, strict=True))
    ]
    labelled = frame_labels(drawing, curves(topology.links, drawing.at), points)
    labels = [(*_rounded_place(at), round(size / points, 3), words) for words, at, size in labelled]
    boxes = frames(drawing.boxes, drawing.at)
    at = np.concatenate([drawing.at, *boxes])
    low, size = at.min(axis=0) - _MARGIN, np.ptp(at, axis=0) + 2 * _MARGIN
    drawn: dict[str, Sequence[object]] = {"frames": [*map(points_of, boxes)], "nodes": nodes, "labels": labels}
    return DrawnNodes(drawing.at, [told for *_, told in marks], min(1.0, _THICK_PT / points), low, size, drawn)


def _full_map(topology: Topology, shares: F64) -> SimpleNamespace:
    """Return the drawing of every node and cable."""
    drawn, links = drawn_nodes(topology), topology.links
    marks = cables_of(links, shares, curves(links, drawn.at), drawn.names, drawn.gap)
    return _map(drawn.low, drawn.size, shares, "of the step, in the busier direction", cables=marks, **drawn.marks)


def _group_map(topology: Topology, shares: F64) -> SimpleNamespace:
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
        _symbol(at, high[group >= graph.n_npus], words_of(merged, group), float(within[group]), most)
        for group, at in enumerate(drawing.at)
    ]
    at = np.concatenate([drawing.at, course.reshape(-1, 2)])
    room = np.array((WIDE, max(high))) / 2 + 0.3
    scale = "of the step, by the busiest link of each bundle, and within each group"
    low, size = at.min(axis=0) - room, np.ptp(at, axis=0) + 2 * room
    return _map(low, size, shares, scale, frames=(), cables=drawn, nodes=nodes, labels=())


def _busiest(merged: GroupedTopology, links: Links, shares: F64) -> tuple[F64, F64]:
    """Return [K] the largest share of the links of each bundle, and [G] the largest of the links within each group."""
    between, within = np.zeros(len(merged.graph.links)), np.zeros(merged.graph.n_nodes)
    apart = merged.bundle >= 0
    np.maximum.at(between, merged.bundle[apart], shares[apart])
    np.maximum.at(within, merged.group[links.src[~apart]], shares[~apart])
    return between, within


def _map(low: F64, size: F64, shares: F64, scale: str, **marks: Sequence[object]) -> SimpleNamespace:
    """Return the drawing of frames, cables, nodes and labels, as the template `links.html` draws it.

    Args:
        low: [2] the lower left corner of the drawing.
        size: [2] the width and height of the drawing.
        shares: [L] the share of the step for which each link is busy.
        scale: The text after the scale of colours.
        marks: The frames, cables, nodes and labels.
    """
    most, ramp = percent(float(shares.max(initial=0.0))), ",".join((NOTHING, *RAMP))
    return SimpleNamespace(**view_of(low, size), most=most, scale=scale, ramp=ramp, **marks)


def view_of(low: F64, size: F64) -> dict[str, Any]:
    """Return the box, the measures and the width of thin lines of a drawing; arguments as in `_map`."""
    wide, high = map(float, size)
    box = f"{low[0]:.2f} {-(low[1] + high):.2f} {wide:.2f} {high:.2f}"
    return {"box": box, "wide": round(wide, 2), "high": round(high, 2), "thin": 0.02}


def _node(at: F64, size: tuple[float, float, float], colour: str, told: str, lines: Sequence[Text]) -> SimpleNamespace:
    """Return the mark of a node, or of a group of nodes: a rectangle with its text.

    Args:
        at: [2] the place of its middle.
        size: Its width, its height and the radius of its corners.
        colour: Its colour.
        told: The text that appears when it is pointed at.
        lines: The lines of its text.
    """
    (x, y), (wide, high, turn) = _rounded_place(at), size
    edges = {"x": x - wide / 2, "y": y - high / 2, "wide": wide, "high": high, "round": turn}
    rounded = {name: round(value, 3) for name, value in edges.items()}
    return SimpleNamespace(**rounded, colour=colour, ink=ink_on(colour), told=told, lines=lines)


def _number_line(number: str, at: F64, size: float, points: float) -> list[Text]:
    """Return the number of a node as a list with one text; empty if it would be too small to read.

    Args:
        number: The number.
        at: [2] the place of the node.
        size: The width of the node in units of the drawing.
        points: Points in a unit of the drawing.
    """
    high = min(0.45 * size, 0.9 * size / _WORD / max(1, len(number)))
    return [(*_rounded_place(at), round(high, 3), number)] if high * points >= _SMALLEST_PT else []


def _symbol(at: F64, high: float, words: Sequence[str], share: float, most: float) -> SimpleNamespace:
    """Return the mark of a group of nodes, with its text.

    Args:
        at: [2] the place of the group.
        high: Its height in units of the drawing.
        words: The lines of its text.
        share: The share of the step for which its busiest inner link is busy.
        most: The largest share of all links.
    """
    x, y = _rounded_place(at)
    size = min(0.62 * LINE, 0.92 * WIDE / _WORD / max(map(len, words)))
    first = y - LINE * (len(words) - 1) / 2
    lines = [(x, round(first + LINE * i, 3), round(size, 3), line) for i, line in enumerate(words)]
    told = f"{', '.join(words)}: busiest link within {percent(share)}"
    return _node(at, (WIDE, high, 0.12), heat(share, most), told, lines)


def _rounded_place(place: Sequence[float] | F64) -> tuple[float, float]:
    """Return a position in a drawing, rounded to three digits, with y downwards."""
    return round(float(place[0]), 3), round(-float(place[1]), 3)


def heat(share: float, most: float) -> str:
    """Return the colour of a share on the scale from 0 to the largest share."""
    if share <= 0 or most <= 0:
        return NOTHING
    return RAMP[min(int(share / most * len(RAMP)), len(RAMP) - 1)]


def ink_on(colour: str) -> str:
    """Return the colour of text that can be read on a colour: white or dark."""
    bright = float(np.dot(to_rgb(colour), (0.2126, 0.7152, 0.0722)))
    return "#ffffff" if bright < _DARK else "#22313f"


def percent(share: float) -> str:
    """Return a share in words, such as `12.3 %`."""
    return f"{100 * share:.3g} %"


def cables_of(
    links: Links, shares: F64, course: F64, names: Sequence[str], gap: float, bundled: I64 | None = None
) -> list[SimpleNamespace]:
    """Return a mark for each cable, in the colour of the busier of its directions.

    The busiest are last, so that no other is drawn over them.

    Args:
        links: K links that are drawn.
        shares: [K] the share of the step for which each link is busy.
        course: [cables, points, 2] the course of each cable, as `curves` returns it.
        names: The names of the nodes.
        gap: The gap between nodes, in units of the drawing.
        bundled: [K] the number of links in each bundle; None: a link is one link.
    """
    rows, most = cables(links)[0], float(shares.max(initial=0.0))
    both = _busier_direction(links, shares)
    found = []
    for place in np.argsort(both[rows], kind="stable").tolist():
        row = int(rows[place])
        share = float(both[row])
        ends = " and ".join(names[int(end[row])] for end in (links.src, links.dst))
        many = "" if bundled is None else f", {bundled[row]:,} links"
        wide = gap * (_THINNEST + (_WIDEST - _THINNEST) * (share / most if most else 0.0))
        told = f"{ends}{many}: busy {percent(share)}"
        found.append(SimpleNamespace(path=path_of(course[place]), colour=heat(share, most), wide=round(wide, 4), told=told))
    return found


def _busier_direction(links: Links, shares: F64) -> F64:
    """Return [K] the larger share of the two directions between each pair of nodes."""
    low, high = np.minimum(links.src, links.dst).astype(np.int64), np.maximum(links.src, links.dst).astype(np.int64)
    _, of = np.unique(np.stack((links.dimension, low, high)), axis=1, return_inverse=True)
    most = np.zeros(len(shares))  # there are no more pairs than links
    np.maximum.at(most, of, shares)
    return np.asarray(most[of])


def path_of(course: F64) -> str:
    """Return the `d` of an SVG path: the line of a cable through points, whose y leads upwards."""
    straight = course[0] + np.linspace(0, 1, len(course))[:, None] * (course[-1] - course[0])
    kept = course[[0, -1]] if np.abs(course - straight).max() < 1e-3 else course[::2]
    return "M" + "L".join(f"{x:.2f} {-y:.2f}" for x, y in kept)


def points_of(corners: F64) -> str:
    """Return the corners of a polygon as SVG points."""
    return " ".join(f"{x:.2f},{-y:.2f}" for x, y in corners)
