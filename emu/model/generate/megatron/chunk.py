"""One chunk of a model on one rank of Megatron-LM's: its microbatches forward and backward, and where its gradients go."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

from emu.model.generate.megatron.buffers import Buffer, Tensor, bucket_limit
from emu.model.generate.megatron.kernel import Kernel
from emu.model.generate.megatron.layer import Layer
from emu.model.generate.passes import stage_parts
from emu.model.generate.tape import Tape
from emu.model.model import Model
from emu.model.pipeline.turn import BACKWARD, FORWARD
from emu.model.plan.plan import Plan
from emu.model.routed import fullest
from emu.model.stack.stack import OVERLAPPED, Stack


@dataclass(frozen=True)
class Chunk:
    """A stage of a pipeline, or the whole model."""

    tape: Tape
    number: int
    layers: tuple[Layer, ...]
    buffers: dict[str, Buffer]  # by the axis of the ranks that have copies
    last: int  # pass of the step
    overlaps: bool  # whether gradients are reduced, and weights gathered, beside what is computed
    deferred: int = 0  # microbatches, the first, whose gradient of the head's weight is worked out after the pipeline

    def begin(self) -> None:
        """A step begins."""
        for buffer in self.buffers.values():
            buffer.cleared()
            if self.overlaps:
                buffer.ahead()

    def forward(self, pass_: int) -> None:
        """Of one microbatch."""
        if self.overlaps and pass_ == 0:
            self._forward(gathers=True)
        else:
            self.tape.again((self.number, FORWARD), self._forward)

    def backward(self, pass_: int) -> None:
        """Of one microbatch."""
        if self.overlaps and pass_ == self.last:
            self._backward(reduces=True)
        else:
            later = pass_ < self.deferred
            self.tape.again((self.number, BACKWARD, later), partial(self._backward, later=later))

    def drain(self) -> None:
        """What was deferred."""
        for layer in self.layers if self.deferred else ():
            for _ in range(self.deferred if layer.defers else 0):
                layer.deferred(self.tape)

    def _forward(self, *, gathers: bool = False) -> None:
        for place, layer in enumerate(self.layers):
            for buffer in self.buffers.values() if gathers else ():
                buffer.needs(place)
            layer.forward(self.tape)

    def _backward(self, *, reduces: bool = False, later: bool = False) -> None:
        for layer in reversed(self.layers):
            layer.backward(self.tape, partial(self._arrived, layer) if reduces else nowhere, later=later and layer.defers)

    def _arrived(self, layer: Layer, kernel: Kernel) -> None:
        self.buffers[layer.axis(kernel)].arrived()


def nowhere(kernel: Kernel) -> None:
    """Gradients stay where they are added up."""


def chunk_of(tape: Tape, model: Model, plan: Plan, stack: Stack, number: int, at: int) -> Chunk:
    """What a rank at a place of its group of cp has of a stage."""
    routed = {kind: fullest(plan, model, kind) for kind in set(model.kinds)}
    parts = stage_parts(model, plan, stack, number, lambda layer, _: routed[model.kinds[layer]])[0]
    layers = tuple(Layer(part, at) for part in parts)
    overlaps = stack.overlaps_gradients
    axes = dict.fromkeys(layer.axis(kernel) for layer in layers for kernel, _ in layer.parameters())
    # Megatron-LM leaves one bucket to chunks whose reductions are not on the way to the step's end.
    limit = bucket_limit(plan.dp) if stack.dp == OVERLAPPED and number == 0 else 0
    buffers = {
        axis: Buffer(
            tape,
            stack.precision,
            axis,
            ranks_of(plan, axis),
            plan.sharding == "zero1",
            tuple(tensor for tensor, of in _backwards(layers) if of == axis),
            limit,
        )
        for axis in axes
    }
    # The last microbatch's gradients are reduced as they come.
    deferred = min(stack.deferred, plan.passes - 1) if any(layer.defers for layer in layers) else 0
    return Chunk(tape, number, layers, buffers, plan.passes - 1, overlaps, deferred)


def ranks_of(plan: Plan, axis: str) -> int:
    """Of a group of an axis, or of several of one numbering."""
    return prod(plan.sizes[name] for name in axis.split("+"))


def _backwards(layers: tuple[Layer, ...]) -> Iterator[tuple[Tensor, str]]:
    """The parameters and the axis of each kernel, in the order in which their gradients come."""
    for place, layer in reversed(list(enumerate(layers))):
        for kernel, size in reversed(list(layer.parameters())):
            yield Tensor(size, place, layer.is_shared(kernel)), layer.axis(kernel)
