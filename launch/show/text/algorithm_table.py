"""Algorithms compared in a table of times by size, whose lines are printed as soon as they are known."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from emu.study.measure.bench import BenchRow, UntimedRow, algorithm_names, best_rows
from emu.study.measure.request import PlacedBench
from emu.units import format_size, format_time
from launch.show.text.bounds import bounds_text, of_bound
from launch.show.text.table import merged_assumption_lines


def compare_lines(asked: PlacedBench, rows: Iterable[BenchRow | UntimedRow]) -> Iterator[str]:
    """Yield a line for each algorithm with time and of_bound of each size, then the fastest of each size and the assumptions.

    Args:
        asked: The comparison that was asked for.
        rows: The rows of each algorithm, size after size.
    """
    op, width = asked.operation, max(map(len, algorithm_names(asked)))
    seen: list[BenchRow | UntimedRow] = []
    for built, of in groupby(rows, key=lambda row: row.built):
        line = list(of)
        if not seen:  # not before: what cannot be timed leaves nothing but its error
            yield f"{op.name} among {op.n_ranks} ranks of {asked.site.topology.name}: virtual time and of_bound"
            yield ""
            yield _line("algorithm", [(format_size(size), "") for size in asked.request.sizes], width)
        seen += line
        yield _line(built, map(_cell, line), width)
    yield from _tail(seen)


def _line(name: str, cells: Iterable[tuple[str, str]], width: int) -> str:
    """Return a line of the table."""
    return "  ".join([name.ljust(width), *(f"{time:>12} {of:<5}" for time, of in cells)]).rstrip()


def _cell(row: BenchRow | UntimedRow) -> tuple[str, str]:
    """Return the time and of_bound of a row; a row that was not timed has a least time."""
    if isinstance(row, UntimedRow):
        return f">= {format_time(row.at_least_s)}", "-"
    return format_time(row.time_s), of_bound(row)


def _tail(rows: Sequence[BenchRow | UntimedRow]) -> Iterator[str]:
    """Yield the lines after the table."""
    timed, best = [row for row in rows if isinstance(row, BenchRow)], best_rows(rows)
    if len(timed) < len(rows):
        yield "(>=: not timed, as that takes long; by this bound another is faster)"
    yield ""
    yield f"fastest: {'; '.join(f'{format_size(size)}: {best[size].built}' for size in sorted(best))}"
    yield from ("", *filter(None, [bounds_text(timed)]), "")
    yield from merged_assumption_lines([(row.built, row.assumptions) for row in timed])
