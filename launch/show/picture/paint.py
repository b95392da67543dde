"""A topology of a few hundred nodes at most: every NPU, switch and cable, in frames."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Polygon
from matplotlib.patheffects import withStroke

from emu.arrays import F64
from emu.topology.topology import Drawing, Topology
from launch.show.picture.cables import cables, curves
from launch.show.picture.frames import frames
from launch.show.picture.kinds import switch_names
from launch.show.picture.style import FRAME, INK, NPU, Palette, size_of

_SMALLEST_WORDS_PT = 3.8
_HALO = [withStroke(linewidth=1.8, foreground="white")]


def paint(axes: Axes, topology: Topology, drawing: Drawing, points: float, palette: Palette) -> None:
    """Draw the whole of it; `points` is how many go into a gap between NPUs."""
    _frames(axes, drawing, points)
    _cables(axes, topology, drawing.at, palette)
    _nodes(axes, topology, drawing.at, points, palette)


def _frames(axes: Axes, drawing: Drawing, points: float) -> None:
    corners = frames(drawing.boxes, drawing.at)
    middle = drawing.at.mean(axis=0)
    for box, frame in zip(drawing.boxes, corners, strict=True):
        axes.add_patch(Polygon(frame, closed=True, facecolor=FRAME, edgecolor=INK, linewidth=0.6, alpha=0.35, zorder=0))
        width = float(np.ptp(frame[:, 0])) * points
        size_pt = min(9.0, 0.32 * points, 1.7 * width / max(len(box.label), 1))
        if box.label and size_pt >= _SMALLEST_WORDS_PT:
            _name_frame(axes, box.label, frame, middle, size_pt)


def _name_frame(axes: Axes, label: str, frame: F64, middle: F64, size_pt: float) -> None:
    """Over an upright frame at its left; outside a turned one, away from the middle of the picture."""
    if np.isclose(frame[0, 1], frame[1, 1]) or np.isclose(frame[0, 0], frame[1, 0]):
        x, y = frame[:, 0].min(), frame[:, 1].max()
        axes.text(x, y, label, fontsize=size_pt, ha="left", va="bottom", color=INK, path_effects=_HALO, zorder=5)
        return
    sides = (frame + np.roll(frame, 1, axis=0)) / 2
    out = sides[np.argmax(np.hypot(*(sides - middle).T))]
    away = (out - middle) / max(float(np.hypot(*(out - middle))), 1e-9)
    x, y = out + 0.5 * away * (1 + 0.3 * len(label) * abs(away[0]) * size_pt / 9)
    axes.text(float(x), float(y), label, fontsize=size_pt, ha="center", va="center", color=INK, path_effects=_HALO, zorder=5)


def _cables(axes: Axes, topology: Topology, at: F64, palette: Palette) -> None:
    links, course = topology.links, curves(topology.links, at)
    rows, _ = cables(links)
    many, fastest = max(len(rows), 1), links.bandwidth_Bps.max(initial=1.0)
    wide = np.clip(2.2 * (120 / many) ** 0.35, 0.5, 1.6) * np.clip((links.bandwidth_Bps[rows] / fastest) ** 0.5, 0.35, 1.0)
    colours = [palette.tiers[int(dimension)] for dimension in links.dimension[rows]]
    alpha = float(np.clip((250 / many) ** 0.4, 0.3, 0.9))
    axes.add_collection(LineCollection(list(course), colors=colours, linewidths=wide, alpha=alpha, zorder=1, clip_on=False))


def _nodes(axes: Axes, topology: Topology, at: F64, points: float, palette: Palette) -> None:
    n = topology.n_npus
    npu_pt, switch_pt = (size_of(some, points) for some in (at[:n], at))
    names = switch_names(topology)
    if len(names) == 1:
        switch_pt = max(switch_pt, 34.0)
    axes.scatter(at[:n, 0], at[:n, 1], s=npu_pt**2, c=NPU, edgecolors="white", linewidths=npu_pt / 24, zorder=3)
    for name, colour in palette.switches.items():
        x, y = at[n:][np.array([each == name for each in names])].T
        axes.scatter(x, y, s=switch_pt**2, c=colour, marker="s", edgecolors="white", linewidths=switch_pt / 24, zorder=3)
    for node in range(n):
        _number(axes, at[node], str(node), npu_pt * 0.42)
    for node in range(n, topology.n_nodes):
        _number(axes, at[node], str(node) if len(names) > 1 else names[0], switch_pt * (0.36 if len(names) > 1 else 0.2))


def _number(axes: Axes, at: F64, text: str, size_pt: float) -> None:
    if size_pt >= _SMALLEST_WORDS_PT - 0.3:
        axes.text(float(at[0]), float(at[1]), text, fontsize=size_pt, ha="center", va="center", color="white", zorder=4)
