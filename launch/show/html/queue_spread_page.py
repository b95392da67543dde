"""The HTML page of `emu queue --seeds`: machines compared by means over seeds, and NPU hours."""

from collections.abc import Sequence

from emu.study.queue.queue_row import QueueSpread
from launch.show.blocks import Page, Section, sentences, table_block
from launch.show.chart.queue_spread_chart import queue_spread_figure
from launch.show.html.page import picture_block
from launch.show.text.queue_spread_table import SPREAD_MEANING, SPREADS, spread_hours, spread_reasons

_PICTURE = "The mean of goodput, waiting and the largest job over seeds. Bars are confidence intervals."


def queue_spread_page(rows: Sequence[QueueSpread], notes: Sequence[str]) -> Page:
    """Return one page for all queues.

    Args:
        rows: The queues.
        notes: The assumptions, a sentence each.
    """
    machines = list(dict.fromkeys(f"{row.topology} ({row.npus:,} NPUs)" for row in rows))
    sections = (
        Section("Queues compared", (table_block(SPREADS, rows), sentences(SPREAD_MEANING))),
        Section("Means", (picture_block(queue_spread_figure(rows), _PICTURE),), _PICTURE),
        Section("NPU hours", (table_block(spread_hours(rows), rows), sentences(spread_reasons(rows)))),
        Section("Assumptions", (sentences(notes),)),
    )
    return Page(f"Queues over {rows[0].days:g} days, {rows[0].seeds} seeds", ", ".join(machines), (), sections)
