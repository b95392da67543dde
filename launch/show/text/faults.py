"""What faults leave of machines, as a table and as JSON has it."""

from collections.abc import Sequence
from dataclasses import dataclass

from emu.study.faults.waste import Waste
from launch.show.text.table import table

_ALWAYS = 0.99  # of the time


@dataclass(frozen=True, slots=True)
class Kept:
    """A machine and a size of groups."""

    waste: Waste
    goodput: float | None  # None: not asked for


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
        "days": row.begin.tolist(),
        "wasted": row.wasted.tolist(),
    }


def faults_report(rows: Sequence[Kept], notes: Sequence[str]) -> str:
    """A line a machine and size, then what they rest on."""
    head = ["topology", "copies", "NPUs", "TP", "faulty", "waste", "p99", "worst", "in groups", "largest job", "one fault"]
    units = ["", "", "", "", "%", "%", "%", "%", "%", "99 % of time", "NPUs lost"]
    with_goodput = any(kept.goodput is not None for kept in rows)
    lines = [_line(kept, with_goodput=with_goodput) for kept in rows]
    more = (["goodput"], ["%"]) if with_goodput else ([], [])
    meaning = (
        "waste: NPUs that work and find no group of TP, of all NPUs, in the mean over time; in groups: those that find one; "
        "one fault: what a node takes out of groups at most (fault explosion radius). docs/faults.md says who finds a group"
    )
    return "\n".join((table(head + more[0], lines, units=units + more[1]), "", meaning, *(f"- {note}" for note in notes)))


def _line(kept: Kept, *, with_goodput: bool) -> list[str]:
    row = kept.waste
    shares = (float(row.share @ row.faulty), row.mean, row.quantile(_ALWAYS), row.quantile(1.0), row.availability)
    line = [row.topology, str(row.copies), str(row.npus), str(row.group), *(f"{100 * share:.2f}" for share in shares)]
    line += [str(row.largest_job(_ALWAYS)), str(row.radius)]
    return line + [f"{100 * (kept.goodput or 0):.2f}"] * with_goodput
