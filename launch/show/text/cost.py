"""What networks cost, as a table and as JSON has it."""

from collections.abc import Sequence
from dataclasses import dataclass

from emu.study.cost.cost import Cost
from launch.show.text.table import table


@dataclass(frozen=True, slots=True)
class Paid:
    """A network, and its energy."""

    cost: Cost
    energy_dollars: float | None  # None: not asked for


def told(paid: Paid) -> dict[str, object]:
    """As JSON has it."""
    of = paid.cost
    return {
        "topology": of.topology,
        "npus": of.npus,
        "dollars": of.dollars,
        "watts": of.watts,
        "dollars_per_npu": of.dollars_per_npu,
        "watts_per_npu": of.watts_per_npu,
        "injection_GBps": of.injection_GBps,
        "dollars_per_injection_GBps": of.dollars_per_injection_GBps,
        "watts_per_injection_GBps": of.watts_per_injection_GBps,
        "global_GBps": of.global_GBps,
        "dollars_per_global_GBps": of.dollars_per_global_GBps,
        "watts_per_global_GBps": of.watts_per_global_GBps,
        "energy_dollars": paid.energy_dollars,
        "parts": {part: {"count": count, **price._asdict()} for part, (count, price) in of.parts.items()},
        "free": of.free,
    }


def cost_report(rows: Sequence[Paid], notes: Sequence[str]) -> str:
    """A line a network, then its parts, then what it rests on."""
    across, energy = any(row.cost.global_GBps is not None for row in rows), any(row.energy_dollars is not None for row in rows)
    head = ["topology", "NPUs", "network", "a NPU", "a NPU", "injection", "a GB/s", "a GB/s"]
    units = ["", "", "M$", "$", "W", "GB/s", "$", "W"]
    head, units = head + ["global", "a GB/s"] * across, units + ["GB/s", "$"] * across
    head, units = head + ["energy"] * energy, units + ["M$"] * energy
    lines = [_line(row, across=across, energy=energy) for row in rows]
    parts = [f"{row.cost.topology}: {_parts(row.cost)}" for row in rows]
    return "\n".join((table(head, lines, units=units), "", *parts, *(f"- {note}" for note in notes)))


def _line(row: Paid, *, across: bool, energy: bool) -> list[str]:
    of = row.cost
    each = (of.dollars / 1e6, of.dollars_per_npu, of.watts_per_npu, of.injection_GBps)
    rated = (of.dollars_per_injection_GBps, of.watts_per_injection_GBps)
    line = [of.topology, str(of.npus), *(f"{value:.2f}" for value in (*each, *rated))]
    if across:
        line += ["-" if value is None else f"{value:.2f}" for value in (of.global_GBps, of.dollars_per_global_GBps)]
    return line + [f"{(row.energy_dollars or 0) / 1e6:.2f}"] * energy


def _parts(of: Cost) -> str:
    told = [f"{count} {part} of {price.dollars:g} $ and {price.watts:g} W" for part, (count, price) in of.parts.items()]
    return ", ".join(told) + (f"; nothing is paid for {', '.join(of.free)}" if of.free else "")
