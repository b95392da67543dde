"""A chart of the parts of a step (computation, exposed communication, bubble, ...), with a bar for each topology."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from emu.study.training.estimate import StepEstimate
from launch.show.canvas import new_page, rank_range
from launch.show.chart.bar_chart import Bar, dress
from launch.show.step_parts import step_parts

_WIDE_IN, _BAR_IN, _REST_IN = 10.0, 0.36, 1.7


def parts_figure(results: Sequence[StepEstimate]) -> Figure:
    """Return a chart of where the time of a step goes on each topology; the first is on top."""
    ranks = sorted({r.ranks for r in results})
    figure, axes = new_page(
        _WIDE_IN, _REST_IN + _BAR_IN * len(results), f"A step of {results[0].model} on {rank_range(ranks)} {results[0].device}"
    )
    places = list(range(len(results)))[::-1]
    begins = [0.0] * len(results)
    for name, colour, times_s in step_parts(results):
        axes.barh(places, times_s, left=begins, color=colour, height=0.7, label=name)
        begins = [begin + time_s for begin, time_s in zip(begins, times_s, strict=True)]
    dress(axes, [_bar(r, several=len(ranks) > 1) for r in results[::-1]], 1.3 * max(r.step_time_s for r in results))
    below = -0.32 / max(1, len(results) / 4)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, below), ncols=6, frameon=False, fontsize=8)
    return figure


def _bar(r: StepEstimate, *, several: bool) -> Bar:
    """Return the name, time and note of the bar of a result; the note has the number of NPUs where results differ in it."""
    return Bar(r.topology, r.step_time_s, f"MFU {r.mfu:.2f}" + (f" · {r.ranks} NPUs" if several else ""))
