"""The step of the ranks of a plan as Megatron-LM runs it, generated from a list of its requests.

The modules beside this one say what each piece requests, and where that is written. Left out are requests for logs (the loss,
counts of zeros), checks for NaN, and requests at the beginning of a run.

At the end of a step gradients are reduced, those of copies made equal, the norm is found, and AdamW runs:

- Parameters that sequence parallelism leaves whole (norms, biases after a sum, the router, the narrow products of latent
  attention) and norms of heads have their gradients added up over tp, in one all_reduce.
- A tied embedding is added up over both ends of the pipeline.
- The squares of gradients are added up: with the distributed optimizer over all ranks; without it over tp and pp, and apart
  from them those of experts over etp, ep and pp. Megatron-LM makes one all_reduce of these ranks; here it goes axis by axis, as
  a fabric would do it.
Source: Megatron-LM, core_v0.15.3, megatron/core/distributed/finalize_model_grads.py, megatron/core/optimizer/__init__.py
(grad_stats_parallel_group), {clip_grads,optimizer}.py.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from emu.model.generate.gradients import gradient_work, run
from emu.model.generate.item import Ask, Share
from emu.model.generate.megatron.chunk import Buffer, Chunk, buffers_of, layers_of, parts_of, ranks_of
from emu.model.generate.rank_parts import RankParts
from emu.model.generate.stage_order import run_stages
from emu.model.generate.states import Role, adamw, ring_ranks
from emu.model.generate.tape import KnownSegments, Tape
from emu.model.memory.step_memory import PeakBytes
from emu.model.model import Model
from emu.model.operator import BIAS, NORM
from emu.model.plan.plan import ENDS, Plan
from emu.model.routed_rows import Splits
from emu.model.stack.software import INTERLEAVED, OVERLAPPED
from emu.model.stack.stack import Stack
from emu.trace.trace import UPDATE


def roles(model: Model, plan: Plan, stack: Stack, place: int, routing: Splits | None) -> Iterator[Role]:
    """Yield the roles of the ranks at one place of their pipelines.

    There is one role for each position in a group of context parallelism, because ranks at one position do the same. Every rank
    waits for the expert with the most token rows, so that the routing makes no more roles.
    """
    memory, ranks = parts_of(model, plan, stack, place).memory, np.arange(plan.stage_ranks)
    for at in range(plan.ring):
        rank, tape = parts_of(model, plan, stack, place, at), Tape(stack.precision.activation, ledger=memory.opened())
        layers = {number: layers_of(rank, number) for number in memory.stages}
        chunks = {n: Chunk(tape, n, memory.of_pass(n), own, buffers_of(tape, own, n)) for n, own in layers.items()}
        _take_passes(tape, rank, chunks)
        finish(tape, tuple(chunks.values()))
        yield Role(tape, place * plan.stage_ranks + ring_ranks(plan, ranks, at), (0, 0), memory.peak(tape.ledger), at=at)


def peaks(model: Model, plan: Plan, stack: Stack, places: Iterable[int]) -> Iterator[PeakBytes]:
    """Yield, for each of some places of a pipeline, the peak of the bytes of the rank with the fullest expert."""
    known: KnownSegments = {}
    first = parts_of(model, plan, stack)
    for rank in (replace(first, place=place) for place in places):
        tape = Tape(stack.precision.activation, ledger=rank.memory.opened(), known=known, silent=True)
        _take_passes(tape, rank, {n: Chunk(tape, n, rank.memory.of_pass(n)) for n in rank.memory.stages})
        yield rank.memory.peak(tape.ledger)


def _take_passes(tape: Tape, rank: RankParts, chunks: Mapping[int, Chunk]) -> None:
    """Write the forwards and backwards of a step on a tape.

    Source: Narayanan et al. (SC21), section 2.2; Megatron-LM, megatron/core/pipeline_parallel/schedules.py.
    """
    for chunk in chunks.values():
        chunk.begin()
    run_stages(tape, rank, chunks, waits=not overlaps_messages(rank.plan, rank.stack))
    for chunk in chunks.values():
        chunk.drain()


def overlaps_messages(plan: Plan, stack: Stack) -> bool:
    """Return whether a stage computes its next pass while its messages are being sent."""
    return stack.pp == OVERLAPPED or (stack.pp == INTERLEAVED and plan.pipeline == INTERLEAVED)


def finish(tape: Tape, chunks: Sequence[Chunk]) -> None:
    """Write the events after the last backward on a tape: reductions of gradients, clipping, and the optimizer."""
    part = chunks[0].layers[0]
    buffers = [buffer for chunk in chunks for buffer in chunk.buffers.values()]
    for buffer in buffers:
        buffer.reduce()
    _add_copies(tape, part, sum(_copied(chunks)))
    _add_ends(tape, chunks)
    if part.plan.clip:
        _clip(tape, part, buffers)
    tape.mark(UPDATE)
    tape.compute(adamw(tape, part, sum(buffer.owned for buffer in buffers)))
    for chunk in chunks:
        for buffer in chunk.buffers.values() if not chunk.overlaps else ():
            buffer.gather()


def _copied(chunks: Sequence[Chunk]) -> Iterator[int]:
    """Yield the elements of each kernel's parameters of which every rank of tp has a copy.

    Each rank has only the gradient of its own tokens or heads, so that these gradients must be summed over tp.
    """
    for layer in (layer for chunk in chunks for layer in chunk.layers):
        plan = layer.plan
        for kernel, elements in layer.parameters() if plan.tp > 1 else ():
            operator = kernel.operator
            alike = operator.sequence or (operator.kind == BIAS and not operator.cut)
            if (plan.sp and alike and not operator.experts) or (operator.kind == NORM and not operator.sequence):
                yield elements


def _add_copies(tape: Tape, part: Share, elements: int) -> None:
    """Write the request that sums gradients over tp, for parameters of which each rank of tp has a whole copy.

    Args:
        tape: The tape of the rank.
        part: Any part of the model on this rank; it gives the precision.
        elements: The number of elements of all these gradients; 0: nothing is written.
    """
    if elements:
        tape.compute(gradient_work(part.stack.precision, 4 * elements))  # into one buffer, and out of it
        run(tape, [Ask("tp", "all_reduce", elements, part.stack.precision.gradient)])


def _add_ends(tape: Tape, chunks: Sequence[Chunk]) -> None:
    """Write the request that sums the gradients of a tied embedding over both ends of a pipeline."""
    for layer in (layer for chunk in chunks for layer in chunk.layers):
        for kernel, elements in layer.parameters():
            if layer.is_shared(kernel):
                run(tape, [Ask(ENDS, "all_reduce", elements, layer.stack.precision.gradient)])


def _clip(tape: Tape, part: Share, buffers: Sequence[Buffer]) -> None:
    """Write the clipping of gradients: the sum of the squares of the rank's gradients, its sum over ranks, and the scaling.

    A rank without experts also takes part in the sum over the gradients of experts.
    """
    plan, precision = part.plan, part.stack.precision
    for over, owned in _normed(part, buffers).items():
        tape.compute(gradient_work(precision, owned))
        axes = [axis for axis in over if ranks_of(plan, axis) > 1]
        run(tape, [Ask(axis, "all_reduce", 1, "float32") for axis in axes])
    tape.compute(gradient_work(precision, 2 * sum(buffer.owned for buffer in buffers)))


def _normed(part: Share, buffers: Sequence[Buffer]) -> Mapping[tuple[str, ...], int]:
    """Return the number of elements whose squares a rank sums for the norm, by the axes of the following sums."""
    copies = next(buffer.axis for buffer in buffers if buffer.axis != "edp")
    dense: tuple[str, ...] = (copies, "tp", "pp") if part.plan.shards_only_optimizer else ("tp", "pp")
    of_experts = dense if part.plan.shards_only_optimizer else ("etp", "ep", "pp")
    found = dict.fromkeys((dense, of_experts) if part.model.experts and part.plan.exchanges else (dense,), 0)
    for buffer in buffers:
        found[of_experts if buffer.axis == "edp" else dense] += buffer.owned
    return found
