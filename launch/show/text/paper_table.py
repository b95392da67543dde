"""The rows of one paper beside Emu's values, as text."""

from collections.abc import Sequence

from launch.papers.targets import PaperRow
from launch.show.text.table import table

_HEAD = ("id", "value", "ours", "unit", "difference", "tolerance", "class", "verdict")


def paper_report(rows: Sequence[PaperRow], assumptions: Sequence[str]) -> str:
    """Return the table of rows, the assumptions of single rows, and the assumptions of all rows."""
    own = [f"- {row.target.id}: {'; '.join(row.assumptions)}" for row in rows if row.assumptions]
    return "\n\n".join([table(_HEAD, [_row(row) for row in rows]), "\n".join(own), "\n".join(f"- {a}" for a in assumptions)])


def _row(row: PaperRow) -> tuple[str, ...]:
    """Return the cells of one row."""
    of, off = row.target, "" if row.difference is None else f"{row.difference:+.4f}"
    ours = f"{row.ours:.{of.digits}f}" if isinstance(row.ours, float) else row.ours or ""
    return of.id, of.value, ours, of.unit, off, of.tolerance.text, of.kind, row.verdict
