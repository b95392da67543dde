"""The rows of papers beside Emu's values: as text, how many are met, and the page of each paper in `docs/papers`."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from launch.papers.paper import Paper, place_text
from launch.papers.targets import KINDS, LISTED, MET, MISSED, OPEN, PaperRow
from launch.show.text.table import table

VERDICTS = (MET, MISSED, OPEN, LISTED)
_ESCAPED = str.maketrans({mark: f"\\{mark}" for mark in "*_|<"})
_TABLE_HEAD = ("id", "value", "ours", "unit", "difference", "tolerance", "class", "verdict")
_HEAD = "| id | where | what | printed | ours | | class | verdict |\n|---|---|---|---|---|---|---|---|"


def score(rows: Iterable[PaperRow]) -> str:
    """Return in one line how many rows of each class are met."""
    met, of = Counter[str](), Counter[str]()
    for row in rows:
        of[row.target.kind] += 1
        met[row.target.kind] += row.verdict == MET
    parts = [f"{met[kind]} of {of[kind]} {name}" for kind, name in KINDS.items() if kind != "H" and of[kind]]
    return f"{', '.join(parts)} rows are met; {of['H']} rows of hardware are listed"


def scores(by: Mapping[str, Sequence[PaperRow]]) -> str:
    """Return a table with a line for each paper and class."""
    lines = []
    for name, rows in by.items():
        for kind, word in KINDS.items():
            of = Counter(row.verdict for row in rows if row.target.kind == kind)
            if of:
                lines.append((name, word, str(of.total()), *(str(of[verdict]) for verdict in VERDICTS)))
    return table(("paper", "class", "rows", *VERDICTS), lines)


def unmet_rows(rows: Iterable[PaperRow]) -> str:
    """Return a line for each row that is missed or open, with its reason."""
    return "\n".join(
        f"- {row.target.id}: {row.verdict}, printed {row.target.value} {row.target.unit}".rstrip()
        + (f", ours {six_digits(row.ours)}" if row.ours is not None else "")
        + (f": {row.target.reading}" if row.target.reading else "")
        for row in rows
        if row.verdict in (MISSED, OPEN)
    )


def paper_page(paper: Paper, rows: Sequence[PaperRow]) -> str:
    """Return the page of a paper with all its rows as Markdown."""
    told = [f"- {row.target.id}: {'; '.join(map(_plain, row.assumptions))}" for row in rows if row.assumptions]
    return "\n".join(
        (
            f"# {paper.title}: what the paper prints and what Emu works out",
            "",
            f"{paper.source} This page is written by `emu repro all --docs docs/papers`.",
            "",
            f"{score(rows)}.",
            "",
            _HEAD,
            *map(table_line, rows),
            "",
            "## What all rows rest on",
            "",
            *(f"- {_plain(each)}" for each in paper.assumptions()),
            "",
            "## What single rows rest on",
            "",
            *told,
            "",
            paper.page_notes().strip(),
            "",
        )
    )


def table_line(row: PaperRow) -> str:
    """Return a row as a line of the page's table."""
    of = row.target
    cells = (of.id, place_text(of.table), of.what, of.value, six_digits(row.ours), of.unit, KINDS[of.kind], row.verdict)
    return f"| {' | '.join(map(_plain, cells))} |"


def six_digits(ours: float | str | None) -> str:
    """Return a value with six digits; "" for None."""
    return f"{ours:.6g}" if isinstance(ours, int | float) else ours or ""


def _plain(text: str) -> str:
    """Return the text with Markdown's special characters escaped."""
    return text.translate(_ESCAPED)


def paper_report(rows: Sequence[PaperRow], assumptions: Sequence[str]) -> str:
    """Return the table of rows, the assumptions of single rows, and the assumptions of all rows."""
    own = [f"- {row.target.id}: {'; '.join(row.assumptions)}" for row in rows if row.assumptions]
    return "\n\n".join(
        [table(_TABLE_HEAD, [_row(row) for row in rows]), "\n".join(own), "\n".join(f"- {a}" for a in assumptions)]
    )


def _row(row: PaperRow) -> tuple[str, ...]:
    """Return the cells of one row."""
    of, off = row.target, "" if row.difference is None else f"{row.difference:+.4f}"
    ours = f"{row.ours:.{of.digits}f}" if isinstance(row.ours, float) else row.ours or ""
    return of.id, of.value, ours, of.unit, off, of.tolerance.text, of.kind, row.verdict
