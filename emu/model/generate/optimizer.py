"""The end of a step: gradients cut to a norm (`emu.model.parallel.clip`), and AdamW in one kernel."""

from emu.dtypes import item_bytes
from emu.model.generate.gradients import moved
from emu.model.generate.item import Ask, Work
from emu.model.generate.part import Part
from emu.model.generate.passes import elements_of
from emu.model.generate.tape import Tape
from emu.model.plan import Plan

_ADDED = Work("clip", 0, 12, 3)  # two sums of squares, read, and theirs


def clip(tape: Tape, parts: tuple[Part, ...], plan: Plan) -> None:
    """Squares of each rank's own parts, added up along the axes that cut them; then all gradients are scaled."""
    if not plan.clip:
        return
    first = parts[0]
    by_axes: dict[tuple[str, ...], int] = {}
    for part in parts:
        for operator in part.operators:
            if operator.parameters:
                axes = cut_axes(part, operator.name)
                by_axes[axes] = by_axes.get(axes, 0) + operator.parameters
    for axes, elements in sorted(by_axes.items()):
        tape.compute(moved(first, elements))
        for axis in axes:
            tape.join(tape.ask(Ask(axis, "all_reduce", 1, "float32")))
        tape.compute(_ADDED)
    if plan.pp > 1:
        tape.join(tape.ask(Ask("pp", "all_reduce", 1, "float32")))
    tape.compute(moved(first, 2 * sum(by_axes.values())))


def cut_axes(part: Part, name: str) -> tuple[str, ...]:
    """Along which a rank's gradients of an operator are parts of a whole."""
    style = part.styles.get(name)
    return ("tp",) if style is not None and style.cuts else ()


def optimize(tape: Tape, parts: tuple[Part, ...]) -> None:
    """Weights, gradients and both moments read; weights and moments written."""
    precision = parts[0].stack.precision
    count = elements_of(parts)
    item = 2 * item_bytes(precision.weight) + item_bytes(precision.gradient) + 4 * item_bytes(precision.moment)
    same = (2, 1, 4)
    roles = (precision.weight, precision.gradient, precision.moment)
    elements = sum(times for times, role in zip(same, roles, strict=True) if role == tape.dtype)
    tape.compute(Work("adamw", 0, count * item, count * elements))
