"""What a step is made of, topology by topology: a bar each, in parts."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from emu.study.training.estimate import Estimated
from launch.show.chart.bars import Bar, dress
from launch.show.page import among, page, save
from launch.show.parts import step_parts

_WIDE_IN, _BAR_IN, _REST_IN = 10.0, 0.36, 1.7


def draw_parts(results: Sequence[Estimated], path: Path) -> None:
    """Draw where the time of one model's step goes on each topology.

    Raises:
        WriteError: the file cannot be written.
    """
    save(parts(results), path)


def parts(results: Sequence[Estimated]) -> Figure:
    """The picture of `draw_parts`; the first topology is on top."""
    ranks = sorted({r.ranks for r in results})
    figure, axes = page(
        _WIDE_IN, _REST_IN + _BAR_IN * len(results), f"A step of {results[0].model} on {among(ranks)} {results[0].device}"
    )
    places = list(range(len(results)))[::-1]
    begins = [0.0] * len(results)
    for name, colour, times_s in step_parts(results):
        axes.barh(places, times_s, left=begins, color=colour, height=0.7, label=name)
        begins = [begin + time_s for begin, time_s in zip(begins, times_s, strict=True)]
    dress(axes, [_told(r, several=len(ranks) > 1) for r in results[::-1]], 1.3 * max(r.step_time_s for r in results))
    below = -0.32 / max(1, len(results) / 4)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, below), ncols=6, frameon=False, fontsize=8)
    return figure


def _told(r: Estimated, *, several: bool) -> Bar:
    return Bar(r.topology, r.step_time_s, f"MFU {r.mfu:.2f}" + (f" · {r.ranks} NPUs" if several else ""))
