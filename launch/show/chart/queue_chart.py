"""The picture of a run by packets: queues over time, the pauses of links, and who blocks whom."""

from collections.abc import Iterator
from math import log2
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from emu.study.fabric_run import FabricRun
from emu.study.pause_tree import PauseTree
from emu.units import format_size
from launch.show.canvas import GREY, INK, check_own_page, dress, hue, new_page
from launch.show.chart.time_chart import time_scale
from launch.show.text.queue_report import (
    MOST_HELD,
    MOST_TREES,
    MOST_UPSTREAM,
    held_text,
    logged_text,
    other_trees_text,
    others_text,
    paused_text,
    run_title,
    unpaused,
)

_WIDE_IN, _REST_IN = 12.0, 1.2
_QUEUES_IN, _ROW_IN, _BRANCH_IN = 3.0, 0.2, 0.2
_MOST_QUEUES, _MOST_ROWS = 7, 16  # lines of queues, and rows of paused ports
_OTHER = "#b4bcc5"  # pauses that go back to none of the ports whose trees are drawn
_SMALL_PT = 8.0
_INDENT = 0.03  # of a port behind the one that held it up, as a share of the width
_TICKS = 5  # ticks of the axis of bytes, about


def queue_figure(found: FabricRun) -> Figure:
    """Return the picture of a run: queues over time, and where links paused, their pauses and the trees of these.

    Raises:
        InputError: Axes are given, and the picture has several panels.
    """
    check_own_page("a run by packets")
    drawn, rows = found.causes.trees[:MOST_TREES], _paused_ports(found)
    places = list(_places(found, drawn))
    heights = [_QUEUES_IN] + ([0.5 + _ROW_IN * len(rows), 0.4 + _BRANCH_IN * len(places)] if rows else [])
    title = run_title(found) + (f"\n{unpaused(found)}" if not rows else "")
    figure, first = new_page(_WIDE_IN, sum(heights) + _REST_IN, title)
    figure.delaxes(first)
    panels = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    colours = {tree.queue: hue(i) for i, tree in enumerate(drawn)}
    _draw_queues(panels[0], found, colours)
    if rows:
        panels[1].sharex(panels[0])
        _draw_pauses(panels[1], found, rows, colours)
        _draw_trees(panels[2], places, logged_text(found))
    return figure


def _paused_ports(found: FabricRun) -> list[int]:
    """Return the queues that were paused longest, the longest first."""
    paused = found.run.paused_fs
    order = np.argsort(-paused, kind="stable")[: min(_MOST_ROWS, np.count_nonzero(paused))]
    return [int(queue) for queue in order]


def _draw_queues(axes: Axes, found: FabricRun, colours: dict[int, str]) -> None:
    """Draw the length of the fullest queues over time, as stairs; full ports whose trees are drawn have their colours."""
    run, others = found.run, iter(range(len(colours), len(colours) + _MOST_QUEUES))
    scale, unit = time_scale(run.timeline.end_fs.max(initial=1))
    edges = np.minimum(np.arange(len(run.queue_bytes) + 1) * run.sample_fs, max(1, int(run.timeline.end_fs.max(initial=1))))
    for queue in run.fullest(_MOST_QUEUES).tolist():
        if run.queue_bytes[:, queue].any():
            colour = colours.get(queue) or hue(next(others))
            axes.stairs(run.queue_bytes[:, queue], edges * scale, baseline=None, color=colour, label=found.port(queue))
    above, most = found.fabric.network.pause_above_bytes, int(run.queue_bytes.max(initial=1))
    if above:
        told = f"{format_size(above)}: a link that brought more is paused"
        axes.axhline(above, color=GREY, linewidth=0.8, linestyle="--", label=told)
    axes.yaxis.set_major_formatter(lambda size, _: format_size(size))
    axes.yaxis.set_major_locator(MultipleLocator(2.0 ** round(log2(max(_TICKS, above, most) / _TICKS))))
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, edges[-1] * scale)
    axes.set_title("bytes that wait in the fullest ports", loc="left", fontsize=9, color=INK)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=_SMALL_PT, frameon=False)
    dress(axes, f"virtual time ({unit})")


def _draw_pauses(axes: Axes, found: FabricRun, rows: list[int], colours: dict[int, str]) -> None:
    """Draw a row for each paused port, with a bar for each pause in the colour of the full port that it goes back to."""
    scale, unit = time_scale(found.run.timeline.end_fs.max(initial=1))
    causes = found.causes
    for row, queue in enumerate(rows):
        mine = causes.pauses[:, 0] == queue
        spans = [(since * scale, (until - since) * scale) for since, until in causes.pauses[mine, 1:3].tolist()]
        axes.broken_barh(spans, (row - 0.4, 0.8), facecolors=[colours.get(root, _OTHER) for root in causes.root[mine].tolist()])
    axes.set_yticks(range(len(rows)), [found.port(queue) for queue in rows], fontsize=_SMALL_PT)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    of_all = np.count_nonzero(found.run.paused_fs)
    which = "the paused ports" if of_all == len(rows) else f"the {len(rows)} of {of_all} paused ports that stood longest"
    axes.set_title(f"{which}, in the colour of the full port below; grey: another", loc="left", fontsize=9, color=INK)
    dress(axes, f"virtual time ({unit})", grid=None)
    axes.tick_params(axis="y", length=0)


class _Place(NamedTuple):
    """A line of the drawing of trees."""

    text: str
    row: int
    deep: int  # how far right
    parent: int  # the row of the port before it; -1: none
    colour: str


def _places(found: FabricRun, trees: tuple[PauseTree, ...]) -> Iterator[_Place]:
    """Yield the lines of all trees, from the top: each port, those upstream of it, and the messages that the tree held up."""
    row = 0
    for i, tree in enumerate(trees):
        for place in _branches(found, tree, _Place(f"{found.port(tree.queue)}: full", row, 0, -1, hue(i))):
            yield place
            row = place.row + 1
        for held in found.held(tree.queue)[:MOST_HELD]:
            yield _Place(f"not on its way there: {held_text(found, held)}", row, 0, -1, INK)
            row += 1
    if others := found.causes.trees[MOST_TREES:]:
        yield _Place(other_trees_text(others), row, 0, -1, GREY)


def _branches(found: FabricRun, tree: PauseTree, at: _Place) -> Iterator[_Place]:
    """Yield the line of a port, then those of the ports upstream of it."""
    yield at
    row = at.row
    for each in tree.upstream[:MOST_UPSTREAM]:
        told = f"{found.port(each.queue)}: {paused_text(each)}"
        for place in _branches(found, each, _Place(told, row + 1, at.deep + 1, at.row, at.colour)):
            yield place
            row = place.row
    if left := tree.upstream[MOST_UPSTREAM:]:
        yield _Place(others_text(left), row + 1, at.deep + 1, at.row, at.colour)


def _draw_trees(axes: Axes, places: list[_Place], logged: str) -> None:
    """Draw the trees as indented lines, each port joined to the one that held it up; `logged` is added to the title."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(places) - 0.4, -0.8)
    axes.set_title(f"who blocks whom, from a full port upstream{logged}", loc="left", fontsize=9, color=INK)
    for text, row, deep, parent, colour in places:
        left = _INDENT * deep
        if parent >= 0:
            axes.plot([left - 0.02, left - 0.02, left - 0.004], [parent + 0.45, row, row], color=colour, linewidth=1.2)
        style: dict[str, Any] = {"va": "center", "fontsize": _SMALL_PT, "color": colour if colour in (INK, GREY) else INK}
        axes.text(left, row, text, fontweight="bold" if parent < 0 and colour not in (INK, GREY) else "normal", **style)
        if parent < 0 and colour not in (INK, GREY):
            axes.plot([-0.008], [row], "s", color=colour, clip_on=False, markersize=6)
