"""Printed rows, and their verdicts: a paper has tables, a table has rows, and Emu's answer to a row is judged.

Printed values are in one CSV file for each paper, with the columns of `COLUMNS`. They are only compared with. The inputs of a
row are in `given`, such as `gpus=1024;tp=16`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path

from emu.errors import must_be
from emu.topology.description.values import csv_rows, read_word

MET, MISSED, OPEN, LISTED = "met", "missed", "open", "listed"
OWN_FIT = "own fit"  # the verdict of a row that agrees because an input was fitted on it
BUILT, FITTED, PRINTED = "built", "fitted", "printed"
BASES = {  # what an answer follows from
    BUILT: "built, counted or timed",
    FITTED: "computed with fitted inputs",
    PRINTED: "arithmetic on printed numbers",
}
KINDS = {"E": "exact", "M": "model", "S": "ordering", "H": "hardware"}  # H: also a job whose inputs are not printed
COLUMNS = (
    *("id", "table", "what", "given", "assumed", "value", "unit", "class"),
    *("tolerance", "limit", "least", "most", "note", "reading"),
)
_ROUNDING = 1e-12
# The kinds of tolerance. Of `statement` only the function that computes the row can say whether it holds.
EXACT, RELATIVE, ABSOLUTE, FACTOR = "exact", "relative", "absolute", "factor"
RANGE, STATEMENT, NONE = "range", "statement", "none"
_TEXTS: Mapping[str, str] = {
    EXACT: "exact to printed digits",
    RELATIVE: "+-{limit:.3g}% relative",
    ABSOLUTE: "+-{limit:g}",
    FACTOR: "within {limit:g}x",
    RANGE: "",
    STATEMENT: "statement",
    NONE: "n/a",
}
_BELOW_LIMIT = {RELATIVE: 0.0, ABSOLUTE: 0.0, FACTOR: 1.0}  # kinds that have a limit, and the number that it must be above


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far the answer to a row may be from the printed value."""

    kind: str
    limit: float = 0.0  # the largest difference; of `factor` the largest ratio
    least: float = -inf  # of a range
    most: float = inf
    note: str = ""  # what the kind does not say; nothing reads it

    @property
    def text(self) -> str:
        """The tolerance in words, such as `+-5% relative`."""
        if self.kind == RANGE:
            words = _range_text(self.least, self.most)
        else:
            words = _TEXTS[self.kind].format(limit=100 * self.limit if self.kind == RELATIVE else self.limit)
        return "; ".join(each for each in (words, self.note) if each)

    def span(self, printed: float | None) -> tuple[float, float] | None:
        """Return the least and the most that is allowed; None: the tolerance is a difference from the printed value."""
        if self.kind == RANGE:
            return self.least, self.most
        return (printed / self.limit, printed * self.limit) if self.kind == FACTOR and printed is not None else None


def _range_text(least: float, most: float) -> str:
    """Return a range in words."""
    if isfinite(least) and isfinite(most):
        return f"{least:g} to {most:g}"
    return f"{least:g} or more" if isfinite(least) else f"{most:g} or less"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A row as it is printed."""

    id: str
    table: str
    what: str
    given: Mapping[str, str]  # inputs, by name
    assumed: str  # assumptions that the paper does not print
    value: str  # as printed
    unit: str
    kind: str  # a key of `KINDS`
    tolerance: Tolerance
    reading: str = ""  # why the value does not follow from the paper, and what would follow

    def number(self, name: str) -> int:
        """Return one of the given numbers."""
        return int(self.given[name])

    @property
    def digits(self) -> int:
        """The number of decimals of the printed value."""
        return len(self.value.partition(".")[2])

    @property
    def largest_difference(self) -> float | None:
        """The largest difference that is allowed; half of the last digit where it must be exact; None: it tells nothing."""
        if self.tolerance.kind == EXACT:
            return 0.5 * 10.0**-self.digits + _ROUNDING
        return self.tolerance.limit + _ROUNDING if self.tolerance.kind in (RELATIVE, ABSOLUTE) else None


@dataclass(frozen=True, slots=True)
class Answer:
    """Emu's answer to a row."""

    ours: float | str | None  # None: there is no answer
    notes: tuple[str, ...] = ()
    off: float | None = None  # distance from the printed value, where it is no difference of two numbers
    holds: bool | None = None  # whether the statement holds; None: judged by the numbers


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A printed row with Emu's answer and the verdict."""

    target: Target
    ours: float | str | None
    difference: float | None
    verdict: str
    assumptions: tuple[str, ...]
    basis: str = BUILT  # a key of `BASES`

    def as_json(self) -> dict[str, object]:
        """Return the row as JSON fields."""
        of = self.target
        return {
            "id": of.id,
            "what": of.what,
            "value": of.value if number(of.value) is None else number(of.value),
            "ours": self.ours,
            "unit": of.unit,
            "difference": self.difference,
            "tolerance": of.tolerance.text,
            "class": of.kind,
            "basis": self.basis,
            "verdict": self.verdict,
            "assumptions": self.assumptions,
        }


def read_targets(path: Path) -> list[Target]:
    """Return all printed rows of a paper.

    Raises:
        InputError: The file has not all columns, or a class or a tolerance cannot be; the message names the file and the row.
    """
    name = f"{path.parent.name}/{path.name}"
    with csv_rows(path, "repro", name, COLUMNS) as reader:
        return [_target({column: row[column] or "" for column in COLUMNS}, f"{name}, row {row['id']}") for row in reader]


def _target(row: Mapping[str, str], where: str) -> Target:
    """Return the row of one line."""
    same = {name: row[name] for name in ("id", "table", "what", "assumed", "value", "unit", "reading")}
    given = dict(word.split("=", 1) for word in re.split(r";(?=\w+=)", row["given"]) if word)
    return Target(**same, given=given, kind=read_word(row["class"], "class", KINDS, where), tolerance=_tolerance(row, where))


def _tolerance(row: Mapping[str, str], where: str) -> Tolerance:
    """Return the tolerance of one line.

    Raises:
        InputError: The kind is unknown, or the line lacks a number that the kind needs, or has others.
    """
    kind = read_word(row["tolerance"], "tolerance", _TEXTS, where)
    needs = ("limit",) if kind in _BELOW_LIMIT else ("least", "most") if kind == RANGE else ()
    for column in ("limit", "least", "most"):
        if row[column] and column not in needs:
            raise must_be(where, column, f"empty, as the tolerance is {kind!r}", row[column])
    if kind in _BELOW_LIMIT:
        return Tolerance(kind, _number(row, "limit", where, _BELOW_LIMIT[kind]), note=row["note"])
    given = {column: _number(row, column, where) for column in needs if row[column]}
    if kind == RANGE and not given:
        raise must_be(where, "least", "a number, or `most` one", "")
    found = Tolerance(kind, **given, note=row["note"])
    if found.least > found.most:
        raise must_be(where, "least", f"a number of at most {found.most:g}", row["least"])
    return found


def _number(row: Mapping[str, str], column: str, where: str, below: float = -inf) -> float:
    """Return the finite number in a column, which must be above `below`."""
    found = number(row[column])
    if found is None or not isfinite(found) or found <= below:
        raise must_be(where, column, "a number" + f" above {below:g}" * (below > -inf), row[column])
    return found


def judge(target: Target, answer: Answer) -> PaperRow:
    """Return a row with its verdict."""
    difference = _difference(target, answer)
    told = (*([target.assumed] if target.assumed else []), *answer.notes, *([target.reading] if target.reading else []))
    return PaperRow(target, answer.ours, difference, _verdict(target, answer, difference), told)


def _difference(target: Target, answer: Answer) -> float | None:
    """Return the relative difference where the tolerance is relative, else the difference in the row's unit."""
    printed = number(target.value)
    if answer.off is not None or not isinstance(answer.ours, int | float) or printed is None:
        return answer.off
    return answer.ours / printed - 1 if target.tolerance.kind == RELATIVE else answer.ours - printed


def _verdict(target: Target, answer: Answer, difference: float | None) -> str:
    """Return met, missed, open or listed."""
    if answer.ours is None:
        return LISTED if target.kind == "H" else OPEN
    holds = _holds(target, answer, difference) if answer.holds is None else answer.holds
    return OPEN if holds is None else MET if holds else MISSED


def _holds(target: Target, answer: Answer, difference: float | None) -> bool | None:
    """Return whether the answer is within the tolerance; None where the tolerance does not apply to it."""
    if target.tolerance.kind == EXACT and isinstance(answer.ours, str):
        return answer.ours == target.value
    span, most = target.tolerance.span(number(target.value)), target.largest_difference
    if span is not None and isinstance(answer.ours, int | float):
        return span[0] <= answer.ours <= span[1]
    return None if difference is None or most is None else abs(difference) <= most


def number(value: str) -> float | None:
    """Return the text as a number; None where it is no number."""
    try:
        return float(value)
    except ValueError:
        return None
