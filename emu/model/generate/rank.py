"""The step of one rank of a plan, by PyTorch's pieces: its passes, its gradients, its optimizer."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.model.generate.expert_gradients import ExpertGradients
from emu.model.generate.gradients import Averaged, Buckets, Whole
from emu.model.generate.item import Ask
from emu.model.generate.optimizer import add_tied, clip, optimize, optimize_share
from emu.model.generate.part import Part
from emu.model.generate.passes import Passes, elements_of, stage_parts, travelling_elements
from emu.model.generate.pipeline import Ends, by_turns, ends_of, gpipe, one_forward_one_backward
from emu.model.generate.sharded import Sharded
from emu.model.generate.states import Held, held_by, of_one_size
from emu.model.generate.tape import Tape
from emu.model.model import Model
from emu.model.pipeline.turns import all_turns
from emu.model.plan.plan import Plan
from emu.model.plan.rank_axes import DATA
from emu.model.routed import RoutedOf
from emu.model.stack.stack import Stack
from emu.trace.trace import UPDATE, Kind


class Alike(NamedTuple):
    """Ranks that do the same."""

    ranks: I64  # numbers in their stage
    held: Held
    tape: Tape


def tapes_of(model: Model, plan: Plan, stack: Stack, place: int, ranks: I64, routed: RoutedOf, at: int = 0) -> Iterator[Alike]:
    """What ranks at one place of their pipelines do in a step.

    Args:
        model: What is trained.
        plan: How it is laid over ranks.
        stack: By which software, in which precision.
        place: In the pipeline.
        ranks: Numbers in their stage.
        routed: Rows that travel in each pass of each layer; the ranks are those for which they are the same.
        at: Their place in context parallelism.
    """
    tape = Tape(stack.precision.activation)
    stages = {n: _passes(tape, model, plan, stack, n, routed, at) for n in plan.stages_of(place * plan.stage_ranks)}
    if plan.pp == 1:
        for number in range(plan.passes):
            stages[0].forward(number)
            stages[0].backward(number)
    else:
        _pipelined({n: (each, ends_of(tape, model, plan, stack, n)) for n, each in stages.items()}, plan, place)
    parts = tuple(part for each in stages.values() for part in each.parts[0])
    for each in stages.values():
        each.experts.settle()
    for together in of_one_size(parts, plan, held_by(plan, ranks)):
        yield from _finished(tape.copy(), parts, plan, together)


def reduced_by(model: Model, plan: Plan, stack: Stack, stage: int, routed: RoutedOf) -> list[Ask]:
    """What a rank asks for in a step for the gradients of one stage, and for weights that are sharded, at least."""
    tape = Tape(stack.precision.activation)
    passes = _passes(tape, model, plan, stack, stage, routed, 0)
    if isinstance(passes.gradients, Sharded):
        return [*passes.gradients.least()]
    passes.once_backward(passes.last)
    passes.gradients.reduce()
    passes.experts.settle()
    events, axes = tape.events(), list(tape.axes)
    asked = np.flatnonzero(events.kind == Kind.COLLECTIVE).tolist()
    found = [Ask(axes[events.group[i]], events.name[i], int(events.count[i]), events.dtype[i]) for i in asked]
    return [ask for ask in found if ask.axis in ("dp", DATA, "edp") and ask.operation == "all_reduce"]


def _finished(tape: Tape, parts: tuple[Part, ...], plan: Plan, together: list[tuple[Held, I64]]) -> Iterator[Alike]:
    """The end of a step, on ranks whose parts of the gradients are of one size."""
    held = together[0][0]
    add_tied(tape, parts, plan, held)
    clip(tape, parts, plan, held)
    tape.mark(UPDATE)
    if plan.sharding == "zero1":
        yield from (Alike(own, each, optimize_share(tape.copy(), parts, plan, each)) for each, own in together)
    else:
        yield Alike(np.concatenate([own for _, own in together]), held, optimize(tape, parts, held))


def _passes(tape: Tape, model: Model, plan: Plan, stack: Stack, stage: int, routed: RoutedOf, at: int) -> Passes:
    parts = stage_parts(model, plan, stack, stage, routed, at)
    return Passes(
        tape,
        stage,
        parts,
        _gradients(tape, plan, parts[0], stage),
        ExpertGradients(tape, plan, stage),
    )


def _gradients(tape: Tape, plan: Plan, parts: tuple[Part, ...], stage: int) -> Whole:
    axis = "dp" if plan.cp == 1 else DATA
    if plan.splits:
        return Averaged(tape, axis, plan.dp * plan.cp, parts)
    if plan.sharding == "fsdp":
        return Sharded(tape, plan, parts, stage)
    if plan.dp * plan.cp == 1:
        return Whole()
    return Buckets(axis, plan.passes, elements_of(parts) - travelling_elements(parts))


def _pipelined(stages: Mapping[int, tuple[Passes, Ends]], plan: Plan, place: int) -> None:
    if plan.pipeline == "gpipe":
        gpipe(*stages[place], plan.passes)
    elif plan.pipeline == "1f1b":
        one_forward_one_backward(*stages[place], plan.pp - 1 - place, plan.passes)
    else:
        by_turns(stages, all_turns(plan.pipeline, plan.pp, plan.vp, plan.passes)[place])
