"""A chart of a job with faults: the virtual time of each step, and the events before it."""

from collections.abc import Iterator, Sequence
from functools import partial

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from emu.study.live.faulty_job import FaultyJob
from emu.units import format_time
from launch.show.canvas import INK, new_page, wrap

_WIDE_IN, _HIGH_IN = 9.5, 3.6
_FAULT = "#d95f02"
_LABEL_PT = 8.0
_MOST = 10  # most places with events that are written


def picture(results: Sequence[FaultyJob]) -> Figure:
    """Return a chart of the time of each step, with a line for each topology and a mark at each event.

    Args:
        results: The results of one job, one on each topology.
    """
    names = ", ".join(dict.fromkeys(result.topology for result in results))
    figure, axes = new_page(_WIDE_IN, _HIGH_IN, f"{results[0].ranks} {results[0].device} on {names}: virtual time of each step")
    for i, result in enumerate(results):
        _draw(axes, result, colormaps["tab10"](i % 10), several=len(results) > 1)
    _mark(axes, results)
    most = max((step.time_s for result in results for step in result.steps), default=1.0)
    axes.set_ylim(0, 1.45 * most)
    axes.set_xlabel("step", color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_formatter(partial(_step_label, [step.step for step in max((r.steps for r in results), key=len)]))
    axes.yaxis.set_major_formatter(lambda time_s, _: format_time(time_s))
    axes.grid(axis="y", visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if len(results) > 1:
        figure.legend(loc="outside lower left", fontsize=_LABEL_PT, frameon=False, ncols=2)
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
    axes.annotate(
        words,
        (place - 0.5, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(3, -2),
        textcoords="offset points",
        fontsize=_LABEL_PT,
        color=_FAULT,
        va="top",
    )
