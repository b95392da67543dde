"""Attention over sequences of which each rank of cp has a part: keys and values go round a ring, or are gathered.

- `p2p`: CP blocks one after another, each beside the messages that bring the keys and values of the next: CP - 1 exchanges
  forward; backward as many, and CP of the gradients of keys and values. The rank's own block is whole; of each other one a
  causal mask leaves half. Source: Liu et al., Ring Attention (2023); Transformer Engine, context_parallel.py.
- `all_gather`: all keys and values at once, and a reduce_scatter of their gradients. Source: Dubey et al. (2024), 3.3.2.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from emu.model.generate.item import Ask, Work
from emu.model.generate.megatron.rank_kernel import RankKernel
from emu.model.generate.part import Part
from emu.model.generate.tape import Tape
from emu.model.operator import FORWARD, INPUT, Amount, ModelOperator
from emu.model.stack.software import OVERLAPPED, UNFUSED
from emu.model.stack.stack_kernels import passes_of
from emu.trace.kernel import MOVES, Shape
from emu.trace.trace import Kind


@dataclass(frozen=True)
class ContextKernels:
    """The attention of one part, on the rank at a place in its group of cp."""

    part: Part
    at: int
    kernel: RankKernel

    def forward(self, tape: Tape) -> None:
        """Write the forward of one pass on a tape."""
        if self.part.plan.cp_comm == "all_gather":
            tape.join(tape.ask(self._asked("all_gather")))
            tape.compute(self._whole(FORWARD))
        else:
            self._round(tape, self.kernel.passes.forward, gradients=False)

    def backward(self, tape: Tape) -> None:
        """Write the backward of one pass on a tape."""
        if self.part.plan.cp_comm == "all_gather":
            tape.join(tape.ask(self._asked("all_gather")))
            tape.compute(self._whole(INPUT))
            tape.join(tape.ask(self._asked("reduce_scatter")))
        else:
            self._round(tape, self.kernel.passes.backward_input, gradients=True)

    def _round(self, tape: Tape, whole: Amount, *, gradients: bool) -> None:
        """Write block after block; gradients of a block's keys follow them, and each rank adds its own until they are back."""
        follows: list[int] = []
        for step, work in enumerate(self._blocks(whole, INPUT if gradients else FORWARD)):
            here = self._exchange(tape) if step < self.part.plan.cp - 1 else []
            tape.join(*(here if self.part.stack.cp != OVERLAPPED else ()))
            tape.compute(work)
            tape.join(*here, *follows)
            follows = self._exchange(tape) if gradients else []
            tape.join(*(follows if self.part.stack.cp != OVERLAPPED else ()))
        tape.join(*follows)

    def _blocks(self, whole: Amount, what: str) -> Iterator[Work]:
        """Yield the work of each block: the rank's own is whole, half of each other one is masked."""
        shape = self._shape_of(self.kernel.operator, what)
        yield self._work(whole, shape)
        half = Amount(whole.flops // 2, whole.whole // 2, whole.cut // 2, 0, whole.fixed_bytes // 2)
        yield from [self._work(half, shape.unmasked(keys=2))] * (self.part.plan.cp - 1)

    def _exchange(self, tape: Tape) -> list[int]:
        """Send keys and values, or their gradients, to the next rank, and receive from the one before; return both requests."""
        cp, dtype = self.part.plan.cp, self.part.stack.precision.activation
        ends = (Kind.SEND, (self.at + 1) % cp), (Kind.RECV, (self.at - 1) % cp)
        return [tape.message(kind, "cp", peer, self.elements, dtype) for kind, peer in ends]

    @property
    def elements(self) -> int:
        """The elements of the keys and values of a rank: all that attention moves without queries and results."""
        queries = self.part.tokens.n * self.part.model.heads * self.part.model.head_dim // self.part.plan.tp
        operator = self.kernel.operator
        return operator.fused.forward.cut - operator.outputs.cut - queries

    def _whole(self, what: str) -> Work:
        """Return a pass of the rank's queries over all keys."""
        plan, name = self.part.plan, self.kernel.operator.name
        tokens = replace(self.part.tokens, context=plan.seq)
        found = next(o for o in self.part.model.part(self.part.name, tokens) if o.name == name)
        here = found.on(plan.cut)
        passes = passes_of(here, self.part.stack)
        return self._work(passes.forward if what == FORWARD else passes.backward_input, self._shape_of(here, what))

    def _shape_of(self, operator: ModelOperator, what: str) -> Shape:
        return MOVES if self.part.stack.attention == UNFUSED else operator.shape_of(what)

    def _asked(self, operation: str) -> Ask:
        return Ask("cp", operation, self.part.plan.cp * self.elements, self.part.stack.precision.activation)

    def _work(self, amount: Amount, shape: Shape) -> Work:
        return self.part.work(self.kernel.operator.name, amount, self.part.stack.precision.weight, shape)
