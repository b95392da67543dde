"""A chart of horizontal bars of virtual time, with the shortest on top."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from emu.units import format_time
from launch.show.canvas import INK, new_page

_FASTEST, _OTHERS = "#0072B2", "#9dc3dc"
_WIDE_IN, _BAR_IN, _REST_IN = 10.0, 0.3, 1.3


class Bar(NamedTuple):
    """A horizontal bar of a chart: a name, a time and a note."""

    name: str  # text at the left of the bar
    time_s: float
    note: str = ""  # text after the time


def bars(chosen: Sequence[Bar], title: str) -> Figure:
    """Return a chart with a bar for each item, its time and note at its end.

    The bars of the shortest time are darker than the others.
    """
    figure, axes = new_page(_WIDE_IN, _REST_IN + _BAR_IN * len(chosen), title)
    slowest_first = sorted(chosen, key=lambda bar: (bar.time_s, bar.name), reverse=True)
    places, least_s = range(len(slowest_first)), min(bar.time_s for bar in chosen)
    colours = [_FASTEST if bar.time_s == least_s else _OTHERS for bar in slowest_first]
    axes.barh(places, [bar.time_s for bar in slowest_first], color=colours, height=0.7)
    dress(axes, slowest_first, slowest_first[0].time_s)
    return figure


def dress(axes: Axes, upwards: Sequence[Bar], most_s: float) -> None:
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
