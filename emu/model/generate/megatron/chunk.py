"""One chunk of a model on one rank of Megatron-LM: forward and backward of microbatches, and the gradient buffers.

Gradients are in buffers, reduced bucket by bucket, and weights are gathered in the same buckets. With the distributed optimizer
(a plan's `sharding=zero1`) gradients are scattered over the ranks that have copies, and weights are gathered from them; without
it gradients are reduced. Exposed, a buffer is one bucket, reduced after the last backward and gathered after the optimizer.
Overlapped, the first stage's buckets of 40 M parameters, or 1 M for each rank of dp if that is more, are each reduced once
their gradients are computed; every other buffer is one bucket, and with chunks (`vp`) also that of the first stage. Weights are
gathered as the next step begins, one bucket ahead.

Scattered buffers are padded: a tensor begins at a multiple of 64 elements, a bucket ends at one of 128 and of the number of
ranks. A table of which both ends of a pipeline have a copy is then a bucket of its own. Source: Megatron-LM, core_v0.15.3,
megatron/core/distributed/{distributed_data_parallel,param_and_grad_buffer}.py; Rajbhandari et al., ZeRO (2020), section 5.1.
"""

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import lcm, prod
from typing import ClassVar, NamedTuple

from emu.model.generate.gradients import WholeGradients, gradient_work
from emu.model.generate.item import Ask
from emu.model.generate.megatron.megatron_layer import MegatronLayer
from emu.model.generate.megatron.rank_kernel import RankKernel
from emu.model.generate.rank_parts import RankParts
from emu.model.generate.tape import Tape
from emu.model.memory.pass_memory import BackwardMemory, StageMemory
from emu.model.model import Model
from emu.model.pipeline_order import BACKWARD, FORWARD
from emu.model.plan.plan import Plan
from emu.model.routed_rows import fullest, rows_by_kind
from emu.model.stack.software import OVERLAPPED
from emu.model.stack.stack import Precision, Stack

_LEAST, _EACH_RANK = 40_000_000, 1_000_000  # parameters of a bucket
_TENSOR, _BUCKET = 64, 128  # elements: where something that is scattered begins


class Tensor(NamedTuple):
    """The parameters of one kernel, as elements that lie one after another in a gradient buffer.

    `place` is the number of the part of the model in the chunk; `shared` says whether the other end of a pipeline has a copy.
    """

    elements: int
    place: int = 0  # of its part in the chunk
    shared: bool = False  # the other end of a pipeline has a copy


@dataclass
class Buffer:
    """The gradient buffer of a rank for parameters of one kind (axis and dtype), cut into buckets."""

    tape: Tape
    precision: Precision
    axis: str  # of the ranks that have copies
    ranks: int
    scattered: bool  # gradients, so that each rank changes a share of the weights
    tensors: Sequence[Tensor]  # in the order of the backward
    limit: int = 0  # parameters with which a bucket is full; 0: never
    gathers: str = ""  # the dtype in which weights are gathered; "": that of weights
    buckets: list[int] = field(init=False)  # elements of each
    of: list[int] = field(init=False)  # which bucket each tensor is in
    there: int = 0  # tensors whose gradients are
    requests: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)  # gathers of weights, asked for so far
    gathered: int = 0  # ... and waited for

    def __post_init__(self) -> None:
        begin, end = (_TENSOR, lcm(self.ranks, _BUCKET)) if self.scattered else (1, 1)
        filled, self.of, full = list[int](), list[int](), True
        for tensor in self.tensors:
            alone = tensor.shared and self.scattered
            if full or alone:
                filled.append(0)
            filled[-1] = _up(filled[-1], begin) + tensor.elements
            self.of.append(len(filled) - 1)
            full = alone or (0 < self.limit <= filled[-1])
        self.buckets = [_up(elements, end) for elements in filled]

    @property
    def elements(self) -> int:
        """The number of elements of all buckets."""
        return sum(self.buckets)

    @property
    def owned(self) -> int:
        """The number of parameters that the rank's optimizer updates."""
        return self.elements // self.ranks if self.scattered else self.elements

    def cleared(self) -> None:
        """Set all gradients to 0 at the beginning of a step."""
        self.tape.compute(gradient_work(self.precision, self.elements))

    def arrived(self) -> None:
        """Record that the last backward has computed the next tensor's gradient; start the reduction of a complete bucket."""
        self.there += 1
        if self.there == len(self.of) or self.of[self.there] != self.of[self.there - 1]:
            self.requests += self._reduced(self.buckets[self.of[self.there - 1]])

    def reduce(self) -> None:
        """Wait for the reductions that have started, then reduce the remaining buckets one after another."""
        self.tape.join(*self.requests)
        for elements in self.buckets[len(self.requests) :]:
            self.tape.join(*self._reduced(elements))

    def gather(self) -> None:
        """Gather the updated weights, one bucket after another."""
        for elements in self.buckets if self._gathers else []:
            self.tape.join(self._gathered(elements))

    def ahead(self) -> None:
        """Request the weights of the first bucket that a new step needs."""
        if self._gathers:
            self.asked.append(self._gathered(self.buckets[-1]))

    def needs(self, place: int) -> None:
        """Wait, in the first forward of a step, for the weights of part number `place`, and request the next bucket's."""
        own = [bucket for bucket, tensor in zip(self.of, self.tensors, strict=True) if tensor.place == place]
        while self._gathers and own and self.gathered < len(self.buckets) - min(own):
            self.tape.join(self.asked[self.gathered])
            self.gathered += 1
            if len(self.asked) < len(self.buckets):
                self.asked.append(self._gathered(self.buckets[-1 - len(self.asked)]))

    @property
    def _gathers(self) -> bool:
        return self.scattered and self.ranks > 1

    def _reduced(self, elements: int) -> list[int]:
        """Request the mean of a bucket's gradients, which are scaled and then summed; return the requests."""
        if self.ranks == 1:
            return []
        self.tape.compute(gradient_work(self.precision, 2 * elements))
        operation = "reduce_scatter" if self.scattered else "all_reduce"
        return [self.tape.ask(Ask(self.axis, operation, elements, self.precision.gradient))]

    def _gathered(self, elements: int) -> int:
        return self.tape.ask(self.weights(elements))

    def weights(self, elements: int) -> Ask:
        """Return the request that gathers `elements` weights."""
        return Ask(self.axis, "all_gather", elements, self.gathers or self.precision.weight)


def _up(elements: int, to: int) -> int:
    """Return the smallest multiple of `to` that is not below a number of elements."""
    return -(-elements // to) * to


Kind = tuple[str, str]  # of a buffer: the axis of the ranks that have copies, and the dtype in which its weights are gathered


@dataclass(frozen=True)
class Chunk:
    """The layers of one (virtual) stage of a pipeline, or the whole model, on one rank, with its gradient buffers."""

    gradients: ClassVar[WholeGradients] = WholeGradients()  # turns of weights and gradients do nothing: buffers are reduced
    tape: Tape
    number: int
    memory: StageMemory
    layers: tuple[MegatronLayer, ...] = ()  # none on a silent tape, where nobody wants the events
    buffers: Mapping[Kind, Buffer] = field(default_factory=dict)

    @property
    def overlaps(self) -> bool:
        """True if gradients are reduced, and weights gathered, while the rank computes."""
        return bool(self.layers) and self.layers[0].stack.overlaps_gradients

    @cached_property
    def deferred(self) -> int:
        """The number of first microbatches for which the gradient of the head's weight is computed after the pipeline."""
        if not any(layer.defers for layer in self.memory.layers):
            return 0
        first = self.memory.layers[0]
        return min(first.stack.deferred, first.plan.passes - 1)  # the last one's gradients are reduced as they come

    def begin(self) -> None:
        """Write the beginning of a step: gradients are set to 0, and the first weights are requested."""
        for buffer in self.buffers.values():
            buffer.cleared()
            if self.overlaps:
                buffer.ahead()

    def forward(self, pass_: int) -> None:
        """Write the events of the forward of microbatch `pass_` on the tape."""
        if self.overlaps and pass_ == 0:
            self._forward(gathers=True)
        else:
            self.tape.write_or_copy((self._key, FORWARD), self._forward)

    def backward(self, pass_: int) -> None:
        """Write the events of the backward of microbatch `pass_` on the tape."""
        if self.overlaps and pass_ == self.layers[0].plan.passes - 1:
            self._backward(reduces=True)
        else:
            later = pass_ < self.deferred
            self.tape.write_or_copy((self._key, BACKWARD, later), partial(self._backward, later=later))

    def drain(self) -> None:
        """Write the gradients of the head's weight that were deferred."""
        for _ in range(self.deferred):
            for layer in self.layers:
                if layer.defers:
                    layer.deferred(self.tape)
            self.tape.ledger.change(activations=-sum(layer.waiting for layer in self.memory.layers))

    @property
    def _key(self) -> Hashable:
        return self.memory.key if self.tape.silent else self.number

    def _forward(self, *, gathers: bool = False) -> None:
        """Write the events of the forward of one microbatch; if `gathers` is true, it waits for gathered weights."""
        for place, layer in enumerate(self.layers):
            for buffer in self.buffers.values() if gathers else ():
                buffer.needs(place)
            layer.forward(self.tape)
        for place in range(len(self.memory.layers)):
            deque(self.memory.forward(place, self.tape.ledger), maxlen=0)
        self.memory.end_forward(self.tape.ledger)

    def _backward(self, *, reduces: bool = False, later: bool = False) -> None:
        """Write all events of the backward of one microbatch.

        Args:
            reduces: Whether complete buckets of gradients are reduced on the way.
            later: Whether the gradient of the head's weight is deferred.
        """
        for layer in reversed(self.layers):
            arrived = partial(self._arrived, layer) if reduces else leave_gradient
            layer.backward(self.tape, arrived, later=later and layer.defers)
        # Gradients are added to a buffer that lives always, so that every pass holds as much as the first.
        memory = BackwardMemory(self.memory, self.tape.ledger, first=True, last=False)
        for place, of_layer in reversed(list(enumerate(self.memory.layers))):
            deque(memory.layer(place), maxlen=0)
            self.tape.ledger.change(activations=of_layer.waiting if later else 0)
        memory.end()

    def _arrived(self, layer: MegatronLayer, kernel: RankKernel) -> None:
        self.buffers[layer.buffer(kernel)].arrived()


def leave_gradient(kernel: RankKernel) -> None:
    """Do nothing with the gradient of a kernel, which stays in the buffer to which it was added."""


def parts_of(model: Model, plan: Plan, stack: Stack, place: int = 0, at: int = 0) -> RankParts:
    """Return the parts of a model on a rank, with as many token rows for every expert as the fullest expert has.

    Args:
        model: The model that is trained.
        plan: The plan.
        stack: The software.
        place: The place of the pipeline at which the rank is, from 0.
        at: The position of the rank in its group of context parallelism.
    """
    return RankParts(model, plan, stack, rows_by_kind(fullest, plan, model), place, at)


def layers_of(parts: RankParts, number: int) -> tuple[MegatronLayer, ...]:
    """Return the layers of the stage with a number, counted over the whole pipeline, for their forward and backward."""
    own = parts.of_pass(number, 0)
    made = {id(p): MegatronLayer(p.model, p.plan, p.stack, p.name, p.routed, p.at) for p in own}
    return tuple(made[id(part)] for part in own)


def buffers_of(tape: Tape, layers: tuple[MegatronLayer, ...], number: int) -> dict[Kind, Buffer]:
    """Return the gradient buffers of a stage, by their kind."""
    plan, stack = layers[0].plan, layers[0].stack
    # Megatron-LM leaves one bucket to chunks whose reductions are not on the way to the step's end; buckets of
    # experts are as large as others.
    limit = max(_LEAST, _EACH_RANK * plan.dp) if stack.dp == OVERLAPPED and number == 0 else 0
    return {
        (axis, gathers): Buffer(
            tape,
            stack.precision,
            axis,
            ranks_of(plan, axis),
            plan.shards_only_optimizer,
            tuple(tensor for tensor, of in _backwards(layers) if of == (axis, gathers)),
            limit,
            gathers,
        )
        for axis, gathers in dict.fromkeys(layer.buffer(kernel) for layer in layers for kernel, _ in layer.parameters())
    }


def ranks_of(plan: Plan, axis: str) -> int:
    """Return the number of ranks in a group of an axis, or of several axes joined by `+`."""
    return prod(plan.sizes[name] for name in axis.split("+"))


def _backwards(layers: tuple[MegatronLayer, ...]) -> Iterator[tuple[Tensor, Kind]]:
    """Yield the parameters of each kernel and the kind of their buffer, in the order of gradients in the backward."""
    for place, layer in reversed(list(enumerate(layers))):
        for kernel, size in reversed(list(layer.parameters())):
            yield Tensor(size, place, layer.is_shared(kernel)), layer.buffer(kernel)
