"""A chart of lines of virtual time against size or another quantity, with each line named at its right end."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, Locator, LogLocator, MaxNLocator, NullLocator

from emu.units import format_size, format_time
from launch.show.canvas import INK, new_page, spread_apart

PALE = "#c5ccd3"
_GREY = "#66727e"  # colour of the name of a pale line
_LABEL_PT, _APART_PT = 8.0, 11.0
_WIDE_IN, _HIGH_IN, _REST_IN = 10.0, 6.0, 1.4
_MOST_TICKS = 12
_NARROW = 0.6  # decades of times below which ticks need a locator of their own


class Line(NamedTuple):
    """A line of a chart: a name, and a time for each size."""

    name: str
    sizes: tuple[float, ...]  # values on the lower axis, ascending; bytes unless it is another quantity
    times_s: tuple[float, ...]
    colour: str = PALE
    marks: tuple[str, ...] = ()  # matplotlib mark of each size; dots unless given


class HorizontalAxis(NamedTuple):
    """The quantity along the lower axis of a chart."""

    label: str
    words: Mapping[float, str] = MappingProxyType({})  # text of each place; empty: places are sizes


SIZE = HorizontalAxis("size")


def lines(
    drawn: Sequence[Line], title: str, marks: Mapping[str, str] = MappingProxyType({}), below: HorizontalAxis = SIZE
) -> Figure:
    """Return a chart of lines, the pale ones behind the others.

    Args:
        drawn: The lines.
        title: The text above the chart.
        marks: The matplotlib mark of each name of the legend; empty: there is no legend.
        below: The quantity along the lower axis.
    """
    figure, axes = new_page(_WIDE_IN, max(_HIGH_IN, _REST_IN + len(drawn) * _APART_PT / 72), title)
    for line in drawn:
        pale = line.colour == PALE
        style: dict[str, Any] = {"color": line.colour, "linewidth": 1.0 if pale else 1.8, "zorder": 2 if pale else 3}
        axes.plot(line.sizes, line.times_s, **style)
        for size, time_s, mark in zip(line.sizes, line.times_s, line.marks or "o" * len(line.sizes), strict=True):
            axes.plot(size, time_s, mark, markersize=3 if pale else 5, **style)
    _dress(axes, sorted({size for line in drawn for size in line.sizes}), below)
    handles = [Line2D([], [], color=INK, marker=mark, linestyle="", label=name) for name, mark in marks.items()]
    if handles:
        figure.legend(handles=handles, loc="outside lower left", fontsize=8, frameon=False, ncols=4)
    _name_ends(figure, axes, drawn)
    return figure


def _dress(axes: Axes, sizes: Sequence[float], below: HorizontalAxis) -> None:
    """Set both axes to logarithmic scales with labels, ticks and a grid."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sizes[:: -(-len(sizes) // _MOST_TICKS)]))
    axes.yaxis.set_major_locator(_times(*axes.get_ylim()))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda place, _: below.words[place] if below.words else format_size(place))
    axes.yaxis.set_major_formatter(lambda time_s, _: format_time(time_s))
    axes.set_xlabel(below.label, color=INK)
    axes.set_ylabel("virtual time", color=INK)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


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
