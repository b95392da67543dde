"""One chunk of a model on one rank of Megatron-LM: its microbatches forward and backward, and the way of its gradients."""

from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod

from emu.model.generate.megatron.buffers import Buffer, Tensor, bucket_limit
from emu.model.generate.megatron.megatron_layer import MegatronLayer
from emu.model.generate.megatron.rank_kernel import RankKernel
from emu.model.generate.stage_passes import ModelParts
from emu.model.generate.tape import Tape
from emu.model.memory.stage_memory import Pass, StageMemory
from emu.model.model import Model
from emu.model.pipeline.pipeline_order import BACKWARD, FORWARD
from emu.model.plan.plan import Plan
from emu.model.routed_rows import fullest
from emu.model.stack.software import OVERLAPPED
from emu.model.stack.stack import Stack

Kind = tuple[str, str]  # of a buffer: the axis of the ranks that have copies, and the dtype in which its weights are gathered


@dataclass(frozen=True)
class Chunk:
    """A stage of a pipeline, or the whole model, on one rank."""

    tape: Tape
    number: int
    memory: StageMemory
    layers: tuple[MegatronLayer, ...] = ()  # none on a silent tape, where nobody wants the events
    buffers: Mapping[Kind, Buffer] = field(default_factory=dict)

    @property
    def overlaps(self) -> bool:
        """True if gradients are reduced, and weights gathered, beside what is computed."""
        return bool(self.layers) and self.layers[0].stack.overlaps_gradients

    @cached_property
    def deferred(self) -> int:
        """The number of first microbatches whose gradient of the head's weight is computed after the pipeline."""
        if not any(layer.defers for layer in self.layers):
            return 0
        first = self.layers[0]
        return min(first.stack.deferred, first.plan.passes - 1)  # the last one's gradients are reduced as they come

    def begin(self) -> None:
        """Begin a step."""
        for buffer in self.buffers.values():
            buffer.cleared()
            if self.overlaps:
                buffer.ahead()

    def forward(self, pass_: int) -> None:
        """Run the forward of one microbatch."""
        if self.overlaps and pass_ == 0:
            self._forward(gathers=True)
        else:
            self.tape.again((self._key, FORWARD), self._forward)

    def backward(self, pass_: int) -> None:
        """Run the backward of one microbatch."""
        if self.overlaps and pass_ == self.layers[0].plan.passes - 1:
            self._backward(reduces=True)
        else:
            later = pass_ < self.deferred
            self.tape.again((self._key, BACKWARD, later), partial(self._backward, later=later))

    def drain(self) -> None:
        """Compute the gradients that were deferred."""
        for layer in self.layers if self.deferred else ():
            for _ in range(self.deferred if layer.defers else 0):
                layer.deferred(self.tape)

    @property
    def _key(self) -> Hashable:
        return self.memory.key if self.tape.silent else self.number

    def _forward(self, *, gathers: bool = False) -> None:
        """Write the forward of one microbatch in full; `gathers` says whether weights are awaited on the way."""
        for place, layer in enumerate(self.layers):
            for buffer in self.buffers.values() if gathers else ():
                buffer.needs(place)
            layer.forward(self.tape)
        for place in range(len(self.memory.layers)):
            deque(self.memory.forward(place, self.tape.memory), maxlen=0)
        self.memory.end_forward(self.tape.memory)

    def _backward(self, *, reduces: bool = False, later: bool = False) -> None:
        """Write the backward of one microbatch in full.

        Args:
            reduces: Whether full buckets of gradients are reduced on the way.
            later: Whether the gradient of the head's weight is deferred.
        """
        for layer in reversed(self.layers):
            arrived = partial(self._arrived, layer) if reduces else leave_gradient
            layer.backward(self.tape, arrived, later=later and layer.defers)
        # Gradients are added to a buffer that lives always, so that every pass holds as much as the first.
        memory = self.memory.backward(self.tape.memory, Pass(first=True, last=False))
        for place in reversed(range(len(self.memory.layers))):
            deque(memory.layer(place), maxlen=0)
        memory.end()

    def _arrived(self, layer: MegatronLayer, kernel: RankKernel) -> None:
        self.buffers[kind_of(layer, kernel)].arrived()


def leave_gradient(kernel: RankKernel) -> None:
    """Do nothing: the gradient of a kernel's parameters stays where it is added up."""


def parts_of(model: Model, plan: Plan, stack: Stack, at: int = 0) -> ModelParts:
    """Return the parts of a rank at a place of its group of context parallelism; all ranks wait for the fullest expert."""
    routed = {kind: fullest(plan, model, kind) for kind in set(model.kinds)}
    return ModelParts(model, plan, stack, lambda layer, _: routed[model.kinds[layer]], at)


def chunk_of(tape: Tape, parts: ModelParts, number: int, memory: StageMemory) -> Chunk:
    """Return the chunk of a rank for a stage."""
    layers = layers_of(parts, number)
    return Chunk(tape, number, memory, layers, buffers_of(tape, layers, number))


def layers_of(parts: ModelParts, number: int) -> tuple[MegatronLayer, ...]:
    """Return the layers of a stage."""
    own = parts.of_stage(number)[0]
    made = {id(p): MegatronLayer(p.model, p.plan, p.stack, p.name, p.routed, p.at) for p in own}
    return tuple(made[id(part)] for part in own)


def kind_of(layer: MegatronLayer, kernel: RankKernel) -> Kind:
    """Return the kind of buffer that has the parameters of a kernel."""
    return layer.axis(kernel), layer.gathers(kernel)


def buffers_of(tape: Tape, layers: tuple[MegatronLayer, ...], number: int) -> dict[Kind, Buffer]:
    """Return the buffers of gradients of a stage."""
    plan, stack = layers[0].plan, layers[0].stack
    # Megatron-LM leaves one bucket to chunks whose reductions are not on the way to the step's end.
    limit = bucket_limit(plan.dp) if stack.dp == OVERLAPPED and number == 0 else 0
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
        for axis, gathers in dict.fromkeys(kind_of(layer, kernel) for layer in layers for kernel, _ in layer.parameters())
    }


def ranks_of(plan: Plan, axis: str) -> int:
    """Return the number of ranks in a group of an axis, or of several axes joined by `+`."""
    return prod(plan.sizes[name] for name in axis.split("+"))


def _backwards(layers: tuple[MegatronLayer, ...]) -> Iterator[tuple[Tensor, Kind]]:
    """Yield the parameters of each kernel and the kind of their buffer, in the order in which their gradients come."""
    for place, layer in reversed(list(enumerate(layers))):
        for kernel, size in reversed(list(layer.parameters())):
            yield Tensor(size, place, layer.is_shared(kernel)), kind_of(layer, kernel)
