"""The end of a step: gradients scaled to a norm (`emu.model.parallel.gradient_clipping`), and AdamW in one kernel."""

from collections.abc import Sequence

from emu.dtypes import item_bytes
from emu.model.generate.gradients import gradient_work
from emu.model.generate.item import Ask, Computation
from emu.model.generate.part import Part
from emu.model.generate.states import StateShare, own_size, sharing_group
from emu.model.generate.tape import Tape
from emu.model.memory.step_memory import owned_by
from emu.model.model import EMBEDDING, HEAD
from emu.model.operator import BIAS, LOOKUP, ModelOperator
from emu.model.plan.plan import Plan
from emu.model.plan.rank_axes import ENDS
from emu.model.stack.software import FOREACH

_ADDED = Computation("clip", 0, 12, 3)  # two sums of squares, read, and theirs


def add_tied(tape: Tape, parts: tuple[Part, ...], plan: Plan, held: StateShare) -> None:
    """Add the request by which both ends of a pipeline sum a tied table's gradients (`emu.model.parallel.parallel_model`)."""
    first = parts[0]
    if not first.model.tied or plan.pp == 1:
        return
    for part in parts:
        for operator in part.operators:
            if is_tied(part, operator):
                ask = Ask(ENDS, "all_reduce", own_size(part, operator, held), first.stack.precision.gradient)
                tape.join(tape.ask(ask))


def is_tied(part: Part, operator: ModelOperator) -> bool:
    """Return whether the other end of the pipeline has a copy of an operator's parameters."""
    table = (part.name == EMBEDDING and operator.kind == LOOKUP and operator.cut) or (part.name == HEAD and operator.shape)
    return part.model.tied and not part.tied and bool(table)


def clip(tape: Tape, parts: tuple[Part, ...], plan: Plan, held: StateShare) -> None:
    """Add the clipping of gradients: squares of each rank's parts, their sum over the axes that cut them, and the scaling."""
    if not plan.clip:
        return
    first = parts[0]
    by_axes: dict[tuple[str, ...], list[int]] = {}
    for part in parts:
        for operator in (o for o in part.operators if o.parameters):
            if not (part.name == HEAD and is_tied(part, operator)):  # counted where the embedding is
                sizes = [own_size(part, operator, held)] * operator.tensors
                by_axes.setdefault(cut_axes(part, operator), []).extend(sizes)
    for number, (axes, sizes) in enumerate(sorted(by_axes.items())):
        # The norm of each is written, stacked, squared and added up; the sum of all begins as a zero.
        tape.compute(gradient_work(first.stack.precision, sum(sizes) + 6 * len(sizes) + 1 + (number == 0)))
        for axis in axes:
            tape.join(tape.ask(Ask(axis, "all_reduce", 1, "float32")))
        tape.compute(_ADDED)
    if plan.pp > 1:
        tape.join(tape.ask(Ask("pp", "all_reduce", 1, "float32")))
    tape.compute(gradient_work(first.stack.precision, 2 * _own(parts, held)))


def cut_axes(part: Part, operator: ModelOperator) -> tuple[str, ...]:
    """Return the axes along which a rank's gradients of an operator are parts of a whole."""
    over = sharing_group(part.plan, travels=part.travels(operator))
    shared = (over.axis,) if part.plan.shards_weights and over.ranks > 1 else ()
    return shared if operator.kind == BIAS and not operator.cut else (*shared, *part.style_of(operator.name).cuts)


def _own(parts: tuple[Part, ...], held: StateShare) -> int:
    """Return the elements of all parameters that a rank has."""
    return sum(operator.tensors * own_size(part, operator, held) for part in parts for operator in part.operators)


def optimize(tape: Tape, parts: tuple[Part, ...], held: StateShare) -> Tape:
    """Add the optimizer over all parameters of the rank, and return the tape."""
    tape.compute(adamw(tape, parts[0], _own(parts, held)))
    return tape


def optimize_share(tape: Tape, parts: tuple[Part, ...], plan: Plan, held: StateShare) -> Tape:
    """Add ZeRO's first stage, and return the tape.

    Each rank changes some parameters, and sends each of them to the others; those of experts come last.
    """
    sizes: dict[bool, list[int]] = {False: [], True: []}
    for part in parts:
        for operator in part.operators:
            sizes[part.travels(operator)] += operator.sizes
    for travels, place in ((False, held.dense), (True, held.experts)):
        if sizes[travels]:
            over = sharing_group(plan, travels=travels)
            _update(tape, parts[0], owned_by(sizes[travels], over.ranks), place, over.axis)
    return tape


def _update(tape: Tape, part: Part, owned: Sequence[Sequence[int]], place: int, axis: str) -> None:
    """Add the optimizer over parameters of which each rank of an axis owns some, and the broadcasts of the results."""
    tape.compute(adamw(tape, part, sum(owned[place])))
    ask = Ask(axis, "broadcast", 0, part.stack.precision.weight)
    if len(owned) > 1:
        sent = (tape.ask(ask._replace(elements=size), root=root) for root, own in enumerate(owned) for size in own)
        tape.join(*sent)


# How often AdamW moves each weight that it changes, each gradient, and elements of moments: in one kernel; or, foreach, in one
# for each of its operations: the weight decays; the first moment is drawn to the gradient; the second is scaled, and the square
# of the gradient added; its root is taken, scaled, and kept off 0; and the weight is changed by the quotient.
_ONE_KERNEL, _FOREACH = (2, 1, 4), (4, 2, 14)


def adamw(tape: Tape, part: Part, elements: int) -> Computation:
    """Return the work of AdamW: it reads state and gradients, writes state and weights, and reads weights without a copy."""
    precision = part.stack.precision
    changed, gradients, moments = _FOREACH if part.stack.optimizer == FOREACH else _ONE_KERNEL
    weights = ((1, precision.weight), (changed, precision.master)) if precision.has_master else ((changed, precision.weight),)
    roles = (*weights, (gradients, precision.gradient), (moments, precision.moment))
    size = sum(times * item_bytes(role) for times, role in roles)
    return Computation("adamw", 0, elements * size, elements * sum(times for times, role in roles if role == tape.dtype))
