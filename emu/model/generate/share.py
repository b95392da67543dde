"""The computations and requests that the passes of one layer on one rank are made of."""

from dataclasses import dataclass

from emu.dtypes import item_bytes
from emu.model.generate.item import Action, Ask, Work
from emu.model.layer_on_rank import LayerOnRank
from emu.model.operator import Amount
from emu.trace.kernel import MOVES, Shape


@dataclass(frozen=True)
class Share(LayerOnRank):
    """An embedding, a layer or a head on one rank, with the computations and requests that its passes are made of."""

    at: int = 0  # the rank's position in its group of context parallelism, where the ranks of one group do different things

    def work(self, name: str, amount: Amount, parameter: str, shape: Shape = MOVES) -> Work:
        """Return a computation with parameters (or their gradients) of dtype `parameter`; `shape` is that of its products."""
        activation = self.stack.precision.activation
        same = amount.parameters if parameter == activation else 0
        size = amount.bytes(item_bytes(activation), item_bytes(parameter))
        return Work(name, amount.flops, size, amount.whole + amount.cut + same, shape if amount.flops else MOVES)

    def active(self, name: str, amount: Amount) -> Work:
        """Return a computation on activations."""
        return self.work(name, amount, self.stack.precision.activation)

    def copied(self, name: str, elements: int) -> Work:
        """Return a copy of a number of elements."""
        return self.active(name, Amount(whole=2 * elements))

    def own(self) -> tuple[Work, ...]:
        """Return the copy of the rank's own tokens out of the activations between blocks."""
        return (self.copied("own tokens", self.elements // self.plan.tp),)

    def asked(self, operation: str, elements: int, axis: str = "tp", splits: tuple[int, ...] = ()) -> Ask:
        """Return a request for activations, on the rank's group of an axis."""
        return Ask(axis, operation, elements, self.stack.precision.activation, splits=splits)

    def gathered(self) -> tuple[Action, ...]:
        """Return the gathering of the activations between blocks; with several sequences a copy puts the parts together."""
        together = (self.copied("gathered", self.elements),) if self.tokens.sequences > 1 else ()
        return self.asked("all_gather", self.elements), *together

    def scattered(self) -> tuple[Action, ...]:
        """Return the sum of the activations between blocks over the ranks, of which each rank keeps its tokens."""
        return self.copied("to scatter", self.elements), self.asked("reduce_scatter", self.elements)

    def reduced(self) -> tuple[Action, ...]:
        """Return the sum of the activations between blocks: whole on each rank, or each rank its tokens, as the plan says."""
        return self.scattered() if self.plan.sp else (self.asked("all_reduce", self.elements),)
