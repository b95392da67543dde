"""The HTML page of `emu plan`: the plans in order of speed, MFU against memory, and the step of the fastest plan."""

from types import SimpleNamespace

from emu.study.planning.search.row import PlanRow, PlanTable
from emu.units import format_size, format_time
from launch.show.blocks import Block, ColouredPart, KeyFigure, Page, Section, drawing_block, key_figures, sentences, table_block
from launch.show.html.page import ChartAxis, frame_of
from launch.show.html.step_page import TimedStep, breakdown, step_sections
from launch.show.step_parts import MEANS_TOLD, exposed_columns, means_of, part_column
from launch.show.text.estimate_table import PLAN_COLUMNS, PROOF, number_column, searched_text, unsearched
from launch.show.text.step_report import rate_facts
from launch.show.text.table import Column, figures

_PALE, _FRONT, _BEST, _YOURS = "#b9c6d2", "#0072B2", "#D55E00", "#009E73"  # Okabe and Ito's
_FAR = 4  # a device's memory above so many times the largest plan is not drawn
_ROOM = 1.06  # end of an axis in largest values, so that no mark is cut
_POINTS = (
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
        Section("MFU against memory", (_scatter(planned),), _POINTS),
        Section("Where the time goes", (breakdown(list(map(means_of, rows)), names, notes),), f"The parts are {MEANS_TOLD}."),
        Section("What was searched", (sentences(_search_sentences(planned)),)),
        *own,
        Section("Assumptions of the search", (sentences(of_search),) if of_search else ()),
    )
    return [section for section in sections if section.blocks]


def _search_sentences(planned: PlanTable) -> tuple[str, ...]:
    """Return what was searched, what was not searched, and what was not decided, a sentence each."""
    left = (f"{fact.label}: {fact.text}" for fact in unsearched(planned) if fact.text is not None)
    return (searched_text(planned), *left)


def _table(planned: PlanTable) -> Block:
    """Return the table of plans, the fastest first."""
    several = len({row.topology for row in planned.rows}) > 1
    columns: list[Column[PlanRow]] = [
        number_column("no.", planned.rows),
        *(PLAN_COLUMNS[name] for name in ("plan", "placement", *(["topology"] if several else []), "step", "proof", "MFU")),
        figures("memory", lambda row: row.peak_memory_bytes, format_size),
        Column("why it is slower", lambda row: row.why or "the fastest", wide=True),
        part_column("computation", lambda of: of.compute_s),
        *exposed_columns(planned.rows, "{} exposed".format),
        PLAN_COLUMNS["bubble"],
    ]
    return table_block(columns, planned.rows)


def _scatter(planned: PlanTable) -> Block:
    """Return the chart of MFU against memory: all plans that were timed, and the line of those that no plan beats in both."""
    sizes = [size for size, _ in planned.seen] + [row.peak_memory_bytes for row in planned.rows]
    mfus = [mfu for _, mfu in planned.seen] + [row.mfu for row in planned.rows]
    has = planned.memory_bytes if planned.memory_bytes < _FAR * max(sizes) else 0
    memory, mfu = ChartAxis("memory of the rank that holds most", _ROOM * max(*sizes, has)), ChartAxis("MFU", _ROOM * max(mfus))
    drawn = SimpleNamespace(
        frame=frame_of(memory, mfu, [(memory.x(at), format_size(at) if at else "0") for at in memory.binary_ticks()]),
        marks=_marks(planned, memory, mfu),
        front=" ".join(f"{memory.x(row.peak_memory_bytes)},{mfu.y(row.mfu)}" for row in planned.front),
        limit=(memory.x(has), f"{format_size(has)} of the {planned.device}") if has else None,
    )
    told = f"MFU against the memory of the rank that holds most, of {len(planned.seen)} plans"
    named = {"plans that were timed": _PALE, "no plan beats these in both": _FRONT, "fastest": _BEST}
    yours = {"yours": _YOURS} if any(row.beside for row in planned.rows) else {}
    return drawing_block("scatter.html", told, drawn, [ColouredPart(*each) for each in (named | yours).items()])


def _marks(planned: PlanTable, memory: ChartAxis, mfu: ChartAxis) -> list[tuple[str, str, int, str, str]]:
    """Return the place, radius, colour and text of the mark of each plan: those of the fastest and yours are last."""

    def mark(row: PlanRow, radius: int, colour: str) -> tuple[str, str, int, str, str]:
        told = f"{row.plan}: MFU {row.mfu:.3f}, {format_size(row.peak_memory_bytes)} a rank, {format_time(row.step_time_s)}"
        return memory.x(row.peak_memory_bytes), mfu.y(row.mfu), radius, colour, told

    seen = [
        (memory.x(size), mfu.y(share), 3, _PALE, f"MFU {share:.3f}, {format_size(size)} a rank") for size, share in planned.seen
    ]
    front = [mark(row, 5, _FRONT) for row in planned.front]
    yours = [mark(row, 7, _YOURS) for row in planned.rows if row.beside]
    return [*seen, *front, mark(planned.fastest, 8, _BEST), *yours]
