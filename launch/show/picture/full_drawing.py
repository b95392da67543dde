"""The drawing of a topology of a few hundred nodes at most: every NPU, switch and cable, in frames."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Polygon
from matplotlib.patheffects import withStroke

from emu.arrays import F64
from emu.topology.topology import Drawing, Topology
from launch.show.canvas import INK, text_width_pt
from launch.show.picture.cables import cables, curves
from launch.show.picture.frames import SMALLEST_PT, frame_labels, frames
from launch.show.picture.groups import switch_names
from launch.show.picture.style import FRAME, NPU, Palette, least_gap, node_size_pt

_SMALLEST_NAMES_PT = 4.5
_HALO = [withStroke(linewidth=1.8, foreground="white")]


def paint_all(axes: Axes, topology: Topology, drawing: Drawing, points: float, palette: Palette) -> None:
    """Draw every frame, cable and node of a topology.

    Args:
        axes: The axes to draw on.
        topology: The topology.
        drawing: The places of nodes, and the boxes.
        points: Points in a gap between NPUs.
        palette: The colours.
    """
    _frames(axes, drawing, points)
    _cables(axes, topology, drawing.at, palette)
    _nodes(axes, topology, drawing.at, points, palette)


def _frames(axes: Axes, drawing: Drawing, points: float) -> None:
    """Draw the frames round racks, segments and other boxes of a drawing, and the labels of these frames.

    Args:
        axes: The axes to draw on.
        drawing: The places of nodes, and the boxes.
        points: Points in a gap between NPUs, from which the sizes of labels follow.
    """
    corners = frames(drawing.boxes, drawing.at)
    for frame in corners:
        axes.add_patch(Polygon(frame, closed=True, facecolor=FRAME, edgecolor=INK, linewidth=0.6, alpha=0.35, zorder=0))
    for words in frame_labels(drawing, points):
        style: dict[str, Any] = {"ha": "center", "va": "center", "color": INK, "path_effects": _HALO, "zorder": 5}
        axes.text(*words.at, words.text, fontsize=words.size_pt, **style)


def _cables(axes: Axes, topology: Topology, at: F64, palette: Palette) -> None:
    """Draw the cables, thinner where they are many or slow."""
    links, course = topology.links, curves(topology.links, at)
    rows, _ = cables(links)
    many, fastest = max(len(rows), 1), links.bandwidth_Bps.max(initial=1.0)
    wide = np.clip(2.2 * (120 / many) ** 0.35, 0.5, 1.6) * np.clip((links.bandwidth_Bps[rows] / fastest) ** 0.5, 0.35, 1.0)
    colours = [palette.tiers[int(dimension)] for dimension in links.dimension[rows]]
    alpha = float(np.clip((250 / many) ** 0.4, 0.3, 0.9))
    axes.add_collection(LineCollection(list(course), colors=colours, linewidths=wide, alpha=alpha, zorder=1, clip_on=False))


def _nodes(axes: Axes, topology: Topology, at: F64, points: float, palette: Palette) -> None:
    """Draw the nodes, and write their numbers or names."""
    n = topology.n_npus
    npu_pt, switch_pt = (node_size_pt(some, points) for some in (at[:n], at))
    kinds = switch_names(topology)
    if len(kinds) == 1:
        switch_pt = max(switch_pt, 34.0)
    axes.scatter(at[:n, 0], at[:n, 1], s=npu_pt**2, c=NPU, edgecolors="white", linewidths=npu_pt / 24, zorder=3)
    for name, colour in palette.switches.items():
        x, y = at[n:][np.array([each == name for each in kinds])].T
        axes.scatter(x, y, s=switch_pt**2, c=colour, marker="s", edgecolors="white", linewidths=switch_pt / 24, zorder=3)
    for node in range(n):
        _write_inside(axes, at[node], str(node), npu_pt * 0.42)
    if topology.names is not None:
        _switch_names(axes, [topology.names(node) for node in range(n, topology.n_nodes)], at, points, switch_pt)
        return
    for node in range(n, topology.n_nodes):
        _write_inside(axes, at[node], str(node) if len(kinds) > 1 else kinds[0], switch_pt * (0.36 if len(kinds) > 1 else 0.2))


def _switch_names(axes: Axes, names: Sequence[str], at: F64, points: float, switch_pt: float) -> None:
    """Write the names that the user gave to switches: inside, above, or upright above, whichever has room."""
    longest = max((text_width_pt(name, 1.0) for name in names), default=1.0)
    gap_pt = points * least_gap(at, len(at) - len(names))
    within, over = (min(8.0, 0.9 * room / longest) for room in (switch_pt, gap_pt))
    if within >= _SMALLEST_NAMES_PT:
        for name, place in zip(names, at[len(at) - len(names) :], strict=True):
            _write_inside(axes, place, name, within)
        return
    upright = over < _SMALLEST_NAMES_PT
    size_pt = min(7.0, 0.75 * gap_pt) if upright else over
    for name, place in zip(names, at[len(at) - len(names) :], strict=True):
        if size_pt >= SMALLEST_PT - 0.3:
            _write_over(axes, name, place, size_pt, switch_pt / 2 + 1, upright=upright)


def _write_over(axes: Axes, text: str, at: F64, size_pt: float, up_pt: float, *, upright: bool) -> None:
    """Write a text above a node."""
    x, y = map(float, at)
    style: dict[str, Any] = {
        "fontsize": size_pt,
        "color": INK,
        "path_effects": _HALO,
        "zorder": 5,
        "rotation": 90.0 if upright else 0.0,
    }
    axes.annotate(text, (x, y), (0, up_pt), textcoords="offset points", ha="center", va="bottom", **style)


def _write_inside(axes: Axes, at: F64, text: str, size_pt: float) -> None:
    """Write a text inside a node, unless it would be too small to read."""
    if size_pt >= SMALLEST_PT - 0.3:
        axes.text(float(at[0]), float(at[1]), text, fontsize=size_pt, ha="center", va="center", color="white", zorder=4)
