"""The HTML page of `emu plan`: the plans in order of speed, MFU against memory, and the step of the fastest plan."""

from collections.abc import Sequence

from emu.study.planning.search.row import PlanRow, PlanTable
from emu.units import format_size, format_time
from launch.show.html.page import Cell, KeyFigure, Page, Section, Table, TextBlock, table_of
from launch.show.html.scatter import scatter
from launch.show.html.step_page import TimedStep, breakdown, step_sections
from launch.show.text.estimate_table import axes_in_order
from launch.show.text.plan_table import not_searched_text, searched_text, undecided_text

_SORTS = "Click on the head of a column to sort by it."
_YOURS = "A star marks a plan that you gave."
_RANK = "Each reason compares a plan with the fastest plan."
_FRONT = (
    "Each point is a plan that was timed. No plan beats those on the line in both MFU and memory. Point at a mark to read its "
    "plan."
)


def plans_page(planned: PlanTable, fastest: TimedStep) -> Page:
    """Return the page of a search.

    Args:
        planned: The result of the search.
        fastest: The step of the fastest plan.
    """
    title = f"Which plan trains {planned.model} fastest on {planned.npus:,} {planned.device}?"
    batch = f"{planned.global_batch:,} sequences of {planned.seq:,} tokens, software={planned.software}"
    return Page(
        title, f"{planned.fastest.plan} on {planned.fastest.topology}; {batch}", _figures(planned), _sections(planned, fastest)
    )


def _figures(planned: PlanTable) -> tuple[KeyFigure, ...]:
    """Return the key figures of the fastest plan and of the search."""
    row = planned.fastest
    memory = f"of {format_size(planned.memory_bytes)}" if planned.memory_bytes else "of the rank that holds most"
    return (
        KeyFigure("step_time_s", "fastest step", format_time(row.step_time_s), row.step_time_s),
        KeyFigure("mfu", "MFU", f"{row.mfu:.3f}", row.mfu, f"HFU {row.hfu:.3f}"),
        KeyFigure("tokens_per_s", "tokens/s", f"{row.tokens_per_s:,.0f}", row.tokens_per_s),
        KeyFigure("peak_memory_bytes", "memory a rank", format_size(row.peak_memory_bytes), row.peak_memory_bytes, memory),
        KeyFigure("npus", "NPUs", f"{planned.npus:,}", planned.npus, planned.device),
        KeyFigure("plans", "plans", f"{planned.plans:,}", planned.plans, f"{planned.timed:,} candidates had to be timed"),
    )


def _sections(planned: PlanTable, fastest: TimedStep) -> tuple[Section, ...]:
    """Return all sections of the page."""
    rows, stars = planned.rows, f" {_YOURS}" if any(row.beside for row in planned.rows) else ""
    names = [f"{number}{'*' if row.beside else ''}  {row.plan}" for number, row in enumerate(rows, 1)]
    notes = [f"{format_time(row.step_time_s)} · MFU {row.mfu:.3f}" for row in rows]
    own = [Section(f"The fastest plan: {each.title}", each.blocks, each.note) for each in step_sections(fastest)]
    told = set(fastest[0].assumptions)
    of_search = tuple(sentence for sentence in planned.assumptions if sentence not in told)
    return (
        Section("Plans, the fastest first", (_table(planned),), f"{_RANK} {_SORTS}{stars}"),
        Section("MFU against memory", (scatter(planned),), _FRONT),
        Section("Where the time goes", (breakdown(rows, names, notes),), "The parts are those of the rank that ended last."),
        Section("What was searched", (TextBlock(_search_sentences(planned)),)),
        *own,
        *([Section("Assumptions of the search", (TextBlock(of_search),))] if of_search else []),
    )


def _search_sentences(planned: PlanTable) -> tuple[str, ...]:
    """Return what was searched, what was not searched, and what was not decided, a sentence each."""
    left = () if planned.least_s is None else (f"not decided: {undecided_text(planned)}",)
    return (searched_text(planned), f"not searched: {not_searched_text(planned)}", *left)


def _table(planned: PlanTable) -> Table:
    """Return the table of plans, the fastest first."""
    rows = planned.rows
    axes = axes_in_order(axis for row in rows for axis, time_s in row.exposed_comm_by_axis_s.items() if time_s)
    where = ("topology",) if len({row.topology for row in rows}) > 1 else ()
    exposed = (f"{axis} exposed" for axis in axes)
    head = ("no.", "plan", "placement", *where, "step", "MFU", "memory", "why it is slower", "computation", *exposed, "bubble")
    return table_of(head, [_row(number, row, axes, several=bool(where)) for number, row in enumerate(rows, 1)])


def _row(number: int, row: PlanRow, axes: Sequence[str], *, several: bool) -> list[Cell]:
    """Return the row of a plan; a star marks a plan that the user named."""
    times = (row.compute_s, *(row.exposed_comm_by_axis_s.get(axis, 0.0) for axis in axes), row.bubble_s)
    return [
        Cell(f"{number}{'*' if row.beside else ''}", number),
        *map(Cell, (row.plan, row.axes, *([row.topology] if several else []))),
        Cell(format_time(row.step_time_s), row.step_time_s),
        Cell(f"{row.mfu:.3f}", row.mfu),
        Cell(format_size(row.peak_memory_bytes), row.peak_memory_bytes),
        Cell(row.why or "the fastest", wide=True),
        *(Cell(format_time(time_s), time_s) for time_s in times),
    ]
