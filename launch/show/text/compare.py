"""Algorithms against one another, as a table of times by size whose lines are shown as soon as they are known."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from emu.study.measure.compare import PassedOver, best_rows, names
from emu.study.measure.request import Asked
from emu.study.measure.row import BenchRow
from emu.units import format_size, format_time
from launch.show.text.assumed import assumed_of_all
from launch.show.text.bounds import bounds_told, of_bound


def compare_lines(asked: Asked, rows: Iterable[BenchRow | PassedOver]) -> Iterator[str]:
    """A line an algorithm, a column a size: time and of_bound; then the fastest of each size and what the times rest on.

    Args:
        asked: What is compared.
        rows: All sizes of an algorithm, one after the other.
    """
    op, width = asked.operation, max(map(len, names(asked)))
    seen: list[BenchRow | PassedOver] = []
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
    return "  ".join([name.ljust(width), *(f"{time:>12} {of:<5}" for time, of in cells)]).rstrip()


def _cell(row: BenchRow | PassedOver) -> tuple[str, str]:
    if isinstance(row, PassedOver):
        return f">= {format_time(row.at_least_s)}", "-"
    return format_time(row.time_s), of_bound(row)


def _tail(rows: Sequence[BenchRow | PassedOver]) -> Iterator[str]:
    timed, best = [row for row in rows if isinstance(row, BenchRow)], best_rows(rows)
    if len(timed) < len(rows):
        yield "(>=: not timed, as that takes long; by this bound another is faster)"
    yield ""
    yield f"fastest: {'; '.join(f'{format_size(size)}: {best[size].built}' for size in sorted(best))}"
    yield from ("", *filter(None, [bounds_told(timed)]), "")
    yield from assumed_of_all([(row.built, row.assumptions) for row in timed])
