"""A picture of a topology: every node and cable where there are 400 nodes at most, else groups of nodes."""

from collections import Counter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from emu.arrays import F64
from emu.topology.facts.facts import Summary
from emu.topology.topology import Topology
from emu.units import format_bandwidth
from launch.show.canvas import INK, ShownFigure, text_width_pt, wrap
from launch.show.picture.cables import NPU, cable_counts, switch_colours, tier_colours
from launch.show.picture.group_drawing import arrange, paint_all, paint_groups
from launch.show.picture.groups import TIMES, group_nodes, switch_names
from launch.show.picture.layout import layout
from launch.show.text.topology_facts import LinkClass, link_classes

MOST_NODES = 400  # nodes of a topology that is drawn in full
_LEAST_PT = 5.0  # least gap between NPUs at which anything can be seen
_NARROWEST_IN, _WIDEST_IN = 9.0, 16.0
_NODES_PER_IN, _GROUPS_PER_IN = 2.4, 1.5  # units of a drawing in an inch, before the page is limited
_MERGED = f"\nmerged: {TIMES} tells how many nodes or cables a symbol or line stands for; rates are of all of them, one way"
_NAME_PT, _FACTS_PT, _LEGEND_PT = 15, 10, 9.5
_MARGIN_IN = 0.3  # margin left and right of text
_LEAST_UNITS = 5.0  # units across a page, so that few nodes are not huge


def picture(topology: Topology, facts: Summary) -> Figure:
    """Return a picture of the topology, with its figures above the drawing."""
    between, drawing = None, layout(topology) if topology.n_nodes <= MOST_NODES else None
    if drawing and _points(drawing.at, _NODES_PER_IN) >= _LEAST_PT:
        figure, axes, points = _page(drawing.at, _NODES_PER_IN)
        paint_all(axes, topology, drawing, points)
    else:
        merged = group_nodes(topology)
        drawing, between = arrange(merged), set(map(int, merged.graph.links.dimension))
        figure, axes, points = _page(drawing.at, _GROUPS_PER_IN)
        paint_groups(axes, merged, drawing, points, topology)
    above_pt = 0.0 if topology.names is None else _height_of_names_pt(figure, axes)
    _head(figure, axes, topology.name, _facts(facts) + ("" if between is None else _MERGED), above_pt)
    _legend(figure, [*_line_handles(topology, between), *_mark_handles(topology)])
    return figure


def _head(figure: Figure, axes: Axes, name: str, facts: str, above_pt: float) -> None:
    """Write the name and facts of a topology above its drawing, and enlarge the page for their lines.

    Args:
        figure: The page.
        axes: The drawing.
        name: The name of the topology.
        facts: The text below the name.
        above_pt: The height that names of switches need above the drawing, in points.
    """
    wide_in = figure.get_figwidth() - 2 * _MARGIN_IN
    names, said = wrap(name, _NAME_PT, wide_in, "bold"), wrap(facts, _FACTS_PT, wide_in)
    figure.set_figheight(figure.get_figheight() + ((len(names) - 1) * _NAME_PT + (len(said) - 1) * _FACTS_PT) * 1.4 / 72)
    figure.suptitle("\n".join(names), fontsize=_NAME_PT, color=INK, fontweight="bold")
    axes.set_title("\n".join(said), fontsize=_FACTS_PT, color=INK, pad=above_pt + 6)


def _height_of_names_pt(figure: Figure, axes: Axes) -> float:
    """Return how far the names of switches reach above the drawing, in points."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    highest = max((text.get_window_extent().y1 for text in axes.texts), default=0.0)
    return float(max(0.0, (highest - axes.bbox.y1) * 72 / figure.dpi))


def _page(at: F64, units_per_in: float) -> tuple[Figure, Axes, float]:
    """Return a page in the shape of the drawing, its axes, and the points of a unit of the drawing.

    Args:
        at: [nodes, 2] places of nodes.
        units_per_in: Units of the drawing in an inch, before the page is limited.
    """
    wide, high, width, height = _measures(at, units_per_in)
    figure = ShownFigure(figsize=(width, height + 1.1), dpi=150, layout=ConstrainedLayoutEngine(h_pad=0.1))
    axes = figure.add_subplot()
    axes.set_aspect("equal")
    axes.set_axis_off()
    middle = (at.min(axis=0) + at.max(axis=0)) / 2
    axes.set_xlim(middle[0] - wide / 2, middle[0] + wide / 2)
    axes.set_ylim(middle[1] - high / 2, middle[1] + high / 2)
    return figure, axes, _points(at, units_per_in)


def _measures(at: F64, units_per_in: float) -> tuple[float, float, float, float]:
    """Return the width and height of a drawing in its own units, and those of its frame on the page in inches."""
    wide, high = map(float, np.maximum(np.ptp(at, axis=0) + 2.0, (_LEAST_UNITS, 0.0)))
    width = float(np.clip(max(wide, 0.8 * high) / units_per_in, _NARROWEST_IN, _WIDEST_IN))
    return wide, high, width, width * float(np.clip(high / wide, 0.3, 1.1))


def _points(at: F64, units_per_in: float) -> float:
    """Return the number of points of a unit of the drawing on the page; arguments as in `_page`."""
    wide, high, width, height = _measures(at, units_per_in)
    return 72 * min(0.94 * width / wide, height / high)


def _line_handles(topology: Topology, between: set[int] | None) -> list[Line2D]:
    """Return a line of the legend for each tier.

    Args:
        topology: The topology.
        between: The tiers whose links join groups of nodes; None where nodes are not grouped.
    """
    drawn, colours = cable_counts(topology.links), tier_colours(topology)
    return [
        Line2D([], [], color=colours[c.dimension], linewidth=2.5, label=_tier(c, *drawn[c.dimension]) + hidden)
        for c in link_classes(topology)
        for hidden in [", within groups" if between is not None and c.dimension not in between else ""]
    ]


def _tier(tier: LinkClass, cables: int, one_way: int) -> str:
    """Return a tier of cables as text, such as `NPU to LRS: 64 cables, 56 GB/s, 300 ns each way`."""
    joined = f"{cables:,} cable{'s' * (cables != 1)}" if cables else ""
    single = f"{one_way:,} link{'s' * (one_way != 1)} one way" if one_way else ""
    return f"{tier.title}: {' and '.join(filter(None, (joined, single)))}, {tier.rate}{' each way' if cables else ''}"


def _mark_handles(topology: Topology) -> list[Line2D]:
    """Return the legend marks for NPUs and each kind of switch; empty if there are no switches."""
    names, colours = Counter(switch_names(topology)), switch_colours(topology)
    marks = [(NPU, "o", "NPU", topology.n_npus), *((colours[name], "s", name, names[name]) for name in names)]
    return [
        Line2D([], [], color=colour, marker=marker, linestyle="", markersize=8, label=f"{name}: {number:,}")
        for colour, marker, name, number in marks
        if names
    ]


def _legend(figure: Figure, handles: list[Line2D]) -> None:
    """Write the legend below the drawing, and enlarge the page for it."""
    if not handles:
        return
    wide_in = [0.6 + text_width_pt(str(handle.get_label()), _LEGEND_PT) / 72 for handle in handles]
    half = -(-len(handles) // 2)
    columns = 2 if len(handles) > 4 and max(wide_in[:half]) + max(wide_in[half:]) < figure.get_figwidth() - 0.5 else 1
    figure.set_figheight(figure.get_figheight() + 0.2 * -(-len(handles) // columns))
    words = {"frameon": False, "fontsize": _LEGEND_PT, "labelcolor": INK, "ncols": columns}
    figure.legend(handles=handles, loc="outside lower center", **words)


def _facts(facts: Summary) -> str:
    """Return the numbers of a topology, such as its diameter, in one line of text."""
    diameter = "not all joined" if facts.diameter is None else f"diameter {facts.diameter}"
    return (
        f"{facts.npus:,} NPUs · degree {facts.degree[1]} · {diameter} · "
        f"injection {format_bandwidth(facts.injection_Bps[1])} · bisection {format_bandwidth(facts.bisection_Bps)} one way"
    )
