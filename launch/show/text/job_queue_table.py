"""Queues of jobs in tables: machines compared, waiting by size, and what their NPU time went to."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from emu.study.queue.gang_machine import REASONS, WORK
from emu.study.queue.queue_row import QueueRow, WaitOfSize
from launch.show.text.table import Column, assumption_lines, column_table, figures

_HOUR_S = 3600.0
MEANING = (
    "used: NPU time that jobs hold",
    "goodput: NPU time that is work which lasts",
    "fragments: the share of the free NPUs that the largest job which could start leaves over, in the mean over moments",
    "largest job: NPUs of whole groups that could start, in the mean over moments, and at half of them",
    "wait: from submission to the first start; a job that has not started has waited to the end of the account",
)


class SizeWait(NamedTuple):
    """The waiting of jobs of a range of sizes in one queue."""

    row: QueueRow
    wait: WaitOfSize


def hours(time_s: float) -> str:
    """Return a time in hours with three digits."""
    return f"{time_s / _HOUR_S:.3g}"


def _percent(head: str, name: str) -> Column[QueueRow]:
    """Return a column of a share of the row, in percent."""
    return figures(head, lambda row: 100 * float(getattr(row, name)), "{:.2f}".format, "%")


COLUMNS: Sequence[Column[QueueRow]] = (
    Column("topology", lambda row: row.topology),
    figures("copies", lambda row: row.copies),
    figures("NPUs", lambda row: row.npus),
    Column("policy", lambda row: row.policy),
    figures("ended", lambda row: row.ended, unit="jobs"),
    figures("running", lambda row: row.running, unit="jobs"),
    figures("waiting", lambda row: row.waiting, unit="jobs"),
    figures("refused", lambda row: row.refused, unit="jobs"),
    _percent("used", "utilisation"),
    _percent("goodput", "goodput"),
    _percent("fragments", "fragmentation"),
    figures("largest job", lambda row: row.largest_mean, "{:.0f}".format, "mean"),
    figures("", lambda row: row.largest_median, unit="median"),
    figures("wait", lambda row: row.wait_mean_s, hours, "mean, h"),
    figures("", lambda row: row.wait_p95_s, hours, "p95, h"),
    figures("stopped", lambda row: row.fault_stops, unit="by faults"),
)
_PREEMPTED: Column[QueueRow] = figures("stopped", lambda row: row.preemptions, unit="by jobs")
_MOVED: Column[QueueRow] = figures("moved", lambda row: row.moves, unit="jobs")
WAITS: Sequence[Column[SizeWait]] = (
    Column("topology", lambda of: of.row.topology),
    Column("policy", lambda of: of.row.policy),
    Column("NPUs of a job", lambda of: _sizes(of.wait)),
    figures("jobs", lambda of: of.wait.jobs),
    figures("not started", lambda of: of.wait.never_started),
    figures("wait", lambda of: of.wait.mean_s, hours, "mean, h"),
    figures("", lambda of: of.wait.median_s, hours, "median, h"),
    figures("", lambda of: of.wait.p95_s, hours, "p95, h"),
)


def _sizes(wait: WaitOfSize) -> str:
    """Return the sizes of a class of jobs as text."""
    return f"{wait.least_npus}" if wait.least_npus == wait.most_npus else f"{wait.least_npus} to {wait.most_npus}"


def columns_of(rows: Sequence[QueueRow]) -> list[Column[QueueRow]]:
    """Return the columns of a table of queues; jobs that made room or moved have one where there are any."""
    more = [(_PREEMPTED, any(row.preemptions for row in rows)), (_MOVED, any(row.moves for row in rows))]
    return [*COLUMNS, *(column for column, there in more if there)]


def size_waits(rows: Sequence[QueueRow]) -> list[SizeWait]:
    """Return the waiting of each class of sizes in each queue."""
    return [SizeWait(row, wait) for row in rows for wait in row.waits]


def lost_columns(rows: Sequence[QueueRow]) -> list[Column[QueueRow]]:
    """Return the columns of a table of NPU hours by what they went to; what none went to has no column."""
    spent = [reason for reason in REASONS if reason == WORK or any(row.npu_hours[reason] for row in rows)]
    return [
        Column("NPU hours", lambda row: row.topology),
        Column("policy", lambda row: row.policy),
        *map(_spent, spent),
    ]


def _spent(reason: str) -> Column[QueueRow]:
    """Return the column of the NPU hours that went to one thing."""
    return figures(reason, lambda row: row.npu_hours[reason], "{:.0f}".format)


def reason_lines(rows: Sequence[QueueRow]) -> list[str]:
    """Return what the words of the table of NPU hours mean, and why jobs were refused."""
    told = [f"{reason}: {what}" for reason, what in REASONS.items() if any(row.npu_hours[reason] for row in rows)]
    return [*told, *_refusals(rows)]


def _refusals(rows: Sequence[QueueRow]) -> Iterator[str]:
    """Yield a sentence for each reason for which jobs were refused on a machine."""
    seen = set[str]()
    for row in rows:
        for reason, jobs in row.refusals.items():
            line = f"{jobs} job{'s' * (jobs != 1)} refused on {row.topology}: {reason}"
            if line not in seen:
                seen.add(line)
                yield line


def job_queue_report(rows: Sequence[QueueRow], notes: Sequence[str]) -> str:
    """Return the tables of queues as text, then the notes."""
    parts = [
        column_table(columns_of(rows), rows),
        "\n".join(MEANING),
        column_table(WAITS, size_waits(rows)),
        column_table(lost_columns(rows), rows),
        "\n".join(reason_lines(rows)),
        "\n".join(assumption_lines(notes)),
    ]
    return "\n\n".join(parts)
