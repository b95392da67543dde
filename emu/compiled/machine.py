"""The use of numba: kinds as its types, functions as its dispatchers, and machine code stored between processes."""

import inspect
import logging
import pickle
import sys
from functools import cache
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import compiler, runtime, serialize
from numba.core.caching import NullCache

from emu.arrays import digest
from emu.compiled import struct_pointer
from emu.compiled.function import CompiledFunction
from emu.compiled.kinds import Array, Kind, Parts
from emu.store import Store, user_folder

_MOST_BYTES = 64 * 2**20  # limit of stored machine code; a whole engine takes some 4 MiB
# numpy's error model: divisors are not checked. A wrapper is what C or Python calls.
_ENTRY = {"error_model": "numpy", "no_cfunc_wrapper": True}
_INLINED = _ENTRY | {"no_cpython_wrapper": True, "forceinline": True}
_VERSIONS = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
_HOW = (
    *map(inspect.getsource, (sys.modules[__name__], struct_pointer)),
    *_VERSIONS,
)  # all that decides how functions are compiled
_FEW = 4  # up to this many parts, a tuple is passed part by part
_log = logging.getLogger("emu")


def entry(compiled: CompiledFunction[..., Any], chosen: int) -> Any:
    """Return the machine code that Python calls, for one of the signatures."""
    dispatcher = numba.njit(**_ENTRY, _nrt=compiled.makes_arrays)(compiled.function)
    dispatcher._cache = _CodeCache(compiled, chosen, dispatcher.targetctx.codegen().magic_tuple())
    return dispatcher.compile(_types(compiled, chosen))


def inline_dispatcher(compiled: CompiledFunction[..., Any]) -> Any:
    """Return numba's dispatcher of a function, by which other compiled code calls it.

    The machine code becomes a part of each caller: it is not stored, and Python cannot call it.
    """
    dispatcher = numba.njit(**_INLINED, _nrt=compiled.makes_arrays)(compiled.function)
    for chosen in range(len(compiled.signatures)):
        dispatcher.compile(_types(compiled, chosen))
    dispatcher.disable_compile()  # or a number of 32 bits, which is made one of 64 as it is, would take another copy
    return dispatcher


def _types(compiled: CompiledFunction[..., Any], chosen: int) -> tuple[Any, ...]:
    """Return the numba types of a function's arguments, for one of its signatures."""
    return tuple(map(numba_type, compiled.signatures[chosen].values()))


def numba_type(kind: Kind) -> Any:
    """Return numba's type of a kind of argument."""
    if isinstance(kind, Parts):
        parts = [*map(numba_type, kind.parts)]
        if kind.made_by is tuple:
            return numba.types.Tuple(parts)
        return (struct_pointer.StructPointer if len(parts) > _FEW else numba.types.NamedTuple)(parts, kind.made_by)
    number = numba.from_dtype(kind.dtype)
    if not isinstance(kind, Array):
        return number
    return numba.types.Array(number, kind.layout.n_dims, "C", readonly=not kind.layout.written)


class _CodeCache(NullCache):
    """The place where numba looks for the machine code of an entry before it compiles, and where it puts it then."""

    def __init__(self, compiled: CompiledFunction[..., Any], chosen: int, processor: object) -> None:
        name = f"{compiled.function.__module__}.{compiled.function.__qualname__}"
        self._name = f"{name}-{digest((compiled.content, chosen, *_HOW, processor))}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return stored machine code; None: there is none.

        Unlike numba's own, this does not set up the compiler, which takes 0.3 s.
        """
        kept = _store().read(self._name)  # the store refuses what another user can have written: it becomes code
        if kept is None:
            _say_once(f"compiling what times messages; it is done once, and kept in {_store().folder}", logging.INFO)
            return None
        runtime.rtsys.initialize(target_context)
        return compiler.CompileResult._rebuild(target_context, *pickle.loads(kept))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store machine code."""
        try:
            _store().write(self._name, serialize.dumps(data._reduce()))
        except OSError as error:
            mend = "every command compiles it anew; set XDG_CACHE_HOME to a folder that can be written, by you alone"
            _say_once(f"compiled code cannot be kept: {error}; {mend}", logging.WARNING)


@cache
def _store() -> Store:
    """Return the folder of machine code in the user's cache."""
    return Store(user_folder() / "compiled", _MOST_BYTES)


@cache
def _say_once(line: str, level: int) -> None:
    """Log a line the first time that it is given."""
    _log.log(level, line)
