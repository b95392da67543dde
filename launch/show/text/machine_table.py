"""Machines in tables and as JSON: what faults waste of them, a job with faults step by step, and the cost of their networks.

A cost is from low to high where the sources of prices differ.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from emu.study.cost.network_cost import Cost, OwnershipCost
from emu.study.faults.waste import CheckpointLoss, Waste
from emu.study.live.faulty_job import FaultyJob, LiveStep, Recovery
from emu.units import format_time
from launch.show.text.step_report import pacing_lines, pacing_warning
from launch.show.text.table import Column, assumption_lines, column_table, figures, span_text, table


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
    """Yield runs of consecutive steps with equal times and without events, except before the first."""
    number = 0

    def key(step: LiveStep) -> tuple[int, str]:
        nonlocal number
        number += bool(step.events)
        return (2 * number - bool(step.events), format_time(step.time_s))

    yield from (list(group) for _, group in groupby(steps, key))


def _row(alike: Iterable[LiveStep]) -> tuple[str, ...]:
    """Return the table cells of a run of consecutive equal steps."""
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
    """The waste of one machine for one group size; fields that were not requested are None.

    `waiting` is the share of the time in which a job finds no room.
    """

    waste: Waste
    loss: CheckpointLoss | None = None
    mfu: float = 1.0  # MFU while the job runs
    waiting: float | None = None  # share of the time in which a job of the given size finds no room
    dollars_per_npu: float | None = None  # cost of the network and of the faulty and wasted NPUs
    high_dollars_per_npu: float | None = None  # the same at the highest prices; None: there is one price for each part

    @property
    def goodput(self) -> float | None:
        """The share of the machine's time that is useful work, times MFU if it is given; None if not requested."""
        return None if self.loss is None else self.mfu * self.waste.availability * (1 - self.loss.lost)


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
        "explosion_radius_npus": row.explosion_radius,
        "goodput": kept.goodput,
        "checkpoint_interval_s": kept.loss.interval_s if kept.loss else None,
        "job_waiting": kept.waiting,
        "aggregate_dollars_per_npu": kept.dollars_per_npu,
        **({} if kept.high_dollars_per_npu is None else {"high_aggregate_dollars_per_npu": kept.high_dollars_per_npu}),
        "days": row.begin.tolist(),
        "wasted": row.wasted.tolist(),
    }


def columns_of(rows: Sequence[MachineWaste]) -> list[Column[MachineWaste]]:
    """Return the columns of a table of waste: those for which the rows have values."""
    first = rows[0]
    high = next((row.high_dollars_per_npu for row in rows if row.high_dollars_per_npu is not None), None)
    asked = ((first.loss, _GOODPUT), (first.waiting, _WAITING), (first.dollars_per_npu, _COST), (high, _HIGH_COST))
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
    figures("one fault", lambda kept: kept.waste.explosion_radius, unit="NPUs lost"),
)
_GOODPUT: Sequence[Column[MachineWaste]] = (
    figures("save every", lambda kept: kept.loss.interval_s / 60 if kept.loss else 0.0, "{:.1f}".format, "min"),
    _percent("goodput", lambda kept: kept.goodput or 0.0),
)
_WAITING: Sequence[Column[MachineWaste]] = (_percent("job waits", lambda kept: kept.waiting or 0.0, "% of time"),)
_COST: Sequence[Column[MachineWaste]] = (
    figures("aggregate", lambda kept: kept.dollars_per_npu or 0.0, "{:.2f}".format, "$ a NPU"),
)
_HIGH_COST: Sequence[Column[MachineWaste]] = (
    figures("at most", lambda kept: kept.high_dollars_per_npu or kept.dollars_per_npu or 0.0, "{:.2f}".format, "$ a NPU"),
)


if TYPE_CHECKING:
    from emu.study.training.estimate import StepEstimate


@dataclass(frozen=True, slots=True)
class NetworkCost:
    """The cost of a network and, if requested, of a step on it, at the lowest prices."""

    cost: Cost
    energy_dollars: float | None  # of all years that were asked for; None: energy was not asked for
    owned: OwnershipCost | None = None  # None: a step was not asked for
    step: "StepEstimate | None" = None
    high: "NetworkCost | None" = None  # the same at the highest prices; None: there is one price for each part

    @property
    def tokens_per_s_dollar(self) -> float | None:
        """Tokens per second for each dollar of the total cost (TCO) of the job's share of the machine."""
        if self.owned is None or self.step is None or self.step.tokens_per_s is None:
            return None
        return self.owned.per_second_and_dollar(self.step.tokens_per_s, self.step.ranks / self.cost.npus)


def cost_as_json(paid: NetworkCost) -> dict[str, object]:
    """Return the cost of a network as JSON fields; `high` has those that differ at the highest prices."""
    fields = _fields(paid)
    high = _fields(paid.high) if paid.high else {}
    return fields | ({"high": {name: value for name, value in high.items() if value != fields[name]}} if high else {})


def _fields(paid: NetworkCost) -> dict[str, object]:
    """Return the cost of a network at one end of its price range, as JSON fields."""
    of, owned, step = paid.cost, paid.owned, paid.step
    job: dict[str, object] = {}
    if owned is not None and step is not None:
        job = {name: getattr(owned, name) for name in ("capex_dollars", "opex_dollars", "tco_dollars")}
        job |= {name: getattr(step, name) for name in ("step_time_s", "mfu", "tokens_per_s")}
        job["tokens_per_s_per_tco_dollar"] = paid.tokens_per_s_dollar
    return {
        **{name: getattr(of, name) for name in _FIELDS},
        "energy_dollars": paid.energy_dollars,
        **job,
        "parts": {
            part: {"count": count, **price._asdict()} | ({"source": of.sources[part]} if part in of.sources else {})
            for part, (count, price) in of.parts.items()
        },
        "free": of.free,
    }


def cost_report(rows: Sequence[NetworkCost], notes: Sequence[str]) -> str:
    """Return a table with a line for each network, then the parts of each network and the notes."""
    columns = [*_ALWAYS]
    for needed, amounts in _AMOUNTS.items():
        if any(getattr(row.cost, needed) is not None for row in rows):
            columns += amounts
    if any(row.energy_dollars is not None for row in rows):
        columns.append(_column("energy", lambda row: _two_digits((row.energy_dollars or 0) / 1e6), "M$"))
    if rows[0].owned is not None:
        columns += _performance_columns(rows)
    parts = [f"{row.cost.topology}: {_bill_text(row)}" for row in rows]
    return "\n".join((column_table(columns, rows), "", *parts, *(f"- {note}" for note in notes)))


def _two_digits(value: float | None) -> str:
    """Return a value with two decimals; "-" for None."""
    return "-" if value is None else f"{value:.2f}"


def _column(head: str, text: Callable[[NetworkCost], str], unit: str = "") -> Column[NetworkCost]:
    """Return a column whose cells are texts at the lowest and at the highest prices, the smaller figure first."""

    def told(row: NetworkCost) -> str:
        ends = {text(each) for each in (row, row.high) if each is not None}
        return " to ".join(sorted(ends, key=float) if len(ends) > 1 else ends)

    return Column(head, told, unit)


def _amount(head: str, name: str, unit: str) -> Column[NetworkCost]:
    """Return the column of a field of the cost."""
    return _column(head, lambda row: _two_digits(getattr(row.cost, name)), unit)


_FIELDS = (  # fields of the cost that JSON has
    *("topology", "npus", "dollars", "watts", "dollars_per_npu", "watts_per_npu"),
    *("injection_GBps", "dollars_per_injection_GBps", "watts_per_injection_GBps"),
    *("global_GBps", "dollars_per_global_GBps", "watts_per_global_GBps", "exchange_GBps", "dollars_per_exchange_GBps"),
)
_ALWAYS: Sequence[Column[NetworkCost]] = (
    Column("topology", lambda row: row.cost.topology),
    Column("NPUs", lambda row: str(row.cost.npus)),
    _column("network", lambda row: _two_digits(row.cost.dollars / 1e6), "M$"),
    _amount("a NPU", "dollars_per_npu", "$"),
    _amount("a NPU", "watts_per_npu", "W"),
    _amount("injection", "injection_GBps", "GB/s"),
    _amount("a GB/s", "dollars_per_injection_GBps", "$"),
    _amount("a GB/s", "watts_per_injection_GBps", "W"),
)
_AMOUNTS: Mapping[str, Sequence[Column[NetworkCost]]] = {  # by the field of the cost that a row must have
    "global_GBps": (_amount("global", "global_GBps", "GB/s"), _amount("a GB/s", "dollars_per_global_GBps", "$")),
    "exchange_GBps": (_amount("all-to-all", "exchange_GBps", "GB/s"), _amount("a GB/s", "dollars_per_exchange_GBps", "$")),
}


def _performance_columns(rows: Sequence[NetworkCost]) -> Sequence[Column[NetworkCost]]:
    """Return the columns of the job; the last one compares each network with the first at the same end of the prices."""

    def of_first(row: NetworkCost) -> float:
        is_high = any(paid.high is row for paid in rows)
        first = (rows[0].high if is_high else None) or rows[0]
        return (row.tokens_per_s_dollar or 0) / (first.tokens_per_s_dollar or 1)

    return (
        _column("TCO", lambda row: _two_digits(row.owned.tco_dollars / 1e6 if row.owned else None), "M$"),
        Column("step", lambda row: f"{row.step.step_time_s:.3f}" if row.step else "-", "s"),
        Column("tokens/s", lambda row: f"{row.step.tokens_per_s:.0f}" if row.step and row.step.tokens_per_s else "-"),
        _column("tokens/s", lambda row: _two_digits(1000 * (row.tokens_per_s_dollar or 0)), "a k$"),
        _column("of first", lambda row: _two_digits(of_first(row)), "x"),
    )


def _bill_text(row: NetworkCost) -> str:
    """Return the bill of parts of a network as text."""
    both = (row.cost.parts, row.high.cost.parts if row.high else row.cost.parts)

    def ends(part: str, of: str) -> str:
        return span_text(f"{getattr(parts[part][1], of):g}" for parts in both)

    told = [f"{n} {part} of {ends(part, 'dollars')} $ and {ends(part, 'watts')} W" for part, (n, _) in both[0].items()]
    return ", ".join(told) + (f"; nothing is paid for {', '.join(row.cost.free)}" if row.cost.free else "")


def source_notes(rows: Sequence[NetworkCost]) -> list[str]:
    """Return a line for each source of prices, with the parts that it prices."""
    parts: dict[str, list[str]] = {}
    for row in rows:
        for part, source in row.cost.sources.items():
            told = parts.setdefault(source, [])
            told += [part] * (part not in told)
    return [f"{', '.join(of)}: {source}" for source, of in parts.items()]
