"""The HTML drawing of how busy the links of a topology are in a step; a large topology is drawn as groups and bundles.

All marks of a drawing are in its units, with y downwards.

L links of the topology, K bundles of links, G groups of nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from matplotlib.colors import to_rgb

from emu.arrays import F64, I64
from emu.topology.topology import Links, Topology
from launch.show.html.page import Svg
from launch.show.picture.cables import NPU, cables, curves, frame_labels, frames, node_size_pt, palette
from launch.show.picture.group_drawing import LINE, ROOM, WIDE, arrange, symbol_height, words_of
from launch.show.picture.groups import GroupedTopology, group_nodes, switch_names
from launch.show.picture.layout import layout
from launch.show.topology_picture import MOST_NODES

_PAGE_PT = 850.0  # width of the page
_MARGIN = 0.6
_THICK_PT, _FAR_PT = 45.0, 100.0  # gaps between NPUs above which cables, and symbols, grow no more
_SMALLEST_PT = 3.0  # size of letters below which nothing is written
_WORD = 0.64  # width of a letter, in its size
NOTHING = "#c3ccd5"  # colour of a link that carries nothing
_RAMP = ("#fdd49e", "#fdbb84", "#fc8d59", "#ef6548", "#d7301f", "#990000", "#5f0000")  # ColorBrewer's OrRd, a darker end
_THINNEST, _WIDEST = 0.03, 0.11  # widths of a cable, in gaps between NPUs
_DARK = 0.55  # brightness below which white text can be read


@dataclass(frozen=True, slots=True)
class CableMark:
    """A cable of a drawing, or a bundle of cables, in the colour of its load."""

    path: str
    colour: str
    wide: float
    told: str


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line of centred text."""

    x: float
    y: float
    size: float
    text: str


@dataclass(frozen=True, slots=True)
class NodeMark:
    """A node of a drawing, or a group of nodes, with its text."""

    x: float
    y: float
    wide: float
    high: float
    round: float
    colour: str
    ink: str
    told: str
    lines: tuple[TextLine, ...]


def link_map(topology: Topology, shares: F64) -> Svg:
    """Return the drawing, each cable in the colour of the busier of its directions.

    Args:
        topology: The topology.
        shares: [L] the share of the step for which each link is busy.
    """
    told = f"{topology.name}: the share of the step for which each link is busy at full rate"
    drawn = _full_map if topology.n_nodes <= MOST_NODES else _group_map
    return Svg("links.html", told, drawn(topology, shares))


def _full_map(topology: Topology, shares: F64) -> SimpleNamespace:
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
    return _map(low, size, shares, scale, frames=[*map(points_of, boxes)], cables=drawn, nodes=nodes, labels=labels)


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
        _symbol(
            at, high[group >= graph.n_npus], words_of(merged, group), heat(float(within[group]), most), float(within[group])
        )
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
        size: [2] its width and height.
        shares: [L] the share of the step for which each link is busy.
        scale: The text after the scale of colours.
        marks: The frames, cables, nodes and labels.
    """
    wide, high = map(float, size)
    box = f"{low[0]:.2f} {-(low[1] + high):.2f} {wide:.2f} {high:.2f}"
    most, ramp = percent(float(shares.max(initial=0.0))), ",".join((NOTHING, *_RAMP))
    return SimpleNamespace(
        box=box, wide=round(wide, 2), high=round(high, 2), thin=0.02, most=most, scale=scale, ramp=ramp, **marks
    )


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


def heat(share: float, most: float) -> str:
    """Return the colour of a share on the scale from 0 to the largest share."""
    if share <= 0 or most <= 0:
        return NOTHING
    return _RAMP[min(int(share / most * len(_RAMP)), len(_RAMP) - 1)]


def ink_on(colour: str) -> str:
    """Return the colour of text that can be read on a colour: white or dark."""
    bright = float(np.dot(to_rgb(colour), (0.2126, 0.7152, 0.0722)))
    return "#ffffff" if bright < _DARK else "#22313f"


def percent(share: float) -> str:
    """Return a share in words, such as `12.3 %`."""
    return f"{100 * share:.3g} %"


def cables_of(
    links: Links, shares: F64, course: F64, names: Sequence[str], gap: float, bundled: I64 | None = None
) -> list[CableMark]:
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
        found.append(CableMark(_path(course[place]), heat(share, most), round(wide, 4), f"{ends}{many}: busy {percent(share)}"))
    return found


def _busier_direction(links: Links, shares: F64) -> F64:
    """Return [K] the larger share of all links between the same two nodes, in either direction."""
    low, high = np.minimum(links.src, links.dst).astype(np.int64), np.maximum(links.src, links.dst).astype(np.int64)
    _, of = np.unique(np.stack((links.dimension, low, high)), axis=1, return_inverse=True)
    most = np.zeros(int(of.max(initial=-1)) + 1)
    np.maximum.at(most, of, shares)
    return np.asarray(most[of])


def _path(course: F64) -> str:
    """Return the course of a cable as an SVG path, of two points where it is straight."""
    straight = course[0] + np.linspace(0, 1, len(course))[:, None] * (course[-1] - course[0])
    kept = course[[0, -1]] if np.abs(course - straight).max() < 1e-3 else course[::2]
    return "M" + "L".join(f"{x:.2f} {-y:.2f}" for x, y in kept)


def points_of(corners: F64) -> str:
    """Return the corners of a polygon as SVG points."""
    return " ".join(f"{x:.2f},{-y:.2f}" for x, y in corners)
