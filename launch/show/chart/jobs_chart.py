"""The charts of `emu jobs`: a lane for each job over a few steps, and the slow-down of each job in several settings."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from emu.study.jobs.setting_run import RunSideBySide
from emu.study.jobs.step_graphs.contention import JobTimes
from emu.trace.report.spans import Spans, merged
from launch.show.canvas import INK, add_legend, dress, hue, new_page
from launch.show.chart.time_chart import time_scale
from launch.show.text.jobs_table import setting_name

_WIDE_IN, _LANE_IN, _REST_IN, _HIGH_IN = 11.0, 0.62, 1.6, 4.2
_STEPS = 6  # of the slowest job that are drawn
_STEP, _OTHER, _SENDS, _BOTH = "#dfe4ea", "#c5ccd3", "#0072b2", "#d95f02"
_LEGEND = (
    (_STEP, "a step (the next one is darker)"),
    (_SENDS, "sends"),
    (_BOTH, "sends on a link on which another job sends, too"),
)
_FINEST = 2000  # parts of the width: shorter gaps between spans are not drawn


def jobs_figure(runs: Sequence[RunSideBySide]) -> Figure:
    """Return the lanes of the jobs in one setting, or the slow-down of each job in several settings."""
    return _lanes(runs[0]) if len(runs) == 1 else _bars(runs)


def _lanes(run: RunSideBySide) -> Figure:
    """Return a lane for each job: its steps, when it sends, and when it does so beside another job."""
    row, times = run.row, run.times
    window = _window(times)
    scale, unit = time_scale(window[1] - window[0])
    title = (
        f"{row.topology}, placement {row.placement}, shift {row.shift}: steps take {row.slow_down:.3f} times as long as alone"
    )
    figure, axes = new_page(_WIDE_IN, _REST_IN + _LANE_IN * len(times), title)
    for number, each in enumerate(times):
        _lane(axes, number, each, window, scale)
    names = [f"{job.name}\n{job.slow_down:.3f} x" for job in row.jobs]
    axes.set_yticks(np.arange(len(names)), names, fontsize=9)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, (window[1] - window[0]) * scale)
    dress(axes, f"time ({unit})", grid=None)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    add_legend(figure, axes, len(_LEGEND), [Patch(color=colour, label=label) for colour, label in _LEGEND], 9.0)
    return figure


def _window(times: Sequence[JobTimes]) -> tuple[int, int]:
    """Return the ticks that are drawn: some steps of the slowest job, from when all jobs have begun."""
    low = max(int(each.steps.begin_fs[0]) for each in times)
    longest = max(int((each.steps.end_fs - each.steps.begin_fs).mean()) for each in times)
    end = min(int(each.steps.end_fs[-1]) for each in times)
    return low, max(low + 1, min(end, low + _STEPS * longest))


def _lane(axes: Axes, number: int, job: JobTimes, window: tuple[int, int], scale: float) -> None:
    """Draw the lane of a job.

    Args:
        axes: The axes.
        number: The number of the lane, from the top.
        job: The times of the job.
        window: The ticks that are drawn.
        scale: Units of the lower axis in a tick.
    """
    low, high = window
    steps, gap = job.steps, (high - low) // _FINEST
    for first, colour in ((0, _STEP), (1, _OTHER)):
        own = Spans(steps.begin_fs[first::2], steps.end_fs[first::2])
        _boxes(axes, own, (number - 0.4, 0.8), colour, window, scale)
    sends = merged(*job.sending, gap=gap)
    _boxes(axes, sends, (number - 0.28, 0.56), _SENDS, window, scale)
    _boxes(axes, merged(*job.meeting, gap=gap), (number - 0.28, 0.56), _BOTH, window, scale)


def _boxes(axes: Axes, spans: Spans, place: tuple[float, float], colour: str, window: tuple[int, int], scale: float) -> None:
    """Draw spans as boxes of one colour; `place` is their lower edge and their height."""
    low, high = window
    shown = spans.within(low, high)
    start, end = (of[shown.end > shown.start] for of in shown)
    boxes = [Rectangle((s, place[0]), e - s, place[1]) for s, e in zip((start - low) * scale, (end - low) * scale, strict=True)]
    axes.add_collection(PatchCollection(boxes, facecolor=colour, edgecolor="none"))


def _bars(runs: Sequence[RunSideBySide]) -> Figure:
    """Return the slow-down of each job in each setting as groups of bars."""
    rows = [run.row for run in runs]
    figure, axes = new_page(_WIDE_IN, _HIGH_IN, "How many times as long as alone the steps of each job take")
    jobs, wide = [job.name for job in rows[0].jobs], 0.8 / len(rows[0].jobs)
    for number, name in enumerate(jobs):
        at = np.arange(len(rows)) + (number - (len(jobs) - 1) / 2) * wide
        axes.bar(at, [row.jobs[number].slow_down - 1 for row in rows], wide * 0.92, bottom=1.0, color=hue(number), label=name)
    axes.axhline(1.0, color=INK, linewidth=0.8)
    axes.set_xticks(np.arange(len(rows)), [setting_name(row, rows).replace(", ", ",\n") for row in rows], fontsize=8)
    axes.margins(y=0.08)
    dress(axes, "", "step beside the others / step alone", grid="y")
    add_legend(figure, axes, 6)
    return figure
