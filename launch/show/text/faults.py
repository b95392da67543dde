"""What faults leave of machines, as a table and as JSON has it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from emu.study.faults.goodput import Restarts
from emu.study.faults.waste import Waste
from launch.show.text.table import table

_ALWAYS = 0.99  # of the time
MEANING = (
    "waste: NPUs that work and find no group of TP, of all NPUs, in the mean over time; in groups: those that find one; "
    "one fault: what a node takes out of groups at most (fault explosion radius). docs/faults.md says who finds a group"
)


@dataclass(frozen=True, slots=True)
class Kept:
    """A machine and a size of groups; what is not asked for is None."""

    waste: Waste
    restarts: Restarts | None = None
    mfu: float = 1.0  # while the job runs
    waiting: float | None = None  # share of the time in which the job that is asked for finds no room
    dollars_per_npu: float | None = None  # of the network, and of the NPUs that are faulty or wasted

    @property
    def goodput(self) -> float | None:
        """The share of the machine's time that is work which lasts, times MFU where it is given."""
        return None if self.restarts is None else self.mfu * self.waste.availability * (1 - self.restarts.lost)


def told(kept: Kept) -> dict[str, object]:
    """As JSON has it; shares are of the machine's NPUs, means over the time."""
    row = kept.waste
    return {
        "topology": row.topology,
        "copies": row.copies,
        "npus": row.npus,
        "tp": row.group,
        "faulty": float(row.share @ row.faulty),
        "waste": row.mean,
        "waste_p50": row.quantile(0.5),
        "waste_p99": row.quantile(_ALWAYS),
        "waste_worst": row.quantile(1.0),
        "availability": row.availability,
        "largest_job_p99": row.largest_job(_ALWAYS),
        "largest_job_always": row.largest_job(1.0),
        "explosion_radius_npus": row.radius,
        "goodput": kept.goodput,
        "checkpoint_interval_s": kept.restarts.interval_s if kept.restarts else None,
        "job_waiting": kept.waiting,
        "aggregate_dollars_per_npu": kept.dollars_per_npu,
        "days": row.begin.tolist(),
        "wasted": row.wasted.tolist(),
    }


class Column(NamedTuple):
    """Of the table."""

    head: str
    unit: str
    told: Callable[[Kept], str]


def columns_of(rows: Sequence[Kept]) -> list[Column]:
    """Those that the rows have something for."""
    first = rows[0]
    asked = ((first.restarts, _GOODPUT), (first.waiting, _WAITING), (first.dollars_per_npu, _COST))
    return [*_COLUMNS, *(column for value, columns in asked if value is not None for column in columns)]


def faults_report(rows: Sequence[Kept], notes: Sequence[str]) -> str:
    """A line a machine and size, then what they rest on."""
    columns = columns_of(rows)
    lines = [[column.told(row) for column in columns] for row in rows]
    shown = table([column.head for column in columns], lines, units=[column.unit for column in columns])
    return "\n".join((shown, "", MEANING, *(f"- {note}" for note in notes)))


def named(row: Waste, *, several: bool) -> str:
    """A machine by its copies, with its size of groups where there are several."""
    copies = f"{row.copies} x " if row.copies > 1 else ""
    return f"{copies}{row.topology}{f', TP-{row.group}' if several else ''} ({100 * row.mean:.2f} %)"


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


_COLUMNS = (
    Column("topology", "", lambda kept: kept.waste.topology),
    Column("copies", "", lambda kept: str(kept.waste.copies)),
    Column("NPUs", "", lambda kept: str(kept.waste.npus)),
    Column("TP", "", lambda kept: str(kept.waste.group)),
    Column("faulty", "%", lambda kept: _percent(float(kept.waste.share @ kept.waste.faulty))),
    Column("waste", "%", lambda kept: _percent(kept.waste.mean)),
    Column("p99", "%", lambda kept: _percent(kept.waste.quantile(_ALWAYS))),
    Column("worst", "%", lambda kept: _percent(kept.waste.quantile(1.0))),
    Column("in groups", "%", lambda kept: _percent(kept.waste.availability)),
    Column("largest job", "99 % of time", lambda kept: str(kept.waste.largest_job(_ALWAYS))),
    Column("one fault", "NPUs lost", lambda kept: str(kept.waste.radius)),
)
_GOODPUT = (
    Column("save every", "min", lambda kept: f"{kept.restarts.interval_s / 60:.1f}" if kept.restarts else "-"),
    Column("goodput", "%", lambda kept: _percent(kept.goodput or 0.0)),
)
_WAITING = (Column("job waits", "% of time", lambda kept: _percent(kept.waiting or 0.0)),)
_COST = (Column("aggregate", "$ a NPU", lambda kept: f"{kept.dollars_per_npu or 0:.2f}"),)
