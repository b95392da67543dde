"""A chart of what faults waste: waste over time, and the share of the time that has so much waste or less."""

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from emu.study.faults.waste import Waste
from launch.show.canvas import dress, new_page
from launch.show.text.waste_table import machine_name

_WIDE_IN, _HIGH_IN = 11.0, 5.2


def waste_figure(rows: Sequence[Waste]) -> Figure:
    """Return a chart of the NPUs that faults waste, with a line for each machine and size of groups."""
    sizes = sorted({row.group for row in rows})
    title = f"Share of all NPUs that work but find no group of TP-{' or TP-'.join(map(str, sizes))}"
    figure, over_time = new_page(_WIDE_IN, _HIGH_IN, title)
    figure.delaxes(over_time)
    over_time, often = figure.subplots(1, 2, width_ratios=(3, 2), sharey=True)
    for i, row in enumerate(rows):
        _draw(over_time, often, row, machine_name(row, several=len(sizes) > 1), colormaps["tab10"](i % 10))
    dress(over_time, "day", "waste")
    dress(often, "share of the time with at most this waste")
    over_time.set_ylim(bottom=0)
    often.xaxis.set_major_formatter(PercentFormatter(1.0))
    over_time.yaxis.set_major_formatter(PercentFormatter(1.0))
    figure.legend(*over_time.get_legend_handles_labels(), loc="outside lower left", fontsize=8, frameon=False, ncols=4)
    return figure


def _draw(over_time: Axes, often: Axes, row: Waste, name: str, colour: object) -> None:
    """Draw one row on both axes: its waste over time, and its waste in order of amount."""
    over_time.stairs(row.wasted[:-1], row.begin, baseline=None, color=colour, linewidth=1.0, label=name)
    order = np.argsort(row.wasted, kind="stable")
    often.step([0, *row.share[order].cumsum()], [row.wasted[order[0]], *row.wasted[order]], color=colour, linewidth=1.4)
