"""The HTML page of `emu design`: the front, drawn and as a table, what other prices would choose, and what others lack."""

from collections.abc import Sequence

from emu.study.design.design_table import DesignRow, DesignTable
from launch.show.blocks import KeyFigure, Page, Section, sentences, table_block
from launch.show.chart.design_chart import design_figure
from launch.show.html.page import picture_block
from launch.show.text.design_report import (
    CHANGE_COLUMNS,
    CHANGES,
    FRONT,
    RANGES,
    front_columns,
    range_text,
    reasons_of,
    searched,
)
from launch.show.text.table import Column

_POINTS = "Tokens per second against dollars. Numbers are those of the rows; the line is the fastest for so much money or less."


def design_page(table: DesignTable, notes: Sequence[str]) -> Page:
    """Return the page of a design.

    Args:
        table: The design.
        notes: What its figures rest on, a sentence each.
    """
    best = table.rows[0]
    why: Column[DesignRow] = Column("why", lambda row: row.why, wide=True)
    columns = front_columns(table)
    sections = (
        Section("The front", (table_block(columns, table.rows), sentences(reasons_of(table))), FRONT),
        Section("Tokens per second for the money", (picture_block(design_figure(table), _POINTS),), _POINTS),
        Section("Other prices", (sentences([*map(range_text, table.ranges)]),) if table.ranges else (), RANGES),
        Section("What others lack", (table_block(CHANGE_COLUMNS, table.changes),) if table.changes else (), CHANGES),
        Section("Timed, and beaten", (table_block([*columns, why], table.beaten),) if table.beaten else ()),
        Section("What was searched", (sentences(searched(table)),)),
        Section("Assumptions", (sentences(notes),)),
    )
    title = f"Which machine for {table.model}?"
    subtitle = f"{best.name} does most for the money; {table.global_batch:,} sequences of {table.seq:,} tokens"
    return Page(title, subtitle, _figures(table), [section for section in sections if section.blocks])


def _figures(table: DesignTable) -> list[KeyFigure]:
    """Return the key figures: those of the best point for the money, and of the search."""
    best = table.rows[0]
    money, power = f"{best.dollars / 1e3:.1f} k$", f"{best.watts / 1e3:.2f} kW"
    return [
        KeyFigure("tokens_per_s", "tokens/s", f"{best.tokens_per_s:.0f}", best.tokens_per_s, best.topology),
        KeyFigure("dollars", "price", money, best.dollars),
        KeyFigure("watts", "power", power, best.watts),
        KeyFigure("points", "points", f"{table.points:,}", table.points, f"{table.timed:,} timed, {table.steps:,} steps"),
    ]
