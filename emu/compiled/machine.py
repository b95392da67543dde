"""The interface to numba: types, dispatchers, and a cache of machine code on disk.

A named tuple is passed to compiled code as one pointer to its parts. numba itself passes a tuple part by part, with seven words
for an array: the engine's state would take two hundred words a call, and most of the time to compile. Here a part is loaded
when it is named. Nothing writes the parts themselves, and the loads say so, so that each part is loaded once however much is
stored.
"""

import inspect
import logging
import pickle
import sys
from functools import cache
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, compiler, runtime, serialize, types
from numba.core.caching import NullCache
from numba.core.imputils import impl_ret_borrowed, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, models, register_model, unbox

from emu.arrays import digest
from emu.compiled.function import CompiledFunction, Kind, Parts
from emu.store import Store, user_folder


class StructPointer(types.Type):
    """The numba type of a named tuple that is passed by pointer, with the types of its parts by name."""

    def __init__(self, parts: list[Any], made_by: Any) -> None:
        self.parts = dict(zip(made_by._fields, parts, strict=True))
        super().__init__(name=f"{made_by.__qualname__}({', '.join(f'{k}: {v}' for k, v in self.parts.items())})")


@register_model(StructPointer)
class StructPointerModel(models.PrimitiveModel):
    """The memory layout of `StructPointer`: a pointer, and the structure that it points to."""

    def __init__(self, manager: Any, passed: StructPointer) -> None:
        self.parts = [manager.lookup(part) for part in passed.parts.values()]
        self.structure = ir.LiteralStructType([part.get_data_type() for part in self.parts])
        super().__init__(manager, passed, self.structure.as_pointer())


@infer_getattr
class StructPointerParts(AttributeTemplate):
    """The rule by which numba finds the type of an entry of a named tuple that is passed by pointer."""

    key = StructPointer

    def generic_resolve(self, passed: StructPointer, name: str) -> Any:
        """Return the type of the entry of this name; None if the tuple has no such entry."""
        return passed.parts.get(name)


@lower_getattr_generic(StructPointer)
def load(context: Any, builder: Any, passed: StructPointer, value: Any, name: str) -> Any:
    """Emit the code that loads one entry of a named tuple that is passed by pointer."""
    index = list(passed.parts).index(name)
    place = cgutils.gep_inbounds(builder, value, 0, index)
    before = len(builder.block.instructions)
    part = context.data_model_manager[passed].parts[index].load_from_data_pointer(builder, place)
    for instruction in builder.block.instructions[before:]:
        if isinstance(instruction, ir.LoadInstr):
            instruction.set_metadata("invariant.load", builder.module.add_metadata([]))
    return impl_ret_borrowed(context, builder, passed.parts[name], part)


@unbox(StructPointer)
def unpack(passed: StructPointer, value: Any, c: Any) -> NativeValue:
    """Emit the code that copies the entries of a Python tuple to memory that compiled code can read."""
    model = c.context.data_model_manager[passed]
    place = cgutils.alloca_once(c.builder, model.structure)
    failed = cgutils.false_bit
    natives = []
    for i, part in enumerate(passed.parts.values()):
        native = c.unbox(part, c.pyapi.tuple_getitem(value, i))
        c.builder.store(model.parts[i].as_data(c.builder, native.value), cgutils.gep_inbounds(c.builder, place, 0, i))
        failed = c.builder.or_(failed, native.is_error)
        natives.append((part, native))

    def clean_up() -> None:
        for part, native in natives:
            if native.cleanup is not None:
                native.cleanup()
            if c.context.enable_nrt:
                c.context.nrt.decref(c.builder, part, native.value)

    return NativeValue(place, cleanup=clean_up, is_error=failed)


_MOST_BYTES = 64 * 2**20  # limit of stored machine code; a whole engine takes some 4 MiB
# numpy's error model: divisors are not checked. A wrapper is what C or Python calls.
_ENTRY = {"error_model": "numpy", "no_cfunc_wrapper": True}
_INLINED = _ENTRY | {"no_cpython_wrapper": True, "forceinline": True}
_VERSIONS = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
_HOW = (
    inspect.getsource(sys.modules[__name__]),
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
    """Return the numba dispatcher of a function, by which other compiled functions call it inlined.

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
        return (StructPointer if len(parts) > _FEW else numba.types.NamedTuple)(parts, kind.made_by)
    number = numba.from_dtype(kind.dtype)
    return numba.types.Array(number, kind.n_dims, "C", readonly=not kind.written) if kind.n_dims else number


class _CodeCache(NullCache):
    """A cache for numba: it loads the stored machine code of a function, or stores code that was just compiled."""

    def __init__(self, compiled: CompiledFunction[..., Any], chosen: int, processor: object) -> None:
        name = f"{compiled.function.__module__}.{compiled.function.__qualname__}"
        self._name = f"{name}-{digest((compiled.content, chosen, *_HOW, processor))}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the stored machine code of a function; None if there is none.

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
    """Log a line once in a process; later calls with the same line do nothing."""
    _log.log(level, line)
