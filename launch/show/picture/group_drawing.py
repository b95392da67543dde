"""The drawing of a topology as groups of nodes and bundles of cables, each with the number that it stands for."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import FancyBboxPatch

from emu.arrays import F64, I64
from emu.topology.topology import Drawing
from emu.units import format_bandwidth
from launch.show.picture.cables import cables, curves
from launch.show.picture.groups import GroupedTopology, layers
from launch.show.picture.layout import Label, free_place, grid_positions, label_around, size_of_words, tier_positions
from launch.show.picture.style import NPU, TIMES, Palette

WIDE, LINE = 1.7, 0.3  # width of a symbol, and height of a line of its text
ROOM = 3.0  # room in which cables bend around a symbol
_ALONG = (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8)  # places of a label along its line, the best first
_MOST_WORDS = 16  # most bundles that all get a label; of more, one of each kind


def arrange(merged: GroupedTopology) -> Drawing:
    """Return the places of the groups: in tiers where there are switches, else by dimensions."""
    graph = merged.graph
    spread = np.array((2.9, symbol_height(merged, range(len(merged.names))) + 1.1))
    if graph.n_nodes > graph.n_npus:
        return Drawing(tier_positions(graph, layers(graph)) * spread)
    if len(graph.dims) == 2:
        row, column = np.unravel_index(np.arange(graph.n_npus), graph.dims)
        return Drawing(np.stack((column, -row), axis=-1) * spread)
    return Drawing(grid_positions(graph) * spread)


def symbol_height(merged: GroupedTopology, groups: range) -> float:
    """Return the height of the symbols of these groups, which fits the longest of their texts."""
    return LINE * (1.5 + max(len(words_of(merged, group)) for group in groups))


def paint_groups(axes: Axes, merged: GroupedTopology, drawing: Drawing, points: float, palette: Palette) -> None:
    """Draw groups and bundles.

    Args:
        axes: The axes to draw on.
        merged: The groups.
        drawing: The places of the groups.
        points: Points in a unit of the drawing.
        palette: The colours.
    """
    rows, _ = cables(merged.graph.links)
    course = curves(merged.graph.links, drawing.at, ROOM)
    _bundles(axes, merged, rows, course, palette)
    n, groups = merged.graph.n_npus, len(merged.names)
    high = [symbol_height(merged, some) if len(some) else 0.0 for some in (range(n), range(n, groups))]
    for group, at in enumerate(drawing.at):
        colour = NPU if group < n else palette.switches[merged.names[group]]
        _symbol(axes, at, high[group >= n], colour)
        _write(axes, at, words_of(merged, group), points)
    taken = [label_around(at, np.array((WIDE, high[group >= n]))) for group, at in enumerate(drawing.at)]
    for place in _labelled_bundles(merged, rows):
        taken.append(_write_bundle(axes, merged, int(rows[place]), course[place], points, taken))


def _bundles(axes: Axes, merged: GroupedTopology, rows: I64, course: F64, palette: Palette) -> None:
    """Draw a line for each bundle, wider where it has more cables."""
    links, wide = merged.graph.links, merged.bundled[rows]
    widths = np.clip(5.0 * (wide / wide.max(initial=1)) ** 0.4, 0.9, 5.0)
    colours = [palette.tiers[int(d)] for d in links.dimension[rows]]
    lines = LineCollection(list(course), colors=colours, linewidths=widths, alpha=0.75, zorder=1, clip_on=False)
    axes.add_collection(lines)


def _labelled_bundles(merged: GroupedTopology, rows: I64) -> I64:
    """Return the places in `rows` of the bundles that get a label: all of a few, else the first of each kind."""
    if len(rows) <= _MOST_WORDS:
        return np.arange(len(rows))
    links = merged.graph.links
    kinds = np.where(np.arange(len(merged.names)) < merged.graph.n_npus, "NPU", merged.names)
    ends = [np.unique(kinds[end[rows]], return_inverse=True)[1] for end in (links.src, links.dst)]
    return np.unique(np.stack((*ends, links.dimension[rows], merged.bundled[rows])), axis=1, return_index=True)[1]


def _write_bundle(axes: Axes, merged: GroupedTopology, row: int, line: F64, points: float, taken: Sequence[Label]) -> Label:
    """Write the label of a bundle in the middle of its line, or nearer to an end where other labels are; return its room."""
    rate = format_bandwidth(float(merged.graph.links.bandwidth_Bps[row]))
    words, size_pt = (f"{TIMES} {merged.bundled[row]:,}", rate), min(8.0, 0.17 * points)
    size = size_of_words(words, size_pt, points)
    chosen = free_place((label_around(line[round(share * (len(line) - 1))], size) for share in _ALONG), taken)
    room = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    axes.text(*chosen.middle, "\n".join(words), fontsize=size_pt, ha="center", va="center", zorder=3, bbox=room)
    return chosen


def words_of(merged: GroupedTopology, group: int) -> list[str]:
    """Return the lines of a group's text: its name, then the number of nodes of each kind."""
    name = [merged.names[group]] if group < merged.graph.n_npus else []
    parts = merged.parts[group].items()
    return name + [f"{kind} {TIMES} {number:,}" if number > 1 else kind for kind, number in parts]


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
