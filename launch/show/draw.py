"""A topology as a picture: NPUs where their digits put them, links coloured by dimension.

C cables (a link and the one back), D dimensions. The layout follows from dims and links alone: a dimension wired fully, or
the only one, is laid out as a circle, any other as a line; circles and lines nest, the last dimension innermost.
"""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.spatial.distance import pdist

from emu.arrays import F64, I64
from emu.errors import InputError, must_be
from emu.topology.facts import summary
from emu.topology.topology import Topology
from emu.units import format_bandwidth
from launch.show.describe import LinkClass, link_classes

MAX_NPUS = 256
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito's, told apart by all eyes
_NPU, _SWITCH, _INK = "#22313f", "#7a1f3d", "#22313f"
_ALONG = np.linspace(0, 1, 33)[:, None]  # of a cable, from end to end
_BULGE = 1 - (2 * _ALONG - 1) ** 4  # steep at the ends, so that it is clear of its neighbours along a line of NPUs
_LAYER = np.array((0.68, 0.5))  # from one layer to the next behind it


def draw_topology(topology: Topology, path: Path) -> None:
    """Write a PNG of the topology.

    Raises:
        InputError: more than 256 NPUs, or a path that cannot be written.
    """
    if topology.n_npus > MAX_NPUS:
        raise must_be(
            topology.name, "NPUs in a picture", f"at most {MAX_NPUS}", topology.n_npus, "draw a smaller one of its kind"
        )
    at, classes = positions(topology), link_classes(topology)
    wide, high = np.maximum(np.ptp(at, axis=0), 1e-9)
    figure = Figure(figsize=(9, 9 * float(np.clip(high / wide, 0.4, 1.15)) + 0.9), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    _draw_cables(axes, topology, at, classes)
    _draw_nodes(axes, topology, at)
    _draw_words(figure, axes, topology, classes)
    try:
        figure.savefig(path, format="png", metadata={"Software": None})
    except OSError as error:
        raise InputError(f"--png: cannot write {path}: {error.strerror}") from None


def positions(topology: Topology) -> F64:
    """[nodes, 2] where each node is drawn, in units of about the gap between NPUs."""
    npus = _npu_positions(topology)
    centre = (npus.min(axis=0) + npus.max(axis=0)) / 2 if len(npus) > 1 else npus[0] - (0, 1)
    switches = topology.n_nodes - topology.n_npus
    hubs = _circle(switches) * (switches > 1) * np.ptp(npus, axis=0).max() / 4
    return np.concatenate((npus, centre + hubs))


def _npu_positions(topology: Topology) -> F64:
    dims = topology.dims or (topology.n_npus,)
    wirings = {c.dimension: c.wiring for c in link_classes(topology)}
    digits = np.unravel_index(np.arange(topology.n_npus), dims)
    at = np.zeros((topology.n_npus, 2))
    long = [axis for axis in reversed(range(len(dims))) if dims[axis] > 1]
    lines = [axis for axis in long if len(long) > 1 and wirings.get(axis) != "full mesh"]
    for axis in long:
        extent = np.ptp(at, axis=0)
        if axis in lines:
            at = at + digits[axis][:, None] * _line_step(lines.index(axis), [dims[a] for a in lines], extent)
        else:
            at = at + _circle(dims[axis], float(np.hypot(*extent)))[digits[axis]]
    return at


def _circle(size: int, extent: float = 0.0) -> F64:
    """[size, 2] clockwise from the top, far enough apart for what is `extent` wide."""
    turn = 2 * np.pi * np.arange(size) / max(size, 1)
    radius = (1 + 1.15 * extent) / (2 * np.sin(np.pi / size)) if size > 1 else 0.0
    return radius * np.stack((np.sin(turn), np.cos(turn)), axis=-1)


def _line_step(place: int, sizes: list[int], extent: F64) -> F64:
    """From one to the next along the place-th line: right, down, then layers behind one another, then again outside."""
    if place % 3 == 2:
        return _LAYER
    layers = sizes[place // 3 * 3 + 2 : place // 3 * 3 + 3]
    step = 1.0 + 1.25 * extent * (place >= 3) + (0.2 + _LAYER * (layers[0] - 1) if layers else 0.0)
    return np.array(((step[0], 0.0), (0.0, -step[1]))[place % 3])


def cables(topology: Topology) -> tuple[I64, I64]:
    """[C] a link of each cable, and how many cables of the same two nodes come before it."""
    links = topology.links
    rows = np.flatnonzero(links.src < links.dst)
    rows = rows[np.lexsort((links.dst[rows], links.src[rows], links.dimension[rows]))]
    ends = np.stack((links.dimension[rows], links.src[rows], links.dst[rows]), axis=-1)
    new = np.concatenate(([True], (ends[1:] != ends[:-1]).any(axis=1)))[: len(rows)]
    place = np.arange(len(rows))
    return rows, place - np.maximum.accumulate(np.where(new, place, 0)) if len(rows) else place


def curves(topology: Topology, at: F64) -> F64:
    """[C, points, 2] the course of each cable, in the order of `cables`, between nodes drawn `at`."""
    rows, nth = cables(topology)
    start, end = at[topology.links.src[rows]], at[topology.links.dst[rows]]
    along = end - start
    across = np.stack((along[:, 1], -along[:, 0]), axis=-1) / np.hypot(*along.T)[:, None]
    aside = _bends(topology, rows, nth)[:, None] * across
    course: F64 = start[:, None] + _ALONG * along[:, None] + _BULGE * aside[:, None]
    return course


def _draw_cables(axes: Axes, topology: Topology, at: F64, classes: list[LinkClass]) -> None:
    course, dimension = curves(topology, at), topology.links.dimension[cables(topology)[0]]
    for place, of in enumerate(classes):
        mine = dimension == of.dimension
        width, alpha = (1.6, 0.9) if mine.sum() <= 160 else (1.0, 0.55)
        axes.add_collection(LineCollection(list(course[mine]), colors=_colour(place), linewidths=width, alpha=alpha, zorder=1))


def _bends(topology: Topology, rows: I64, nth: I64) -> F64:
    """[C] how far from straight each cable is drawn: links round the end of a line, and parallel ones, would hide others."""
    links, dims = topology.links, topology.dims
    bend = np.zeros(len(rows))
    long = sum(size > 1 for size in dims)
    wirings = {c.dimension: c.wiring for c in link_classes(topology)}
    for axis, size in enumerate(dims):
        mine = links.dimension[rows] == axis
        if wirings.get(axis) == "ring" and size == 2:
            bend[mine] = 0.12 * (1 - 2 * nth[mine])
        elif wirings.get(axis) == "ring" and long > 1:
            digit = [np.unravel_index(end[rows], dims)[axis] for end in (links.src, links.dst)]
            bend[mine & (np.abs(digit[0] - digit[1]) > 1)] = 0.3
    return bend


def _draw_nodes(axes: Axes, topology: Topology, at: F64) -> None:
    n, span = topology.n_npus, max(4.0, float(np.ptp(at, axis=0).max()))
    gap = float(pdist(at).min(initial=4.0))
    npu_pt = float(np.clip(0.5 * 560 * gap / span, 5, 28))
    switch_pt = float(np.clip(2 * npu_pt, 34, 60))
    axes.scatter(at[:n, 0], at[:n, 1], s=npu_pt**2, c=_NPU, edgecolors="white", linewidths=npu_pt / 24, zorder=3)
    axes.scatter(at[n:, 0], at[n:, 1], s=switch_pt**2, c=_SWITCH, marker="s", edgecolors="white", zorder=3)
    for node in range(n) if npu_pt >= 9 else ():
        _label(axes, at[node], str(node), npu_pt * 0.42)
    for node in range(n, topology.n_nodes):
        _label(axes, at[node], "switch", switch_pt * 0.24)


def _label(axes: Axes, at: F64, text: str, size_pt: float) -> None:
    axes.text(float(at[0]), float(at[1]), text, fontsize=size_pt, ha="center", va="center", color="white", zorder=4)


def _draw_words(figure: Figure, axes: Axes, topology: Topology, classes: list[LinkClass]) -> None:
    facts = summary(topology)
    figure.suptitle(topology.name, fontsize=15, color=_INK, fontweight="bold")
    axes.set_title(
        f"{facts.npus} NPUs · degree {facts.degree[1]} · diameter {facts.diameter} · "
        f"injection {format_bandwidth(facts.injection_Bps[1])} · bisection {format_bandwidth(facts.bisection_Bps)} one way",
        fontsize=10,
        color=_INK,
    )
    handles = [Line2D([], [], color=_colour(i), linewidth=2.5, label=c.label) for i, c in enumerate(classes)]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", frameon=False, fontsize=10, labelcolor=_INK)
    axes.set_aspect("equal")
    axes.margins(0.06)
    axes.set_axis_off()
    axes.autoscale_view()


def _colour(place: int) -> str:
    return _COLOURS[place % len(_COLOURS)]
