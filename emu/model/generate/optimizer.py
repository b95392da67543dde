"""The end of a step: gradients cut to a norm (`emu.model.parallel.clip`), and AdamW in one kernel."""

from collections.abc import Sequence

from emu.dtypes import item_bytes
from emu.model.generate.gradients import moved
from emu.model.generate.item import Ask, Work
from emu.model.generate.part import Part
from emu.model.generate.passes import elements_of
from emu.model.generate.states import Held, shard_axis
from emu.model.generate.tape import Tape
from emu.model.model import EMBEDDING, HEAD
from emu.model.operator import BIAS, LOOKUP, ModelOperator
from emu.model.peak import owned_by
from emu.model.plan import Plan
from emu.model.ranks import ENDS
from emu.trace.trace import UPDATE

_ADDED = Work("clip", 0, 12, 3)  # two sums of squares, read, and theirs


def add_tied(tape: Tape, parts: tuple[Part, ...], plan: Plan) -> None:
    """The two ends of a pipeline add up the gradients of a table that both have (`emu.model.parallel.tied`)."""
    first = parts[0]
    if not first.model.tied or plan.pp == 1:
        return
    for part in parts:
        for operator in part.operators:
            if is_tied(part, operator):
                ask = Ask(ENDS, "all_reduce", operator.parameters // _shared_by(plan), first.stack.precision.gradient)
                tape.join(tape.ask(ask))


def is_tied(part: Part, operator: ModelOperator) -> bool:
    """Whether another end of the pipeline has a copy of its parameters."""
    table = (part.name == EMBEDDING and operator.kind == LOOKUP and operator.cut) or (part.name == HEAD and operator.shape)
    return part.model.tied and not part.tied and bool(table)


def clip(tape: Tape, parts: tuple[Part, ...], plan: Plan) -> None:
    """Squares of each rank's own parts, added up along the axes that cut them; then all gradients are scaled."""
    if not plan.clip:
        return
    first = parts[0]
    by_axes: dict[tuple[str, ...], list[int]] = {}
    scaled = 0
    for part in parts:
        for operator in (o for o in part.operators if o.parameters):
            size = operator.parameters // _shared_by(plan)
            scaled += size
            if not (part.name == HEAD and is_tied(part, operator)):  # counted where the embedding is
                by_axes.setdefault(cut_axes(part, operator), []).extend([size // operator.tensors] * operator.tensors)
    for axes, sizes in sorted(by_axes.items()):
        # The norm of each is written, stacked, squared and added up.
        tape.compute(moved(first.stack.precision, sum(sizes) + 6 * len(sizes) + 2))
        for axis in axes:
            tape.join(tape.ask(Ask(axis, "all_reduce", 1, "float32")))
        tape.compute(_ADDED)
    if plan.pp > 1:
        tape.join(tape.ask(Ask("pp", "all_reduce", 1, "float32")))
    tape.compute(moved(first.stack.precision, 2 * scaled))


def cut_axes(part: Part, operator: ModelOperator) -> tuple[str, ...]:
    """Along which a rank's gradients of an operator are parts of a whole."""
    shared = (shard_axis(part.plan),) if _shared_by(part.plan) > 1 else ()
    return shared if operator.kind == BIAS and not operator.cut else (*shared, *part.style_of(operator.name).cuts)


def _shared_by(plan: Plan) -> int:
    """Ranks each of which has a part of what others have whole."""
    return plan.holders if plan.sharding == "fsdp" else 1


def optimize(tape: Tape, parts: tuple[Part, ...]) -> Tape:
    """All that a rank has."""
    tape.mark(UPDATE)
    tape.compute(adamw(tape, parts[0], elements_of(parts) // _shared_by(parts[0].plan)))
    return tape


def optimize_share(tape: Tape, parts: tuple[Part, ...], plan: Plan, held: Held) -> Tape:
    """ZeRO's first stage: each rank changes some parameters, and sends each of them to the others; those of experts last."""
    sizes: dict[bool, list[int]] = {False: [], True: []}
    for part in parts:
        for operator in part.operators:
            sizes[part.travels(operator)] += operator.sizes
    tape.mark(UPDATE)
    _update(tape, parts[0], owned_by(sizes[False], plan.holders), held.dense, shard_axis(plan))
    if sizes[True]:
        _update(tape, parts[0], owned_by(sizes[True], plan.sizes["edp"]), held.experts, "edp")
    return tape


def _update(tape: Tape, part: Part, owned: Sequence[Sequence[int]], place: int, axis: str) -> None:
    """Of parameters of which each rank of an axis owns some."""
    tape.compute(adamw(tape, part, sum(owned[place])))
    ask = Ask(axis, "broadcast", 0, part.stack.precision.weight)
    if len(owned) > 1:
        sent = (tape.ask(ask._replace(elements=size), root=root) for root, own in enumerate(owned) for size in own)
        tape.join(*sent)


def adamw(tape: Tape, part: Part, elements: int) -> Work:
    """What the optimizer keeps is read and written, gradients are read, weights written: read too where no copy of them is."""
    precision = part.stack.precision
    weights = ((1, precision.weight), (2, precision.master)) if precision.has_master else ((2, precision.weight),)
    roles = (*weights, (1, precision.gradient), (4, precision.moment))
    size = sum(times * item_bytes(role) for times, role in roles)
    return Work("adamw", 0, elements * size, elements * sum(times for times, role in roles if role == tape.dtype))
