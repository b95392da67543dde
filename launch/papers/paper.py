"""A paper: its printed rows, and the function that computes each of them.

The place of a row is `3` for table 3, `fig 17` for a figure, `6.4` for a section and `eq 7` for an equation.

A figure of a paper as data: titles of axes, Emu's curves and printed values.

Rows that are arithmetic on printed values, and rows that print a formula.

Arithmetic is in the column `given`, such as `gpus=8;hosts=56;is=gpus*hosts`. Where a row prints several numbers, or numbers in
a text, `is` has several expressions with commas between them, and `as` is the text: `as={:.0f}-{:.0f}`. A printed formula is
compared with what Emu computes on several instances.
"""

import ast
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

from emu.errors import InputError, must_be
from emu.study.planning.search.timer import ResultCache
from launch.papers.targets import Answer, PaperRow, Target, judge, number, read_targets

_BINARY: Mapping[type[ast.operator], Callable[[float, float], float]] = MappingProxyType(
    {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.Pow: operator.pow}
)
_FUNCTIONS: Mapping[str, Callable[..., float]] = MappingProxyType(
    {"log2": math.log2, "ceil": math.ceil, "min": min, "max": max}
)
IS, AS = "is", "as"


def evaluate_sum(target: Target) -> float | str:
    """Return the value of a row's expression.

    Raises:
        InputError: the expression has something else than given numbers, + - * / ** and a few functions.
    """
    names = {name: found for name, text in target.given.items() if (found := number(text)) is not None}
    try:
        tree = ast.parse(target.given[IS], mode="eval").body
        parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
        values = [float(_value(part, names)) for part in parts]
    except (KeyError, SyntaxError, TypeError, ZeroDivisionError) as error:
        raise InputError(f"{target.id}: {IS} must be a sum of what is given, got {target.given[IS]!r} ({error})") from None
    return target.given[AS].format(*values) if AS in target.given else values[0]


def _value(node: ast.expr, names: Mapping[str, float]) -> float:
    """Return the value of an expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)](_value(node.left, names), _value(node.right, names))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _FUNCTIONS[node.func.id](*(_value(each, names) for each in node.args))
    raise TypeError(ast.unparse(node))


class FormulaCase(NamedTuple):
    """One instance of a formula: what Emu finds, and what the formula gives."""

    of: str
    found: float
    formula: float


def check_formula(cases: Iterable[FormulaCase], most: float = 1e-6, *notes: str) -> Answer:
    """Answer whether the formula holds in all cases; the answer's value is that of the first case.

    Args:
        cases: The instances.
        most: The largest relative difference that is allowed.
        *notes: Notes of the answer.
    """
    every = [*cases]
    off = max(abs(case.found - case.formula) / abs(case.formula) for case in every)
    words = [f"{case.of}: {case.found:.6g}, by the formula {case.formula:.6g}" for case in every]
    return Answer(every[0].found, (*words, *notes), off, holds=off <= most)


class Curve(NamedTuple):
    """A line of a figure, or its bars of one colour."""

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


AnswerFunction = Callable[[Any, Target], "Answer | float | str"]  # computes the answer of a paper to a row


@dataclass(eq=False)
class Paper:
    """A paper with its rows; a subclass gives the function of each row, by the beginning of the row's id.

    The folder of the subclass has the printed rows (`targets.csv`) and the notes below them (`notes.md`).
    """

    cache: ResultCache = field(default_factory=lambda: ResultCache(None))
    chosen: Sequence[Target] | None = None  # None: all rows that the folder has
    folder: ClassVar[Path]  # as `register` finds it
    title: ClassVar[str]
    source: ClassVar[str]  # the citation
    example: ClassVar[str] = "--table 1"  # options of the example in the help of its command
    answers: ClassVar[Mapping[str, AnswerFunction]] = MappingProxyType({})
    figures: ClassVar[Mapping[str, Callable[[Any], Figure | Sequence[Figure]]]] = MappingProxyType({})  # figures by number
    notes: ClassVar[Sequence[str]] = ()  # assumptions of all rows

    @cached_property
    def targets(self) -> list[Target]:
        """The rows as printed."""
        return read_targets(self.folder / "targets.csv") if self.chosen is None else [*self.chosen]

    @classmethod
    def page_notes(cls) -> str:
        """Return the text below the rows of the paper's page, in Markdown."""
        return (cls.folder / "notes.md").read_text(encoding="utf-8")

    @property
    def places(self) -> tuple[str, ...]:
        """The places of the rows, each once."""
        return tuple(dict.fromkeys(target.table for target in self.targets))

    def of(self, place: str | None = None) -> list[Target]:
        """Return the rows of a place as printed; those of figure 17 include its parts 17a and 17b.

        Args:
            place: The place; None: all rows.

        Raises:
            InputError: the paper has no row and no figure there.
        """
        found = [target for target in self.targets if place is None or _is_in(place, target.table)]
        if place is not None and not found and place.removeprefix("fig ") not in self.figures:
            known = ", ".join(map(place_text, self.places))
            raise must_be("repro", "a table or figure", f"one with rows ({known})", place_text(place))
        return found

    def rows(self, place: str | None = None) -> Iterator[PaperRow]:
        """Yield the rows of a place with their answers, each computed when it is needed."""
        for target in self.of(place):
            yield judge(target, self.answer(target))

    def answer(self, target: Target) -> Answer:
        """Return Emu's answer to a row, or the reason why there is none."""
        if not self.is_worked_out(target):
            return Answer(None)
        try:
            found = evaluate_sum(target) if IS in target.given else self.answers[self._words_of(target)](self, target)
        except InputError as error:
            return Answer(None, (f"it cannot be worked out: {error}",))
        return found if isinstance(found, Answer) else Answer(found)

    def is_worked_out(self, target: Target) -> bool:
        """Return whether a row has a function that answers it, or is arithmetic on what it prints."""
        return IS in target.given or bool(self._words_of(target))

    def _words_of(self, target: Target) -> str:
        """Return the key of `answers` that the row's id begins with, the longest; "": there is none."""
        return max((words for words in self.answers if target.id.startswith(words)), key=len, default="")

    def assumptions(self) -> Sequence[str]:
        """Return the assumptions of all rows."""
        return self.notes


REGISTERED: dict[str, type[Paper]] = {}  # by the name of its command
P = TypeVar("P", bound=type[Paper])


def register(paper: P) -> P:
    """File a paper under the name of its folder, and return it."""
    paper.folder = Path(inspect.getfile(paper)).parent
    REGISTERED[paper.folder.name.replace("_", "-")] = paper
    return paper


def _is_in(place: str, table: str) -> bool:
    """Return whether a row's place is the given place, or a part of it."""
    return table == place or (place.startswith("fig ") and table.rstrip("abcdefgh") == place)


def from_nothing(way: Callable[[], Answer | float | str]) -> AnswerFunction:
    """Return the answer function of a row that needs neither the paper nor the row."""
    return lambda _, __: way()


def place_text(place: str) -> str:
    """Return a place in words, such as `figure 17`."""
    kind, _, number = place.rpartition(" ")
    named = {"fig": "figure", "eq": "equation", "app": "appendix", "": "section" if "." in number else "table"}
    return f"{named.get(kind, kind)} {number}"
