"""The waste that faults cause on machines, as a table and as JSON.

The report of a job with faults, step by step, as text.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from emu.study.faults.waste import Restarts, Waste
from emu.study.live.faulty_job import FaultyJob, LiveStep, Recovery
from emu.units import format_time
from launch.show.text.step_report import pacing_lines, pacing_warning
from launch.show.text.table import Column, assumption_lines, column_table, figures, table


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
    went_on = f"went on         in step {how.step}, as {how.lost}: from {place} with {how.plan} on {how.ranks} NPUs"
    return f"{went_on}; {again}, {took}"


def _steps(result: FaultyJob) -> str:
    """Return the table of steps, with losses where something was trained."""
    head = ("step", "time", "of it mending", "what happened")
    if result.loss is None or result.reference_loss is None:
        return table(head, [_row(steps) for steps in _equal_runs(result.steps)])
    losses = enumerate(zip(result.loss, result.reference_loss, strict=True), 1)
    learned = {step: (f"{own:.6f}", f"{one:.6f}") for step, (own, one) in losses}
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


_P99 = 0.99  # share of the time
MEANING = (
    "waste: the share of all NPUs that work but find no group of TP, averaged over time; in groups: the share that finds one; "
    "one fault: the most NPUs that one node takes out of groups (fault explosion radius). docs/faults.md says who finds a group"
)


@dataclass(frozen=True, slots=True)
class MachineWaste:
    """The waste of one machine for one size of groups; a field that was not asked for is None."""

    waste: Waste
    restarts: Restarts | None = None
    mfu: float = 1.0  # MFU while the job runs
    waiting: float | None = None  # share of the time in which a job of the given size finds no room
    dollars_per_npu: float | None = None  # cost of the network and of the faulty and wasted NPUs
    high_dollars_per_npu: float | None = None  # the same at the highest prices; None: there is one price for each part

    @property
    def goodput(self) -> float | None:
        """The share of the machine's time that is useful work, times MFU where MFU is given."""
        return None if self.restarts is None else self.mfu * self.waste.availability * (1 - self.restarts.lost)


def waste_as_json(kept: MachineWaste) -> dict[str, object]:
    """Return the waste of a machine as JSON fields; shares are of the machine's NPUs, averaged over time."""
    row = kept.waste
    return {
        **{name: getattr(row, name) for name in ("topology", "copies", "npus")},
        "tp": row.group,
        "faulty": float(row.share @ row.faulty),
        "waste": row.mean,
        "waste_p50": row.quantile(0.5),
        "waste_p99": row.quantile(_P99),
        "waste_worst": row.quantile(1.0),
        "availability": row.availability,
        "largest_job_p99": row.largest_job(_P99),
        "largest_job_always": row.largest_job(1.0),
        "explosion_radius_npus": row.radius,
        "goodput": kept.goodput,
        "checkpoint_interval_s": kept.restarts.interval_s if kept.restarts else None,
        "job_waiting": kept.waiting,
        "aggregate_dollars_per_npu": kept.dollars_per_npu,
        **({} if kept.high_dollars_per_npu is None else {"high_aggregate_dollars_per_npu": kept.high_dollars_per_npu}),
        "days": row.begin.tolist(),
        "wasted": row.wasted.tolist(),
    }


def columns_of(rows: Sequence[MachineWaste]) -> list[Column[MachineWaste]]:
    """Return the columns that the rows have values for."""
    first = rows[0]
    high = next((row.high_dollars_per_npu for row in rows if row.high_dollars_per_npu is not None), None)
    asked = ((first.restarts, _GOODPUT), (first.waiting, _WAITING), (first.dollars_per_npu, _COST), (high, _HIGH_COST))
    return [*_COLUMNS, *(column for value, columns in asked if value is not None for column in columns)]


def faults_report(rows: Sequence[MachineWaste], notes: Sequence[str]) -> str:
    """Return a table with a line for each machine and size of groups, then the notes."""
    return "\n".join((column_table(columns_of(rows), rows), "", MEANING, *(f"- {note}" for note in notes)))


def machine_name(row: Waste, *, several: bool) -> str:
    """Return the name of a machine with its copies and waste; with the size of groups where there are several."""
    copies = f"{row.copies} x " if row.copies > 1 else ""
    return f"{copies}{row.topology}{f', TP-{row.group}' if several else ''} ({100 * row.mean:.2f} %)"


def _percent(head: str, share: Callable[[MachineWaste], float], unit: str = "%") -> Column[MachineWaste]:
    """Return a column of shares in percent."""
    return figures(head, lambda kept: 100 * share(kept), "{:.2f}".format, unit)


_COLUMNS: Sequence[Column[MachineWaste]] = (
    Column("topology", lambda kept: kept.waste.topology),
    figures("copies", lambda kept: kept.waste.copies),
    figures("NPUs", lambda kept: kept.waste.npus),
    figures("TP", lambda kept: kept.waste.group),
    _percent("faulty", lambda kept: float(kept.waste.share @ kept.waste.faulty)),
    _percent("waste", lambda kept: kept.waste.mean),
    _percent("p99", lambda kept: kept.waste.quantile(_P99)),
    _percent("worst", lambda kept: kept.waste.quantile(1.0)),
    _percent("in groups", lambda kept: kept.waste.availability),
    figures("largest job", lambda kept: kept.waste.largest_job(_P99), unit="99 % of time"),
    figures("one fault", lambda kept: kept.waste.radius, unit="NPUs lost"),
)
_GOODPUT: Sequence[Column[MachineWaste]] = (
    figures("save every", lambda kept: kept.restarts.interval_s / 60 if kept.restarts else 0.0, "{:.1f}".format, "min"),
    _percent("goodput", lambda kept: kept.goodput or 0.0),
)
_WAITING: Sequence[Column[MachineWaste]] = (_percent("job waits", lambda kept: kept.waiting or 0.0, "% of time"),)
_COST: Sequence[Column[MachineWaste]] = (
    figures("aggregate", lambda kept: kept.dollars_per_npu or 0.0, "{:.2f}".format, "$ a NPU"),
)
_HIGH_COST: Sequence[Column[MachineWaste]] = (
    figures("at most", lambda kept: kept.high_dollars_per_npu or kept.dollars_per_npu or 0.0, "{:.2f}".format, "$ a NPU"),
)
