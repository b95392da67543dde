"""Charts of virtual time: horizontal bars with the shortest on top, and lines against size or another quantity.

Each line is named at its right end.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, Locator, LogLocator, MaxNLocator, NullLocator

from emu.units import format_size, format_time
from launch.show.canvas import INK, dress, new_page, spread_apart

PALE = "#c5ccd3"
_GREY = "#66727e"  # colour of the name of a pale line
_LABEL_PT, _APART_PT = 8.0, 11.0
_FASTEST, _OTHERS = "#0072B2", "#9dc3dc"
_WIDE_IN, _HIGH_IN, _REST_IN = 10.0, 6.0, 1.4
_BAR_IN, _BARS_REST_IN = 0.3, 1.3
_MOST_TICKS = 12
_NARROW = 0.6  # decades of times below which ticks need a locator of their own


class Bar(NamedTuple):
    """A horizontal bar of a chart: a name, a time and a note."""

    name: str  # text at the left of the bar
    time_s: float
    note: str = ""  # text after the time


def bars(chosen: Sequence[Bar], title: str) -> Figure:
    """Return a chart with a bar for each item, its time and note at its end.

    The bars of the shortest time are darker than the others.
    """
    figure, axes = new_page(_WIDE_IN, _BARS_REST_IN + _BAR_IN * len(chosen), title)
    slowest_first = sorted(chosen, key=lambda bar: (bar.time_s, bar.name), reverse=True)
    places, least_s = range(len(slowest_first)), min(bar.time_s for bar in chosen)
    colours = [_FASTEST if bar.time_s == least_s else _OTHERS for bar in slowest_first]
    axes.barh(places, [bar.time_s for bar in slowest_first], color=colours, height=0.7)
    dress_bars(axes, slowest_first, slowest_first[0].time_s)
    return figure


def dress_bars(axes: Axes, upwards: Sequence[Bar], most_s: float) -> None:
    """Write names and times beside bars that are drawn already, and draw the axis of time.

    Args:
        axes: The bars are at heights 0, 1, 2, ... of these axes.
        upwards: The bars, the lowest first.
        most_s: The right end of the axis in seconds.
    """
    axes.set_yticks(range(len(upwards)), [bar.name for bar in upwards], fontsize=8)
    for place, bar in enumerate(upwards):
        words = " · ".join(filter(None, (format_time(bar.time_s), bar.note)))
        at: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 8, "color": INK}
        axes.annotate(words, (bar.time_s, place), annotation_clip=False, **at)
    axes.set_xlim(0, most_s or 1.0)
    axes.set_ylim(-0.6, len(upwards) - 0.4)
    axes.xaxis.set_major_formatter(lambda time_s, _: format_time(time_s))
    axes.set_xlabel("virtual time", color=INK)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)


class Line(NamedTuple):
    """A line of a chart: a name, and a time for each size."""

    name: str
    sizes: tuple[float, ...]  # values on the lower axis, ascending; bytes unless it is another quantity
    times_s: tuple[float, ...]
    colour: str = PALE
    marks: tuple[str, ...] = ()  # matplotlib mark of each size; dots unless given


def lines(
    drawn: Sequence[Line],
    title: str,
    *,
    marks: Mapping[str, str] = MappingProxyType({}),
    below: str = "size",
    places: Mapping[float, str] = MappingProxyType({}),
) -> Figure:
    """Return a chart of lines, the pale ones behind the others.

    Args:
        drawn: The lines.
        title: The text above the chart.
        marks: The matplotlib mark of each name of the legend; empty: there is no legend.
        below: The name of the quantity along the lower axis.
        places: The text of each place on the lower axis; empty: places are sizes.
    """
    figure, axes = new_page(_WIDE_IN, max(_HIGH_IN, _REST_IN + len(drawn) * _APART_PT / 72), title)
    for line in drawn:
        pale = line.colour == PALE
        style: dict[str, Any] = {"color": line.colour, "linewidth": 1.0 if pale else 1.8, "zorder": 2 if pale else 3}
        axes.plot(line.sizes, line.times_s, **style)
        for size, time_s, mark in zip(line.sizes, line.times_s, line.marks or "o" * len(line.sizes), strict=True):
            axes.plot(size, time_s, mark, markersize=3 if pale else 5, **style)
    _scale(axes, sorted({size for line in drawn for size in line.sizes}))
    axes.xaxis.set_major_formatter(lambda place, _: places[place] if places else format_size(place))
    axes.yaxis.set_major_formatter(lambda time_s, _: format_time(time_s))
    dress(axes, below, "virtual time")
    handles = [Line2D([], [], color=INK, marker=mark, linestyle="", label=name) for name, mark in marks.items()]
    if handles:
        figure.legend(handles=handles, loc="outside lower left", fontsize=8, frameon=False, ncols=4)
    _name_ends(figure, axes, drawn)
    return figure


def _scale(axes: Axes, sizes: Sequence[float]) -> None:
    """Set both axes to logarithmic scales, with ticks at sizes and at round times."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sizes[:: -(-len(sizes) // _MOST_TICKS)]))
    axes.yaxis.set_major_locator(_times(*axes.get_ylim()))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())


def _times(low: float, high: float) -> Locator:
    """Return a locator of a few round times between two times in seconds.

    A span of less than 0.6 decades has ticks between powers of ten, because it might contain none.
    """
    decades = np.log10(high / low)
    if decades < _NARROW:
        return MaxNLocator(7, steps=[1, 2, 2.5, 5, 10])
    return LogLocator(subs=(1,) if decades > 4 else (1, 2, 5) if decades > 1 else tuple(range(1, 10)))


def _name_ends(figure: Figure, axes: Axes, drawn: Iterable[Line]) -> None:
    """Write the name of each line at the right of its end, moved up or down where another name is near."""
    by_height = sorted(drawn, key=lambda line: line.times_s[-1])
    figure.draw_without_rendering()  # only then it is known how high the axes are
    ends = np.array([axes.transData.transform((line.sizes[-1], line.times_s[-1])) for line in by_height])
    high_pt = axes.bbox.height * 72 / figure.dpi
    apart = min(_APART_PT / high_pt, 1 / max(1, len(by_height) - 1))
    steps = apart * np.arange(len(by_height))
    places = np.clip(spread_apart(axes.transAxes.inverted().transform(ends)[:, 1], apart), steps, 1 - steps[::-1])
    for line, place in zip(by_height, places.tolist(), strict=True):
        pale = line.colour == PALE
        words: dict[str, Any] = {
            "fontsize": _LABEL_PT,
            "color": _GREY if pale else line.colour,
            "fontweight": "normal" if pale else "bold",
        }
        lead = {"arrowstyle": "-", "color": line.colour, "linewidth": 0.6, "shrinkA": 2, "shrinkB": 2, "relpos": (0, 0.5)}
        end = (line.sizes[-1], line.times_s[-1])
        axes.annotate(line.name, end, (1.02, place), textcoords="axes fraction", va="center", arrowprops=lead, **words)
