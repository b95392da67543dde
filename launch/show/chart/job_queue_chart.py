"""The chart of `emu queue`: the NPUs that jobs hold, and the largest job that could start, over time."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from emu.arrays import F64, column
from emu.study.queue.queue_row import QueueRow
from launch.show.canvas import check_own_page, dress, hue, new_page

_WIDE_IN, _HIGH_IN = 10.0, 7.2
_DAY_US = 86400e6
_SMOOTH = 24  # moments over which a line is the mean: a day of 30


def job_queue_figure(rows: Sequence[QueueRow]) -> Figure:
    """Return a chart with a line for each machine and policy: NPUs that are held, the largest job, and jobs that wait.

    Where there are several, each line is the mean over a thirtieth of the time, so that they can be told apart.
    """
    check_own_page("a queue")
    days = f"{rows[0].days:g} days"
    figure, first = new_page(_WIDE_IN, _HIGH_IN, f"{rows[0].jobs} jobs over {days} on {', '.join(_machines(rows))}")
    figure.delaxes(first)
    used, largest, waiting = figure.subplots(3, 1, sharex=True)
    names, several = [_name(row, rows) for row in rows], len(rows) > 1
    for i, (row, name) in enumerate(zip(rows, names, strict=True)):
        at = np.array([moment.time_us for moment in row.moments]) / _DAY_US
        for axes, field in ((used, "held"), (largest, "largest"), (waiting, "waiting_npus")):
            _draw(axes, at, _values(row, field) / row.npus, hue(i), name, several=several)
    for axes, told in ((used, "held by jobs"), (largest, "largest job"), (waiting, "asked for by\njobs that wait")):
        dress(axes, "day" if axes is waiting else "", told)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    figure.legend(*used.get_legend_handles_labels(), loc="outside lower left", fontsize=8, frameon=False, ncols=2)
    return figure


def _draw(axes: Axes, at: F64, share: F64, colour: object, name: str, *, several: bool) -> None:
    """Draw the line of one queue: each moment if it is alone, else the mean over neighbouring moments."""
    if several and len(share) > _SMOOTH:
        whole = len(share) // _SMOOTH * _SMOOTH
        at, share = at[:whole].reshape(-1, _SMOOTH).mean(axis=1), share[:whole].reshape(-1, _SMOOTH).mean(axis=1)
    axes.plot(at, share, color=colour, linewidth=1.1, label=name)


def _values(row: QueueRow, field: str) -> F64:
    """Return a field of the moments of a queue."""
    return column([getattr(moment, field) for moment in row.moments], np.float64)


def _machines(rows: Sequence[QueueRow]) -> list[str]:
    """Return the names of the machines, or how many there are where they are many."""
    names = list(dict.fromkeys(row.topology for row in rows))
    return names if len(names) <= 2 else [f"{len(names)} machines"]


def _name(row: QueueRow, rows: Sequence[QueueRow]) -> str:
    """Return the name of a line: the machine, and the policy where there are several."""
    policies = {each.policy for each in rows}
    return f"{row.topology}{f', {row.policy}' if len(policies) > 1 else ''} ({100 * row.goodput:.1f} % goodput)"
