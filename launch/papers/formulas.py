"""Rows that are arithmetic on printed values, and rows that print a formula.

Arithmetic is in the column `given`, such as `gpus=8;hosts=56;is=gpus*hosts`. Where a row prints several numbers, or numbers in
a text, `is` has several expressions with commas between them, and `as` is the text: `as={:.0f}-{:.0f}`. A printed formula is
compared with what Emu computes on several instances.
"""

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from emu.errors import InputError
from launch.papers.targets import Answer, Target, number

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
