"""Aligned tables of plain text, readable in a pipe as on a screen, with the lines below them.

Below a table stand the assumptions of a report, and how far a time varies with perturbed starts.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from emu.fabric.run import Spread
from emu.units import format_time

R = TypeVar("R")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """A column of a table: its head, and a function that gives the text of each row.

    `key` is the function by whose values an HTML page sorts the rows.
    """

    head: str
    text: Callable[[R], str]
    unit: str = ""  # second line of the head
    key: Callable[[R], Any] | None = None  # a page sorts the rows by this; None: by their texts
    wide: bool = False  # whether cells hold sentences, and need a wide column on a page


def figures(head: str, value: Callable[[R], V], show: Callable[[V], str] = str, unit: str = "") -> Column[R]:
    """Return a column of numbers, which an HTML page sorts by their values rather than by their text.

    Args:
        head: The head of the column.
        value: The function that gives the value of a row.
        show: The function that gives the text of a value.
        unit: The second line of the head.
    """
    return Column(head, lambda row: show(value(row)), unit, value)


def column_table(columns: Sequence[Column[R]], rows: Sequence[R]) -> str:
    """Return a table of these columns as text, with a line for each row."""
    units = [column.unit for column in columns]
    cells = [[column.text(row) for column in columns] for row in rows]
    return table([column.head for column in columns], cells, units=units if any(units) else ())


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, units: Sequence[str] = ()) -> str:
    """Return rows as aligned text under their heads; numbers are right-aligned.

    Args:
        head: The head of each column.
        rows: The cells of each row.
        units: A second line of heads; empty: none.
    """
    heads = [tuple(head), *([tuple(units)] if units else [])]
    lines = [*heads, *map(tuple, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    right = [all(_is_number(row[i]) for row in rows) and bool(rows) for i in range(len(head))]
    return "\n".join(_line(line, widths, right) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    """Return one line with its cells padded to the widths."""
    aligned = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True))
    return "  ".join(aligned).rstrip()


def _is_number(cell: str) -> bool:
    """Return whether a cell is aligned as a number; a lone "-" is."""
    return cell[:1].isdigit() or cell == "-" or (cell[:1] == "-" and cell[1:2].isdigit())


def span_text(words: Iterable[str]) -> str:
    """Return the first and the last of some numbers as text, such as `8 to 64`; one number if they are equal."""
    found = list(words)
    return found[0] if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def assumption_lines(assumptions: Sequence[str]) -> list[str]:
    """Return the lines under "Assumed:", a line for each sentence."""
    return ["Assumed:", *(f"- {sentence}" for sentence in assumptions)]


def merged_assumption_lines(told: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Return the assumptions of several results, each sentence once.

    A sentence that not all results have begins with the names of those that have it.

    Args:
        told: Pairs of a name and the sentences of one result; a name may come again.
    """
    names = list(dict.fromkeys(name for name, _ in told))
    of: dict[str, list[str]] = {}
    for name, sentences in told:
        for sentence in sentences:
            if name not in of.setdefault(sentence, []):
                of[sentence].append(name)
    return assumption_lines([s if len(for_) == len(names) else f"{', '.join(for_)}: {s}" for s, for_ in of.items()])


def spread_lines(what: str, spread: Spread | None) -> list[str]:
    """Return the report line on how far a time varies with perturbed starts; empty if they do not change it.

    Args:
        what: The name of the thing that takes the time.
        spread: The least and the most time over several runs; None: all are equal.
    """
    if spread is None:
        return []
    apart = f"{100 * (spread.most_s / spread.least_s - 1):.2g} %"
    low, high = format_time(spread.least_s), format_time(spread.most_s)
    return [f"varies by {apart}: {what} takes {low} to {high} in {spread.seeds} runs whose starts moved by a tick"]
