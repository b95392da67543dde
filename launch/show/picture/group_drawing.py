"""The drawing of a topology as groups of nodes and bundles of cables, each with the number that it stands for.

The drawing of a topology of a few hundred nodes at most: every NPU, switch and cable, in frames.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import FancyBboxPatch, Polygon
from matplotlib.patheffects import withStroke

from emu.arrays import F64, I64
from emu.topology.topology import Drawing, Topology
from emu.units import format_bandwidth
from launch.show.canvas import INK, text_width_pt
from launch.show.picture import cables
from launch.show.picture.groups import TIMES, GroupedTopology, layers, switch_names
from launch.show.picture.layout import Label, free_place, grid_positions, label_around, size_of_words, tier_positions

_SMALLEST_NAMES_PT = 4.5
_HALO = [withStroke(linewidth=1.8, foreground="white")]


def paint_all(axes: Axes, topology: Topology, drawing: Drawing, points: float) -> None:
    """Draw every frame, cable and node of a topology.

    Args:
        axes: The axes to draw on.
        topology: The topology.
        drawing: The places of nodes, and the boxes.
        points: Points in a gap between NPUs.
    """
    courses = cables.curves(topology.links, drawing.at)
    _frames(axes, drawing, courses, points)
    _cables(axes, topology, courses)
    _nodes(axes, topology, drawing.at, points)


def _frames(axes: Axes, drawing: Drawing, courses: F64, points: float) -> None:
    """Draw the frames round racks, segments and other boxes of a drawing, and the labels of these frames.

    Args:
        axes: The axes to draw on.
        drawing: The places of nodes, and the boxes.
        courses: [C, points, 2] the course of each cable, which labels avoid.
        points: Points in a gap between NPUs, from which the sizes of labels follow.
    """
    corners = cables.frames(drawing.boxes, drawing.at)
    for frame in corners:
        axes.add_patch(Polygon(frame, closed=True, facecolor=cables.FRAME, edgecolor=INK, linewidth=0.6, alpha=0.35, zorder=0))
    for words, at, size_pt in cables.frame_labels(drawing, courses, points):
        style: dict[str, Any] = {"ha": "center", "va": "center", "color": INK, "path_effects": _HALO, "zorder": 5}
        axes.text(*at, words, fontsize=size_pt, **style)


def _cables(axes: Axes, topology: Topology, courses: F64) -> None:
    """Draw the cables along their courses; they are drawn thinner if there are many, or if they are slow."""
    links, tiers = topology.links, cables.tier_colours(topology)
    rows, _ = cables.cables(links)
    many, fastest = max(len(rows), 1), links.bandwidth_Bps.max(initial=1.0)
    wide = np.clip(2.2 * (120 / many) ** 0.35, 0.5, 1.6) * np.clip((links.bandwidth_Bps[rows] / fastest) ** 0.5, 0.35, 1.0)
    colours = [tiers[int(dimension)] for dimension in links.dimension[rows]]
    alpha = float(np.clip((250 / many) ** 0.4, 0.3, 0.9))
    axes.add_collection(LineCollection(list(courses), colors=colours, linewidths=wide, alpha=alpha, zorder=1, clip_on=False))


def _nodes(axes: Axes, topology: Topology, at: F64, points: float) -> None:
    """Draw the nodes, and write their numbers or names.

    Args:
        axes: The axes to draw on.
        topology: The topology.
        at: [nodes, 2] the places of nodes.
        points: Points in a gap between NPUs, from which the sizes of nodes follow.
    """
    n = topology.n_npus
    npu_pt, switch_pt = (cables.node_size_pt(some, points) for some in (at[:n], at))
    kinds = switch_names(topology)
    if len(kinds) == 1:
        switch_pt = max(switch_pt, 34.0)
    axes.scatter(at[:n, 0], at[:n, 1], s=npu_pt**2, c=cables.NPU, edgecolors="white", linewidths=npu_pt / 24, zorder=3)
    for name, colour in cables.switch_colours(topology).items():
        x, y = at[n:][np.array([each == name for each in kinds])].T
        axes.scatter(x, y, s=switch_pt**2, c=colour, marker="s", edgecolors="white", linewidths=switch_pt / 24, zorder=3)
    for node in range(n):
        _write_inside(axes, at[node], str(node), npu_pt * 0.42)
    if topology.names is not None:
        named = [topology.names(node) for node in range(topology.n_nodes)]
        _switch_names(axes, named[n:], at, points, switch_pt)
        if any(name.rpartition(".")[2] != str(node) for node, name in enumerate(named[:n])):
            _npu_names(axes, named[:n], at[:n], points, npu_pt)
        return
    for node in range(n, topology.n_nodes):
        _write_inside(axes, at[node], str(node) if len(kinds) > 1 else kinds[0], switch_pt * (0.36 if len(kinds) > 1 else 0.2))


def _switch_names(axes: Axes, names: Sequence[str], at: F64, points: float, switch_pt: float) -> None:
    """Write the names that the user gave to switches: inside, above, or upright above, whichever has room."""
    longest = max((text_width_pt(name, 1.0) for name in names), default=1.0)
    gap_pt = points * cables.least_gap(at, len(at) - len(names))
    within, over = (min(8.0, 0.9 * room / longest) for room in (switch_pt, gap_pt))
    if within >= _SMALLEST_NAMES_PT:
        for name, place in zip(names, at[len(at) - len(names) :], strict=True):
            _write_inside(axes, place, name, within)
        return
    upright = over < _SMALLEST_NAMES_PT
    size_pt = min(7.0, 0.75 * gap_pt) if upright else over
    for name, place in zip(names, at[len(at) - len(names) :], strict=True):
        if size_pt >= cables.SMALLEST_PT - 0.3:
            _write_beside(axes, name, place, size_pt, switch_pt / 2 + 1, upright=upright)


def _npu_names(axes: Axes, names: Sequence[str], at: F64, points: float, npu_pt: float) -> None:
    """Write the user's NPU names below the NPUs, vertically if there is no room."""
    gap_pt = points * cables.least_gap(at, 0)
    line_pt = min(8.0, 0.9 * gap_pt / max(text_width_pt(name, 1.0) for name in names))
    upright = line_pt < _SMALLEST_NAMES_PT
    size_pt = min(7.0, 0.75 * gap_pt) if upright else line_pt
    if size_pt >= cables.SMALLEST_PT - 0.3:
        for name, place in zip(names, at, strict=True):
            _write_beside(axes, name, place, size_pt, -npu_pt / 2 - 1, upright=upright)


def _write_beside(axes: Axes, text: str, at: F64, size_pt: float, up_pt: float, *, upright: bool) -> None:
    """Write a text above a node, or below it if `up_pt` is negative."""
    x, y = map(float, at)
    style: dict[str, Any] = {"fontsize": size_pt, "color": INK, "path_effects": _HALO, "zorder": 5, "rotation": 90.0 * upright}
    side = "bottom" if up_pt > 0 else "top"
    axes.annotate(text, (x, y), (0, up_pt), textcoords="offset points", ha="center", va=side, **style)


def _write_inside(axes: Axes, at: F64, text: str, size_pt: float) -> None:
    """Write a text inside a node, unless it would be too small to read."""
    if size_pt >= cables.SMALLEST_PT - 0.3:
        axes.text(float(at[0]), float(at[1]), text, fontsize=size_pt, ha="center", va="center", color="white", zorder=4)


WIDE, LINE = 1.7, 0.3  # width of a symbol, and height of a line of its text
_NEAR = 0.6  # factor of the gap between tiers where each is one symbol
ROOM = 3.0  # room in which cables bend around a symbol
_ALONG = (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8)  # places of a label along its line, the best first
_MOST_WORDS = 16  # most bundles that all get a label; of more, one of each kind


def arrange(merged: GroupedTopology) -> Drawing:
    """Return the positions of groups: in tiers if there are switches, else by dimensions."""
    graph = merged.graph
    spread = np.array((2.9, symbol_height(merged, range(len(merged.names))) + 1.1))
    if graph.n_nodes > graph.n_npus:
        return Drawing(tier_positions(graph, layers(graph)) * spread * (1.0, _NEAR if merged.each else 1.0))
    if len(graph.dims) == 2:
        row, column = np.unravel_index(np.arange(graph.n_npus), graph.dims)
        return Drawing(np.stack((column, -row), axis=-1) * spread)
    return Drawing(grid_positions(graph) * spread)


def symbol_height(merged: GroupedTopology, groups: range) -> float:
    """Return the height of the symbols of these groups, which fits the longest of their texts."""
    return LINE * (1.5 + max(len(words_of(merged, group)) for group in groups))


def paint_groups(axes: Axes, merged: GroupedTopology, drawing: Drawing, points: float, topology: Topology) -> None:
    """Draw groups and bundles.

    Args:
        axes: The axes to draw on.
        merged: The groups.
        drawing: The places of the groups.
        points: Points in a unit of the drawing.
        topology: The whole topology, whose colours they have.
    """
    rows, _ = cables.cables(merged.graph.links)
    course = cables.curves(merged.graph.links, drawing.at, ROOM)
    _bundles(axes, merged, rows, course, cables.tier_colours(topology))
    n, groups, switches = merged.graph.n_npus, len(merged.names), cables.switch_colours(topology)
    high = [symbol_height(merged, some) if len(some) else 0.0 for some in (range(n), range(n, groups))]
    for group, at in enumerate(drawing.at):
        colour = cables.NPU if group < n else switches[merged.names[group]]
        _symbol(axes, at, high[group >= n], colour)
        _write(axes, at, words_of(merged, group), points)
    taken = [label_around(at, np.array((WIDE, high[group >= n]))) for group, at in enumerate(drawing.at)]
    for place in _labelled_bundles(merged, rows):
        taken.append(_write_bundle(axes, merged, int(rows[place]), course[place], points, taken))


def _bundles(axes: Axes, merged: GroupedTopology, rows: I64, course: F64, tiers: dict[int, str]) -> None:
    """Draw a line for each bundle of cables, wider for more cables."""
    links, wide = merged.graph.links, merged.bundled[rows]
    widths = np.clip(5.0 * (wide / wide.max(initial=1)) ** 0.4, 0.9, 5.0)
    colours = [tiers[int(d)] for d in links.dimension[rows]]
    lines = LineCollection(list(course), colors=colours, linewidths=widths, alpha=0.75, zorder=1, clip_on=False)
    axes.add_collection(lines)


def _labelled_bundles(merged: GroupedTopology, rows: I64) -> I64:
    """Return the indices in `rows` of the bundles that get a label: all if few, else the first of each kind."""
    if len(rows) <= _MOST_WORDS:
        return np.arange(len(rows))
    links = merged.graph.links
    kinds = np.where(np.arange(len(merged.names)) < merged.graph.n_npus, "NPU", merged.names)
    ends = [np.unique(kinds[end[rows]], return_inverse=True)[1] for end in (links.src, links.dst)]
    return np.unique(np.stack((*ends, links.dimension[rows], merged.bundled[rows])), axis=1, return_index=True)[1]


def _write_bundle(axes: Axes, merged: GroupedTopology, row: int, line: F64, points: float, taken: Sequence[Label]) -> Label:
    """Write the label of a bundle where it does not overlap others, and return the space it takes."""
    rate = format_bandwidth(float(merged.graph.links.bandwidth_Bps[row]))
    words, size_pt = (f"{TIMES} {merged.bundled[row]:,}", rate), min(8.0, 0.17 * points)
    size = size_of_words(words, size_pt, points)
    chosen = free_place((label_around(line[round(share * (len(line) - 1))], size) for share in _ALONG), taken)
    room = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    axes.text(*chosen.middle, "\n".join(words), fontsize=size_pt, ha="center", va="center", zorder=3, bbox=room)
    return chosen


def words_of(merged: GroupedTopology, group: int) -> list[str]:
    """Return the text lines that describe a group: its name, and its nodes and their cables by kind."""
    name = [merged.names[group]] if group < merged.graph.n_npus else []
    parts = merged.parts[group].items()
    nodes = [f"{kind} {TIMES} {number:,}" if number > 1 else kind for kind, number in parts]
    return [*name, *nodes, *(merged.each[group] if merged.each else ())]


def _symbol(axes: Axes, at: F64, high: float, colour: str) -> None:
    """Draw the symbol of a group."""
    corner = (float(at[0]) - WIDE / 2, float(at[1]) - high / 2)
    style = "round,pad=0,rounding_size=0.12"
    axes.add_patch(FancyBboxPatch(corner, WIDE, high, boxstyle=style, facecolor=colour, edgecolor="white", zorder=4))


def _write(axes: Axes, at: F64, words: list[str], points: float) -> None:
    """Write the lines of a group's text into its symbol."""
    size_pt = min(11.0, 0.62 * LINE * points, 1.6 * WIDE * points / max(map(len, words)))
    x, y = map(float, at)
    axes.text(x, y, "\n".join(words), fontsize=size_pt, ha="center", va="center", color="white", zorder=5, linespacing=1.3)
