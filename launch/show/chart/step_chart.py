"""Charts of training steps: their parts, their times over a sweep, the steps of a faulty job, and plans of a search.

The lines of a sweep are one for each topology and each combination of other sweeps. A job has the virtual time of each step,
and the events before it. Plans are drawn by MFU against memory, with the line of those that no other plan beats in both. What
faults waste is drawn over time, and by the share of the time that has so much waste or less.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator, PercentFormatter

from emu.errors import InputError
from emu.study.faults.waste import Waste
from emu.study.live.faulty_job import FaultyJob
from emu.study.planning.plan_row import PlanTable
from emu.study.training.estimate import StepEstimate
from emu.units import format_size, format_time, parse_bandwidth, parse_size, parse_time
from launch.show.canvas import GREY, add_legend, check_own_page, dress, hue, new_page, wrap
from launch.show.chart.time_chart import PALE, Line, TimeAxis, dress_bars, lines
from launch.show.step_parts import means_of, step_parts
from launch.show.text.estimate_table import SweepRow
from launch.show.text.machine_table import MachineWaste, machine_name
from launch.show.text.table import span_text

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
    add_legend(figure, axes, 1)
    return figure


def _dress(axes: Axes, planned: PlanTable) -> None:
    """Label the axes, and mark the memory of the device if plans come near it."""
    axes.xaxis.set_major_formatter(lambda size, _: format_size(round(size)))
    dress(axes, "memory of the rank that holds most", "MFU")
    axes.set_ylim(0, _ROOM * max(axes.get_ylim()))
    most = max(size for size, _ in planned.seen)
    if planned.memory_bytes and planned.memory_bytes < _FAR * most:
        axes.axvline(planned.memory_bytes, color=_LIMIT, linestyle="--", linewidth=1)
        told, at = f"{format_size(planned.memory_bytes)} of the {planned.device}", (planned.memory_bytes, 0.02)
        style: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "fontsize": 8, "color": GREY}
        axes.annotate(told, at, (-4, 0), xycoords=("data", "axes fraction"), **style)
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(MultipleLocator(2 ** (int(high - low) // _TICKS).bit_length()))  # round in binary units


def _name(axes: Axes, planned: PlanTable) -> None:
    """Write a number at up to eight plans of the line, and the plan of each number into the legend."""
    every = planned.front[:: -(-len(planned.front) // _MOST_NAMES)]
    for number, row in enumerate(every, 1):
        at = (row.peak_memory_bytes, row.mfu)
        axes.annotate(str(number), at, (0, 7), textcoords="offset points", ha="center", fontsize=8, color=_FRONT)
        axes.plot([], [], linestyle="", label=f"{number}  {row.plan}")


_BAR_IN, _REST_IN = 0.36, 1.7


def parts_figure(results: Sequence[StepEstimate]) -> Figure:
    """Return a bar chart of the parts of a step on each topology, the first on top."""
    ranks = sorted({r.ranks for r in results})
    title = f"A step of {results[0].model} on {span_text(map(str, ranks))} {results[0].device}"
    figure, axes = new_page(_WIDE_IN, _REST_IN + _BAR_IN * len(results), title)
    places = list(range(len(results)))[::-1]
    begins = [0.0] * len(results)
    for name, colour, times_s in step_parts(results if len(results) == 1 else [means_of(each) for each in results]):
        axes.barh(places, times_s, left=begins, color=colour, height=0.7, label=name)
        begins = [begin + time_s for begin, time_s in zip(begins, times_s, strict=True)]
    npus = [f" · {r.ranks} NPUs" if len(ranks) > 1 else "" for r in results]
    named = [(r.topology, r.step_time_s, f"MFU {r.mfu:.2f}{more}") for r, more in zip(results, npus, strict=True)]
    dress_bars(axes, named[::-1], 1.3 * max(r.step_time_s for r in results))
    add_legend(figure, axes, 6)
    return figure


def sweep_figure(rows: Sequence[SweepRow], title: str) -> Figure:
    """Return a chart of the step time against the values of the first sweep; points without a step are left out."""
    first = next(iter(rows[0].point))
    words = list(dict.fromkeys(row.point[first] for row in rows))
    places = _axis_positions(words)
    several = len({row.topology for row in rows if row.point == rows[0].point}) > 1
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.step is not None:
            others = [f"{name}={value}" for name, value in list(row.point.items())[1:]]
            name = ", ".join([*([_swept_name(row, several=several)] if several or not others else []), *others])
            found.setdefault(name, []).append((places[row.point[first]], row.step.step_time_s))
    drawn = []
    for i, (name, at) in enumerate(found.items()):
        below, times_s = zip(*sorted(at), strict=True)
        drawn.append(Line(name, below, times_s, hue(i)))
    named = {place: word for word, place in places.items()}
    return lines(drawn, title, below=first, places=named, upward=TimeAxis("step time", from_zero=True))


def _swept_name(row: SweepRow, *, several: bool) -> str:
    """Return the name of a topology without the parameters that are swept."""
    swept_of = {name.removeprefix("topology.") for name in row.point if name.startswith("topology.")}
    return re.sub(rf"[,:]?({'|'.join(map(re.escape, swept_of))})=[^,:]*", "", row.topology) if swept_of else row.topology


def _axis_positions(words: Sequence[str]) -> dict[str, float]:
    """Return the position of each value of a sweep on the lower axis.

    The place is the number in the value where each value has one above 0, else powers of two in the order of the values.
    """
    numbers = [_number(word) for word in words]
    if all(number is not None and number > 0 for number in numbers):
        return {word: number for word, number in zip(words, numbers, strict=True) if number is not None}
    return {word: 2.0**i for i, word in enumerate(words)}


def _number(word: str) -> float | None:
    """Return the value of a text as a number (plain, bandwidth, time or size); None if it is none."""
    for read in (float, parse_bandwidth, parse_time, parse_size):
        try:
            return float(read(word))
        except (ValueError, InputError):
            continue
    return None


_WASTE_WIDE_IN, _WASTE_HIGH_IN = 11.0, 5.2


def waste_figure(rows: Sequence[MachineWaste]) -> Figure:
    """Return a chart of the share of NPUs that faults waste, with a line for each machine and size of tensor-parallel groups.

    The left half has the waste by day, the right half the share of the time in which the waste is at most so high.
    """
    sizes = sorted({row.waste.group for row in rows})
    title = f"Share of all NPUs that work but find no group of TP-{' or TP-'.join(map(str, sizes))}"
    check_own_page("the waste")
    figure, over_time = new_page(_WASTE_WIDE_IN, _WASTE_HIGH_IN, title)
    figure.delaxes(over_time)
    over_time, often = figure.subplots(1, 2, width_ratios=(3, 2), sharey=True)
    for i, row in enumerate(rows):
        _draw_waste(over_time, often, row.waste, machine_name(row.waste, several=len(sizes) > 1), hue(i))
    dress(over_time, "day", "waste")
    dress(often, "share of the time with at most this waste")
    over_time.set_ylim(bottom=0)
    often.xaxis.set_major_formatter(PercentFormatter(1.0))
    over_time.yaxis.set_major_formatter(PercentFormatter(1.0))
    figure.legend(*over_time.get_legend_handles_labels(), loc="outside lower left", fontsize=8, frameon=False, ncols=4)
    return figure


def _draw_waste(over_time: Axes, often: Axes, row: Waste, name: str, colour: object) -> None:
    """Draw one machine's waste on both axes: over time, and sorted by amount."""
    over_time.stairs(row.wasted[:-1], row.begin, baseline=None, color=colour, linewidth=1.0, label=name)
    order = np.argsort(row.wasted, kind="stable")
    often.step([0, *row.share[order].cumsum()], [row.wasted[order[0]], *row.wasted[order]], color=colour, linewidth=1.4)


_JOB_WIDE_IN, _JOB_HIGH_IN = 9.5, 3.6
_FAULT = "#d95f02"
_LABEL_PT = 8.0
_MOST = 10  # most places with events that are written


def job_figure(results: Sequence[FaultyJob]) -> Figure:
    """Return a chart of the time of each step, with a line for each topology and a mark at each event.

    Args:
        results: The results of one job, one on each topology.
    """
    names = ", ".join(dict.fromkeys(result.topology for result in results))
    title = f"{results[0].ranks} {results[0].device} on {names}: virtual time of each step"
    figure, axes = new_page(_JOB_WIDE_IN, _JOB_HIGH_IN, title)
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
    """Return the number of the step at a position of the lower axis, "" between positions.

    A step that is done again has two positions, so that a position is not the number of a step.
    """
    return str(steps[int(place)]) if place.is_integer() and 0 <= place < len(steps) else ""


def _draw(axes: Axes, result: FaultyJob, colour: object, *, several: bool) -> None:
    """Draw the step times of one topology as a line, with the time of repairs as thick parts."""
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
    """Yield the position of each step that begins with events, and the texts of these events."""
    before = 0
    for place, step in enumerate(result.steps):
        again = (f"step {step.step} is done again",) if step.step <= before else ()
        if step.events or again:
            yield place, (*step.events, *again)
        before = step.step
    if result.stopped is not None:
        yield len(result.steps), ("the job stops",)


def _write(axes: Axes, place: int, words: str) -> None:
    """Write text at the top of the chart, to the right of the vertical line at position `place`."""
    style: dict[str, Any] = {"fontsize": _LABEL_PT, "color": _FAULT, "va": "top", "textcoords": "offset points"}
    axes.annotate(words, (place - 0.5, 1.0), (3, -2), xycoords=("data", "axes fraction"), **style)
