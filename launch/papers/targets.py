"""Printed rows of papers and their verdicts: Emu's answer to each row is compared within a tolerance.

Printed values are in one CSV file for each paper, with the columns of `COLUMNS`. They are only compared with. The inputs of a
row are in `given`, such as `gpus=1024;tp=16`.

A row may claim an effect, measured from what is in `against`: from a number, such as a gain from 0, or from a row above it.
Such a row is met only where Emu's effect has the printed sign and is within a factor of two, so that no answer meets it by
being the same for all. A row of a model whose tolerance is wide says in `reason` why, and in `moves` how far that moves it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any

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
    *("tolerance", "limit", "least", "most", "against", "reason", "moves", "note", "reading"),
)
REASONS = {  # of a wide tolerance; `note` says more
    "unstated": "an input is not printed",
    "drawn": "one draw is printed",
}
WIDE = 0.05  # a tolerance above this share of what is printed needs a reason
_EFFECT, _ROUNDING = 2.0, 1e-12  # times the printed effect, or its half, that an effect may be; what rounding may add
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
    """The allowed difference between the answer to a row and the printed value, by its kind, such as `relative`.

    `reason` says why it is wide, if it is.
    """

    kind: str
    limit: float = 0.0  # the largest difference; of `factor` the largest ratio
    least: float = -inf  # of a range
    most: float = inf
    note: str = ""  # what the kind and the reason do not say; nothing reads it
    reason: str = ""  # a key of `REASONS`; "": the tolerance is not wide, or the row is of no model
    moves: float = 0.0  # by how much the reason moves the value

    @property
    def text(self) -> str:
        """The tolerance in words, such as `+-5% relative`."""
        if self.kind == RANGE:
            words = _range_text(self.least, self.most)
        else:
            words = _TEXTS[self.kind].format(limit=100 * self.limit if self.kind == RELATIVE else self.limit)
        return "; ".join(each for each in (words, "" if self.reason else self.note) if each)

    @property
    def why(self) -> str:
        """The tolerance as text, with the reason for it."""
        return f"{self.text}; {REASONS[self.reason]} ({self.note}), which moves the value by {self.moves:g}"

    def span(self, printed: float | None) -> tuple[float, float] | None:
        """Return the least and the largest allowed value; None if the tolerance is not numeric."""
        if self.kind == RANGE:
            return self.least, self.most
        if printed is None or self.kind not in _BELOW_LIMIT:
            return None
        if self.kind == FACTOR:
            return printed / self.limit, printed * self.limit
        away = self.limit * (abs(printed) if self.kind == RELATIVE else 1)
        return printed - away, printed + away


def _range_text(least: float, most: float) -> str:
    """Return a range in words."""
    if isfinite(least) and isfinite(most):
        return f"{least:g} to {most:g}"
    return f"{least:g} or more" if isfinite(least) else f"{most:g} or less"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A row of a paper as printed: its id, its table or figure, its value and the tolerance of the comparison.

    `given` are the inputs by name; `against` is the row or value relative to which an effect is measured.
    """

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
    against: "float | Target | None" = None  # what the claimed effect is measured from; None: the row claims none

    def number(self, name: str) -> int:
        """Return the number with the given name from the row's inputs."""
        return int(self.given[name])

    @property
    def digits(self) -> int:
        """The number of decimals of the printed value."""
        return len(self.value.partition(".")[2])

    @property
    def largest_difference(self) -> float | None:
        """The largest allowed difference from the printed value; None if the tolerance has none.

        None if the tolerance gives none.
        """
        if self.tolerance.kind == EXACT:
            return 0.5 * 10.0**-self.digits + _ROUNDING
        return self.tolerance.limit + _ROUNDING if self.tolerance.kind in (RELATIVE, ABSOLUTE) else None

    @property
    def span(self) -> tuple[float, float] | None:
        """The least and the largest allowed value; None if the row is not judged by numbers."""
        return self.tolerance.span(number(self.value))

    @property
    def other(self) -> "Target | None":
        """The row relative to which an effect is measured; None if there is none."""
        return self.against if isinstance(self.against, Target) else None

    @property
    def unchanged(self) -> float | None:
        """The printed value against which the effect is measured; None if it is no number."""
        return number(self.against.value) if isinstance(self.against, Target) else self.against


@dataclass(frozen=True, slots=True)
class Answer:
    """Emu's answer to a row: a value, notes, and whether a claim holds.

    For a row that is a statement, `holds` is the answer, and the value is a word or a figure that shows it.
    `off` is the distance from the printed value if this is no difference of two numbers.
    """

    ours: float | str | None  # None: there is no answer
    notes: tuple[str, ...] = ()
    off: float | None = None  # distance from the printed value, where it is no difference of two numbers
    holds: bool | None = None  # whether the statement holds; None: judged by the numbers


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A printed row with Emu's answer, the basis of the answer, and the verdict: met, missed, open or listed."""

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
        InputError: The file has not all columns, or a class, a tolerance, an effect or a reason cannot be; the message names
            the file and the row.
    """
    name, found = f"{path.parent.name}/{path.name}", dict[str, Target]()
    with csv_rows(path, "repro", name, COLUMNS) as reader:
        for line in reader:
            row, where = {column: line[column] or "" for column in COLUMNS}, f"{name}, row {line['id']}"
            if extra := line.get(None):  # values without a column
                raise must_be(where, "values", f"{len(COLUMNS)} at most", len(COLUMNS) + len(extra), "quote texts with commas")
            found[row["id"]] = target = _target(row, where, found)
            _check_effect(target, where)
            _check_reason(target, where)
    return [*found.values()]


def _target(row: Mapping[str, str], where: str, above: Mapping[str, Target]) -> Target:
    """Return the row that one line of a paper's CSV file has."""
    same = {name: row[name] for name in ("id", "table", "what", "assumed", "value", "unit", "reading")}
    given = dict(word.split("=", 1) for word in re.split(r";(?=\w+=)", row["given"]) if word)
    kind, tolerance = read_word(row["class"], "class", KINDS, where), _tolerance(row, where)
    against = above.get(row["against"], number(row["against"]))
    if row["against"] and against is None:
        raise must_be(where, "against", "a number, or the id of a row above", row["against"])
    return Target(**same, given=given, kind=kind, tolerance=tolerance, against=against)


def _check_effect(target: Target, where: str) -> None:
    """Check that the row of an effect is judged by numbers, and that the effect is larger than the tolerance.

    Raises:
        InputError: It is not; the message names the row.
    """
    span, tolerance = target.span, target.tolerance
    if target.against is not None and span is None:
        raise must_be(where, "against", f"empty, as no effect is judged by the tolerance {tolerance.kind!r}", "one")
    if span is not None and isinstance(target.against, float) and span[0] < target.against < span[1]:
        raise must_be(where, "tolerance", f"smaller than the effect, measured from {target.against:g}", tolerance.text)


def _check_reason(target: Target, where: str) -> None:
    """Check that a wide tolerance of a model's row has a reason, and is not wider than that reason explains.

    Raises:
        InputError: It is not so; the message names the row.
    """
    share, away = _widest(target)
    tolerance, known = target.tolerance, ", ".join(REASONS)
    if target.kind == "M" and share > WIDE + _ROUNDING and not (tolerance.reason and tolerance.note):
        raise must_be(where, "reason", f"one of {known}, with a `note`, as the tolerance is wide", tolerance.reason)
    if tolerance.reason and away > tolerance.moves + _ROUNDING:
        raise must_be(where, "tolerance", f"no wider than the {tolerance.moves:g} that its reason explains", tolerance.text)


def _widest(target: Target) -> tuple[float, float]:
    """Return the largest allowed deviation from the printed value, as a share and as a number."""
    printed = [float(each) for each in re.findall(r"\d+\.?\d*", target.value)]
    if target.span is None or not printed:
        return 0.0, 0.0
    zero = target.against if isinstance(target.against, float) else 0.0
    bounds = [bound for bound in target.span if isfinite(bound) or number(target.value) is not None]
    away = max(min(abs(bound - each) for each in (*printed, zero)) for bound in bounds)
    return (away / abs(printed[0] - zero) if printed[0] != zero else inf), away


def _tolerance(row: Mapping[str, str], where: str) -> Tolerance:
    """Return the tolerance of one line.

    Raises:
        InputError: The kind is unknown, or the line lacks a number that the kind needs, or has others.
    """
    kind = read_word(row["tolerance"], "tolerance", _TEXTS, where)
    told: dict[str, Any] = {"note": row["note"]}
    if row["reason"]:
        reason = read_word(row["reason"], "reason", REASONS, where)
        told |= {"reason": reason, "moves": _number(row, "moves", where, 0.0)}
    needs = ("limit",) if kind in _BELOW_LIMIT else ("least", "most") if kind == RANGE else ()
    for column in ("limit", "least", "most"):
        if row[column] and column not in needs:
            raise must_be(where, column, f"empty, as the tolerance is {kind!r}", row[column])
    if kind in _BELOW_LIMIT:
        return Tolerance(kind, _number(row, "limit", where, _BELOW_LIMIT[kind]), **told)
    if kind == RANGE and not row["least"] + row["most"]:
        raise must_be(where, "least", "a number, or `most` one", "")
    found = Tolerance(kind, **told | {column: _number(row, column, where) for column in needs if row[column]})
    if found.least > found.most:
        raise must_be(where, "least", f"a number of at most {found.most:g}", row["least"])
    return found


def _number(row: Mapping[str, str], column: str, where: str, below: float = -inf) -> float:
    """Return the finite number in a column, which must be above `below`."""
    found = number(row[column])
    if found is None or not isfinite(found) or found <= below:
        raise must_be(where, column, "a number" + f" above {below:g}" * (below > -inf), row[column])
    return found


def with_others(targets: Iterable[Target]) -> list[Target]:
    """Return rows, each after the row from which its effect is measured."""
    return [*{each.id: each for target in targets for each in (target.other, target) if each is not None}.values()]


def judge(target: Target, answer: Answer, other: Answer | None = None) -> PaperRow:
    """Return a row with its verdict.

    Args:
        target: The row as it is printed.
        answer: Emu's answer.
        other: Emu's answer to the row from which the effect is measured; None: it is measured from none.
    """
    difference = _difference(target, answer)
    base = other.ours if other is not None else target.unchanged
    told = (
        *([target.assumed] if target.assumed else []),
        *answer.notes,
        *([f"the tolerance is {target.tolerance.why}"] if target.tolerance.reason else []),
        *_effect_note(target, answer.ours, base),
        *([target.reading] if target.reading else []),
    )
    return PaperRow(target, answer.ours, difference, _verdict(target, answer, difference, base), told)


def _effect_note(target: Target, ours: float | str | None, base: float | str | None) -> tuple[str, ...]:
    """Return one note: the difference between Emu's value of a row and that of the row from which the paper measures an effect.

    The note also has the difference between the two printed values, if both are numbers.

    Args:
        target: The row.
        ours: Emu's value of the row.
        base: Emu's value of the other row.

    Returns:
        One sentence; nothing if the row is compared with no other row, or if Emu's two values are not both numbers.
    """
    if target.other is None or not isinstance(ours, int | float) or not isinstance(base, int | float):
        return ()
    printed, unchanged = number(target.value), target.unchanged
    beside = f", as printed {printed - unchanged:+.3g}" if printed is not None and unchanged is not None else ""
    return (f"judged by the difference from {target.other.id} too: {ours - base:+.3g}{beside}",)


def _difference(target: Target, answer: Answer) -> float | None:
    """Return the relative difference if the tolerance is relative, else the difference in the row's unit."""
    printed = number(target.value)
    if answer.off is not None or not isinstance(answer.ours, int | float) or printed is None:
        return answer.off
    return answer.ours / printed - 1 if target.tolerance.kind == RELATIVE else answer.ours - printed


def _verdict(target: Target, answer: Answer, difference: float | None, base: float | str | None) -> str:
    """Return the verdict on a row: met, missed, open or listed."""
    if answer.ours is None:
        return LISTED if target.kind == "H" else OPEN
    holds = _holds(target, answer, difference) if answer.holds is None else answer.holds
    if holds and target.against is not None:
        holds = _has_effect(target, answer.ours, base)
    return OPEN if holds is None else MET if holds else MISSED


def _holds(target: Target, answer: Answer, difference: float | None) -> bool | None:
    """Return whether an answer is within the row's tolerance; None if the tolerance does not apply to it.

    Args:
        target: The row.
        answer: Emu's answer.
        difference: The answer's difference from the printed value, relative if the tolerance is, else in the row's unit; None:
            there is none.
    """
    if target.tolerance.kind == EXACT and isinstance(answer.ours, str):
        return answer.ours == target.value
    span, most = target.span, target.largest_difference
    if span is not None and most is None and isinstance(answer.ours, int | float):
        return span[0] <= answer.ours <= span[1]
    return None if difference is None or most is None else abs(difference) <= most


def _has_effect(target: Target, ours: float | str, base: float | str | None) -> bool | None:
    """Return whether an answer differs from its base by the printed effect, within a factor.

    If no effect is printed, any difference is enough.
    """
    if not isinstance(ours, int | float) or not isinstance(base, int | float) or target.span is None:
        return None
    printed, unchanged, (least, most) = number(target.value), target.unchanged, target.span
    if printed is None or unchanged is None:
        return abs(ours - base) > _ROUNDING and not least < base < most
    times = (ours - base) / (printed - unchanged)
    return 1 / _EFFECT - _ROUNDING <= times <= _EFFECT + _ROUNDING


def number(value: str) -> float | None:
    """Return the number that a text is; None if it is no number."""
    try:
        return float(value)
    except ValueError:
        return None
