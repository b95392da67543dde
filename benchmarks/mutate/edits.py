"""Mistakes that a person makes at one place of a program: syntax trees in, syntax trees with one edit out.

Each function below takes a node and yields edits; `EDITS` tells which looks at which kind of node. What cannot change a result
(annotations, docstrings, `strict=True`, what a frozen dataclass is made with) is left alone.
"""

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Edit(NamedTuple):
    """A node that stands in place of another, and what kind of mistake that is."""

    kind: str
    node: ast.AST


Edits = Iterator[Edit]

COMPARED = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
COMPUTED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
PAIRS = (("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("floor", "ceil"), ("any", "all"), ("first", "last"))
OTHER = {name: other for pair in PAIRS for name, other in (pair, pair[::-1])}
WRAPPERS = {"abs", "sorted", "reversed", "rint"}  # of one argument, which may be forgotten
# Keywords that change no result of a program that is right.
WITHOUT_EFFECT = {"strict", "frozen", "slots", "kw_only", "cache", "nogil", "stacklevel", "exist_ok", "eq", "maxsize"}
# Functions of arguments in any order, and one whose other order is no program.
IN_ANY_ORDER = {"isinstance", "max", "min", "maximum", "minimum", "gcd", "lcm", "array_equal"}


def comparison(node: ast.Compare) -> Edits:
    """`a < b` for `a <= b`, or the other way round."""
    for i, op in enumerate(node.ops):
        for other in COMPARED[type(op)]:
            yield Edit("comparison", ast.Compare(node.left, [*node.ops[:i], other(), *node.ops[i + 1 :]], node.comparators))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def arithmetic(node: ast.BinOp) -> Edits:
    """Another operator, operands swapped, or a quotient rounded up."""
    if _is_text(node.left) or _is_text(node.right):
        return
    if isinstance(node.op, ast.FloorDiv):
        yield Edit("arithmetic", ast.UnaryOp(ast.USub(), ast.BinOp(ast.UnaryOp(ast.USub(), node.left), node.op, node.right)))
    elif type(node.op) in COMPUTED:
        yield Edit("arithmetic", ast.BinOp(node.left, COMPUTED[type(node.op)](), node.right))
    if isinstance(node.op, ast.Sub | ast.Div | ast.FloorDiv | ast.Mod):
        yield Edit("swapped operands", ast.BinOp(node.right, node.op, node.left))


def logic(node: ast.BoolOp) -> Edits:
    """`or` for `and`, or one side forgotten."""
    yield Edit("and/or", ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values))
    for i in range(len(node.values)):
        rest = [*node.values[:i], *node.values[i + 1 :]]
        yield Edit("forgotten condition", ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0])


def sign(node: ast.UnaryOp) -> Edits:
    """No `not`, no minus."""
    if isinstance(node.op, ast.Not | ast.USub):
        yield Edit("dropped not" if isinstance(node.op, ast.Not) else "dropped minus", node.operand)


def branches(node: ast.IfExp) -> Edits:
    """The one value where the other belongs."""
    yield Edit("swapped branches", ast.IfExp(node.test, node.orelse, node.body))
    yield Edit("one branch only", node.body)
    yield Edit("one branch only", node.orelse)


def number(node: ast.Constant) -> Edits:
    """One more, one less, twice as much; the other truth."""
    value = node.value
    if isinstance(value, bool):
        others: set[complex] = {not value}
    elif isinstance(value, int):
        others = {value + 1, value - 1, 2 * value}
    elif isinstance(value, float):
        others = {2 * value, value / 2}
    else:
        others = set()
    for other in sorted(others - {value}, key=repr):
        yield Edit("constant", ast.Constant(other))


def bounds(node: ast.Slice) -> Edits:
    """A slice that begins one later or ends one earlier, or that takes every element and forwards."""
    one = ast.Constant(1)
    if node.lower is not None and not isinstance(node.lower, ast.Constant):
        yield Edit("off by one", ast.Slice(ast.BinOp(node.lower, ast.Add(), one), node.upper, node.step))
    if node.upper is not None and not isinstance(node.upper, ast.Constant):
        yield Edit("off by one", ast.Slice(node.lower, ast.BinOp(node.upper, ast.Sub(), one), node.step))
    if node.step is not None:
        yield Edit("dropped step", ast.Slice(node.lower, node.upper, None))


def call(node: ast.Call) -> Edits:
    """`max` for `min` and the like, arguments swapped, a keyword forgotten, a function not applied."""
    name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if name in OTHER:
        func = ast.Attribute(node.func.value, OTHER[name]) if isinstance(node.func, ast.Attribute) else ast.Name(OTHER[name])
        yield Edit("min/max", ast.Call(func, node.args, node.keywords))
    for i in range(len(node.args) - 1):
        if not any(isinstance(arg, ast.Starred) or _is_text(arg) for arg in node.args[i : i + 2]) and name not in IN_ANY_ORDER:
            swapped = [*node.args[:i], node.args[i + 1], node.args[i], *node.args[i + 2 :]]
            yield Edit("swapped arguments", ast.Call(node.func, swapped, node.keywords))
    for i, keyword in enumerate(node.keywords):
        if keyword.arg not in WITHOUT_EFFECT:
            rest = [*node.keywords[:i], *node.keywords[i + 1 :]]
            yield Edit("forgotten keyword", ast.Call(node.func, node.args, rest))
    if name in WRAPPERS and len(node.args) == 1 and isinstance(node.func, ast.Name):
        yield Edit("not applied", node.args[0])


def filters(node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Edits:
    """A comprehension that takes all."""
    for i, loop in enumerate(node.generators):
        if loop.ifs:
            all_of_it = ast.comprehension(loop.target, loop.iter, [], loop.is_async)
            changed = [*node.generators[:i], all_of_it, *node.generators[i + 1 :]]
            kept = {name: value for name, value in ast.iter_fields(node) if name != "generators"}
            yield Edit("dropped filter", type(node)(**kept, generators=changed))


def _but(items: ast.expr, lower: int | None, upper: int | None) -> ast.AST:
    part = ast.Slice(*(None if n is None else ast.Constant(n) for n in (lower, upper)))
    return ast.Subscript(ast.Call(ast.Name("list"), [items], []), part)


def loop(node: ast.For | ast.comprehension) -> Edits:
    """Leave out the first or the last element; the edit takes the place of what is looped over."""
    yield Edit("not the first", _but(node.iter, 1, None))
    yield Edit("not the last", _but(node.iter, None, -1))


def question(node: ast.If | ast.While) -> Edits:
    """Turn a question round, or answer it always or never; the edit takes the place of the question."""
    if not isinstance(node.test, ast.Compare | ast.Constant):
        yield Edit("negated", ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.If):
        yield Edit("always", ast.Constant(value=True))
        yield Edit("never", ast.Constant(value=False))


def statement(node: ast.stmt) -> Edits:
    """A step that is left out; what only names a value is not one."""
    names_only = isinstance(node, ast.Assign) and all(isinstance(target, ast.Name | ast.Tuple) for target in node.targets)
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if not names_only and not docstring:
        yield Edit("left out", ast.Pass())


def leap(node: ast.Break | ast.Continue) -> Edits:
    """`continue` for `break`."""
    yield Edit("break/continue", ast.Continue() if isinstance(node, ast.Break) else ast.Break())


EDITS: dict[type[ast.AST], tuple[Callable[..., Edits], ...]] = {
    ast.Compare: (comparison,),
    ast.BinOp: (arithmetic,),
    ast.BoolOp: (logic,),
    ast.UnaryOp: (sign,),
    ast.IfExp: (branches,),
    ast.Constant: (number,),
    ast.Slice: (bounds,),
    ast.Call: (call,),
    ast.ListComp: (filters,),
    ast.SetComp: (filters,),
    ast.GeneratorExp: (filters,),
    ast.DictComp: (filters,),
    ast.For: (loop,),
    ast.comprehension: (loop,),
    ast.If: (question,),
    ast.While: (question,),
    ast.Expr: (statement,),
    ast.Assign: (statement,),
    ast.AugAssign: (statement,),
    ast.Raise: (statement,),
    ast.Assert: (statement,),
    ast.Break: (leap,),
    ast.Continue: (leap,),
}
