"""The report of a design: the front in a table, with reasons, what other prices would choose, and what the others lack.

The columns are those of the page, too.
"""

from collections.abc import Iterator, Sequence

from emu.study.design.design_table import DesignRow, DesignTable, NeededChange, PriceRange, Winner
from emu.units import format_time
from launch.show.text.table import Column, column_table, figures

_MOST_REASONS = 3  # of points that have no step
FRONT = (
    "No point beats a row in all of tokens/s, dollars, watts (and availability, where it is asked for). The first row does "
    "most for the money; beats: how many other points a row beats, if those that are not timed are as fast as their bounds."
)
RANGES = (
    "Each price by itself, all others as in the table: the point with the most tokens/s a dollar in each part of its range."
)
CHANGES = (
    "One of these changes, all else equal, and the point does as much for the money as the first row; of prices those that "
    "need to change least."
)


def front_columns(table: DesignTable) -> list[Column[DesignRow]]:
    """Return the columns of the front, or of the points that are beaten: those for which there is something to tell."""
    numbers = {id(row): number for number, row in enumerate(table.rows, 1)}
    every = (*table.rows, *table.beaten)
    devices, sizes = ({getattr(row, name) for row in every} for name in ("device", "npus"))
    device: Column[DesignRow] = Column("device", lambda row: row.device)
    shares = any(row.availability is not None for row in every)
    return [
        Column("", lambda row: str(numbers.get(id(row), "-")), key=lambda row: numbers.get(id(row), 0)),
        Column("topology", lambda row: row.topology),
        *([device] if len(devices) > 1 else []),
        *([figures("NPUs", lambda row: row.npus)] if len(sizes) > 1 else []),
        figures("tokens/s", lambda row: row.tokens_per_s, "{:.0f}".format),
        figures("price", lambda row: row.dollars / 1e3, "{:.1f}".format, "k$"),
        figures("power", lambda row: row.watts / 1e3, "{:.2f}".format, "kW"),
        *([figures("available", _percent, "{:.2f}".format, "%")] if shares else []),
        figures("tokens/s", lambda row: 1e3 * row.tokens_per_s_dollar, "{:.2f}".format, "a k$"),
        figures("step", lambda row: row.step_time_s, format_time),
        figures("beats", lambda row: row.beats),
        Column("plan", lambda row: row.plan),
    ]


def _percent(row: DesignRow) -> float:
    """Return the availability of a row in percent."""
    return 100 * (row.availability or 0.0)


def design_report(table: DesignTable, notes: Sequence[str]) -> str:
    """Return the front with its reasons, the ranges of prices, what other points lack, and the notes."""
    return "\n".join(_lines(table, notes))


def _lines(table: DesignTable, notes: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the report."""
    yield f"{table.model}, {table.global_batch} sequences of {table.seq} tokens, software={table.software}"
    yield from ("", column_table(front_columns(table), table.rows), "", FRONT, "", *reasons_of(table), "")
    if table.ranges:
        yield from (RANGES, *map(range_text, table.ranges), "")
    if table.changes:
        yield from (CHANGES, column_table(CHANGE_COLUMNS, table.changes), "")
    yield from searched(table)
    yield from ("", *(f"- {note}" for note in notes))


def reasons_of(table: DesignTable) -> list[str]:
    """Return the reason of each row of the front."""
    return [f"{number}: {row.why}" for number, row in enumerate(table.rows, 1)]


def range_text(of: PriceRange) -> str:
    """Return which point wins at which price of a thing, in words."""
    first, *more = of.winners
    source = "" if of.of_sources else " (half to twice)"
    told = f"{of.thing}, {first.low:g} to {of.winners[-1].high:g} ${source}: {first.point}"
    return told + "".join(map(_from, more))


def _from(winner: Winner) -> str:
    """Return from which price on a point wins."""
    return f"; from {winner.low:.6g} $ on {winner.point}"


def _factor(change: NeededChange) -> str:
    """Return the factor of a change."""
    return f"{change.factor:.3f}"


CHANGE_COLUMNS: tuple[Column[NeededChange], ...] = (
    Column("point", lambda change: f"{change.point} ({change.role})"),
    Column("what", lambda change: change.what),
    figures("now", lambda change: change.now, "{:.6g}".format),
    figures("needed", lambda change: change.needed, "{:.6g}".format),
    Column("times", _factor, key=lambda change: change.factor),
)


def searched(table: DesignTable) -> list[str]:
    """Return sentences on the points: how many were timed, beaten, too dear or without a step."""
    worst = list(table.refused_why.items())[:_MOST_REASONS]
    timed = f"{table.points:,} points: {table.timed:,} timed ({table.steps:,} steps), {table.bounded:,} beaten by their bounds"
    return [
        f"{timed}, {table.no_better:,} with links nowhere faster than those of another that costs no more",
        f"{table.too_dear:,} beyond the budget or the power, {table.refused:,} without a step",
        *(f"no step at {count:,}: {why}" for why, count in worst),
    ]
