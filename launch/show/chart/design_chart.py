"""The chart of a design: tokens per second against dollars, with the front."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from emu.study.design.design_table import DesignRow, DesignTable
from launch.show.canvas import GREY, add_legend, dress, hue, new_page
from launch.show.chart.time_chart import PALE

_WIDE_IN, _HIGH_IN = 10.0, 6.0
_MOST_NAMES = 16  # rows that get their number
_MARKS = "osD^vP*XhpH<>d"


def design_figure(table: DesignTable) -> Figure:
    """Return the chart of a design: each row of the front by its family, and the line of those that nobody beats in both."""
    title = f"What {table.model} does for the money: {table.points:,} points, {table.timed:,} timed"
    figure, axes = new_page(_WIDE_IN, _HIGH_IN, title)
    if table.beaten:
        at = [(row.dollars / 1e3, row.tokens_per_s) for row in table.beaten]
        axes.plot(*zip(*at, strict=True), "o", color=PALE, markersize=4, label="timed, and beaten")
    families = list(dict.fromkeys(row.settings["topology"] for row in table.rows))
    for number, family in enumerate(families):
        at = [(row.dollars / 1e3, row.tokens_per_s) for row in table.rows if row.settings["topology"] == family]
        mark = _MARKS[number % len(_MARKS)]
        axes.plot(*zip(*at, strict=True), mark, color=hue(number), markersize=7, linestyle="", label=family, zorder=3)
    stairs = _stairs(table.rows)
    axes.plot(
        *zip(*stairs, strict=True), color=GREY, linewidth=1, drawstyle="steps-post", label="the fastest for so much money"
    )
    for number, row in list(enumerate(table.rows, 1))[:_MOST_NAMES]:
        at_row = (row.dollars / 1e3, row.tokens_per_s)
        axes.annotate(str(number), at_row, (0, 7), textcoords="offset points", ha="center", fontsize=8, color=GREY)
    dress(axes, "price (k$)", "tokens/s")
    add_legend(figure, axes, 3)
    return figure


def _stairs(rows: Sequence[DesignRow]) -> list[tuple[float, float]]:
    """Return the points of the line of the fastest rows for so much money or less, the cheapest first."""
    found: list[tuple[float, float]] = []
    for row in sorted(rows, key=lambda row: (row.dollars, -row.tokens_per_s)):
        if not found or row.tokens_per_s > found[-1][1]:
            found.append((row.dollars / 1e3, row.tokens_per_s))
    return found
