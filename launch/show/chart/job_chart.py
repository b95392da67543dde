"""A chart of a job with faults: the virtual time of each step, and the events before it.

A chart of what faults waste: waste over time, and the share of the time that has so much waste or less.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from emu.study.faults.waste import Waste
from emu.study.live.faulty_job import FaultyJob
from emu.units import format_time
from launch.show.canvas import add_legend, check_own_page, dress, hue, new_page, wrap
from launch.show.text.waste_table import MachineWaste, machine_name

_WASTE_WIDE_IN, _WASTE_HIGH_IN = 11.0, 5.2


def waste_figure(rows: Sequence[MachineWaste]) -> Figure:
    """Return a chart of the NPUs that faults waste, with a line for each machine and size of groups."""
    sizes = sorted({row.waste.group for row in rows})
    title = f"Share of all NPUs that work but find no group of TP-{' or TP-'.join(map(str, sizes))}"
    check_own_page("the waste")
    figure, over_time = new_page(_WASTE_WIDE_IN, _WASTE_HIGH_IN, title)
    figure.delaxes(over_time)
    over_time, often = figure.subplots(1, 2, width_ratios=(3, 2), sharey=True)
    for i, row in enumerate(rows):
        name = machine_name(row.waste, several=len(sizes) > 1)
        _draw_waste(over_time, often, row.waste, name, hue(i))
    dress(over_time, "day", "waste")
    dress(often, "share of the time with at most this waste")
    over_time.set_ylim(bottom=0)
    often.xaxis.set_major_formatter(PercentFormatter(1.0))
    over_time.yaxis.set_major_formatter(PercentFormatter(1.0))
    figure.legend(*over_time.get_legend_handles_labels(), loc="outside lower left", fontsize=8, frameon=False, ncols=4)
    return figure


def _draw_waste(over_time: Axes, often: Axes, row: Waste, name: str, colour: object) -> None:
    """Draw one row on both axes: its waste over time, and its waste in order of amount."""
    over_time.stairs(row.wasted[:-1], row.begin, baseline=None, color=colour, linewidth=1.0, label=name)
    order = np.argsort(row.wasted, kind="stable")
    often.step([0, *row.share[order].cumsum()], [row.wasted[order[0]], *row.wasted[order]], color=colour, linewidth=1.4)


_WIDE_IN, _HIGH_IN = 9.5, 3.6
_FAULT = "#d95f02"
_LABEL_PT = 8.0
_MOST = 10  # most places with events that are written


def job_figure(results: Sequence[FaultyJob]) -> Figure:
    """Return a chart of the time of each step, with a line for each topology and a mark at each event.

    Args:
        results: The results of one job, one on each topology.
    """
    names = ", ".join(dict.fromkeys(result.topology for result in results))
    figure, axes = new_page(_WIDE_IN, _HIGH_IN, f"{results[0].ranks} {results[0].device} on {names}: virtual time of each step")
    for i, result in enumerate(results):
        _draw(axes, result, hue(i), several=len(results) > 1)
    _mark(axes, results)
    most = max((step.time_s for result in results for step in result.steps), default=1.0)
    axes.set_ylim(0, 1.45 * most)
    dress(axes, "step", grid="y")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_formatter(partial(_step_label, [step.step for step in max((r.steps for r in results), key=len)]))
    axes.yaxis.set_major_formatter(lambda time_s, _: format_time(time_s))
    if len(results) > 1:
        add_legend(figure, axes, 2, size_pt=_LABEL_PT)
    return figure


def _step_label(steps: Sequence[int], place: float, _: object = None) -> str:
    """Return the number of the step at a place of the lower axis, "" between places.

    A step that is done again has two places, so that a place is not the number of a step.
    """
    return str(steps[int(place)]) if place.is_integer() and 0 <= place < len(steps) else ""


def _draw(axes: Axes, result: FaultyJob, colour: object, *, several: bool) -> None:
    """Draw the line of one topology; the part of a step that repairs take is thick."""
    steps = range(len(result.steps))
    whole, mending = ([getattr(step, name) for step in result.steps] for name in ("time_s", "mending_s"))
    name = result.topology if several else None
    axes.plot(steps, whole, "o-", color=colour, markersize=4, linewidth=1.2, drawstyle="steps-mid", label=name)
    healed = [i for i, took in enumerate(mending) if took]
    low = [whole[i] - mending[i] for i in healed]
    axes.vlines([steps[i] for i in healed], low, [whole[i] for i in healed], color=_FAULT, linewidth=4, alpha=0.6)


def _mark(axes: Axes, results: Sequence[FaultyJob]) -> None:
    """Draw a dashed line at each step that begins with events, and write the first ten events beside the lines."""
    happened = {place: said for result in results for place, said in _event_labels(result)}
    for place in sorted(happened):
        axes.axvline(place - 0.5, color=_FAULT, linestyle="--", linewidth=1.0)
    for place in sorted(happened)[:_MOST]:
        _write(axes, place, "\n".join(wrap(", ".join(happened[place]), _LABEL_PT, 1.4)[:4]))


def _event_labels(result: FaultyJob) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the place of each step that begins with events, and the texts of these events."""
    before = 0
    for place, step in enumerate(result.steps):
        again = (f"step {step.step} is done again",) if step.step <= before else ()
        if step.events or again:
            yield place, (*step.events, *again)
        before = step.step
    if result.stopped is not None:
        yield len(result.steps), ("the job stops",)


def _write(axes: Axes, place: int, words: str) -> None:
    """Write text at the top of the chart, right of the line at a place."""
    style: dict[str, Any] = {"fontsize": _LABEL_PT, "color": _FAULT, "va": "top", "textcoords": "offset points"}
    axes.annotate(words, (place - 0.5, 1.0), (3, -2), xycoords=("data", "axes fraction"), **style)
