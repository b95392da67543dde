"""What a paper prints, beside what Emu says: a paper has tables, a table has rows, a row has a verdict.

The printed values stand in a CSV file a paper, with the columns of `Target`. They are compared with, never computed by: what a
row is computed from is in `given`, such as `gpus=1024;tp=16`.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol

from emu.errors import InputError

MET, MISSED, OPEN = "met", "missed", "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A row of a table as it is printed."""

    id: str
    table: str
    what: str
    given: Mapping[str, str]  # what it is computed from
    assumed: str  # what the paper does not say
    value: str  # as printed
    unit: str
    kind: str  # E: exact, M: of a model, S: an ordering
    tolerance: str

    def number(self, name: str) -> int:
        """One of those given."""
        return int(self.given[name])

    @property
    def digits(self) -> int:
        """Printed behind the point."""
        return len(self.value.partition(".")[2])


@dataclass(frozen=True, slots=True)
class Answer:
    """What Emu says of a row."""

    ours: float | str | None  # None: nothing can be said
    notes: tuple[str, ...] = ()
    off: float | None = None  # from what is printed, where that is no difference of two numbers
    holds: bool | None = None  # whether an ordering does


@dataclass(frozen=True, slots=True)
class Row:
    """A row beside its answer."""

    target: Target
    ours: float | str | None
    difference: float | None
    verdict: str
    assumptions: tuple[str, ...]

    def told(self) -> dict[str, object]:
        """As JSON has it."""
        of = self.target
        return {
            "id": of.id,
            "what": of.what,
            "value": _plain(of.value),
            "ours": self.ours,
            "unit": of.unit,
            "difference": self.difference,
            "tolerance": of.tolerance,
            "class": of.kind,
            "verdict": self.verdict,
            "assumptions": self.assumptions,
        }


class Printed(Protocol):
    """A paper whose rows are worked out again."""

    def of(self, table: str) -> list[Target]:
        """The rows of a table as printed."""
        ...

    def rows(self, table: str) -> Iterator[Row]:
        """The same beside their answers, each worked out when it is asked for."""
        ...

    def assumptions(self) -> Sequence[str]:
        """What all rows rest on."""
        ...


def read_targets(path: Path) -> list[Target]:
    """All rows of a paper.

    Raises:
        InputError: a column that is missing, or a tolerance that has no meaning; the message names the line.
    """
    with path.open(encoding="utf-8", newline="") as file:
        return [_target(row, f"{path.name}, line {line}") for line, row in enumerate(csv.DictReader(file), 2)]


def _target(row: Mapping[str, str], where: str) -> Target:
    names = {f.name: "class" if f.name == "kind" else f.name for f in fields(Target)}
    missing = [column for column in names.values() if row.get(column) is None]
    if missing:
        raise InputError(f"{where}: columns missing: {', '.join(missing)}")
    words = {name: row[column] for name, column in names.items() if name != "given"}
    given = dict(word.split("=", 1) for word in row["given"].split(";") if word)
    target = Target(given=given, **words)
    if not any(pattern.search(target.tolerance) for pattern in (_RELATIVE, _POINTS, _WITHIN, _EXACT, _ORDERING)):
        known = "'+-5% relative', '+-0.3 point', 'within 3%', 'exact' or 'ordering'"
        raise InputError(f"{where}: tolerance must have {known}, got {target.tolerance!r}")
    return target


_RELATIVE, _POINTS = re.compile(r"\+-([\d.]+)% relative"), re.compile(r"\+-([\d.]+) point")
_WITHIN, _EXACT, _ORDERING = re.compile(r"within ([\d.]+)%"), re.compile("^exact"), re.compile("^ordering")


def judged(target: Target, answer: Answer, assumptions: Sequence[str] = ()) -> Row:
    """A row with its verdict."""
    difference = _difference(target, answer)
    told = (*([target.assumed] if target.assumed else []), *answer.notes, *assumptions)
    return Row(target, answer.ours, difference, _verdict(target, answer, difference), told)


def _difference(target: Target, answer: Answer) -> float | None:
    """A share where the tolerance is one, else in the row's unit."""
    if answer.off is not None or not isinstance(answer.ours, int | float):
        return answer.off
    printed = float(target.value)
    return answer.ours / printed - 1 if _RELATIVE.search(target.tolerance) else answer.ours - printed


def _verdict(target: Target, answer: Answer, difference: float | None) -> str:
    if answer.ours is None:
        return OPEN
    if answer.holds is not None:
        return MET if answer.holds else MISSED
    if difference is None:
        is_word = isinstance(answer.ours, str) and _EXACT.search(target.tolerance)
        return (MET if answer.ours == target.value else MISSED) if is_word else OPEN
    return MET if abs(difference) <= _most(target) else MISSED


def _most(target: Target) -> float:
    """How far off a row may be; half of its last digit where it must be exact."""
    for pattern, unit in ((_RELATIVE, 0.01), (_WITHIN, 0.01), (_POINTS, 1.0)):
        found = pattern.search(target.tolerance)
        if found:
            return float(found[1]) * unit + 1e-12
    return 0.5 * 10.0**-target.digits + 1e-12


def _plain(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value
