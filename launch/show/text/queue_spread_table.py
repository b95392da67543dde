"""Queues over several seeds in tables: the mean of each figure, and half the width of its confidence interval."""

from collections.abc import Callable, Sequence

from emu.study.queue.gang_machine import REASONS, WORK
from emu.study.queue.queue_row import SURE, QueueSpread, SeedMean
from launch.show.text.job_queue_table import MEANING
from launch.show.text.table import Column, assumption_lines, column_table

_HOUR_S = 3600.0
SPREAD_MEANING = (
    f"mean ± half of the interval that has the mean of all seeds with {100 * SURE:g} % (Student's t)",
    *(line.removesuffix(", and at half of them") for line in MEANING),  # the median is left out
)


def _between(
    head: str, of: Callable[[QueueSpread], SeedMean], show: str, unit: str = "", scale: float = 1.0
) -> Column[QueueSpread]:
    """Return a column of means with their intervals, which a page sorts by the means.

    Args:
        head: The head of the column.
        of: The function that gives the mean of a row.
        show: The format of a number.
        unit: The second line of the head.
        scale: The factor of the numbers.
    """

    def text(row: QueueSpread) -> str:
        found = of(row)
        return f"{scale * found.mean:{show}} ± {scale * found.half:{show}}"

    return Column(head, text, unit, lambda row: of(row).mean)


SPREADS: Sequence[Column[QueueSpread]] = (
    Column("topology", lambda row: row.topology),
    Column("copies", lambda row: str(row.copies)),
    Column("NPUs", lambda row: str(row.npus)),
    Column("policy", lambda row: row.policy),
    Column("seeds", lambda row: str(row.seeds)),
    _between("ended", lambda row: row.ended, ".1f", "jobs"),
    _between("running", lambda row: row.running, ".1f", "jobs"),
    _between("used", lambda row: row.utilisation, ".2f", "%", 100),
    _between("goodput", lambda row: row.goodput, ".2f", "%", 100),
    _between("fragments", lambda row: row.fragmentation, ".2f", "%", 100),
    _between("largest job", lambda row: row.largest_mean, ".0f", "mean"),
    _between("wait", lambda row: row.wait_mean_s, ".3g", "mean, h", 1 / _HOUR_S),
    _between("", lambda row: row.wait_p95_s, ".3g", "p95, h", 1 / _HOUR_S),
    _between("stopped", lambda row: row.fault_stops, ".1f", "by faults"),
)


def spread_hours(rows: Sequence[QueueSpread]) -> list[Column[QueueSpread]]:
    """Return the columns of a table of NPU hours by what they went to; what none went to has no column."""
    spent = [reason for reason in REASONS if reason == WORK or any(row.npu_hours[reason].mean for row in rows)]
    return [
        Column("NPU hours", lambda row: row.topology),
        Column("policy", lambda row: row.policy),
        *map(_hours, spent),
    ]


def _hours(reason: str) -> Column[QueueSpread]:
    """Return the column of the NPU hours that went to one thing."""
    return _between(reason, lambda row: row.npu_hours[reason], ".0f")


def spread_reasons(rows: Sequence[QueueSpread]) -> list[str]:
    """Return what the words of the table of NPU hours mean."""
    return [f"{reason}: {what}" for reason, what in REASONS.items() if any(row.npu_hours[reason].mean for row in rows)]


def queue_spread_report(rows: Sequence[QueueSpread], notes: Sequence[str]) -> str:
    """Return the tables of queues over seeds as text, then the notes."""
    parts = [
        column_table(SPREADS, rows),
        "\n".join(SPREAD_MEANING),
        column_table(spread_hours(rows), rows),
        "\n".join(spread_reasons(rows)),
        "\n".join(assumption_lines(notes)),
    ]
    return "\n\n".join(parts)
