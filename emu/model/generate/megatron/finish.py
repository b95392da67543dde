"""The end of a step of Megatron-LM: gradients reduced, those of copies made equal, the norm, AdamW.

- Parameters that sequence parallelism leaves whole (norms, biases after a sum, the router) and norms of heads have their
  gradients added up over tp, in one all_reduce.
- A tied embedding is added up over both ends of the pipeline.
- The squares of gradients are added up: with the distributed optimizer over all ranks; without it over tp and pp, and apart
  from them those of experts over etp, ep and pp. Megatron-LM makes one all_reduce of these ranks; here it goes axis by axis, as
  a fabric would do it.
Source: Megatron-LM, core_v0.15.3, megatron/core/distributed/finalize_model_grads.py, megatron/core/optimizer/__init__.py
(grad_stats_parallel_group), {clip_grads,optimizer}.py.
"""

from collections.abc import Iterator, Mapping, Sequence

from emu.model.generate.gradients import gradient_work
from emu.model.generate.item import Ask
from emu.model.generate.megatron.buffers import Buffer
from emu.model.generate.megatron.chunk import Chunk, ranks_of
from emu.model.generate.megatron.megatron_layer import await_requests
from emu.model.generate.optimizer import adamw
from emu.model.generate.part import Part
from emu.model.generate.tape import Tape
from emu.model.operator import BIAS, NORM
from emu.model.plan.rank_axes import ENDS
from emu.trace.trace import UPDATE


def finish(tape: Tape, chunks: Sequence[Chunk]) -> None:
    """Write all that follows the last backward on a tape."""
    part = chunks[0].layers[0].part
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
    """Yield the elements of which each rank of tp has a copy, and the gradient of its tokens or heads alone."""
    for layer in (layer for chunk in chunks for layer in chunk.layers):
        plan = layer.part.plan
        for kernel, elements in layer.parameters() if plan.tp > 1 else ():
            operator = kernel.operator
            alike = operator.sequence or (operator.kind == BIAS and not operator.cut)
            if (plan.sp and alike and not operator.experts) or (operator.kind == NORM and not operator.sequence):
                yield elements


def _add_copies(tape: Tape, part: Part, elements: int) -> None:
    """Write the sum over tp of the gradients of copied parameters."""
    if elements:
        tape.compute(gradient_work(part.stack.precision, 4 * elements))  # into one buffer, and out of it
        await_requests(tape, [Ask("tp", "all_reduce", elements, part.stack.precision.gradient)])


def _add_ends(tape: Tape, chunks: Sequence[Chunk]) -> None:
    """Write the sum over both ends of a pipeline of a tied table's gradients."""
    for layer in (layer for chunk in chunks for layer in chunk.layers):
        for kernel, elements in layer.parameters():
            if layer.is_shared(kernel):
                await_requests(tape, [Ask(ENDS, "all_reduce", elements, layer.part.stack.precision.gradient)])


def _clip(tape: Tape, part: Part, buffers: Sequence[Buffer]) -> None:
    """Write the squares of the gradients that the rank's optimizer uses, their sums over ranks, and the scaling of all.

    A rank without experts takes part in the sum over those of the others.
    """
    plan, precision = part.plan, part.stack.precision
    for over, owned in _normed(part, buffers).items():
        tape.compute(gradient_work(precision, owned))
        axes = [axis for axis in over if ranks_of(plan, axis) > 1]
        await_requests(tape, [Ask(axis, "all_reduce", 1, "float32") for axis in axes])
    tape.compute(gradient_work(precision, 2 * sum(buffer.owned for buffer in buffers)))


def _normed(part: Part, buffers: Sequence[Buffer]) -> Mapping[tuple[str, ...], int]:
    """Return the elements whose squares a rank adds up, by the axes over which the sum then goes."""
    copies = next(buffer.axis for buffer in buffers if buffer.axis != "edp")
    dense: tuple[str, ...] = (copies, "tp", "pp") if part.plan.sharding == "zero1" else ("tp", "pp")
    of_experts = dense if part.plan.sharding == "zero1" else ("etp", "ep", "pp")
    found = dict.fromkeys((dense, of_experts) if part.model.experts and part.plan.exchanges else (dense,), 0)
    for buffer in buffers:
        found[of_experts if buffer.axis == "edp" else dense] += buffer.owned
    return found
