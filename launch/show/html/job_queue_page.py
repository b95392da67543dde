"""The HTML page of `emu queue`: machines compared, use over time, waiting by size, and lost NPU hours."""

from collections.abc import Sequence

from emu.study.queue.queue_row import QueueRow
from launch.show.blocks import Page, Section, sentences, table_block
from launch.show.chart.job_queue_chart import job_queue_figure
from launch.show.html.page import picture_block
from launch.show.text.job_queue_table import MEANING, WAITS, columns_of, lost_columns, reason_lines, size_waits

_PICTURE = (
    "The NPUs that jobs hold, the largest job that could start, and the NPUs that waiting jobs ask for, as shares of the "
    "machine."
)


def job_queue_page(rows: Sequence[QueueRow], notes: Sequence[str]) -> Page:
    """Return one page for all queues.

    Args:
        rows: The queues.
        notes: The assumptions, a sentence each.
    """
    machines = list(dict.fromkeys(f"{row.topology} ({row.npus:,} NPUs)" for row in rows))
    sections = (
        Section("Queues compared", (table_block(columns_of(rows), rows), sentences(MEANING))),
        Section("Over time", (picture_block(job_queue_figure(rows), _PICTURE),), _PICTURE),
        Section("Waiting by size", (table_block(WAITS, size_waits(rows)),)),
        Section("NPU hours", (table_block(lost_columns(rows), rows), sentences(reason_lines(rows)))),
        Section("Assumptions", (sentences(notes),)),
    )
    return Page(f"{rows[0].jobs} jobs over {rows[0].days:g} days", ", ".join(machines), (), sections)
