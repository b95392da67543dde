"""The chart of `emu queue --seeds`: goodput, waiting and the largest job of each machine and policy, with intervals."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from emu.study.queue.queue_row import SURE, QueueSpread, SeedMean
from launch.show.canvas import check_own_page, dress, hue, new_page

_WIDE_IN, _ROW_IN, _FRAME_IN = 11.0, 0.34, 1.6
_PANELS: tuple[tuple[str, Callable[[QueueSpread], SeedMean], float], ...] = (
    ("goodput, %", lambda row: row.goodput, 100.0),
    ("mean wait, h", lambda row: row.wait_mean_s, 1 / 3600.0),
    ("largest job in the mean, NPUs", lambda row: row.largest_mean, 1.0),
)


def queue_spread_figure(rows: Sequence[QueueSpread]) -> Figure:
    """Return a chart with a point for each machine and policy, and a bar over the interval of its mean."""
    check_own_page("a queue")
    title = f"Means over {rows[0].seeds} seeds of {rows[0].days:g} days, with intervals of {100 * SURE:g} %"
    figure, first = new_page(_WIDE_IN, _FRAME_IN + _ROW_IN * len(rows), title)
    figure.delaxes(first)
    at = np.arange(len(rows))
    for axes, (told, of, scale) in zip(figure.subplots(1, len(_PANELS), sharey=True), _PANELS, strict=True):
        for i, row in enumerate(rows):
            found = of(row)
            axes.errorbar(scale * found.mean, i, xerr=scale * found.half, fmt="o", color=hue(i), capsize=3, markersize=4)
        dress(axes, told)
        axes.set_yticks(at, [_name(row, rows) for row in rows], fontsize=8)
        axes.set_ylim(len(rows) - 0.5, -0.5)
    return figure


def _name(row: QueueSpread, rows: Sequence[QueueSpread]) -> str:
    """Return the name of a row: the machine, and the policy where there are several."""
    return row.topology if len({each.policy for each in rows}) == 1 else f"{row.topology}, {row.policy}"
