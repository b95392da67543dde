"""The cost of networks, as a table and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emu.study.cost.cost import Cost, OwnershipCost
from launch.show.text.table import Column, column_table

if TYPE_CHECKING:
    from emu.study.training.estimate import StepEstimate


@dataclass(frozen=True, slots=True)
class NetworkCost:
    """The cost of a network, and the cost of a step on it where one was asked for."""

    cost: Cost
    energy_dollars: float | None  # None: energy was not asked for
    owned: OwnershipCost | None = None  # None: a step was not asked for
    step: "StepEstimate | None" = None

    @property
    def tokens_per_s_dollar(self) -> float | None:
        """Tokens per second for each dollar of the total cost (TCO) of the job's share of the machine."""
        if self.owned is None or self.step is None or self.step.tokens_per_s is None:
            return None
        return self.owned.per_second_and_dollar(self.step.tokens_per_s, self.step.ranks / self.cost.npus)


def cost_as_json(paid: NetworkCost) -> dict[str, object]:
    """Return the cost of a network as JSON fields."""
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
        "parts": {part: {"count": count, **price._asdict()} for part, (count, price) in of.parts.items()},
        "free": of.free,
    }


def cost_report(rows: Sequence[NetworkCost], notes: Sequence[str]) -> str:
    """Return a table with a line for each network, then the parts of each network and the notes."""
    columns = [*_ALWAYS]
    for needed, amounts in _AMOUNTS.items():
        if any(getattr(row.cost, needed) is not None for row in rows):
            columns += amounts
    if any(row.energy_dollars is not None for row in rows):
        columns.append(Column("energy", lambda row: _two_digits((row.energy_dollars or 0) / 1e6), "M$"))
    if rows[0].owned is not None:
        columns += _performance_columns(rows[0])
    parts = [f"{row.cost.topology}: {_parts(row.cost)}" for row in rows]
    return "\n".join((column_table(columns, rows), "", *parts, *(f"- {note}" for note in notes)))


def _two_digits(value: float | None) -> str:
    """Return a value with two decimals; "-" for None."""
    return "-" if value is None else f"{value:.2f}"


def _amount(head: str, name: str, unit: str) -> Column[NetworkCost]:
    """Return the column of a field of the cost."""
    return Column(head, lambda row: _two_digits(getattr(row.cost, name)), unit)


_FIELDS = (  # fields of the cost that JSON has
    *("topology", "npus", "dollars", "watts", "dollars_per_npu", "watts_per_npu"),
    *("injection_GBps", "dollars_per_injection_GBps", "watts_per_injection_GBps"),
    *("global_GBps", "dollars_per_global_GBps", "watts_per_global_GBps", "exchange_GBps", "dollars_per_exchange_GBps"),
)
_ALWAYS: Sequence[Column[NetworkCost]] = (
    Column("topology", lambda row: row.cost.topology),
    Column("NPUs", lambda row: str(row.cost.npus)),
    Column("network", lambda row: _two_digits(row.cost.dollars / 1e6), "M$"),
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


def _performance_columns(first: NetworkCost) -> Sequence[Column[NetworkCost]]:
    """Return the columns of the job; the last one compares each network with the first."""
    return (
        Column("TCO", lambda row: _two_digits(row.owned.tco_dollars / 1e6 if row.owned else None), "M$"),
        Column("step", lambda row: f"{row.step.step_time_s:.3f}" if row.step else "-", "s"),
        Column("tokens/s", lambda row: f"{row.step.tokens_per_s:.0f}" if row.step and row.step.tokens_per_s else "-"),
        Column("tokens/s", lambda row: _two_digits(1000 * (row.tokens_per_s_dollar or 0)), "a k$"),
        Column("of first", lambda row: _two_digits((row.tokens_per_s_dollar or 0) / (first.tokens_per_s_dollar or 1)), "x"),
    )


def _parts(of: Cost) -> str:
    """Return the bill of a network in words."""
    told = [f"{count} {part} of {price.dollars:g} $ and {price.watts:g} W" for part, (count, price) in of.parts.items()]
    return ", ".join(told) + (f"; nothing is paid for {', '.join(of.free)}" if of.free else "")
