"""Numeric functions that are compiled to machine code (by numba) only when that saves time.

At first a process runs them as Python, which gives the same bits, until they have processed as many numbers as would pay for
the start of the compiler. A call from Python takes arguments as its annotations say. A compiled function that another one calls
is inlined, whatever its arguments.

The kinds of parameters are read from annotations.
`int`, `float`, `bool` and numpy's numbers are scalars of 64 bits or of their own size. `NDArray[...]` is a contiguous row of
numbers that is only read, unless a `Numbers` says otherwise. A tuple, or a class of `NamedTuple`, is the kinds of its
parts. Where some parameters have alternatives, a call takes the first of each, or the second of each, and so on.
"""

import builtins
import dis
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial, update_wrapper
from types import CodeType, FunctionType, ModuleType, UnionType
from typing import Annotated, Any, Generic, NamedTuple, ParamSpec, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

from emu.arrays import F64, I32, I64, Bool, digest

_AS_ANNOTATED = np.dtype(object)  # stands for the type that the annotation names


class Numbers(NamedTuple):
    """The type of a parameter of compiled code that is an array of numbers or records, or a single number (0 dimensions)."""

    dtype: np.dtype[Any] = _AS_ANNOTATED
    written: bool = False  # whether the function writes to the array
    n_dims: int = 1


OUT = Numbers(written=True)
I64_OUT = Annotated[I64, OUT]
I32_OUT = Annotated[I32, OUT]
F64_OUT = Annotated[F64, OUT]
BOOL_OUT = Annotated[Bool, OUT]
I32_2D = Annotated[I32, Numbers(n_dims=2)]
I64_2D = Annotated[I64, Numbers(n_dims=2)]


class Parts(NamedTuple):
    """The type of a parameter of compiled code that is a tuple or a `NamedTuple`: the types of its entries."""

    parts: tuple["Kind", ...]
    made_by: type[tuple[Any, ...]]


Kind = Numbers | Parts
_PLAIN = {int: np.int64, float: np.float64, bool: np.bool_}


def signatures_of(function: FunctionType) -> list[dict[str, Kind]]:
    """Return the kinds of a function's parameters by their names, for each alternative."""
    hints = get_type_hints(function, include_extras=True)
    choices = {name: _alternatives(hint) for name, hint in hints.items() if name != "return"}
    many = max(map(len, choices.values()), default=1)
    return [{name: kinds[i % len(kinds)] for name, kinds in choices.items()} for i in range(many)]


def _alternatives(hint: Any) -> list[Kind]:
    """Return the types of argument that an annotation allows; a union has several."""
    return [*map(kind_of, get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint])]


def kind_of(annotation: Any) -> Kind:
    """Return the kind of a parameter, read from its annotation.

    Raises:
        TypeError: Compiled code takes no such argument.
    """
    if get_origin(annotation) is Annotated:
        array, kind = get_args(annotation)
        found: Numbers = kind._replace(dtype=np.dtype(_number(array))) if kind.dtype == _AS_ANNOTATED else kind
        return found
    if get_origin(annotation) is tuple:
        return Parts(tuple(map(kind_of, get_args(annotation))), tuple)
    if isinstance(annotation, type) and issubclass(annotation, tuple):
        hints = get_type_hints(annotation, include_extras=True)
        return Parts(tuple(map(kind_of, hints.values())), annotation)
    return Numbers(np.dtype(_number(annotation)), n_dims=1 if get_args(annotation) else 0)


def _number(annotation: Any) -> type[np.generic]:
    """Return the numpy number type in an annotation such as `NDArray[np.int64]`."""
    while get_args(annotation):
        annotation = get_args(annotation)[-1]
    number = _PLAIN.get(annotation, annotation)
    if not (isinstance(number, type) and issubclass(number, np.generic)):
        raise TypeError(f"compiled code takes numbers, arrays and tuples of them, not {annotation!r}")
    return number


def text_of(kind: Kind) -> str:
    """Return a text with everything that the compiler knows about a kind; it is the same in every process."""
    if isinstance(kind, Parts):
        names = f"{kind.made_by.__module__}.{kind.made_by.__qualname__}{getattr(kind.made_by, '_fields', '')}"
        return f"{names}({', '.join(map(text_of, kind.parts))})"
    described = repr(kind.dtype.descr if kind.dtype.names else kind.dtype.str)
    return f"{described}[{kind.n_dims}]{'!' * kind.written}" if kind.n_dims else described


def has_records(kind: Kind) -> bool:
    """Return whether a kind contains records, whose fields only compiled code can read as attributes."""
    if isinstance(kind, Parts):
        return any(map(has_records, kind.parts))
    return kind.dtype.names is not None


def counter_of(kind: Kind) -> Callable[[Any], int]:
    """Return a function that counts the numbers in an argument: 1 for a number, all elements for an array, the sum for a tuple.

    The function returns -1 if the argument does not fit the kind: another dtype or number of dimensions, an array that is not
    contiguous, or one that is read-only but is to be written.

    Args:
        kind: The type that the compiled code takes: a number, an array, or a tuple of these.
    """
    if isinstance(kind, Parts):
        return partial(_count_tuple, kind.made_by, tuple(map(counter_of, kind.parts)))
    return partial(_count_array, *kind) if kind.n_dims else lambda _: 1


def _count_array(dtype: np.dtype[Any], written: bool, n_dims: int, value: Any) -> int:
    """Return the number of elements of an array; -1 if compiled code cannot take the value.

    It takes a contiguous array of this dtype and number of dimensions, which must not be read-only if it is `written`.
    """
    if not isinstance(value, np.ndarray) or (value.dtype is not dtype and value.dtype != dtype) or value.ndim != n_dims:
        return -1
    flags = value.flags
    return value.size if flags.c_contiguous and (not written or flags.writeable) else -1


def _count_tuple(made_by: type[tuple[Any, ...]], counters: tuple[Callable[[Any], int], ...], value: Any) -> int:
    """Return how many numbers a tuple has; -1 if the value is not a tuple of that kind."""
    if not isinstance(value, made_by) or len(value) != len(counters):
        return -1
    parts = [count(part) for count, part in zip(counters, value, strict=True)]
    return -1 if -1 in parts else sum(parts)


_PRINT = builtins.print
ENOUGH = 2**19  # numbers: about a microsecond each, where numba takes half a second to import and seconds to compile
P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class InterpreterBudget:
    """The budget of numbers that this process may handle by the Python interpreter before it compiles functions."""

    elements: int = 0

    def take(self, elements: int) -> bool:
        """Return whether `elements` more numbers are within the budget; if so, take them from it."""
        if self.elements + elements > ENOUGH:
            return False
        self.elements += elements
        return True


INTERPRETED = InterpreterBudget()


class CompiledFunction(Generic[P, R]):
    """A function that runs as Python first, and is compiled or loaded as machine code once that saves time.

    Args:
        function: A function with annotated parameters; the kind of its result follows from its code.
        makes_arrays: Whether it makes arrays. If not, no array has its references counted.
    """

    def __init__(self, function: Callable[P, R], makes_arrays: bool) -> None:
        update_wrapper(self, function)
        self.function, self.makes_arrays = cast("FunctionType", function), makes_arrays
        self._entries: dict[int, Callable[..., Any]] = {}  # machine code of each signature

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function, as machine code if that exists already or if the arguments are large.

        Raises:
            TypeError: An argument is not what its annotation says; machine code would misread it.
        """
        chosen, much = self.match(args)
        if chosen not in self._entries and not self.has_records and INTERPRETED.take(much):
            with np.errstate(all="ignore"):
                return cast("R", self.python(*args))
        return cast("R", self.machine_code(chosen)(*args))

    def machine_code(self, chosen: int) -> Callable[..., Any]:
        """Return the function's machine code for one of the signatures."""
        if chosen not in self._entries:
            self._entries[chosen] = _machine().entry(self, chosen)
        return self._entries[chosen]

    @cached_property
    def python(self) -> FunctionType:
        """The uncompiled function; it calls the functions that it uses uncompiled, too."""
        used = {name: value.python for name, value in _globals_of(self.function).items() if isinstance(value, CompiledFunction)}
        return FunctionType(self.function.__code__, self.function.__globals__ | used, self.function.__name__)

    @cached_property
    def has_records(self) -> bool:
        """True if a parameter is an array of records, so that the function cannot run as Python."""
        return any(has_records(kind) for signature in self.signatures for kind in signature.values())

    def match(self, args: tuple[Any, ...]) -> tuple[int, int]:
        """Return the index of the first signature that fits the arguments, and how many numbers the arguments have."""
        for chosen, counters in enumerate(self._counters):
            counts = [count(value) for count, value in zip(counters, args, strict=True)]
            if -1 not in counts:
                return chosen, sum(counts)
        wrong = counts.index(-1)
        name, kind = [*self.signatures[-1].items()][wrong]
        raise TypeError(f"{self.function.__qualname__}: {name} must be {text_of(kind)}, got {args[wrong]!r}")

    @cached_property
    def _counters(self) -> list[tuple[Callable[[Any], int], ...]]:
        """Functions that count the numbers in each argument, for each signature."""
        return [tuple(map(counter_of, signature.values())) for signature in self.signatures]

    @cached_property
    def signatures(self) -> list[dict[str, Kind]]:
        """The kinds of the parameters by their names, for each signature."""
        return signatures_of(self.function)

    @cached_property
    def content(self) -> str:
        """A digest of everything that decides what the function does: its code, the functions it calls, and their constants.

        Machine code that is stored under this name cannot be stale, whichever file was changed. It names the modules that the
        functions and the classes are in, so that these are part of the digest.

        Raises:
            TypeError: The function uses a global that could change unseen; pass it as an argument.
        """
        code, where = self.function.__code__, self.function.__qualname__
        constants = [c for c in code.co_consts if c != self.function.__doc__]
        if code.co_freevars or any(isinstance(c, CodeType) for c in constants):
            raise TypeError(f"{where} must be at the top of its module, without functions in it, as they could change unseen")
        kinds = [[*map(text_of, signature.values())] for signature in self.signatures]
        own = (self.function.__module__, code.co_code, constants, code.co_names, code.co_varnames, kinds, self.makes_arrays)
        used = sorted(_globals_of(self.function).items())
        return digest((where, *own, *((name, _content_of(value, f"{where}: {name}")) for name, value in used)))

    @property
    def _numba_type_(self) -> Any:
        """The type of the function for numba, where compiled code calls it."""
        return self._inlined._numba_type_

    @cached_property
    def _inlined(self) -> Any:
        """The numba dispatcher by which other compiled functions call this one, inlined."""
        return _machine().inline_dispatcher(self)


def _machine() -> Any:
    """Import the module that uses numba, and return it; numba is loaded only when something is compiled.

    It is imported with Python's own `print`. numba looks up the object of that name in its module, and a program may have
    replaced it, as many do to let one rank print.
    """
    shown, builtins.print = builtins.print, _PRINT
    try:
        from emu.compiled import machine

        return machine
    finally:
        builtins.print = shown


def _globals_of(function: FunctionType) -> dict[str, object]:
    """Return the global names that a function's code reads, with their values; the machine code depends on them."""
    loads = (at.argval for at in dis.get_instructions(function.__code__) if at.opname == "LOAD_GLOBAL")
    return {name: function.__globals__[name] for name in loads if name in function.__globals__}


def _content_of(value: object, where: str) -> str:
    """Return a text for a global value that compiled code uses; it changes whenever the value changes.

    The value is a number, a compiled function, a class of tuples, or a module, a class or a function of numpy.

    Raises:
        TypeError: It is something else, such as an array, a tuple or a plain function, which could change unseen.
    """
    if isinstance(value, CompiledFunction):
        return value.content
    if isinstance(value, int | float | np.generic):
        return repr(value)
    if isinstance(value, type) and issubclass(value, tuple):
        return text_of(kind_of(value))
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    if home.split(".")[0] != "numpy":
        raise TypeError(f"{where} must be a number, compiled, or numpy's, as it could change unseen; pass it as an argument")
    return f"{home} {getattr(value, '__name__', '')}"


def compiled(function: Callable[P, R]) -> CompiledFunction[P, R]:
    """Return a compiled form of a function that makes no array."""
    return CompiledFunction(function, makes_arrays=False)


def compiled_making_arrays(function: Callable[P, R]) -> CompiledFunction[P, R]:
    """Return a compiled form of a function that makes numpy arrays."""
    return CompiledFunction(function, makes_arrays=True)
