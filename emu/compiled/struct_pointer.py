"""A type of numba that passes a named tuple to compiled code as one pointer to its parts.

numba passes a tuple part by part, with seven words for an array. The engine's state would take two hundred words a call, which
every function would spell out for every function that it calls: most of the time to compile them. Here a part is loaded when it
is named. Nothing writes the parts themselves, and the loads say so, so that each part is loaded once however much is stored.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import impl_ret_borrowed, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, models, register_model, unbox


class StructPointer(types.Type):
    """The numba type of a named tuple that is passed by pointer, with the types of its parts by name."""

    def __init__(self, parts: list[Any], made_by: Any) -> None:
        self.parts = dict(zip(made_by._fields, parts, strict=True))
        super().__init__(name=f"{made_by.__qualname__}({', '.join(f'{k}: {v}' for k, v in self.parts.items())})")


@register_model(StructPointer)
class StructPointerModel(models.PrimitiveModel):
    """The memory layout of that type: a pointer, and the structure that it points to."""

    def __init__(self, manager: Any, passed: StructPointer) -> None:
        self.parts = [manager.lookup(part) for part in passed.parts.values()]
        self.structure = ir.LiteralStructType([part.get_data_type() for part in self.parts])
        super().__init__(manager, passed, self.structure.as_pointer())


@infer_getattr
class StructPointerParts(AttributeTemplate):
    """The rule by which numba finds the type of a part."""

    key = StructPointer

    def generic_resolve(self, passed: StructPointer, name: str) -> Any:
        """Return the type of the part of that name; None if there is none."""
        return passed.parts.get(name)


@lower_getattr_generic(StructPointer)
def load(context: Any, builder: Any, passed: StructPointer, value: Any, name: str) -> Any:
    """Emit the code that loads a part."""
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
    """Emit the code that puts the parts of a Python value where compiled code finds them."""
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
