"""Printed rows, and their verdicts: a paper has tables, a table has rows, and Emu's answer to a row is judged.

Printed values are in one CSV file for each paper, with the columns of `Target`. They are only compared with. The inputs of a
row are in `given`, such as `gpus=1024;tp=16`.
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from emu.errors import InputError

MET, MISSED, OPEN, LISTED = "met", "missed", "open", "listed"


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
    kind: str  # E: exact, M: model, S: ordering, H: hardware, or a job whose inputs are not printed
    tolerance: str
    reading: str = ""  # why the value does not follow from the paper, and what would follow

    def number(self, name: str) -> int:
        """Return one of the given numbers."""
        return int(self.given[name])

    @property
    def digits(self) -> int:
        """The number of decimals of the printed value."""
        return len(self.value.partition(".")[2])


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
            "tolerance": of.tolerance,
            "class": of.kind,
            "verdict": self.verdict,
            "assumptions": self.assumptions,
        }


def read_targets(path: Path) -> list[Target]:
    """Return all printed rows of a paper.

    Raises:
        InputError: a column is missing, or a tolerance is unknown; the message names the line.
    """
    with path.open(encoding="utf-8", newline="") as file:
        return [_target(row, f"{path.name}, line {line}") for line, row in enumerate(csv.DictReader(file), 2)]


def _target(row: Mapping[str, str], where: str) -> Target:
    """Return the row of one line.

    Raises:
        InputError: a column is missing, or the tolerance is unknown.
    """
    names = {f.name: "class" if f.name == "kind" else f.name for f in fields(Target)}
    missing = [column for column in names.values() if row.get(column) is None and column != "reading"]
    if missing:
        raise InputError(f"{where}: columns missing: {', '.join(missing)}")
    words = {name: row[column] for name, column in names.items() if name != "given" and column in row}
    given = dict(word.split("=", 1) for word in row["given"].split(";") if word)
    target = Target(given=given, **words)
    if not any(pattern.search(target.tolerance) for pattern in (*_SHARES, _TIMES, _POINTS, _BETWEEN, _ABOVE, _EXACT, _HOLDS)):
        known = "'+-5% relative', '+-0.3 point', 'within 3%', 'within 2x', '5-25%', '>75%', 'exact', 'ordering' or 'n/a'"
        raise InputError(f"{where}: tolerance must have {known}, got {target.tolerance!r}")
    return target


_RELATIVE, _POINTS = re.compile(r"\+-([\d.]+)% (?:relative|with)"), re.compile(r"\+-([\d.]+)(?: point|;)")
_WITHIN, _TIMES = re.compile(r"within ([\d.]+)%"), re.compile(r"within ([\d.]+)x")
_SHARES = (_RELATIVE, _WITHIN)
_BETWEEN = re.compile(r"(?:^|; )([\d.]+)-([\d.]+)(?:[%x]|$)")
_ABOVE, _BELOW, _EXACT = re.compile(r"^>=?([\d.]+)(?:, <([\d.]+))?"), re.compile(r"^<([\d.]+)"), re.compile("^exact")
# Whether it is met, only what works it out can say.
_HOLDS = re.compile("^ordering|^n/a|equal|bound|between|acyclic|share|crossover|sign|<")


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
    return answer.ours / printed - 1 if any(each.search(target.tolerance) for each in _SHARES) else answer.ours - printed


def _verdict(target: Target, answer: Answer, difference: float | None) -> str:
    """Return met, missed, open or listed."""
    if answer.ours is None:
        return LISTED if target.kind == "H" else OPEN
    holds = _holds(target, answer, difference) if answer.holds is None else answer.holds
    return OPEN if holds is None else MET if holds else MISSED


def _holds(target: Target, answer: Answer, difference: float | None) -> bool | None:
    """Return whether the answer is within the tolerance; None where the tolerance does not apply to it."""
    if _EXACT.search(target.tolerance) and isinstance(answer.ours, str):
        return answer.ours == target.value
    span = _span(target.value if _EXACT.search(target.tolerance) else target.tolerance) or _span_around_value(target)
    if span is not None and isinstance(answer.ours, int | float):
        return span[0] <= answer.ours <= span[1]
    return None if difference is None else abs(difference) <= _tolerance(target)


def _span_around_value(target: Target) -> tuple[float, float] | None:
    """Return the least and the most that a tolerance such as `within 2x` allows around the printed value.

    A printed bound such as `<1.6` with a tolerance in points is also widened by these points.
    """
    times, printed = _TIMES.search(target.tolerance), number(target.value)
    if times and printed is not None:
        return printed / float(times[1]), printed * float(times[1])
    span, points = _span(target.value), _POINTS.search(target.tolerance)
    return (span[0] - float(points[1]), span[1] + float(points[1])) if span and points else None


def _span(text: str) -> tuple[float, float] | None:
    """Return the least and the most that a text such as `<30` or `1-2` allows; None for another text."""
    between, above, below = (pattern.search(text) for pattern in (_BETWEEN, _ABOVE, _BELOW))
    if between:
        return float(between[1]), float(between[2])
    if below:
        return -float("inf"), float(below[1])
    return (float(above[1]), float(above[2] or "inf")) if above else None


def _tolerance(target: Target) -> float:
    """Return the largest difference that a row allows; half of the last digit where it must be exact."""
    for pattern, unit in ((_RELATIVE, 0.01), (_WITHIN, 0.01), (_POINTS, 1.0)):
        found = pattern.search(target.tolerance)
        if found:
            return float(found[1]) * unit + 1e-12
    return 0.5 * 10.0**-target.digits + 1e-12


def number(value: str) -> float | None:
    """Return the text as a number; None where it is no number."""
    try:
        return float(value)
    except ValueError:
        return None
