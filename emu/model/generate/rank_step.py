"""The step of the ranks of a plan as PyTorch runs it (passes, gradients, optimizer), and its peak memory."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from emu.arrays import I64
from emu.model.generate.gradients import AveragedGradients, ExpertGradients, GradientBuckets, WholeGradients
from emu.model.generate.item import Ask
from emu.model.generate.part import Part
from emu.model.generate.rank_parts import RankParts, memory_of
from emu.model.generate.sharded_states import ShardedStates
from emu.model.generate.stage_order import run_stages
from emu.model.generate.stage_passes import StagePasses
from emu.model.generate.states import Role, group_equal_sizes, ranks_by_share, ring_ranks, roles_at_end, share_places
from emu.model.generate.tape import KnownSegments, Tape
from emu.model.memory.step_memory import PeakBytes
from emu.model.model import Model
from emu.model.plan.plan import DATA, Plan
from emu.model.routed_rows import Splits, about_even, classes, rows_by_kind
from emu.model.stack.stack import Stack
from emu.trace.trace import Kind


def roles(model: Model, plan: Plan, stack: Stack, place: int, routing: Splits | None) -> Iterator[Role]:
    """Yield the roles of the ranks at one place of a pipeline.

    There is one for each share of the states, and for each position in a ring of cp.
    """
    for ranks, routed in classes(plan, model, place, routing):
        for at in range(plan.ring):
            own = ring_ranks(plan, ranks, at)
            if len(own):
                yield from _roles(RankParts(model, plan, stack, routed, place, at), own)


def peaks(model: Model, plan: Plan, stack: Stack, places: Iterable[int]) -> Iterator[PeakBytes]:
    """Yield, for each of some places of a pipeline, the peak of the bytes of the rank that holds most of the states.

    Token rows are spread evenly over experts.
    """
    known: KnownSegments = {}
    first = RankParts(model, plan, stack, rows_by_kind(about_even, plan, model))
    shares = share_places(plan, np.arange(plan.stage_ranks)) if plan.shards_only_optimizer else (0, 0)
    for rank in (replace(first, place=place) for place in places):
        yield rank.memory.peak(write_passes(rank, known)[0].ledger, shares)


def reserved_bytes(model: Model, plan: Plan, stack: Stack) -> int:
    """Return the bytes that PyTorch's allocator requests from the device, on a rank at the first place of its pipeline."""
    rank = RankParts(model, plan, stack, rows_by_kind(about_even, plan, model))
    return rank.memory.reserved(write_passes(rank, {})[0].ledger)


def _roles(rank: RankParts, ranks: I64) -> Iterator[Role]:
    """Yield the roles of ranks at one place of their pipelines; ranks with equal steps share a role.

    Args:
        rank: The parts of the model on the ranks; the same token rows are sent for all of them.
        ranks: The ranks, as numbers in their stage.
    """
    tape, stages = write_passes(rank)
    for each in stages.values():
        each.experts.settle()
    alike = group_equal_sizes(rank.first, rank.plan, ranks_by_share(rank.plan, ranks))
    found = [role for together in alike for role in roles_at_end(tape.copy(), rank, together)]
    yield from (role._replace(even=len(found) == 1) for role in found)


def write_passes(rank: RankParts, known: KnownSegments | None = None) -> tuple[Tape, Mapping[int, StagePasses]]:
    """Write the forwards and backwards of a rank on a new tape; return the tape, and the passes by stage.

    The end of the step is not written: `ExpertGradients.settle` and `roles_at_end` add it.

    Args:
        rank: The parts of the model on the rank.
        known: Passes that the tapes of other ranks have recorded; the tape is silent, copies them, and adds new ones.
            None: the tape has events, too.
    """
    silent, known = known is not None, {} if known is None else known
    tape = Tape(rank.stack.precision.activation, ledger=rank.memory.opened(), known=known, silent=silent)
    stages = {number: _passes(tape, rank, number, parts) for number, parts in rank.stages.items()}
    run_stages(tape, rank, stages)
    return tape, stages


def reduced_by(rank: RankParts, stage: int) -> list[Ask]:
    """Return the requests for a stage's gradients and sharded weights that every step of the rank makes."""
    tape = Tape(rank.stack.precision.activation)
    n = rank.plan.passes
    once = _passes(tape, rank, stage, (rank.of_pass(stage, n - 1),))
    passes = once._replace(parts=once.parts * n, memory=once.memory * n)  # only the last is written
    if isinstance(passes.gradients, ShardedStates):
        return [*passes.gradients.least()]
    passes.write_backward(passes.last)
    passes.gradients.reduce()
    passes.experts.settle()
    events, axes = tape.events(), list(tape.axes)
    asked = np.flatnonzero(events.kind == Kind.COLLECTIVE).tolist()
    found = [Ask(axes[events.group[i]], events.name[i], int(events.count[i]), events.dtype[i]) for i in asked]
    return [ask for ask in found if ask.axis in ("dp", DATA, "edp")]


def _passes(tape: Tape, rank: RankParts, stage: int, parts: tuple[tuple[Part, ...], ...]) -> StagePasses:
    """Return the passes of a stage, which write their events on the tape; `parts` are those of the stage in each pass."""
    plan = rank.plan
    memory = tuple(rank.memory.of_pass(stage, memory_of(of_pass)) for of_pass in parts)
    return StagePasses(tape, stage, parts, memory, _gradients(tape, plan, parts[0], stage), ExpertGradients(tape, plan, stage))


def _gradients(tape: Tape, plan: Plan, parts: tuple[Part, ...], stage: int) -> WholeGradients:
    """Return the handling of a stage's gradients that a plan needs.

    ZeRO-1 (`sharding=zero1`) averages gradients as DDP does; it differs in the optimizer alone (`states.optimize_share`).
    """
    axis = "dp" if plan.copies == plan.dp else DATA
    if plan.splits:
        return AveragedGradients(tape, axis, plan.copies, parts)
    if plan.shards_weights:
        return ShardedStates(tape, plan, parts, stage)
    if plan.copies == 1:
        return WholeGradients()
    return GradientBuckets(axis, parts)
