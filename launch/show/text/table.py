"""Aligned tables of plain text, readable in a pipe as on a screen."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, units: Sequence[str] = ()) -> str:
    """Return the rows as text under their heads, with numbers at the right and words at the left of their columns.

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
    """Return whether a cell counts as a number; a lone "-" does."""
    return cell[:1].isdigit() or cell == "-" or (cell[:1] == "-" and cell[1:2].isdigit())
