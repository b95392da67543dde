"""Published figures of kernels beside the model, as text."""

from collections.abc import Iterable, Sequence

from launch.papers.kernels.report import MOVE, KernelComparison, KernelSummary
from launch.show.text.table import table

_ROWS = ("kind", "device", "kernel", "what", "published", "ours", "ratio", "use")
_SUMS = ("kind", "use", "rows", "mean", "worst", "of")


def kernels_report(rows: Sequence[KernelComparison], sums: Iterable[KernelSummary], notes: Sequence[str]) -> str:
    """Return the table of figures, that of errors, and the notes."""
    parts = [table(_ROWS, [_row(row) for row in rows]), table(_SUMS, [_sum(each) for each in sums])]
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes)])


def _row(row: KernelComparison) -> tuple[str, ...]:
    unit, scale = ("GB/s", 1e9) if row.kind == MOVE else ("TFLOP/s", 1e12)
    rates = (f"{rate / scale:.0f} {unit}" for rate in (row.published, row.ours))
    return row.kind, row.device, row.kernel, row.what, *rates, f"{row.ratio:.3f}", row.use


def _sum(each: KernelSummary) -> tuple[str, ...]:
    return each.kind, each.use, str(each.rows), f"{each.mean_error:.1%}", f"{each.worst_error:.1%}", each.worst
