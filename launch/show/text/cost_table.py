"""The cost of networks, as a table and as JSON; from low to high where the sources of prices differ."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emu.study.cost import Cost, OwnershipCost
from launch.show.text.table import Column, column_table

if TYPE_CHECKING:
    from emu.study.training.estimate import StepEstimate


@dataclass(frozen=True, slots=True)
class NetworkCost:
    """The cost of a network, and the cost of a step on it where one was asked for, at the lowest prices."""

    cost: Cost
    energy_dollars: float | None  # None: energy was not asked for
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
    """Return the cost of a network at one end of its prices as JSON fields."""
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
    parts = [f"{row.cost.topology}: {_parts(row)}" for row in rows]
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


def _parts(row: NetworkCost) -> str:
    """Return the bill of a network in words."""
    high = row.high.cost.parts if row.high else row.cost.parts
    told = [
        f"{count} {part} of {_range(price.dollars, high[part][1].dollars)} $ and {_range(price.watts, high[part][1].watts)} W"
        for part, (count, price) in row.cost.parts.items()
    ]
    return ", ".join(told) + (f"; nothing is paid for {', '.join(row.cost.free)}" if row.cost.free else "")


def _range(low: float, high: float) -> str:
    """Return two numbers as text; one where they are equal."""
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def source_notes(rows: Sequence[NetworkCost]) -> list[str]:
    """Return a line for each source of a single price, with the parts of which it is."""
    parts: dict[str, list[str]] = {}
    for row in rows:
        for part, source in row.cost.sources.items():
            told = parts.setdefault(source, [])
            told += [part] * (part not in told)
    return [f"{', '.join(of)}: {source}" for source, of in parts.items()]
