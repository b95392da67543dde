"""The report of a search of plans, as a page: the plans ranked, MFU against memory, and all of the fastest plan's step."""

from collections.abc import Sequence

from emu.study.planning.search.row import Planned, PlanRow
from emu.units import format_size, format_time
from launch.show.html.page import Cell, Figure, Page, Section, Table, Words, table_of
from launch.show.html.scatter import scatter
from launch.show.html.step import Shown, breakdown, step_sections
from launch.show.text.estimates import in_order
from launch.show.text.plans import not_searched_told, searched_told, undecided_told

_SORTS = "Click on a head to sort."
_YOURS = "A star marks a plan of yours."
_RANK = "A reason compares a plan with the fastest that was found."
_FRONT = (
    "Each point is a plan that was timed. No plan has more MFU in less memory than those on the line. Point at a mark to read "
    "its plan."
)


def plans_page(planned: Planned, fastest: Shown) -> Page:
    """One page of a search.

    Args:
        planned: What was found.
        fastest: The step of the fastest plan.
    """
    title = f"Which plan trains {planned.model} fastest on {planned.npus:,} {planned.device}?"
    batch = f"{planned.global_batch:,} sequences of {planned.seq:,} tokens, as {planned.software} asks"
    return Page(
        title, f"{planned.fastest.plan} on {planned.fastest.topology}; {batch}", _figures(planned), _sections(planned, fastest)
    )


def _figures(planned: Planned) -> tuple[Figure, ...]:
    row = planned.fastest
    memory = f"of {format_size(planned.memory_bytes)}" if planned.memory_bytes else "of the rank that holds most"
    return (
        Figure("step_time_s", "fastest step", format_time(row.step_time_s), row.step_time_s),
        Figure("mfu", "MFU", f"{row.mfu:.3f}", row.mfu, f"HFU {row.hfu:.3f}"),
        Figure("tokens_per_s", "tokens/s", f"{row.tokens_per_s:,.0f}", row.tokens_per_s),
        Figure("peak_memory_bytes", "memory a rank", format_size(row.peak_memory_bytes), row.peak_memory_bytes, memory),
        Figure("npus", "NPUs", f"{planned.npus:,}", planned.npus, planned.device),
        Figure("plans", "plans", f"{planned.plans:,}", planned.plans, f"{planned.timed:,} candidates had to be timed"),
    )


def _sections(planned: Planned, fastest: Shown) -> tuple[Section, ...]:
    rows, stars = planned.rows, f" {_YOURS}" if any(row.beside for row in planned.rows) else ""
    names = [f"{number}{'*' if row.beside else ''}  {row.plan}" for number, row in enumerate(rows, 1)]
    notes = [f"{format_time(row.step_time_s)} · MFU {row.mfu:.3f}" for row in rows]
    own = [Section(f"The fastest plan: {each.title}", each.blocks, each.note) for each in step_sections(fastest)]
    told = set(fastest[0].assumptions)
    of_search = tuple(sentence for sentence in planned.assumptions if sentence not in told)
    return (
        Section("Plans, the fastest first", (_table(planned),), f"{_RANK} {_SORTS}{stars}"),
        Section("MFU against memory", (scatter(planned),), _FRONT),
        Section("Where the time goes", (breakdown(rows, names, notes),), "The parts of the rank that ended last."),
        Section("What was searched", (Words(_searched(planned)),)),
        *own,
        *([Section("Assumptions of the search", (Words(of_search),))] if of_search else []),
    )


def _searched(planned: Planned) -> tuple[str, ...]:
    left = () if planned.least_s is None else (f"not decided: {undecided_told(planned)}",)
    return (searched_told(planned), f"not searched: {not_searched_told(planned)}", *left)


def _table(planned: Planned) -> Table:
    rows = planned.rows
    axes = in_order(axis for row in rows for axis, time_s in row.exposed_comm_by_axis_s.items() if time_s)
    where = ("topology",) if len({row.topology for row in rows}) > 1 else ()
    exposed = (f"{axis} exposed" for axis in axes)
    head = ("no.", "plan", "placement", *where, "step", "MFU", "memory", "why it loses", "computation", *exposed, "bubble")
    return table_of(head, [_row(number, row, axes, several=bool(where)) for number, row in enumerate(rows, 1)])


def _row(number: int, row: PlanRow, axes: Sequence[str], *, several: bool) -> list[Cell]:
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
