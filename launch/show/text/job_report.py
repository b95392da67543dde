"""The report of a job with faults, step by step, as text."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from emu.study.live.faulty_job import FaultyJob, LiveStep, Recovery
from emu.units import format_time
from launch.show.text.step_report import pacing_lines, pacing_warning
from launch.show.text.table import assumption_lines, table


def job_report(result: FaultyJob) -> str:
    """Return the steps of a job on one topology as text; equal steps in a row share a line."""
    count = len(result.faults)
    lines = [
        *pacing_warning(result.paced),
        f"{result.ranks} {result.device} on {result.topology}, {count} fault{'s' * (count != 1)}",
        *([] if result.timed is None else [f"timed {result.timed}"]),
        "",
        _steps(result),
        "",
        f"time            {format_time(sum(step.time_s for step in result.steps))} for these {len(result.steps)} steps, "
        f"{format_time(result.undisturbed_s)} without faults: goodput {result.goodput:.4g}",
        *map(_recovery_line, result.recoveries or ()),
        *pacing_lines(result.paced),
        *([] if result.stopped is None else [f"stopped         {result.stopped}"]),
        "",
        *assumption_lines(result.assumptions),
    ]
    return "\n".join(lines)


def _recovery_line(how: Recovery) -> str:
    """Return the line of a recovery: the checkpoint it went on from, the new plan, and the time."""
    place = f"the checkpoint after step {how.went_on_from}" if how.went_on_from else "the beginning"
    again = f"{how.lost_steps} step{'s' * (how.lost_steps != 1)} done again"
    took = f"{format_time(how.recovery_s)} of recovery"
    return (
        f"went on         in step {how.step}, as {how.lost}: from {place} with {how.plan} on {how.ranks} NPUs; {again}, {took}"
    )


def _steps(result: FaultyJob) -> str:
    """Return the table of steps, with losses where something was trained."""
    head = ("step", "time", "of it mending", "what happened")
    if result.loss is None or result.reference_loss is None:
        return table(head, [_row(steps) for steps in _equal_runs(result.steps)])
    learned = {
        step: (f"{a:.6f}", f"{b:.6f}") for step, (a, b) in enumerate(zip(result.loss, result.reference_loss, strict=True), 1)
    }
    rows = [_row([step]) for step in result.steps]
    full = [(row[0], *learned[step.step], *row[1:]) for row, step in zip(rows, result.steps, strict=True)]
    return table((head[0], "loss", "one process", *head[1:]), full)


def _equal_runs(steps: Sequence[LiveStep]) -> Iterator[list[LiveStep]]:
    """Yield runs of equal steps: they take equal times, and events come only before the first."""
    number = 0

    def key(step: LiveStep) -> tuple[int, str]:
        nonlocal number
        number += bool(step.events)
        return (2 * number - bool(step.events), format_time(step.time_s))

    yield from (list(group) for _, group in groupby(steps, key))


def _row(alike: Iterable[LiveStep]) -> tuple[str, ...]:
    """Return the cells of a run of equal steps."""
    steps = list(alike)
    first, last = steps[0], steps[-1]
    which = str(first.step) if first is last else f"{first.step}..{last.step}"
    said = "; ".join(filter(None, (", ".join(first.events), first.told)))
    return which, format_time(first.time_s), format_time(first.mending_s) if first.mending_s else "-", said
