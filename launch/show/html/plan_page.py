"""The HTML page of `emu plan`: the plans in order of speed, MFU against memory, and the step of the fastest plan."""

from emu.study.planning.plan_row import PlanRow, PlanTable
from emu.units import format_size, format_time
from launch.show.blocks import Block, KeyFigure, Page, Section, key_figures, sentences, table_block
from launch.show.chart.step_chart import plans_figure
from launch.show.html.page import picture_block
from launch.show.html.step_page import TimedStep, breakdown, step_sections
from launch.show.step_parts import MEANS_TOLD, means_of, part_column
from launch.show.text.estimate_table import PROOF, plan_columns, searched_text, unsearched
from launch.show.text.step_report import rate_facts
from launch.show.text.table import Column

_POINTS = (
    "Each point is a plan that was timed. No plan beats those on the line in both MFU and memory; numbers name some of them."
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


def _figures(planned: PlanTable) -> list[KeyFigure]:
    """Return the key figures of the fastest plan and of the search."""
    row = planned.fastest
    memory = f"of {format_size(planned.memory_bytes)}" if planned.memory_bytes else "of the rank that holds most"
    return [
        KeyFigure("step_time_s", "fastest step", format_time(row.step_time_s), row.step_time_s),
        *key_figures(rate_facts(row)),
        KeyFigure("peak_memory_bytes", "memory a rank", format_size(row.peak_memory_bytes), row.peak_memory_bytes, memory),
        KeyFigure("npus", "NPUs", f"{planned.npus:,}", planned.npus, planned.device),
        KeyFigure("plans", "plans", f"{planned.plans:,}", planned.plans, f"{planned.timed:,} candidates had to be timed"),
    ]


def _sections(planned: PlanTable, fastest: TimedStep) -> list[Section]:
    """Return all sections of the page."""
    rows, stars = planned.rows, " A star marks a plan that you gave." if any(row.beside for row in planned.rows) else ""
    names = [f"{number}{'*' if row.beside else ''}  {row.plan}" for number, row in enumerate(rows, 1)]
    notes = [f"{format_time(row.step_time_s)} · MFU {row.mfu:.3f}" for row in rows]
    own = [Section(f"The fastest plan: {each.title}", each.blocks, each.note) for each in step_sections(fastest)]
    told = set(fastest[0].assumptions)
    of_search = tuple(sentence for sentence in planned.assumptions if sentence not in told)
    note = f"Each reason compares a plan with the fastest plan. {PROOF}. Click on the head of a column to sort by it."
    sections = (
        Section("Plans, the fastest first", (_table(planned),), f"{note} Parts of steps are {MEANS_TOLD}.{stars}"),
        Section("MFU against memory", (picture_block(plans_figure(planned), _POINTS),), _POINTS),
        Section("Where the time goes", (breakdown(list(map(means_of, rows)), names, notes),), f"The parts are {MEANS_TOLD}."),
        Section("What was searched", (sentences(_search_sentences(planned)),)),
        *own,
        Section("Assumptions of the search", (sentences(of_search),) if of_search else ()),
    )
    return [section for section in sections if section.blocks]


def _search_sentences(planned: PlanTable) -> tuple[str, ...]:
    """Return sentences on what was searched, what was not, and what was not decided."""
    left = (f"{fact.label}: {fact.text}" for fact in unsearched(planned) if fact.text is not None)
    return (searched_text(planned), *left)


def _table(planned: PlanTable) -> Block:
    """Return the table of plans, the fastest first, with the reason why each is slower."""
    why: Column[PlanRow] = Column("why it is slower", lambda row: row.why or "the fastest", wide=True)
    computation: Column[PlanRow] = part_column("computation", lambda of: of.compute_s)
    return table_block([*plan_columns(planned.rows, "no."), computation, why], planned.rows)
