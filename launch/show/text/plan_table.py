"""The best plans of a search as one table."""

from collections.abc import Sequence

from emu.study.planning.search.row import PlanRow, PlanTable
from emu.study.planning.search.search import REQUESTS, STEPS
from emu.units import format_size, format_time
from launch.show.step_parts import exposed_axes
from launch.show.text.step_report import off_told
from launch.show.text.table import merged_assumption_lines, table

_HEAD = ("", "plan", "placement", "step", "MFU")


def plans_report(planned: PlanTable) -> str:
    """Return a table of plans, the fastest first, then the reason why each other one is slower, and the assumptions."""
    rows = planned.rows
    axes = exposed_axes(rows)
    several = len({row.topology for row in rows}) > 1
    head = (*_HEAD, *axes, "bubble", "memory", *(["topology"] if several else []))
    units = ("", "", "", "", "", *("exposed" for _ in axes), "", "a rank", *([""] if several else []))
    lines = [
        f"{planned.model} on {planned.npus} {planned.device} of {', '.join(dict.fromkeys(row.topology for row in rows))}, "
        f"{planned.global_batch} sequences of {planned.seq} tokens, software={planned.software}",
        "",
        table(head, [_line(n, row, axes, several=several) for n, row in enumerate(rows, 1)], units=units),
        "",
        *_reasons(rows),
        "",
        *_expected(planned),
        f"searched        {searched_text(planned)}, in {planned.wall_s:.1f} s",
        f"not searched    {not_searched_text(planned)}",
        *([f"not decided     {undecided_text(planned)}"] if planned.least_s is not None else []),
        *merged_assumption_lines([("", planned.assumptions)]),
    ]
    return "\n".join(lines)


def _expected(planned: PlanTable) -> list[str]:
    """Return how far the times may be off; no line where no run of the kind is known."""
    if planned.either_way is None:
        return []
    return [f"expected        each step {off_told(planned.device, planned.either_way, planned.either_way_by)}"]


def searched_text(planned: PlanTable) -> str:
    """Return how many plans there are, how many may fit the memory, and how many had to be timed."""
    given = f" with {planned.given}" if planned.given else ""
    return (
        f"{planned.plans:,} plans{given}, of which {planned.candidates:,} candidates (with their placements) may fit the "
        f"memory; {planned.timed:,} had to be timed"
    )


def not_searched_text(planned: PlanTable) -> str:
    """Return the settings that no plan of the search has."""
    return "; ".join(planned.not_searched)


def undecided_text(planned: PlanTable) -> str:
    """Return how many candidates are left of a search that ended early, and the least time that one of them can take."""
    told, ends = f"{planned.decided['undecided']:,} candidates", f"{STEPS:,} steps and {REQUESTS:,} requests"
    return (
        f"{told}, as a search ends after {ends}: none of them takes less than {format_time(planned.least_s or 0.0)}, the least "
        "bound; search some of them with words (--plan)"
    )


def _line(number: int, row: PlanRow, axes: Sequence[str], *, several: bool) -> tuple[str, ...]:
    """Return the cells of a plan; a star marks a plan that the user named."""
    exposed = [format_time(row.exposed_comm_by_axis_s.get(axis, 0.0)) for axis in axes]
    said = (f"{number}{'*' if row.beside else ''}", row.plan, row.axes, format_time(row.step_time_s), f"{row.mfu:.3f}")
    size = format_size(row.peak_memory_bytes)
    return (*said, *exposed, format_time(row.bubble_s), size, *([row.topology] if several else []))


def _reasons(rows: Sequence[PlanRow]) -> list[str]:
    """Return a line for each plan that says why it is slower than the first, and the meaning of the star."""
    told = [f"{number:>2}  {row.why}" for number, row in enumerate(rows, 1) if row.why]
    star = ["", "*  a plan of yours (--beside)"] if any(row.beside for row in rows) else []
    return ["why it is slower than the first:", *told, *star] if told else ["no other plan fits", *star]
