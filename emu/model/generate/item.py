"""The items of a part's passes on one rank: computations, requests, and gradients that are there; and what makes them.

All amounts are of one pass of one rank. An item waits for the request before it, unless the request is held.
"""

from dataclasses import dataclass
from typing import NamedTuple

from emu.dtypes import item_bytes
from emu.model.layer_on_rank import LayerOnRank
from emu.model.moment import Moment
from emu.model.operator import Amount
from emu.trace.kernel import MOVES, Kernel, Shape


class Computation(NamedTuple):
    """One kernel that a rank runs, with its FLOPs and its memory traffic."""

    name: str
    flops: int
    bytes: int  # of memory traffic
    elements: int  # of the activations' dtype, among them
    shape: Shape = MOVES
    dtype: str = ""  # of what a product reads, if other than that of activations


class WeightGradientComputation(Computation):
    """A computation of the gradient of a parameter; a split backward leaves it for later."""


class RepeatedComputation(Computation):
    """The share of a kernel for both gradients that runs again when the gradient of the parameter is computed separately."""


class Ask(NamedTuple):
    """A collective on the rank's group of an axis."""

    axis: str
    operation: str
    elements: int  # of the operation's whole size
    dtype: str
    held: str = ""  # for what it is kept, and waited for only there; "": it is waited for at once
    prompt: bool = False  # whether it is waited for at once even where what comes next does not read it
    splits: tuple[int, ...] = ()  # elements of each block that the rank gives; (): even


class RequestWait(NamedTuple):
    """The point at which the result of requests held under a name is needed."""

    what: str


ENTERS, GRADIENT = "enters", "gradient"  # what a request is held for: what a block reads, or the gradient of what it gave


class Gradient(NamedTuple):
    """The moment at which the gradient of a parameter is there, whole for the rank's tokens."""

    name: str
    elements: int  # of the rank's part
    late: bool  # whether autograd comes to it only after all that computes
    before: tuple["Action", ...] = ()  # what is still done with it then
    times: int = 1  # how many times as large it is until that is done; 0: it is added to what was there already
    travels: bool = False  # whether it is of experts of which other ranks have copies, to be added up by itself
    shared: bool = False  # whether another part's is added to it, which is reduced for both


Action = Computation | Ask | RequestWait


Step = Action | Moment
Item = Step | Gradient


@dataclass(frozen=True)
class Share(LayerOnRank):
    """An embedding, a layer or a head on one rank, with the computations and requests that its passes are made of."""

    at: int = 0  # the rank's position in its group of context parallelism, where the ranks of one group do different things

    def work(self, name: str, amount: Amount, parameter: str, shape: Shape = MOVES) -> Computation:
        """Return a computation with parameters (or their gradients) of dtype `parameter`; `shape` is that of its products."""
        activation = self.stack.precision.activation
        same = amount.parameters if parameter == activation else 0
        size = amount.bytes(item_bytes(activation), item_bytes(parameter))
        does = amount.flops or shape.kernel == Kernel.SCATTER_ADD
        return Computation(name, amount.flops, size, amount.whole + amount.cut + same, shape if does else MOVES)

    def active(self, name: str, amount: Amount, shape: Shape = MOVES) -> Computation:
        """Return a computation on activations."""
        return self.work(name, amount, self.stack.precision.activation, shape)

    def copied(self, name: str, elements: int) -> Computation:
        """Return a copy of a number of elements."""
        return self.active(name, Amount(whole=2 * elements))

    def own(self) -> tuple[Computation, ...]:
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
