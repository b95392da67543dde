"""A paper with its printed rows, the functions that compute each of them, and its figures as data.

The place of a row is `3` for table 3, `fig 17` for a figure, `6.4` for a section and `eq 7` for an equation. A figure has
titles of axes, Emu's curves and printed values.

A row can be an expression in the column `given`, such as `gpus=8;hosts=56;is=gpus*hosts`, or `of=hpn:pod;is=npus(of)` with a
function that is one of the paper's `words`. If a row prints several numbers, or numbers in a text, `is` has several expressions
with commas between them, and `as` is the text: `as={:.0f}-{:.0f}`. A printed formula is compared with Emu's values on several
instances.
"""

import ast
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from emu.errors import InputError, must_be
from emu.study.planning.search.result_cache import ResultCache
from launch.papers.targets import (
    BUILT,
    FITTED,
    MET,
    OWN_FIT,
    PRINTED,
    Answer,
    PaperRow,
    Target,
    judge,
    number,
    read_targets,
    with_others,
)

_BINARY: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {"log2": math.log2, "ceil": math.ceil, "min": min, "max": max, "round": round}
IS, AS = "is", "as"


def evaluate(target: Target, words: Mapping[str, Callable[..., float]]) -> float | str:
    """Return the value of a row's expression.

    Args:
        target: The row.
        words: The functions that an expression may call, besides a few of mathematics.

    Raises:
        InputError: The expression has something other than given names, numbers, texts, operators and these functions.
    """
    names: dict[str, Any] = {**_FUNCTIONS, **words}
    names |= {name: text if number(text) is None else float(text) for name, text in target.given.items()}
    try:
        tree = ast.parse(target.given[IS], mode="eval").body
        parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
        values = [float(_value(part, names)) for part in parts]
    except (KeyError, SyntaxError, TypeError, ValueError, ZeroDivisionError) as error:
        raise InputError(f"{target.id}: {IS} must be a sum of what is given, got {target.given[IS]!r} ({error})") from None
    return target.given[AS].format(*values) if AS in target.given else values[0]


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the value of an arithmetic expression of a row, given the values of the names in it."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)](_value(node.left, names), _value(node.right, names))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return names[node.func.id](*(_value(each, names) for each in node.args))
    raise TypeError(ast.unparse(node))


FormulaCase = tuple[str, float, float]  # one instance of a formula in words, what Emu finds, and what the formula gives
_FORMULA_OFF = 1e-6  # the largest relative difference from a formula


def check_formula(cases: Iterable[FormulaCase], *notes: str) -> Answer:
    """Return Emu's value in the first case, and whether the formula holds in all cases.

    Args:
        cases: The instances.
        *notes: Notes of the answer.
    """
    every = [*cases]
    off = max(abs(found - formula) / abs(formula) for _, found, formula in every)
    words = [f"{of}: {found:.6g}, by the formula {formula:.6g}" for of, found, formula in every]
    return Answer(float(every[0][1]), (*words, *notes), off, holds=off <= _FORMULA_OFF)


class Curve(NamedTuple):
    """One series of a figure: the points of a line, or the bars of one colour."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    printed: bool = False  # whether these are printed values, which are drawn as marks


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with the axes of the paper."""

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    log: str = ""  # axes with a logarithmic scale: "", "x", "y" or "xy"
    words: Sequence[str] = ()  # texts at x = 0, 1, 2, ...; curves are then bars
    low: float | None = None  # lower end of y; None: 0 for bars, else by the values


@dataclass(frozen=True, slots=True)
class FittedInput:
    """An input that was fitted or assumed so that some rows of a paper come out right."""

    told: str  # what was fitted, and on what
    rows: tuple[str, ...] = ()  # beginnings of the ids of rows that it was fitted on; they show nothing by being met


AnswerFunction = Callable[[Any, Target], "Answer | float | str"]  # computes the answer of a paper to a row
DrawFunction = Callable[[Any], Figure | Sequence[Figure]]  # computes a figure of a paper, or its parts


@dataclass(eq=False)
class Paper:
    """A paper with its rows, and the function that answers each row, by the beginning of the row's identifier.

    Its folder has the printed rows (`targets.csv`) and the notes below them (`notes.md`).
    """

    folder: Path
    title: str
    source: str  # the citation
    answers: Mapping[str, AnswerFunction] = field(default_factory=dict)
    fitted: Mapping[str, FittedInput] = field(default_factory=dict)  # by the beginning of the id of rows that rest on it
    arithmetic: Sequence[str] = ()  # beginnings of the ids of rows whose functions only calculate with printed numbers
    words: Sequence[Callable[..., float]] = ()  # functions that the expressions of rows call
    figures: Mapping[str, DrawFunction] = field(default_factory=dict)  # figures by number
    assumptions: Callable[[], Sequence[str]] = tuple  # of all rows
    example: str = "--table 1"  # options of the example in the help of its command
    steps_of: Callable[[ResultCache], Any] = lambda _: None  # makes the estimates of the paper's steps
    cache: ResultCache = field(default_factory=lambda: ResultCache(None))
    chosen: Sequence[Target] | None = None  # None: all rows that the folder has

    def with_cache(self, cache: ResultCache) -> "Paper":
        """Return the paper with a cache of results."""
        return replace(self, cache=cache)

    @cached_property
    def targets(self) -> list[Target]:
        """The rows of the paper as printed."""
        return read_targets(self.folder / "targets.csv") if self.chosen is None else [*self.chosen]

    @cached_property
    def steps(self) -> Any:
        """The estimates of the paper's steps."""
        return self.steps_of(self.cache)

    def page_notes(self) -> str:
        """Return the text below the rows of the paper's page, in Markdown."""
        return (self.folder / "notes.md").read_text(encoding="utf-8")

    @property
    def places(self) -> tuple[str, ...]:
        """The tables, figures and sections that rows are from, each once."""
        return tuple(dict.fromkeys(target.table for target in self.targets))

    def of(self, place: str | None = None) -> list[Target]:
        """Return the printed rows of one table, figure or section; those of figure 17 include its parts 17a and 17b.

        Args:
            place: The table, figure or section, such as `table 4`; None: all rows.

        Raises:
            InputError: The paper has no such row and no such figure.
        """
        found = [target for target in self.targets if place is None or _is_from(place, target.table)]
        if place is not None and not found and place.removeprefix("fig ") not in self.figures:
            known = ", ".join(map(place_text, self.places))
            raise must_be("repro", "a table or figure", f"one with rows ({known})", place_text(place))
        return found

    def rows(self, place: str | None = None) -> Iterator[PaperRow]:
        """Yield the rows of the paper, or of one table, figure or section of it, each with Emu's answer.

        An answer is computed when its row is asked for.

        Args:
            place: The table, figure or section, such as `table 4`; None: the whole paper.
        """
        known: dict[str, Answer] = {}
        for target in self.of(place):
            for each in with_others([target]):
                known[each.id] = known.get(each.id) or self.answer(each)
            yield self.judge(target, known)

    def judge(self, target: Target, answers: Mapping[str, Answer]) -> PaperRow:
        """Return a row with its verdict, and with the basis on which its answer rests.

        Args:
            target: The row.
            answers: Emu's answers by the identifiers of rows, to this row and to the row from which its effect is measured.
        """
        other = None if target.other is None else answers[target.other.id]
        judged, fit = judge(target, answers[target.id], other), self._fit_of(target)
        row = replace(judged, basis=self.basis(target))
        if fit is None:
            return row
        is_own = row.verdict == MET and target.id.startswith(fit.rows)
        told = (*row.assumptions, f"fitted input: {fit.told}")
        return replace(row, assumptions=told, verdict=OWN_FIT if is_own else row.verdict)

    def basis(self, target: Target) -> str:
        """Return the basis of the answer to a row, a key of `BASES`."""
        if self._fit_of(target) is not None:
            return FITTED
        if target.id.startswith(tuple(self.arithmetic)):
            return PRINTED
        called = {node.id for node in ast.walk(ast.parse(target.given.get(IS, "0"))) if isinstance(node, ast.Name)}
        is_built = IS not in target.given or called & {word.__name__ for word in self.words}
        return BUILT if is_built else PRINTED

    def _fit_of(self, target: Target) -> FittedInput | None:
        """Return the fitted input that a row depends on, by the longest matching prefix of the row's id; None if none.

        An expression over printed numbers and counts depends on none.
        """
        return None if IS in target.given else self.fitted.get(_longest_beginning(target, self.fitted))

    def answer(self, target: Target) -> Answer:
        """Return Emu's answer to a row, or an answer without value if there is no function for it."""
        if not self.is_worked_out(target):
            return Answer(None)
        try:
            found = self.value(target) if IS in target.given else self.answers[self._words_of(target)](self, target)
        except InputError as error:
            return Answer(None, (f"it cannot be worked out: {error}",))
        return found if isinstance(found, Answer) else Answer(found)

    def value(self, target: Target) -> float | str:
        """Return the value of a row's expression.

        Raises:
            InputError: See `evaluate`.
        """
        return evaluate(target, {word.__name__: word for word in self.words})

    def is_worked_out(self, target: Target) -> bool:
        """Return whether Emu can answer a row, by a function or by an expression over the row's own numbers."""
        return IS in target.given or bool(self._words_of(target))

    def _words_of(self, target: Target) -> str:
        """Return the longest key of `answers` that is a prefix of the row's id; "" if there is none."""
        return _longest_beginning(target, self.answers)


def _longest_beginning(target: Target, words: Iterable[str]) -> str:
    """Return the longest of several texts with which the id of a row begins; "" if it begins with none of them."""
    return max((word for word in words if target.id.startswith(word)), key=len, default="")


REGISTERED: dict[str, Paper] = {}  # by the name of its command


def register(paper: Paper) -> Paper:
    """File a paper under the name of its folder, and return it."""
    REGISTERED[paper.folder.name.replace("_", "-")] = paper
    return paper


def _is_from(place: str, table: str) -> bool:
    """Return whether a row is from a table, figure or section, or from a part of it, such as 17a of figure 17.

    Args:
        place: The table, figure or section of the row.
        table: The one that is asked for.
    """
    return table == place or (place.startswith("fig ") and table.rstrip("abcdefgh") == place)


def from_nothing(ways: Mapping[str, Callable[[], Answer | float | str]]) -> dict[str, AnswerFunction]:
    """Return functions without arguments as functions of a paper and a row, which ignore both.

    Args:
        ways: A function without arguments for each row, by the identifier of the row.
    """

    def answering(way: Callable[[], Answer | float | str]) -> AnswerFunction:
        return lambda _, __: way()

    return {row: answering(way) for row, way in ways.items()}


def place_text(place: str) -> str:
    """Return the name of a table, figure or section as text, such as `figure 17`."""
    kind, _, number = place.rpartition(" ")
    named = {"fig": "figure", "eq": "equation", "app": "appendix", "": "section" if "." in number else "table"}
    return f"{named.get(kind, kind)} {number}"
