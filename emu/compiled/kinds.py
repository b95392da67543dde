"""The kinds of parameters of compiled functions, read from their annotations.

`int`, `float`, `bool` and numpy's numbers are scalars of 64 bits or of their own size. `NDArray[...]` is a contiguous row of
numbers that is only read, unless an `ArrayLayout` says otherwise. A tuple, or a class of `NamedTuple`, is the kinds of its
parts. Where some parameters have alternatives, a call takes the first of each, or the second of each, and so on.
"""

from collections.abc import Callable
from functools import partial
from types import FunctionType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from emu.arrays import F64, I32, I64, Bool


class ArrayLayout(NamedTuple):
    """The difference of an array from one row of numbers that is only read."""

    written: bool = False  # whether the function writes to the array
    n_dims: int = 1
    record: np.dtype[np.void] | None = None  # type of the records, for an array of records


OUT = ArrayLayout(written=True)
I64_OUT = Annotated[I64, OUT]
I32_OUT = Annotated[I32, OUT]
F64_OUT = Annotated[F64, OUT]
BOOL_OUT = Annotated[Bool, OUT]
I32_2D = Annotated[I32, ArrayLayout(n_dims=2)]
I64_2D = Annotated[I64, ArrayLayout(n_dims=2)]


class Scalar(NamedTuple):
    """The kind of a number."""

    dtype: np.dtype[Any]


class Array(NamedTuple):
    """The kind of an array of numbers or records."""

    dtype: np.dtype[Any]
    layout: ArrayLayout


class Parts(NamedTuple):
    """The kind of a tuple, or of a class of `NamedTuple`."""

    parts: tuple["Kind", ...]
    made_by: type[tuple[Any, ...]]


Kind = Scalar | Array | Parts
_PLAIN = {int: np.int64, float: np.float64, bool: np.bool_}


def signatures_of(function: FunctionType) -> list[dict[str, Kind]]:
    """Return the kinds of a function's parameters by their names, for each alternative."""
    hints = get_type_hints(function, include_extras=True)
    choices = {name: _alternatives(hint) for name, hint in hints.items() if name != "return"}
    many = max(map(len, choices.values()), default=1)
    return [{name: kinds[i % len(kinds)] for name, kinds in choices.items()} for i in range(many)]


def _alternatives(hint: Any) -> list[Kind]:
    """Return the kinds that an annotation allows."""
    return [*map(kind_of, get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint])]


def kind_of(annotation: Any) -> Kind:
    """Return the kind that an annotation stands for.

    Raises:
        TypeError: Compiled code takes no such argument.
    """
    if get_origin(annotation) is Annotated:
        array, layout = get_args(annotation)
        return Array(layout.record or np.dtype(_number(array)), layout)
    if get_origin(annotation) is tuple:
        return Parts(tuple(map(kind_of, get_args(annotation))), tuple)
    if get_args(annotation):
        return Array(np.dtype(_number(annotation)), ArrayLayout())
    if isinstance(annotation, type) and issubclass(annotation, tuple):
        hints = get_type_hints(annotation, include_extras=True)
        return Parts(tuple(map(kind_of, hints.values())), annotation)
    return Scalar(np.dtype(_number(annotation)))


def _number(annotation: Any) -> type[np.generic]:
    """Return the numpy number type in an annotation such as `NDArray[np.int64]`."""
    while get_args(annotation):
        annotation = get_args(annotation)[-1]
    number = _PLAIN.get(annotation, annotation)
    if not (isinstance(number, type) and issubclass(number, np.generic)):
        raise TypeError(f"compiled code takes numbers, arrays and tuples of them, not {annotation!r}")
    return number


def text_of(kind: Kind) -> str:
    """Return all that the compiler is told of a kind, as a text that is the same in every process."""
    if isinstance(kind, Parts):
        names = f"{kind.made_by.__qualname__}{getattr(kind.made_by, '_fields', '')}"
        return f"{names}({', '.join(map(text_of, kind.parts))})"
    described = repr(kind.dtype.descr if kind.dtype.names else kind.dtype.str)
    if isinstance(kind, Scalar):
        return described
    return f"{described}[{kind.layout.n_dims}]{'!' * kind.layout.written}"


def has_records(kind: Kind) -> bool:
    """Return whether a kind has records in it; only compiled code has their fields as attributes."""
    if isinstance(kind, Parts):
        return any(map(has_records, kind.parts))
    return kind.dtype.names is not None


def counter_of(kind: Kind) -> Callable[[Any], int]:
    """Return a function that counts the numbers in an argument, or returns -1 where the argument is not of this kind."""
    if isinstance(kind, Scalar):
        return _count_scalar
    if isinstance(kind, Array):
        return partial(_count_array, kind.dtype, *kind.layout[:2])
    return partial(_count_tuple, kind.made_by, tuple(map(counter_of, kind.parts)))


def _count_scalar(value: Any) -> int:
    """Return 1, the count of numbers in a number."""
    return 1


def _count_array(dtype: np.dtype[Any], written: bool, n_dims: int, value: Any) -> int:
    """Return the count of numbers in an array; -1 where it is not an array of that kind."""
    if not isinstance(value, np.ndarray) or (value.dtype is not dtype and value.dtype != dtype) or value.ndim != n_dims:
        return -1
    flags = value.flags
    return value.size if flags.c_contiguous and (not written or flags.writeable) else -1


def _count_tuple(made_by: type[tuple[Any, ...]], counters: tuple[Callable[[Any], int], ...], value: Any) -> int:
    """Return the count of numbers in a tuple; -1 where it is not a tuple of that kind."""
    if not isinstance(value, made_by) or len(value) != len(counters):
        return -1
    parts = [count(part) for count, part in zip(counters, value, strict=True)]
    return -1 if -1 in parts else sum(parts)
