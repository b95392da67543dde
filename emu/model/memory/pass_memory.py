"""The bytes that live on one rank during a pass through a stage of the pipeline.

The bytes that a forward keeps live until its backward. Beside them live the gradients of an operator's output, inputs and
parameters; the gradient of a residual lives until both of its branches are done. Bytes that recomputation drops live again for
one layer at a time. Sharded weights and scattered gradients are counted where they are requested
(`emu.model.generate.sharded_states`).
"""

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from emu.model.memory.layer_memory import LayerMemory, Ledger
from emu.model.model import HEAD
from emu.model.operator import LOOKUP, LOSS, NORM, PRODUCT, ModelOperator

Moment = str  # the name of a moment in the pass of one layer; requests that are held under it are awaited then
# A block of experts, whose weights are sharded apart from those of their layer, begins or ends: in a forward, in a forward that
# is recomputed before a backward, and in a backward.
ENTER, ENTER_AGAIN, ENTER_BACKWARD = "enter", "enter again", "enter backward"
LEAVE, LEAVE_AGAIN, LEAVE_BACKWARD = "leave", "leave again", "leave backward"
LOSS_GRADIENT = "loss gradient"  # the gradient of the loss is there, and the backward begins


@dataclass(frozen=True)
class StageMemory:
    """The memory of one pass through a stage: its layers, its input and output, and its parameter gradients.

    The gradients of the first pass stay where they are made; those of later passes are added to them.
    """

    layers: tuple[LayerMemory, ...]
    gives: int = 0  # bytes of its output, which it keeps, less those of its input, which lie in a buffer
    taken: int = 0  # of the gradient of its input, which stays where backwards are split, less the buffer that it is put into
    buffered: int = 0  # of the gradient of its output, which lies in a buffer of its own
    scatters: bool = False  # gradients of parameters live beside the sharded ones until they are scattered (FSDP2)
    adds: bool = False  # gradients of parameters are added to a buffer that always lives

    @property
    def key(self) -> Hashable:
        """A key that is equal for passes with equal memory."""
        return self.gives, self.taken, self.buffered, tuple((layer.name, layer.routed) for layer in self.layers)

    def forward(self, place: int, ledger: Ledger) -> Iterator[Moment]:
        """Count the forward of a layer in a ledger; yield the moments at which weights of experts come and go."""
        layer = self.layers[place]
        experts = self.has_sharded_experts(layer)
        if experts:
            yield ENTER
        ledger.change(activations=layer.kept)
        ledger.rise(activations=2 * layer.between)
        if experts:
            yield LEAVE

    def end_forward(self, ledger: Ledger) -> None:
        """Count the bytes of the output that the stage sends to the next stage."""
        ledger.change(activations=self.gives)

    def backward_input(self, ledger: Ledger) -> None:
        """Count the first half of a split backward in a ledger: the gradients of inputs.

        The bytes that the forward kept live on, and so does the gradient of the output of each operator with parameters.
        """
        for layer in reversed(self.layers):
            ledger.change(activations=layer.again)
            ledger.rise(activations=layer.between + layer.travelling if layer.recomputed else 0)
            for operator, saved in zip(reversed(layer.operators), reversed(layer.saved), strict=True):
                ledger.rise(activations=layer.beside(operator))
                ledger.change(activations=layer.given(operator) - (saved if layer.recomputed else 0))
            ledger.change(activations=layer.between if layer.recomputed else 0)
        ledger.change(activations=self.taken - self.buffered - self._scored)

    def backward_weight(self, ledger: Ledger, *, first: bool) -> None:
        """Count the second half of a split backward in a ledger: the gradients of parameters.

        Then free all that the pass has kept.
        """
        kept = sum(layer.kept + sum(map(layer.given, layer.operators)) for layer in self.layers)
        after = ledger.now.activations + self.buffered + self._scored - self.gives - kept
        for layer in self.layers:
            times, left = 0, layer.again
            for operator, saved in zip(layer.operators, layer.saved, strict=True):
                given, made = layer.given(operator), layer.made_bytes(operator)
                freed = {PRODUCT: saved, NORM: min(saved, given)}.get(operator.kind, 0)
                if layer.recomputed and given:
                    times += 1  # the layer is recomputed for each operator; what no backward has used yet lives on
                    ledger.change(activations=left)
                ledger.rise(activations=made + (given if operator.kind == NORM else 0))
                stays = self.stays(layer, operator, first=first)
                waits = layer.waits(operator) - stays if first else 0
                after += waits
                ledger.change(gradients=stays, activations=waits - given - (times or 1) * freed)
                left -= freed
        ledger.change(activations=after - ledger.now.activations)

    def stays(self, layer: LayerMemory, operator: ModelOperator, *, first: bool) -> int:
        """Return the bytes of a gradient that live with its parameter from now on.

        Args:
            layer: The layer.
            operator: The operator that has the parameter.
            first: Whether this is the first pass of the step.
        """
        return layer.made_bytes(operator) if first and not self.scatters and not layer.partial(operator) else 0

    def has_sharded_experts(self, layer: LayerMemory) -> bool:
        """Return whether FSDP2 gathers the weights of a layer's experts separately from the layer's other weights."""
        return self.scatters and any(map(layer.travels, layer.operators))

    @property
    def _scored(self) -> int:
        """The bytes of the logits and of values for the loss, until the gradient of the head's input exists."""
        return sum(layer.logits + layer.scored for layer in self.layers if layer.name == HEAD)


@dataclass
class BackwardMemory:
    """The memory of one backward through a stage while it runs, counted in a ledger.

    `first` and `last` say whether it is the first or the last backward of the step.
    """

    stage: StageMemory
    ledger: Ledger
    first: bool
    last: bool
    late: int = field(default=0)  # bytes of gradients that autograd adds to others only as the whole backward ends

    def layer(self, place: int) -> Iterator[Moment]:
        """Count the backward of a layer; yield the moments at which weights of experts, or the loss's gradient, come."""
        layer = self.stage.layers[place]
        if self.stage.has_sharded_experts(layer) or not layer.is_layer:  # it stops, or frees what others have left
            yield from self._operators(layer)
            return
        key = self.stage.scatters, self.stage.adds, self.first, self.last
        if key not in layer.backwards:  # equal layers of a stage go by once
            alone = BackwardMemory(self.stage, Ledger(), self.first, self.last)
            deque(alone._operators(layer), maxlen=0)
            layer.backwards[key] = alone.ledger, alone.late
        ledger, late = layer.backwards[key]
        self.ledger.append(ledger)
        self.late += late

    def end(self) -> None:
        """Free the bytes that still live at the end of the backward."""
        kept = (layer.kept + layer.again - sum(layer.saved) for layer in self.stage.layers)
        self.ledger.change(activations=-self.late - sum(kept) - self.stage.gives)

    def _operators(self, layer: LayerMemory) -> Iterator[Moment]:
        """Count the backward of each operator of a layer, and yield its moments."""
        ledger = self.ledger
        experts = [operator for operator in layer.operators if self.stage.scatters and layer.travels(operator)]
        ledger.change(activations=layer.again)
        if layer.recomputed:
            if experts:
                yield ENTER_AGAIN
            ledger.rise(activations=layer.between + layer.travelling)
        for operator, saved in zip(reversed(layer.operators), reversed(layer.saved), strict=True):
            if experts and operator is experts[-1]:
                yield ENTER_BACKWARD
            self._operator(layer, operator, saved)
            if operator.kind == LOSS:
                yield LOSS_GRADIENT
            if experts and operator is experts[0]:
                yield LEAVE_BACKWARD

    def _operator(self, layer: LayerMemory, operator: ModelOperator, saved: int) -> None:
        """Count the backward of one operator, whose forward has kept `saved` bytes."""
        if layer.whole(operator):  # the whole table's gradient is cut when all others have been added up
            # ... but one of the two of a tied table at once: then both and their sum live.
            both = 2 * layer.gradient(operator) if self.late and layer.sums_tied(operator) else 0
            self.ledger.rise(activations=layer.beside(operator) + both)
            self.ledger.change(activations=-self.late)
            self.late = 0
        stays, lives = self._gradient(layer, operator)
        self.ledger.rise(stays, self._live_during(layer, operator) - stays)
        self.ledger.change(gradients=stays, activations=lives - saved)
        if self.last and layer.routed is not None and operator.experts and not self.stage.scatters:
            self.ledger.change(activations=layer.made_bytes(operator))  # in a bucket of the block, until the end of the step
        self.late += 0 if self.first else lives

    def _gradient(self, layer: LayerMemory, operator: ModelOperator) -> tuple[int, int]:
        """Return the bytes of an operator's gradient that live on after its backward, and those that live only during it."""
        tied = layer.sums_tied(operator)
        if self.stage.adds or (tied and operator.kind == LOOKUP):  # it is added at once to one that lives already
            return 0, 0
        stays = self.stage.stays(layer, operator, first=self.first)
        lives = self.first or tied or self._adds_late(layer, operator)
        return stays, layer.waits(operator) - stays if lives else 0

    def _live_during(self, layer: LayerMemory, operator: ModelOperator) -> int:
        """Return the bytes that live while an operator's backward runs.

        A gradient of a whole table that is cut at once is among them.
        """
        made, whole = layer.made_bytes(operator), layer.whole(operator)
        if not whole:
            return layer.beside(operator) + made
        return whole + (made if layer.waits(operator) == made else 0)

    def _adds_late(self, layer: LayerMemory, operator: ModelOperator) -> bool:
        """Return whether autograd adds up a gradient only at the end of the backward.

        It does so with the gradients of DTensors, but not with that of a whole table, nor with those of experts to which token
        rows are sent.
        """
        if (operator.kind == LOOKUP and not operator.cut) or layer.travels(operator):
            return False
        return layer.has_dtensors and not self.stage.scatters and not layer.plan.splits
