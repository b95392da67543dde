"""Charts of virtual time: horizontal bars with the shortest on top, and lines against size or another quantity.

Each line is named at its right end.

A picture of a timeline: a band for each rank, computation in the upper half, each axis of communication in the lower.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, Locator, LogLocator, MaxNLocator, NullLocator

from emu.errors import must_be
from emu.trace.report.spans import merged
from emu.units import TICKS_PER_S, format_size, format_time
from launch.show.canvas import INK, add_legend, dress, new_page, spread_apart
from launch.show.lanes import Lane

MOST_RANKS = 32
_LINEAR = 10  # limit of the ratio of the longest to the shortest time on a linear scale
_COLOURS = ("#8d99ae", "#d95f02", "#0072b2", "#009e73", "#cc79a7", "#e6ab02")


def timeline_figure(lanes: Sequence[Lane], title: str, low_fs: int, high_fs: int) -> Figure:
    """Return a picture of the lanes of the ranks between two ticks, with a colour for each stream.

    Raises:
        InputError: there are more than 32 ranks, or none.
    """
    within = (lane.within(low_fs, high_fs) for lane in lanes if lane.owner != "links")
    of_ranks = [lane for lane in within if len(lane.start)]
    ranks = list(dict.fromkeys(lane.owner for lane in of_ranks))
    if not 0 < len(ranks) <= MOST_RANKS:
        mend = "write --timeline and open it in Perfetto"
        raise must_be("show timeline", "the picture", f"of 1 to {MOST_RANKS} ranks", len(ranks), mend)
    streams = list(dict.fromkeys(["compute", *(lane.stream for lane in of_ranks)]))
    figure, axes = new_page(12, 1.6 + 0.36 * len(ranks), title)
    scale, unit = time_scale(high_fs - low_fs)
    for lane in of_ranks:
        _draw_lane(axes, lane, ranks.index(lane.owner), streams, scale)
    _dress(axes, ranks, unit, (high_fs - low_fs) * scale)
    _legend(figure, axes, streams)
    return figure


def _draw_lane(axes: Axes, lane: Lane, row: int, streams: Sequence[str], scale: float) -> None:
    """Draw a lane in the band of its rank: computation in the upper half, an axis of communication in a strip of the lower.

    Args:
        axes: The axes to draw on; rows count downwards.
        lane: The lane, in ticks.
        row: The number of the band of the rank.
        streams: All streams; the place of the lane's stream gives its strip and colour.
        scale: Units of the lower axis in a tick.
    """
    place, talk = streams.index(lane.stream), max(1, len(streams) - 1)
    height = 0.42 if place == 0 else 0.42 / talk
    base = row - 0.42 if place == 0 else row + (place - 1) * height
    start, end = merged(lane.start, lane.end) if place == 0 else (lane.start, lane.end)
    boxes = [Rectangle((s, base), e - s, height) for s, e in zip(start * scale, end * scale, strict=True)]
    colour = _COLOURS[place % len(_COLOURS)]
    axes.add_collection(PatchCollection(boxes, facecolor=colour, edgecolor=colour if place == 0 else "white", linewidth=0.3))


def time_scale(end_fs: int) -> tuple[float, str]:
    """Return how many units of the lower axis a tick is, and the name of the unit (s, ms, us or ns)."""
    for power, unit in ((0, "s"), (3, "ms"), (6, "us")):
        if end_fs >= TICKS_PER_S // 10**power:
            return 10**power / TICKS_PER_S, unit
    return 1e9 / TICKS_PER_S, "ns"


def _dress(axes: Axes, ranks: Sequence[str], unit: str, end: float) -> None:
    """Label the horizontal bands with their ranks, and the lower axis with virtual time from 0 to `end` in this unit."""
    axes.set_ylim(len(ranks) - 0.5, -0.5)
    axes.set_yticks(np.arange(len(ranks)), ranks, fontsize=8)
    axes.set_xlabel(f"virtual time ({unit})")
    axes.set_xlim(0, end)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _legend(figure: Figure, axes: Axes, streams: Sequence[str]) -> None:
    """Write the stream of each colour below the picture."""
    names = ["computation", *(s if s.startswith("compute ") else f"communication, {s}" for s in streams[1:])]
    patches = [Patch(color=_COLOURS[i % len(_COLOURS)], label=name) for i, name in enumerate(names)]
    add_legend(figure, axes, min(len(names), 5), patches, 9.0)


PALE = "#c5ccd3"
_GREY = "#66727e"  # colour of the name of a pale line
_LABEL_PT, _APART_PT = 8.0, 11.0
_FASTEST, _OTHERS, MARKED = "#0072B2", "#9dc3dc", "#D55E00"
_WIDE_IN, _HIGH_IN, _REST_IN = 10.0, 6.0, 1.4
_BAR_IN, _BARS_REST_IN = 0.3, 1.3
_MOST_TICKS = 12
_NARROW = 0.6  # decades of times below which ticks need a locator of their own


Bar = tuple[str, float, str]  # the text at the left of a horizontal bar, its time in seconds, and the text after the time


def bars(chosen: Sequence[Bar], title: str, marked: Container[str] = ()) -> Figure:
    """Return a chart with a bar for each item, its time and note at its end.

    The bars of the shortest time are darker than the others.

    Args:
        chosen: The bars.
        title: The text above the chart.
        marked: The names of bars that have a colour of their own.
    """
    figure, axes = new_page(_WIDE_IN, _BARS_REST_IN + _BAR_IN * len(chosen), title)
    slowest_first = sorted(chosen, key=lambda bar: (bar[1], bar[0]), reverse=True)
    times_s = [time_s for _, time_s, _ in slowest_first]
    colours = [MARKED if name in marked else _FASTEST if t == times_s[-1] else _OTHERS for name, t, _ in slowest_first]
    axes.barh(range(len(times_s)), times_s, color=colours, height=0.7)
    dress_bars(axes, slowest_first, times_s[0])
    return figure


def dress_bars(axes: Axes, upwards: Sequence[Bar], most_s: float) -> None:
    """Write names and times beside bars that are drawn already, and draw the axis of time.

    Args:
        axes: The bars are at heights 0, 1, 2, ... of these axes.
        upwards: The bars, the lowest first.
        most_s: The right end of the axis in seconds.
    """
    axes.set_yticks(range(len(upwards)), [name for name, _, _ in upwards], fontsize=8)
    for place, (_, time_s, note) in enumerate(upwards):
        words = " · ".join(filter(None, (format_time(time_s), note)))
        at: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 8, "color": INK}
        axes.annotate(words, (time_s, place), annotation_clip=False, **at)
    axes.set_xlim(0, most_s or 1.0)
    axes.set_ylim(-0.6, len(upwards) - 0.4)
    axes.xaxis.set_major_formatter(lambda time_s, _: format_time(time_s))
    dress(axes, "virtual time", grid=None)
    axes.tick_params(axis="y", length=0)


class Line(NamedTuple):
    """A line of a chart: a name, and a time for each size."""

    name: str
    sizes: tuple[float, ...]  # values on the lower axis, ascending; bytes unless it is another quantity
    times_s: tuple[float, ...]
    colour: str = PALE
    marks: tuple[str, ...] = ()  # matplotlib mark of each size; dots unless given


class TimeAxis(NamedTuple):
    """The upper axis of a chart of lines: its name, and where it begins."""

    name: str = "virtual time"
    from_zero: bool = False  # at 0, on a linear scale, where the longest time is at most ten times the shortest


_VIRTUAL = TimeAxis()


def lines(
    drawn: Sequence[Line],
    title: str,
    *,
    marks: Mapping[str, str] = MappingProxyType({}),
    below: str = "size",
    places: Mapping[float, str] = MappingProxyType({}),
    upward: TimeAxis = _VIRTUAL,
) -> Figure:
    """Return a chart of lines, the pale ones behind the others.

    Args:
        drawn: The lines.
        title: The text above the chart.
        marks: The matplotlib mark of each name of the legend; empty: there is no legend.
        below: The name of the quantity along the lower axis.
        places: The text at each position of the lower axis; empty: positions are sizes in bytes.
        upward: The axis of the times.
    """
    figure, axes = new_page(_WIDE_IN, max(_HIGH_IN, _REST_IN + len(drawn) * _APART_PT / 72), title)
    for line in drawn:
        pale = line.colour == PALE
        style: dict[str, Any] = {"color": line.colour, "linewidth": 1.0 if pale else 1.8, "zorder": 2 if pale else 3}
        axes.plot(line.sizes, line.times_s, **style)
        for size, time_s, mark in zip(line.sizes, line.times_s, line.marks or "o" * len(line.sizes), strict=True):
            axes.plot(size, time_s, mark, markersize=3 if pale else 5, **style)
    _scale(axes, drawn, from_zero=upward.from_zero)
    axes.xaxis.set_major_formatter(lambda place, _: places[place] if places else format_size(place))
    axes.yaxis.set_major_formatter(lambda time_s, _: format_time(time_s))
    dress(axes, below, upward.name)
    handles = [Line2D([], [], color=INK, marker=mark, linestyle="", label=name) for name, mark in marks.items()]
    if handles:
        add_legend(figure, axes, 4, handles)
    _name_ends(figure, axes, drawn)
    return figure


def _scale(axes: Axes, drawn: Sequence[Line], *, from_zero: bool) -> None:
    """Set both axes to logarithmic scales, with ticks at sizes and at round times; `from_zero` is that of `TimeAxis`."""
    sizes = sorted({size for line in drawn for size in line.sizes})
    times_s = [time_s for line in drawn for time_s in line.times_s]
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sizes[:: -(-len(sizes) // _MOST_TICKS)]))
    if from_zero and max(times_s) <= _LINEAR * min(times_s):
        axes.set_ylim(bottom=0)
    else:
        axes.set_yscale("log")
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
    """Write the name of each line at its right end, moved up or down where names would overlap."""
    by_height = sorted(drawn, key=lambda line: line.times_s[-1])
    figure.draw_without_rendering()  # only then it is known how high the axes are
    ends = np.array([axes.transData.transform((line.sizes[-1], line.times_s[-1])) for line in by_height])
    high_pt = axes.bbox.height * 72 / figure.dpi
    apart = min(_APART_PT / high_pt, 1 / max(1, len(by_height) - 1))
    steps = apart * np.arange(len(by_height))
    places = np.clip(spread_apart(axes.transAxes.inverted().transform(ends)[:, 1], apart), steps, 1 - steps[::-1])
    for line, place in zip(by_height, places.tolist(), strict=True):
        pale = line.colour == PALE
        words: dict[str, Any] = {"fontsize": _LABEL_PT, "color": _GREY if pale else line.colour}
        words["fontweight"] = "normal" if pale else "bold"
        lead = {"arrowstyle": "-", "color": line.colour, "linewidth": 0.6, "shrinkA": 2, "shrinkB": 2, "relpos": (0, 0.5)}
        end = (line.sizes[-1], line.times_s[-1])
        axes.annotate(line.name, end, (1.02, place), textcoords="axes fraction", va="center", arrowprops=lead, **words)
