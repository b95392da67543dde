"""How near times are to the least possible: the cells of a table, and a line a bound on what it is."""

from collections.abc import Sequence

from emu.bound.limit import CUT, LATENCY, MESSAGES, PATHS, TRIED
from emu.study.bench import BenchRow
from emu.units import format_size, format_time

BOUND_COLUMNS = ("of_bound", "bound")
_MEANS = {
    CUT: "no set of nodes sends the others what they need any faster; the worst set is this slow",
    TRIED: "of single ranks, groups and halves no set sends any faster what others need; there may be a worse one",
    MESSAGES: "n ranks, or groups of them, sum up and spread a byte by 2(n - 1) messages at least",
    PATHS: "what all pairs exchange fits the links no faster, along any paths",
    LATENCY: "of the quickest path between the two ranks farthest apart",
}


def of_bound(row: BenchRow) -> str:
    """The least time possible over the time."""
    return "-" if row.of_bound is None else f"{row.of_bound:.3f}"


def bound_cells(row: BenchRow) -> tuple[str, str]:
    """The cells of `BOUND_COLUMNS`."""
    return of_bound(row), row.bound or "-"


def bounds_told(rows: Sequence[BenchRow]) -> str:
    """What `of_bound` means for these rows; for an all_reduce also what trees reach, which is no bound."""
    kinds = sorted({row.bound for row in rows if row.bound})
    told = ["of_bound: the least time of any schedule / time, where"] if kinds else []
    told += [f"  {kind}: {_MEANS[kind]}" for kind in kinds]
    largest = {row.topology: row for row in sorted(rows, key=lambda row: row.size_bytes)}
    return "\n".join([*told, *filter(None, map(_trees, largest.values()))])


def _trees(row: BenchRow) -> str:
    """What the best trees take, and the best reduce_scatter and all_gather in a row."""
    reached = {"the best trees": row.trees_s, "the best reduce_scatter, then all_gather": row.in_a_row_s}
    known = [f"{name} {format_time(time_s)}" for name, time_s in reached.items() if time_s is not None]
    where = f"{format_size(row.size_bytes)} on {row.topology}"
    return f"no bound, latency apart, {where}: {'; '.join(known)}" if known else ""
