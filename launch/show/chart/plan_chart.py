"""A chart of the plans of a search: MFU against memory, and the line of those plans that no other plan beats in both."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from emu.study.planning.search.row import PlanTable
from emu.units import format_size
from launch.show.canvas import GREY, dress, new_page
from launch.show.chart.time_chart import PALE

_FRONT, _BEST, _YOURS, _LIMIT = "#0072B2", "#D55E00", "#009E73", "#7c8894"  # Okabe and Ito's
_WIDE_IN, _HIGH_IN = 10.0, 6.0
_FAR = 4  # a device's memory above so many times the largest plan is not drawn
_ROOM = 1.08  # end of the axis in largest values, so that no mark is cut
_TICKS = 8  # ticks of the memory axis, about
_MOST_NAMES = 8  # most plans of the line that get a number


def plans_figure(planned: PlanTable) -> Figure:
    """Return the chart of the plans of a search."""
    title = f"Plans of {planned.model} on {planned.npus} {planned.device}: MFU against the memory of a rank"
    figure, axes = new_page(_WIDE_IN, _HIGH_IN, title)
    axes.plot(*zip(*planned.seen, strict=True), "o", color=PALE, markersize=4, label="plans that were timed")
    front = [(row.peak_memory_bytes, row.mfu) for row in planned.front]
    axes.plot(*zip(*front, strict=True), "o-", color=_FRONT, markersize=5, linewidth=1.4, label="no plan beats these in both")
    found = planned.fastest
    axes.plot(found.peak_memory_bytes, found.mfu, "*", color=_BEST, markersize=14, label=f"fastest: {found.plan}", zorder=4)
    for row in (row for row in planned.rows if row.beside):
        axes.plot(row.peak_memory_bytes, row.mfu, "D", color=_YOURS, markersize=7, label=f"yours: {row.plan}", zorder=4)
    _dress(axes, planned)
    _name(axes, planned)
    figure.legend(loc="outside lower left", fontsize=8, frameon=False, ncols=1)
    return figure


def _dress(axes: Axes, planned: PlanTable) -> None:
    """Label the axes, and draw the memory of the device where it is near to what the plans need."""
    axes.xaxis.set_major_formatter(lambda size, _: format_size(round(size)))
    dress(axes, "memory of the rank that holds most", "MFU")
    axes.set_ylim(0, _ROOM * max(axes.get_ylim()))
    most = max(size for size, _ in planned.seen)
    if planned.memory_bytes and planned.memory_bytes < _FAR * most:
        axes.axvline(planned.memory_bytes, color=_LIMIT, linestyle="--", linewidth=1)
        axes.annotate(
            f"{format_size(planned.memory_bytes)} of the {planned.device}",
            (planned.memory_bytes, 0.02),
            (-4, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="right",
            fontsize=8,
            color=GREY,
        )
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(MultipleLocator(2 ** (int(high - low) // _TICKS).bit_length()))  # round in binary units


def _name(axes: Axes, planned: PlanTable) -> None:
    """Write a number at up to eight plans of the line, and the plan of each number into the legend."""
    every = planned.front[:: -(-len(planned.front) // _MOST_NAMES)]
    for number, row in enumerate(every, 1):
        at = (row.peak_memory_bytes, row.mfu)
        axes.annotate(str(number), at, (0, 7), textcoords="offset points", ha="center", fontsize=8, color=_FRONT)
        axes.plot([], [], linestyle="", label=f"{number}  {row.plan}")
