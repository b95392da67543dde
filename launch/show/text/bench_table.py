"""The rows of a bench as a table, in the terms of nccl-tests."""

from collections.abc import Sequence
from itertools import groupby

from emu.study.measure.bench import BenchRow, UntimedRow
from emu.units import format_size, format_time
from launch.show.text.algorithm_table import BOUND_COLUMNS, bounds_text
from launch.show.text.table import Column, column_table, merged_assumption_lines, spread_lines

_COLUMNS: tuple[Column[BenchRow], ...] = (
    Column("topology", lambda row: row.topology),
    Column("operation", lambda row: row.operation),
    Column("algorithm", lambda row: row.built),
    Column("ranks", lambda row: str(row.ranks)),
    Column("size", lambda row: format_size(row.size_bytes)),
    Column("type", lambda row: row.dtype),
    Column("time", lambda row: format_time(row.time_s)),
    Column("algbw", lambda row: f"{row.algbw_Bps / 1e9:.3f}", "(GB/s)"),
    Column("busbw", lambda row: f"{row.busbw_Bps / 1e9:.3f}", "(GB/s)"),
    *BOUND_COLUMNS,
    Column("wrong", lambda row: "-" if row.wrong is None else str(row.wrong)),
)


def bench_report(rows: Sequence[BenchRow]) -> str:
    """Return the report of all rows as text."""
    moved = "no data was moved" if rows[0].wrong is None else "every element of every rank was checked"
    overhead = format_time(rows[0].send_overhead_s)
    engines = ", ".join(sorted({row.engine for row in rows}))
    named = ((f"{row.operation} {row.built} of {format_size(row.size_bytes)} on {row.topology}", row.spread) for row in rows)
    chaotic = [line for name, spread in named for line in spread_lines(name, spread)]
    lines = [
        column_table(_COLUMNS, rows),
        "",
        f"virtual time (engine: {engines}); {moved}; send overhead {overhead}",
        *_by_library(rows),
        *_passed_over(rows),
        *chaotic,
        bounds_text(rows),
        "",
        *merged_assumption_lines([(row.topology, row.assumptions) for row in rows]),
    ]
    return "\n".join(lines)


def _by_library(rows: Sequence[BenchRow]) -> list[str]:
    """Return a line for each choice of a library, with the sizes that it holds for."""
    said = [(row.topology, row.chosen, row.size_bytes) for row in rows if row.chosen]
    alike = [(key, [size for *_, size in of]) for key, of in groupby(said, key=lambda each: each[:2])]
    ranges = [" to ".join(dict.fromkeys(map(format_size, (sizes[0], sizes[-1])))) for _, sizes in alike]
    return [f"chosen on {name}, {sizes}: {chosen}" for ((name, chosen), _), sizes in zip(alike, ranges, strict=True)]


def _passed_over(rows: Sequence[BenchRow]) -> list[str]:
    """Return a line for each topology with the algorithms that `auto` did not try."""
    by_topology: dict[str, set[str]] = {}
    for row in rows:
        by_topology.setdefault(row.topology, set()).update(row.passed_over)
    why = "too many messages to be timed for a choice; name one with --algorithm to time it"
    return [f"not tried on {name}: {', '.join(sorted(passed))}: {why}" for name, passed in by_topology.items() if passed]


def bench_told(row: BenchRow | UntimedRow) -> str:
    """Return what a person wants to know of a row as soon as it is known: its algorithm, its size and its time."""
    time = format_time(row.time_s) if isinstance(row, BenchRow) else "not timed"
    return f"{row.built}, {format_size(row.size_bytes)} on {row.topology}: {time}"
