"""The chart of `emu outage`: the throughput of a job over time, with a mark at each event."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from emu.study.live.throughput import JobThroughput
from emu.units import format_time
from launch.show.canvas import add_legend, dress, hue, new_page, wrap

_WIDE_IN, _HIGH_IN = 10.0, 4.2
_FAULT = "#d95f02"
_LABEL_PT = 8.0
_MOST = 8  # most moments whose events are written
_TOP = 1.5  # end of the upper axis, in the throughput without faults, so that events have room
_FEW = 2  # lines of a label
_STEP, _STEPS = 0.1, 3  # labels take three heights in turn, so that near ones do not hide each other


def outage_figure(jobs: Sequence[JobThroughput]) -> Figure:
    """Return a chart of the throughput of jobs over time, each as a share of its own without faults."""
    names = ", ".join(dict.fromkeys(job.topology for job in jobs))
    title = f"{jobs[0].ranks} {jobs[0].device} on {names}: throughput over time"
    figure, axes = new_page(_WIDE_IN, _HIGH_IN, title)
    for i, job in enumerate(jobs):
        edges = [job.spans[0].begin_s, *(span.end_s for span in job.spans)]
        told = f"{job.topology}: goodput {job.goodput:.3g}"
        shares = [100 * span.share for span in job.spans]
        axes.stairs(shares, edges, baseline=None, color=hue(i), linewidth=1.8 - 0.4 * (i > 0), label=told)
    _mark(axes, jobs)
    most = max([1.0, *(span.share for job in jobs for span in job.spans)])
    axes.set_ylim(0, 100 * _TOP * most)
    axes.set_xlim(0, max(job.until_s for job in jobs))
    dress(axes, "time", "% of the throughput without faults", grid="y")
    axes.set_yticks([tick for tick in axes.get_yticks() if tick <= 100 * most])
    axes.xaxis.set_major_formatter(lambda time_s, _: format_time(time_s))
    add_legend(figure, axes, 1, size_pt=_LABEL_PT)
    return figure


def _mark(axes: Axes, jobs: Sequence[JobThroughput]) -> None:
    """Draw a dashed line at each moment with events, and write the events beside the first eight lines."""
    happened: dict[float, list[str]] = {}
    for span in (each for job in jobs for each in job.spans if each.events):
        said = happened.setdefault(span.begin_s, [])
        said += [event for event in span.events if event not in said]
    room_in = _WIDE_IN / (2 + min(len(happened), _MOST))
    for place, begin_s in enumerate(sorted(happened)):
        axes.axvline(begin_s, color=_FAULT, linestyle="--", linewidth=0.8)
        if place < _MOST:
            words = "\n".join(wrap(", ".join(happened[begin_s]), _LABEL_PT, room_in)[:_FEW])
            at = (begin_s, 1.0 - _STEP * (place % _STEPS))
            style: dict[str, Any] = {"fontsize": _LABEL_PT, "color": _FAULT, "va": "top", "textcoords": "offset points"}
            axes.annotate(words, at, (3, -2), xycoords=("data", "axes fraction"), **style)
