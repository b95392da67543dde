"""Topologies against one another: bars of time at one size, else lines of time against size."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from emu.study.measure.bench import BenchRow
from emu.units import format_size, format_time
from launch.show.write import writing

_BAR, _INK = "#0072B2", "#22313f"
_MARKERS = "osD^vP*Xhd<>8p"


def draw_topologies(rows: Sequence[BenchRow], path: Path) -> None:
    """Draw the time that one operation takes on each topology, and by which algorithm.

    Raises:
        InputError: the file cannot be written.
    """
    with writing("bench", path):
        compared(rows).savefig(path, format="png", metadata={"Software": None})


def compared(rows: Sequence[BenchRow]) -> Figure:
    """The picture of `draw_topologies`."""
    one_size = len({row.size_bytes for row in rows}) == 1
    figure = Figure(figsize=(10, 1.6 + 0.36 * len(rows)) if one_size else (10, 6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    (_bars if one_size else _lines)(axes, rows)
    ranks = sorted({row.ranks for row in rows})
    among = str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"
    size = f", {format_size(rows[0].size_bytes)}" if one_size else ""
    axes.set_title(f"{rows[0].operation} among {among} ranks{size}", loc="left", fontsize=11, color=_INK)
    return figure


def _bars(axes: Axes, rows: Sequence[BenchRow]) -> None:
    """The fastest on top, each with its time and algorithm."""
    slowest_first = sorted(rows, key=lambda row: row.time_s, reverse=True)
    places = range(len(slowest_first))
    axes.barh(places, [row.time_s for row in slowest_first], color=_BAR, height=0.7)
    axes.set_yticks(places, [row.topology for row in slowest_first], fontsize=8)
    for place, row in zip(places, slowest_first, strict=True):
        axes.annotate(
            f"{format_time(row.time_s)} · {row.built}",
            (row.time_s, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=_INK,
        )
    axes.set_xlim(0, 1.4 * slowest_first[0].time_s or 1.0)
    axes.xaxis.set_major_formatter(lambda time_s, _: format_time(time_s))
    axes.set_xlabel("virtual time")
    axes.spines[["top", "right"]].set_visible(False)


def _lines(axes: Axes, rows: Sequence[BenchRow]) -> None:
    """A colour a topology, a mark an algorithm."""
    mark = {name: _MARKERS[i % len(_MARKERS)] for i, name in enumerate(dict.fromkeys(row.built for row in rows))}
    names, handles = list(dict.fromkeys(row.topology for row in rows)), []
    for number, name in enumerate(names):
        of = sorted((row for row in rows if row.topology == name), key=lambda row: row.size_bytes)
        colour = colormaps["tab10" if len(names) <= 10 else "tab20"](number % 20)
        axes.plot([row.size_bytes for row in of], [row.time_s for row in of], color=colour, linewidth=1.4)
        for row in of:
            axes.plot(row.size_bytes, row.time_s, mark[row.built], color=colour, markersize=5)
        handles.append(Line2D([], [], color=colour, label=name))
    handles += [Line2D([], [], color=_INK, marker=m, linestyle="", label=algorithm) for algorithm, m in mark.items()]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda size_bytes, _: format_size(size_bytes))
    axes.yaxis.set_major_formatter(lambda time_s, _: format_time(time_s))
    axes.set_xlabel("size")
    axes.set_ylabel("virtual time")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8, frameon=False)
