"""Lines of time against size, or another quantity, each named at its end."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, Locator, LogLocator, MaxNLocator, NullLocator

from emu.units import format_size, format_time
from launch.show.page import INK, page, spaced

PALE = "#c5ccd3"
_GREY = "#66727e"  # of a pale line's name, which must be read
_LABEL_PT, _APART_PT = 8.0, 11.0
_WIDE_IN, _HIGH_IN, _REST_IN = 10.0, 6.0, 1.4
_MOST_TICKS = 12
_NARROW = 0.6  # decades between the least time and the most


class Line(NamedTuple):
    """One of them."""

    name: str
    sizes: tuple[float, ...]  # bytes, or what else stands below; ascending
    times_s: tuple[float, ...]
    colour: str = PALE
    marks: tuple[str, ...] = ()  # one a size; dots unless given


class Below(NamedTuple):
    """What the lines are drawn against."""

    label: str
    words: Mapping[float, str] = MappingProxyType({})  # of the places; else they are sizes


SIZE = Below("size")


def lines(drawn: Sequence[Line], title: str, marks: Mapping[str, str] = MappingProxyType({}), below: Below = SIZE) -> Figure:
    """A chart of lines, pale ones behind the others; below it what each of the marks stands for."""
    figure, axes = page(_WIDE_IN, max(_HIGH_IN, _REST_IN + len(drawn) * _APART_PT / 72), title)
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


def _dress(axes: Axes, sizes: Sequence[float], below: Below) -> None:
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
    """Which are told: some, and not too many; between multiples of a power of ten where there would be none of these."""
    decades = np.log10(high / low)
    if decades < _NARROW:
        return MaxNLocator(7, steps=[1, 2, 2.5, 5, 10])
    return LogLocator(subs=(1,) if decades > 4 else (1, 2, 5) if decades > 1 else tuple(range(1, 10)))


def _name_ends(figure: Figure, axes: Axes, drawn: Iterable[Line]) -> None:
    """Write each line's name right of its end, moved up or down where another stands there."""
    by_height = sorted(drawn, key=lambda line: line.times_s[-1])
    figure.draw_without_rendering()  # only then it is known how high the axes are
    ends = np.array([axes.transData.transform((line.sizes[-1], line.times_s[-1])) for line in by_height])
    high_pt = axes.bbox.height * 72 / figure.dpi
    apart = min(_APART_PT / high_pt, 1 / max(1, len(by_height) - 1))
    steps = apart * np.arange(len(by_height))
    places = np.clip(spaced(axes.transAxes.inverted().transform(ends)[:, 1], apart), steps, 1 - steps[::-1])
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
