"""The papers' rows all together: how many are met, and a page of each paper."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from launch.papers.paper import told_of
from launch.papers.targets import LISTED, MET, MISSED, OPEN, Row
from launch.show.text.table import table

KINDS = {"E": "exact", "M": "model", "S": "ordering", "H": "hardware"}
VERDICTS = (MET, MISSED, OPEN, LISTED)
_HEAD = "| id | where | what | printed | ours | | class | verdict |\n|---|---|---|---|---|---|---|---|"


def score(rows: Iterable[Row]) -> str:
    """In a line: how many of each class are met."""
    met, of = Counter[str](), Counter[str]()
    for row in rows:
        of[row.target.kind] += 1
        met[row.target.kind] += row.verdict == MET
    parts = [f"{met[kind]} of {of[kind]} {name}" for kind, name in KINDS.items() if kind != "H" and of[kind]]
    return f"{', '.join(parts)} rows are met; {of['H']} rows of hardware are listed"


def scores(by: Mapping[str, Sequence[Row]]) -> str:
    """A line a paper and class."""
    lines = []
    for name, rows in by.items():
        for kind, word in KINDS.items():
            of = Counter(row.verdict for row in rows if row.target.kind == kind)
            if of:
                lines.append((name, word, str(of.total()), *(str(of[verdict]) for verdict in VERDICTS)))
    return table(("paper", "class", "rows", *VERDICTS), lines)


def unmet(rows: Iterable[Row]) -> str:
    """Those that are missed or open, each with its reason."""
    return "\n".join(
        f"- {row.target.id}: {row.verdict}, printed {row.target.value} {row.target.unit}".rstrip()
        + (f", ours {shown(row.ours)}" if row.ours is not None else "")
        + (f": {row.target.reading}" if row.target.reading else "")
        for row in rows
        if row.verdict in (MISSED, OPEN)
    )


def page(name: str, source: str, rows: Sequence[Row], assumptions: Sequence[str], notes: str) -> str:
    """The page of a paper."""
    told = [f"- {row.target.id}: {'; '.join(map(_plain, row.assumptions))}" for row in rows if row.assumptions]
    return "\n".join(
        (
            f"# {name}: what the paper prints and what Emu works out",
            "",
            f"{source} This page is written by `emu repro all --docs docs/papers`.",
            "",
            f"{score(rows)}.",
            "",
            _HEAD,
            *map(line, rows),
            "",
            "## What all rows rest on",
            "",
            *(f"- {_plain(each)}" for each in assumptions),
            "",
            "## What single rows rest on",
            "",
            *told,
            "",
            notes.strip(),
            "",
        )
    )


def line(row: Row) -> str:
    """A row of its table."""
    of = row.target
    cells = (of.id, told_of(of.table), of.what, of.value, shown(row.ours), of.unit, KINDS[of.kind], row.verdict)
    return f"| {' | '.join(map(_plain, cells))} |"


def shown(ours: float | str | None) -> str:
    """To six digits."""
    return f"{ours:.6g}" if isinstance(ours, int | float) else ours or ""


def _plain(text: str) -> str:
    """No mark-up, and no table within a table."""
    return re.sub(r"([*_|<])", r"\\\1", text)
