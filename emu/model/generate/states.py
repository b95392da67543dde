"""The share of each rank in divided states, the roles of ranks with equal steps, and the end of a step.

The divided states are weights, gradients and the optimizer's state, or the optimizer's state alone. States of experts to which
token rows are sent are divided among the ranks that have copies of them (`edp`); all others among the ranks of dp and cp, or of
a part of dp and cp. FSDP2 cuts each parameter along its first dimension, as `torch.chunk` does: of 5 rows on 4 ranks the first
two ranks have 2, the third has 1 and the last has none.

The end of a step scales gradients to a norm (`emu.model.parallel.data_parallel`), and runs AdamW in one kernel.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.equivalence import Orbits
from emu.model.generate.gradients import gradient_work, run
from emu.model.generate.item import Ask, Computation, Share, moving
from emu.model.generate.part import Part
from emu.model.generate.rank_parts import RankParts
from emu.model.generate.tape import Tape
from emu.model.memory.step_memory import PeakBytes, owned_by
from emu.model.model import EMBEDDING, HEAD
from emu.model.operator import BIAS, LOOKUP, ModelOperator
from emu.model.plan.plan import ENDS, SHARD, Plan
from emu.model.routed_rows import RoutedOf
from emu.model.stack.software import FOREACH
from emu.trace.trace import UPDATE


class WeightGroup(NamedTuple):
    """A group of weights that FSDP2 gathers together: those of a layer, of its sent-to experts, or of the root."""

    place: int  # of the layer; the root has none, and comes first
    experts: bool = False


ROOT = WeightGroup(-1)


# A rank's places among those that divide the states: of what all tokens see, and of experts that tokens travel to.
StateShare = tuple[int, int]


def sharing_axis(plan: Plan, *, travels: bool) -> str:
    """Return the axis whose ranks divide states.

    Args:
        plan: The plan.
        travels: True for the states of experts to which token rows are sent, False for all other states.
    """
    if travels:
        return "edp"
    return ("dp" if plan.shard_ranks == plan.dp else SHARD) + ("_cp" if plan.copies > plan.dp else "")


def share_places(plan: Plan, ranks: I64) -> tuple[I64, I64]:
    """Return [R] the first and [R] the second place of each rank's `StateShare`; `ranks` are numbers in their stage."""
    experts = plan.places(ranks)["edp"] if plan.exchanges and plan.shards_states else 0 * ranks
    return plan.copy_numbers(ranks) % plan.holders, experts


def ranks_by_share(plan: Plan, ranks: I64) -> list[tuple[StateShare, I64]]:
    """Return each share of the states with the ranks that hold this share.

    Args:
        plan: The plan.
        ranks: The ranks, as numbers in their stage.
    """
    dense, experts = share_places(plan, ranks)
    alike = Orbits.by_value(dense, experts)
    return [
        ((int(dense[first]), int(experts[first])), ranks[alike.number == i]) for i, first in enumerate(alike.first.tolist())
    ]


def group_equal_sizes(
    parts: Sequence[Part], plan: Plan, of: list[tuple[StateShare, I64]]
) -> list[list[tuple[StateShare, I64]]]:
    """Return shares in groups: the shares of one group have gradients of equal sizes.

    Args:
        parts: The parts of the model on these ranks.
        plan: The plan.
        of: The shares with the ranks that have them, as `ranks_by_share` returns them.
    """
    if not plan.shards_weights:
        return [of]
    unlike = {part.name: part for part in parts}.values()
    met: dict[tuple[int, ...], list[tuple[StateShare, I64]]] = {}
    for held, ranks in of:
        sizes = tuple(own_size(part, operator, held) for part in unlike for operator in part.operators)
        met.setdefault(sizes, []).append((held, ranks))
    return [*met.values()]


def rows_of(part: Part, operator: ModelOperator) -> int:
    """Return the size of the first dimension of each of an operator's tensors.

    It counts experts, output columns, or entries of a vocabulary.
    """
    if operator.experts:
        return operator.experts
    if operator.shape:
        return operator.shape[1]
    return operator.parameters // (part.model.hidden if operator.kind == LOOKUP else operator.tensors)


def padded_elements(part: Part, operator: ModelOperator, ranks: int) -> int:
    """Return an operator's parameters padded so that every rank holds as many rows as the first one."""
    rows = rows_of(part, operator)
    return operator.parameters // rows * -(-rows // ranks) * ranks


def own_size(part: Part, operator: ModelOperator, held: StateShare) -> int:
    """Return the elements of each of an operator's tensors that a rank holds as weights and gradients.

    Args:
        part: The part of the model that the operator belongs to.
        operator: The operator.
        held: The share of the rank.
    """
    size = operator.parameters // operator.tensors
    if not size or not part.plan.shards_weights:
        return size
    travels, rows = part.travels(operator), rows_of(part, operator)
    most = -(-rows // part.plan.sharers(travels=travels))
    before = most * held[travels]
    return size // rows * max(0, min(most, rows - before))


class Role(NamedTuple):
    """The step of ranks at one place of their pipelines that have equal events, with the numbers of these ranks.

    `tape` has the events, `held` the share of states that the ranks hold, `peak` their peak memory.
    """

    tape: Tape
    ranks: I64  # of the run
    held: StateShare  # of the states, where each rank has a part of its own
    peak: PeakBytes
    routed: RoutedOf | None = None  # rows that travel in each pass of each layer; None: the software spreads them evenly
    at: int = 0  # their place in a ring of cp
    even: bool = True  # whether all ranks for which the same rows travel have as much of the states


def ring_ranks(plan: Plan, ranks: I64, at: int) -> I64:
    """Return the ranks at position `at` of their ring of context parallelism."""
    there: I64 = ranks[plan.places(ranks)["cp"] % plan.ring == at]
    return there


def roles_at_end(tape: Tape, rank: RankParts, together: list[tuple[StateShare, I64]]) -> Iterator[Role]:
    """Yield the roles of ranks whose shares of gradients have equal size, each with the end of its step."""
    held, parts, plan = together[0][0], rank.first, rank.plan
    add_tied(tape, parts, plan, held)
    clip(tape, parts, plan, held)
    tape.mark(UPDATE)
    role = partial(Role, routed=rank.routed, at=rank.at)
    first = rank.place * plan.stage_ranks
    if plan.shards_only_optimizer:
        for each, own in together:
            share = optimize_share(tape.copy(), parts, plan, each)
            yield role(share, first + own, each, rank.memory.peak(tape.ledger, each))
    else:
        ranks = first + np.concatenate([own for _, own in together])
        yield role(optimize(tape, parts, held), ranks, held, rank.memory.peak(tape.ledger, held))


_ADDED = Computation("clip", 0, 12, 3)  # two sums of squares, read, and theirs


def add_tied(tape: Tape, parts: tuple[Part, ...], plan: Plan, held: StateShare) -> None:
    """Add the request by which both ends of a pipeline sum a tied table's gradients (`emu.model.parallel.parallel_model`)."""
    first = parts[0]
    if not first.model.tied or plan.pp == 1:
        return
    for part in parts:
        for operator in part.operators:
            if is_tied(part, operator):
                run(tape, (Ask(ENDS, "all_reduce", own_size(part, operator, held), first.stack.precision.gradient),))


def is_tied(part: Part, operator: ModelOperator) -> bool:
    """Return whether the other end of the pipeline has a copy of an operator's parameters (tied embeddings)."""
    table = (part.name == EMBEDDING and operator.kind == LOOKUP and operator.cut) or (part.name == HEAD and operator.shape)
    return part.model.tied and not part.tied and bool(table)


def clip(tape: Tape, parts: tuple[Part, ...], plan: Plan, held: StateShare) -> None:
    """Write the clipping of gradients: the squares of the rank's share of them, their sum over the axes, and the scaling."""
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
        run(tape, (*(Ask(axis, "all_reduce", 1, "float32") for axis in axes), _ADDED))
    if plan.pp > 1:
        run(tape, (Ask("pp", "all_reduce", 1, "float32"),))
    tape.compute(gradient_work(first.stack.precision, 2 * _held_elements(parts, held)))


def cut_axes(part: Part, operator: ModelOperator) -> tuple[str, ...]:
    """Return the axes along which each rank has another share of an operator's gradients."""
    plan, travels = part.plan, part.travels(operator)
    shared = (sharing_axis(plan, travels=travels),) if plan.shards_weights and plan.sharers(travels=travels) > 1 else ()
    return shared if operator.kind == BIAS and not operator.cut else (*shared, *part.style_of(operator.name).cuts)


def _held_elements(parts: tuple[Part, ...], held: StateShare) -> int:
    """Return the number of elements of all parameters that this rank holds."""
    return sum(operator.tensors * own_size(part, operator, held) for part in parts for operator in part.operators)


def optimize(tape: Tape, parts: tuple[Part, ...], held: StateShare) -> Tape:
    """Add the optimizer over all parameters of the rank, and return the tape."""
    tape.compute(adamw(tape, parts[0], _held_elements(parts, held)))
    return tape


def optimize_share(tape: Tape, parts: tuple[Part, ...], plan: Plan, held: StateShare) -> Tape:
    """Add ZeRO's first stage, and return the tape.

    Each rank changes some parameters, and sends each of them to the others; those of experts come last.
    """
    sizes: dict[bool, list[int]] = {False: [], True: []}
    for part in parts:
        for operator in part.operators:
            sizes[part.travels(operator)] += operator.sizes
    for travels, own in sizes.items():
        if own:
            owned = owned_by(own, plan.sharers(travels=travels))
            _update(tape, parts[0], owned, held[travels], sharing_axis(plan, travels=travels))
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


def adamw(tape: Tape, part: Share, elements: int) -> Computation:
    """Return the work of AdamW: it reads state and gradients, writes state and weights, and reads weights without a copy."""
    precision = part.stack.precision
    changed, gradients, moments = _FOREACH if part.stack.optimizer == FOREACH else _ONE_KERNEL
    weights = ((1, precision.weight), (changed, precision.master)) if precision.has_master else ((changed, precision.weight),)
    roles = (*weights, (gradients, precision.gradient), (moments, precision.moment))
    return moving("adamw", tape.dtype, *((elements * times, role) for times, role in roles))
