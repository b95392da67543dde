"""The forward and the backward of a part of a model with Megatron-LM's requests, under tensor and sequence parallelism.

- Forward: before the region that tp cuts, an all_gather if sequences are cut; after it a reduce_scatter, else an all_reduce.
- Backward: the gradient of the output is gathered if sequences are cut. The input is gathered once more for the gradient of the
  weight, during the gradient of the input; the latter is then scattered, or reduced, during that of the weight.
- The loss of a vocabulary that is cut takes three all_reduces of one float32 for each token: the largest logit, the target's,
  and the sum.

Sources: Korthikanti et al. (2022), sections 4.2 and 4.3; Megatron-LM, megatron/core/tensor_parallel/{layers,cross_entropy}.py.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from emu.dtypes import FP8
from emu.model.generate.gradients import run
from emu.model.generate.item import CAST, Ask, Computation, ProductPlace, Share, moving
from emu.model.generate.megatron.rank_kernel import ContextKernels, RankKernel, kernels, row_counts, run_beside, travel
from emu.model.generate.tape import Tape
from emu.model.model import EMBEDDING, HEAD
from emu.model.operator import ATTENTION, FORWARD, INPUT, LOOKUP, LOSS, PRODUCT, WEIGHT, Amount
from emu.model.stack.software import CHUNKED, EXPOSED, FUSED, OVERLAPPED
from emu.model.stack.stack import in_fp8, pieces_of

PIECES = 4  # of a product beside a request, most of all: as NeMo's user buffers for H100 of 2025 have them
_STATISTICS = 3  # of each token, that the ranks of a cut vocabulary share
GradientArrival = Callable[[RankKernel], None]  # the gradients of a kernel's parameters are there


@dataclass(frozen=True)
class MegatronLayer(Share):
    """An embedding, layer or head of Megatron-LM on one rank; `forward` and `backward` write one pass on a tape."""

    @cached_property
    def kernels(self) -> tuple[RankKernel, ...]:
        """The kernels in the order of the forward."""
        return kernels(self.operators, self.stack, alike=self.plan.tp > 1 and not self.plan.sp)

    def parameters(self) -> Iterator[tuple[RankKernel, int]]:
        """Yield each kernel that has parameters, with their number, in the order of the model."""
        yield from ((kernel, self.parameters_of(kernel)) for kernel in self.kernels if self.parameters_of(kernel))

    def parameters_of(self, kernel: RankKernel) -> int:
        """Return the number of a kernel's parameters on this rank.

        If a pipeline separates a tied embedding and head, each end has a copy of the table.
        """
        if self.is_copy(kernel):
            return kernel.passes.backward_weight.parameters
        return kernel.operator.parameters

    def is_copy(self, kernel: RankKernel) -> bool:
        """Return whether a kernel's parameters are a copy of the embedding table at the other end of the pipeline."""
        return self.name == HEAD and self.model.tied and kernel.operator.kind == PRODUCT and self.plan.pp > 1

    def is_shared(self, kernel: RankKernel) -> bool:
        """Return whether both ends of the pipeline have a copy of a kernel's parameters."""
        table = kernel.operator.kind == LOOKUP and kernel.operator.cut  # positions are not cut
        first = self.name == EMBEDDING and self.model.tied and self.plan.pp > 1
        return self.is_copy(kernel) or bool(first and table)

    def axis(self, kernel: RankKernel) -> str:
        """Return the axis of the ranks that have copies of a kernel's parameters: dp and cp, or edp for routed experts."""
        plan = self.plan
        if kernel.operator.experts and plan.exchanges:
            return "edp"
        return "+".join(plan.copy_axes) or "dp"

    def buffer(self, kernel: RankKernel) -> tuple[str, str]:
        """Return the kind of buffer for a kernel's gradients.

        It is the axis over which they are summed, and the dtype in which weights are gathered.
        """
        narrow = self._is_narrow(kernel) and self.stack.narrow_gather
        return self.axis(kernel), narrow or self.stack.precision.weight

    def forward(self, tape: Tape) -> None:
        """Write the forward of one pass on a tape."""
        for kernel in self.kernels:
            self._forward(tape, kernel)

    def deferred(self, tape: Tape) -> None:
        """Write the gradient of the head's weight for one microbatch.

        Its input is gathered again, during another such gradient.

        Source: Megatron-LM, megatron/core/utils.py, drain_embedding_wgrad_compute.
        """
        for kernel in self.kernels:
            if kernel.operator.kind == PRODUCT:
                asks = [self.collective("all_gather", self.elements)] if kernel.enters and self.plan.sp else []
                run_beside(tape, asks, self._weight_gradient(kernel))

    def backward(self, tape: Tape, there: GradientArrival, *, later: bool = False) -> None:
        """Write the backward of one pass on a tape; recomputation comes first.

        Args:
            tape: The tape.
            there: A function that is called with each kernel once the gradients of its parameters are computed.
            later: Whether the gradient of the head's weight is left to `deferred`.
        """
        if self.plan.recompute == "full" and self.is_layer:
            self.forward(tape)
        for kernel in reversed(self.kernels):
            self._backward(tape, kernel, later=later and kernel.operator.kind == PRODUCT)
            if self.parameters_of(kernel):
                there(kernel)

    def _forward(self, tape: Tape, kernel: RankKernel) -> None:
        """Write the forward of one kernel with its requests."""
        works = self._work_of(kernel, FORWARD)
        if kernel.operator.experts:
            run(tape, row_counts(self) if kernel.receives else [])
            travel(tape, self, kernel.receives, kernel.returns, works)
            return
        if kernel.operator.kind == ATTENTION and self.plan.cp > 1:
            ContextKernels(self, kernel).forward(tape)
            return
        works = cast_first(tape, works)
        before = [self._read(kernel, kernel.read)] if kernel.enters and self.plan.sp else []
        after = [self._summed(kernel)] if kernel.leaves and self.plan.tp > 1 else []
        if self.stack.tp == OVERLAPPED:
            run_beside(tape, [*before, *after], works)
        elif self.stack.tp == CHUNKED and kernel.operator.kind == PRODUCT:
            in_pieces(tape, before, after, works, self.plan.tp)
        else:
            run(tape, before)
            run(tape, works)
            run(tape, after)
        if kernel.operator.kind == LOSS and self.plan.tp > 1:
            run(tape, [Ask("tp", "all_reduce", self.tokens.n, "float32")] * _STATISTICS)

    def _backward(self, tape: Tape, kernel: RankKernel, *, later: bool) -> None:
        """Write the backward of one kernel with its requests; with `later`, without the gradient of its weight."""
        plan, overlap = self.plan, self.stack.tp
        if plan.recompute == "selective" and kernel.operator.kind == ATTENTION:
            self._forward(tape, kernel)
        if kernel.operator.kind == ATTENTION and plan.cp > 1:
            ContextKernels(self, kernel).backward(tape)
            return
        works = cast_first(tape, self._work_of(kernel, INPUT)) if not kernel.operator.experts else self._work_of(kernel, INPUT)
        arrived = [self._read(kernel)] if kernel.leaves and plan.sp else []
        multiplies = kernel.enters and kernel.operator.kind == PRODUCT
        again = [self._read(kernel, kernel.read)] if multiplies and plan.sp and not later else []
        given = [self._summed(kernel, kernel.read)] if kernel.enters and plan.tp > 1 else []
        ahead = overlap in (OVERLAPPED, CHUNKED)
        run(tape, [*(arrived if not ahead else []), *(again if overlap == EXPOSED else [])])
        hidden = [*(arrived if ahead else []), *(again if overlap != EXPOSED else [])]
        if arrived and overlap == CHUNKED and kernel.operator.kind == PRODUCT:
            works = [piece for work in works for piece in pieces(work, gathered_in(plan.tp))]
        if kernel.operator.experts:
            travel(tape, self, kernel.returns, kernel.receives, works)
        else:
            run_beside(tape, hidden, works)
        run(tape, given if overlap == EXPOSED else [])
        run_beside(tape, given if overlap != EXPOSED else [], [] if later else self._weight_gradient(kernel))

    def _weight_gradient(self, kernel: RankKernel) -> list[Computation]:
        """Return the computations of a weight's gradient: a product that adds to the buffer, or a product and an addition."""
        amount, precision, shape = kernel.passes.backward_weight, self.stack.precision, kernel.operator.shape_of(WEIGHT)
        n = amount.parameters
        if kernel.operator.kind == PRODUCT and self.stack.accumulation == FUSED:
            added = self.work(kernel.operator.name, amount + Amount(parameters=n), precision.gradient, shape)
            return self.with_casts(kernel.operator, WEIGHT, [added], self._neighbours_of(kernel))
        made = self.work(kernel.operator.name, amount, precision.weight, shape)
        added = moving("accumulated", precision.activation, (n, precision.weight), (2 * n, precision.gradient))
        return self.with_casts(kernel.operator, WEIGHT, [made, added], self._neighbours_of(kernel))

    def _work_of(self, kernel: RankKernel, what: str) -> list[Computation]:
        """Return the computations that one pass runs for a kernel: its products or copies, and the casts around them.

        The computations of the loss are over the rank's share of the vocabulary.

        Args:
            kernel: The kernel.
            what: The pass: FORWARD, INPUT (the gradient of the input) or WEIGHT (the gradient of the weight).
        """
        share = self.plan.tp if kernel.operator.kind == LOSS else 1
        works = [
            self.work(kernel.operator.name, replace(amount, whole=amount.whole // share), self.stack.precision.weight, shape)
            for amount, shape in pieces_of(kernel.operator, self.stack, what, drops=self.plan.dropout > 0)
        ]
        return self.with_casts(kernel.operator, what, works, self._neighbours_of(kernel))

    def _is_narrow(self, kernel: RankKernel) -> bool:
        """Return whether a kernel is a product in FP8."""
        return in_fp8(kernel.operator, self.stack, layer=self.is_layer)

    def _neighbours_of(self, kernel: RankKernel) -> ProductPlace:
        """Return the neighbours of a product, which decide how many bytes its casts to FP8 move.

        Rows that are gathered are cast before; those of experts are cast as they arrive.
        """
        over = self.plan.tp if self.plan.sp else 0
        normed = (kernel.enters or kernel.operator.sequence) and not kernel.operator.experts
        apart = bool(over and not kernel.operator.experts and not kernel.operator.sequence)
        return ProductPlace(normed, apart, False, over * kernel.enters, over * kernel.leaves)

    def _read(self, kernel: RankKernel, elements: int = 0) -> Ask:
        """Return the gather of a kernel's input, or of the gradient of its output, in FP8 if the kernel multiplies in FP8.

        If no number of elements is given, they are those between two blocks.
        """
        ask = self.collective("all_gather", elements or self.elements)
        return ask._replace(dtype=FP8) if self._is_narrow(kernel) else ask

    def _summed(self, kernel: RankKernel, elements: int = 0) -> Ask:
        """Return the request that sums a kernel's outputs, or the gradients of its input, over tp; elements as in `_read`.

        If ranks have their own tokens (routed rows), it gathers instead.
        """
        if kernel.operator.routed and self.plan.exchanges:
            return self.collective("all_gather", self.elements)
        return self.collective("reduce_scatter" if self.plan.sp else "all_reduce", elements or self.elements)


def cast_first(tape: Tape, works: Sequence[Computation]) -> list[Computation]:
    """Write the casts of a list of computations to a tape, before any request, and return the other computations."""
    casts = [work for work in works if work.name == CAST]
    run(tape, casts)
    return [work for work in works if work.name != CAST]


def in_pieces(tape: Tape, before: Sequence[Ask], after: Sequence[Ask], works: Sequence[Computation], tp: int) -> None:
    """Write a product that is cut into pieces, so that the gather of its rows and the scatter of its sums overlap with it.

    With a gather alone there is a piece for each rank, at most `PIECES`, and the gather runs during all of them, because the
    rank's own rows are there at once. With a scatter there are `PIECES`. The scatter of one piece runs during the product of
    the next, so that only the last one is awaited; a gather runs during the first. Source: Transformer Engine,
    comm_gemm_overlap.cpp (ring exchange, and pipelined reduce-scatter).

    Args:
        tape: The tape.
        before: The requests that gather the rows.
        after: The requests that scatter the sums.
        works: The computations of the product.
        tp: The ranks of tensor parallelism.
    """
    if not after:
        run_beside(tape, before, [piece for work in works for piece in pieces(work, gathered_in(tp) if before else 1)])
        return
    first, *rest = [piece for work in works for piece in pieces(work, PIECES)]
    run_beside(tape, before, [first])
    last = [ask._replace(elements=ask.elements // PIECES) for ask in after]
    run_beside(tape, [ask._replace(elements=ask.elements - ask.elements // PIECES) for ask in after], rest)
    run(tape, last)


def gathered_in(tp: int) -> int:
    """Return the number of pieces of a product whose rows are gathered: one for each rank, at most `PIECES`."""
    return min(tp, PIECES)


def pieces(work: Computation, n: int) -> list[Computation]:
    """Return a product split into `n` products of fewer rows; the last one has the remaining rows."""
    rows = work.shape.m // n
    of_each = work.flops // n, work.bytes // n, work.elements // n
    flops, size, elements = (n * each for each in of_each)
    first = Computation(work.name, *of_each, work.shape._replace(m=rows), work.dtype)
    last = first._replace(
        flops=first.flops + work.flops - flops,
        bytes=first.bytes + work.bytes - size,
        elements=first.elements + work.elements - elements,
        shape=work.shape._replace(m=work.shape.m - (n - 1) * rows),
    )
    return [*[first] * (n - 1), last]
