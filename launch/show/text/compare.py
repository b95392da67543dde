"""Algorithms against one another, as a table of times by size."""

from collections.abc import Sequence

from emu.study.measure.compare import best_rows
from emu.study.measure.row import BenchRow
from emu.units import format_size, format_time
from launch.show.text.assumed import assumed_of_all
from launch.show.text.bounds import bounds_told, of_bound
from launch.show.text.table import table


def compare_table(rows: Sequence[BenchRow]) -> str:
    """A line an algorithm, a column a size: time and of_bound; a star marks the fastest at that size."""
    best = best_rows(list(rows))
    sizes = sorted(best)
    by_name: dict[str, dict[int, BenchRow]] = {}
    for row in rows:
        by_name.setdefault(row.built, {})[row.size_bytes] = row
    cells = [
        [name, *(f"{format_time(of[s].time_s)} {of_bound(of[s])}" + (" *" if best[s] is of[s] else "  ") for s in sizes)]
        for name, of in sorted(by_name.items(), key=lambda item: item[1][sizes[-1]].time_s)
    ]
    head = f"{rows[0].operation} among {rows[0].ranks} ranks of {rows[0].topology}, virtual time and of_bound; * the fastest"
    timed = f"{head}\n\n{table(['algorithm', *map(format_size, sizes)], cells)}\n\n{bounds_told(rows)}".rstrip()
    return "\n".join([timed, "", *assumed_of_all([(row.built, row.assumptions) for row in rows])])
