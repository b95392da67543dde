"""The kernels of Megatron-LM for a part of a model: products with one input are merged, element-wise work is fused.

Each kernel knows whether the region that tensor parallelism cuts begins or ends with it. Source: Megatron-LM,
megatron/core/tensor_parallel/layers.py; Narayanan et al. (SC21), section 2.3; Korthikanti et al. (2022), section 4.2.

Of latent attention the narrow products and norms run on the tokens that sequence parallelism leaves a rank; the two latents and
the part of a key that all heads share are gathered, each by itself. Without it every rank runs them on all tokens, and the
gradients of the latents are summed. Source: Megatron-LM, core_v0.15.3, megatron/core/transformer/multi_latent_attention.py.

Over sequences of which each rank of cp has a part, keys and values of attention go round a ring, or are gathered:

- `p2p`: CP blocks one after another, each beside the messages that bring the keys and values of the next: CP - 1 exchanges
  forward; backward as many, and CP of the gradients of keys and values. The rank's own block is whole; of each other one a
  causal mask leaves half. Source: Liu et al., Ring Attention (2023); Transformer Engine, context_parallel.py.
- `all_gather`: all keys and values at once, and a reduce_scatter of their gradients. Source: Dubey et al. (2024), 3.3.2.

The requests of a block of experts: token rows to their experts and back, and through the ranks that share an expert; with
uneven rows, those of the rank with the fullest expert.

Each rank has 1 / tp of the tokens. Their rows go to the ranks of `ep` that have their experts, and are gathered over `etp`;
the experts' outputs are scattered over `etp` and go back. The backward does the same in the other order. Before, all ranks
learn the number of rows of each expert, unless every expert is filled up to its capacity. Rows come by rank: where a rank has
several experts they are sorted by expert, and sorted back. Source: Megatron-LM, core_v0.10.0,
megatron/core/transformer/moe/token_dispatcher.py (alltoall).

Without sequence parallelism (which Megatron-LM requires to train experts under tp) the ranks of tp have the same tokens: the
rows that each got back are gathered there. Where they share every expert no row travels, and the outputs are added up.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from emu.model.generate.gradients import run
from emu.model.generate.item import Ask, Computation, Share
from emu.model.generate.tape import Tape
from emu.model.operator import FORWARD, INPUT, PERMUTATION, PRODUCT, ROTATION, Amount, ModelOperator, Passes
from emu.model.stack.software import OVERLAPPED, UNFUSED
from emu.model.stack.stack import Stack, passes_of
from emu.trace.kernel_shape import MOVES, Shape
from emu.trace.trace import Kind

_COUNT = "int64"  # of rows


def row_counts(share: Share) -> list[Ask]:
    """Return the request by which ranks learn the number of token rows of each expert; none with a capacity."""
    told = _stay(share) or share.plan.capacity
    axis = "" if told else "+".join(name for name in ("etp", "ep") if share.plan.sizes[name] > 1)
    ranks = share.plan.expert_tp * share.plan.ep
    return [Ask(axis, "all_gather", ranks * share.model.experts, _COUNT)] if axis else []


def sorted_rows(share: Share) -> list[Computation]:
    """Return the copy that sorts received rows by expert, or back by rank; empty if a rank has a single expert."""
    several = share.model.experts > share.plan.ep
    elements = share.plan.expert_tp * _row_elements(share) if share.plan.exchanges and several else 0
    return [share.copied("sorted", elements)] if elements else []


def rows_there(share: Share) -> list[Ask]:
    """Return the requests that send token rows to their experts, or the gradients of the experts' outputs."""
    dtype = share.stack.precision.dispatch or share.stack.precision.activation
    return [*_travel(share, dtype), *_among_sharers(share, "all_gather", dtype)]


def rows_back(share: Share) -> list[Ask]:
    """Return the requests that send rows back from their experts, or the gradients of the experts' inputs."""
    dtype = share.stack.precision.activation
    return [*_among_sharers(share, "reduce_scatter", dtype), *_travel(share, dtype)]


def travel(tape: Tape, share: Share, comes: bool, goes: bool, works: Sequence[Computation]) -> None:
    """Write the work of experts between the exchanges of their rows.

    Args:
        tape: The tape.
        share: The part of the model.
        comes: Whether rows, or their gradients, are sent to the experts before.
        goes: Whether rows, or their gradients, are sent back afterwards.
        works: The computations of the experts.
    """
    there, back = rows_there(share) if comes else [], rows_back(share) if goes else []
    hides, order = int(share.stack.ep == OVERLAPPED), sorted_rows(share)
    run(tape, there[: len(there) - hides])
    works = [*(order if comes else []), *works, *(order if goes else [])]
    run_beside(tape, [*(there[-1:] if hides else []), *back[:hides]], works)
    run(tape, back[hides:])


def run_beside(tape: Tape, asks: Sequence[Ask], works: Sequence[Computation]) -> None:
    """Write requests and computations that run at the same time; the next event waits for both."""
    numbers = [tape.ask(ask) for ask in asks]
    run(tape, works)
    tape.join(*numbers)


def _travel(share: Share, dtype: str) -> list[Ask]:
    """Return the request that sends rows to the ranks of their experts, as a list; empty if each rank has all experts."""
    return [Ask("ep", "all_to_all", _row_elements(share), dtype)] if share.plan.ep > 1 else []


def _among_sharers(share: Share, operation: str, dtype: str) -> list[Ask]:
    """Return the request among the ranks that share an expert's weights, as a list; empty if one rank has them."""
    etp = share.plan.expert_tp
    return [Ask("etp", operation, etp * _row_elements(share), dtype)] if etp > 1 and not _stay(share) else []


def _row_elements(share: Share) -> int:
    """Return the elements of the rows that a rank sends or receives, whichever are more."""
    if share.routed is not None:
        return share.routed.most * share.model.hidden
    return next(o.outputs.whole for o in share.operators if o.kind == PERMUTATION)


def _stay(share: Share) -> bool:
    """Return whether token rows stay on their rank, because the ranks of tp share every expert and have the same tokens."""
    return not share.plan.sp and not share.plan.exchanges


class RankKernel(NamedTuple):
    """One kernel of a rank: its operator, and the work of its passes.

    It also says whether the kernel reads from or writes to outside the region that tensor parallelism cuts.
    """

    operator: ModelOperator
    passes: Passes
    enters: bool = False  # reads what lies outside the region that tensor parallelism cuts
    leaves: bool = False  # gives a share of what its ranks add up
    receives: bool = False  # reads the rows that came to a rank's experts
    returns: bool = False  # gives what goes back from them
    read: int = 0  # elements that it reads where it enters, if they are not those between two blocks


def kernels(operators: Sequence[ModelOperator], stack: Stack, *, alike: bool = False) -> tuple[RankKernel, ...]:
    """Return the kernels of a part of the model on a rank, in the order of the forward.

    Args:
        operators: The operators of the part of the model on the rank.
        stack: The software whose kernels run.
        alike: Whether the ranks of tensor parallelism have the same tokens, so that a block of experts is also a region that
            tensor parallelism cuts.
    """
    found, inside, fused = [], False, tuple(_fused(operators))
    experts = [operator for operator in fused if operator.experts]
    routed = [operator for operator in fused if operator.routed] if alike else []
    combined = [operator for operator in routed if operator.kind == PERMUTATION][-1:]
    for operator in fused:
        product = operator.kind == PRODUCT and not operator.sequence and not operator.experts
        shared = operator.kind == ROTATION and not operator.cut and not alike  # a part of keys, gathered for the heads
        inside = inside and not operator.sequence  # each latent is gathered by itself
        enters, leaves = product and not inside, operator.cut == "in" and not operator.experts
        inside, read = (inside or enters) and not leaves, _read_elements(operator) if enters or shared else 0
        enters, leaves = enters or shared or operator in routed[:1], leaves or operator in combined
        ends = (operator is experts[0], operator is experts[-1]) if operator.experts else (False, False)
        found.append(RankKernel(operator, passes_of(operator, stack), enters, leaves, *ends, read))
    return tuple(found)


def _read_elements(operator: ModelOperator) -> int:
    """Return the elements that an operator of activations reads; 0 for one whose tokens are routed."""
    m, _, k = operator.shape or (operator.outputs.whole, 0, 1)
    return 0 if operator.routed else m * k


def _fused(operators: Iterable[ModelOperator]) -> Iterator[ModelOperator]:
    """Yield the operators, with products that read the same input merged into one."""
    every = list(operators)
    for operator in every:
        together = [o for o in every if o.reads_with == operator.reads_with] if operator.reads_with else [operator]
        if together[0] is operator:
            yield _product(together) if together[1:] else operator


def _product(of: Sequence[ModelOperator]) -> ModelOperator:
    """Return one product that does the work of several products with the same input."""
    m, _, k = of[0].shape or (0, 0, 0)
    read = Amount(whole=-m * k).times(len(of) - 1)

    def summed(name: str) -> Amount:
        return sum((getattr(o.fused, name) for o in of), Amount())

    passes = Passes(
        summed("forward") + read, summed("backward_input") + read, summed("backward_weight") + read, summed("saved")
    )
    return replace(
        of[0],
        parameters=sum(o.parameters for o in of),
        fused=passes,
        outputs=sum((o.outputs for o in of), Amount()),
        shape=(m, sum(o.shape[1] for o in of if o.shape), k),
    )


@dataclass(frozen=True)
class ContextKernels:
    """The attention of one part, on a rank in a group of context parallelism."""

    share: Share
    kernel: RankKernel

    def forward(self, tape: Tape) -> None:
        """Write the forward of one pass on a tape."""
        if self.share.plan.cp_comm == "all_gather":
            run(tape, (self._asked("all_gather"), self._over_all_keys(FORWARD)))
        else:
            self._round(tape, self.kernel.passes.forward, gradients=False)

    def backward(self, tape: Tape) -> None:
        """Write the backward of one pass on a tape."""
        if self.share.plan.cp_comm == "all_gather":
            run(tape, (self._asked("all_gather"), self._over_all_keys(INPUT), self._asked("reduce_scatter")))
        else:
            self._round(tape, self.kernel.passes.backward_input, gradients=True)

    def _round(self, tape: Tape, whole: Amount, *, gradients: bool) -> None:
        """Write the attention of one step of the ring after another.

        In the backward, the gradients of a step's keys and values follow these round the ring, and each rank adds its own.

        Args:
            tape: The tape.
            whole: The amount of attention on the rank's own keys.
            gradients: Whether it is the backward.
        """
        follows: list[int] = []
        for step, work in enumerate(self._blocks(whole, INPUT if gradients else FORWARD)):
            here = self._exchange(tape) if step < self.share.plan.cp - 1 else []
            tape.join(*(here if self.share.stack.cp != OVERLAPPED else ()))
            tape.compute(work)
            tape.join(*here, *follows)
            follows = self._exchange(tape) if gradients else []
            tape.join(*(follows if self.share.stack.cp != OVERLAPPED else ()))
        tape.join(*follows)

    def _blocks(self, whole: Amount, what: str) -> Iterator[Computation]:
        """Yield the computation of each step: the whole block of the rank's own keys, and half of each other block (causal)."""
        shape = self._shape_of(self.kernel.operator, what)
        yield self._work(whole, shape)
        half = Amount(whole.flops // 2, whole.whole // 2, whole.cut // 2, 0, whole.fixed_bytes // 2)
        yield from [self._work(half, shape.unmasked(keys=2))] * (self.share.plan.cp - 1)

    def _exchange(self, tape: Tape) -> list[int]:
        """Write the send of keys and values (or their gradients) to the next rank, and the receive from the previous one.

        Return the numbers of both events.
        """
        cp, dtype = self.share.plan.cp, self.share.stack.precision.activation
        ends = (Kind.SEND, (self.share.at + 1) % cp), (Kind.RECV, (self.share.at - 1) % cp)
        return [tape.message(kind, "cp", peer, self.elements, dtype) for kind, peer in ends]

    @property
    def elements(self) -> int:
        """The number of elements of the keys and values of a rank."""
        return self.share.attended_elements(self.kernel.operator)

    def _over_all_keys(self, what: str) -> Computation:
        """Return the attention between the rank's queries and the keys of all ranks."""
        plan, name = self.share.plan, self.kernel.operator.name
        tokens = replace(self.share.tokens, context=plan.seq)
        found = next(o for o in self.share.model.part(self.share.name, tokens) if o.name == name)
        here = found.on(plan.cut)
        passes = passes_of(here, self.share.stack)
        return self._work(passes.forward if what == FORWARD else passes.backward_input, self._shape_of(here, what))

    def _shape_of(self, operator: ModelOperator, what: str) -> Shape:
        return MOVES if self.share.stack.attention == UNFUSED else operator.shape_of(what)

    def _asked(self, operation: str) -> Ask:
        return Ask("cp", operation, self.share.plan.cp * self.elements, self.share.stack.precision.activation)

    def _work(self, amount: Amount, shape: Shape) -> Computation:
        return self.share.work(self.kernel.operator.name, amount, self.share.stack.precision.weight, shape)
