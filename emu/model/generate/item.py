"""The items of a part's passes on one rank: computations, requests, and moments at which gradients are ready.

All amounts are of one pass of one rank. An item waits for the request before it. A request that is *held* is awaited only at
the moment with the name for which it is held.

A product in FP8 is casts and a product of operands of one byte. A product of M x K and K x N reads two of three matrices in
each pass. The forward reads its input and the weight. The backward reads the gradient of the output with the weight, and this
gradient with the input.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from emu.dtypes import FP8, item_bytes
from emu.model.layer_on_rank import LayerOnRank
from emu.model.memory.pass_memory import Moment
from emu.model.operator import FORWARD, INPUT, Amount, ModelOperator
from emu.model.stack.software import Casts
from emu.model.stack.stack import casts_of, in_fp8
from emu.trace.kernel_shape import MOVES, Shape


class Computation(NamedTuple):
    """One kernel that a rank runs, with its FLOPs and its memory traffic."""

    name: str
    flops: int
    bytes: int  # of memory traffic
    elements: int  # of the activations' dtype, among them
    shape: Shape = MOVES
    dtype: str = ""  # of what a product reads, if other than that of activations
    later: str = ""  # in a split backward: PARAMETER or REPEATED, else ""


def moving(name: str, activation: str, *parts: tuple[int, str]) -> Computation:
    """Return a kernel that only reads and writes elements.

    Args:
        name: The name of the kernel.
        activation: The dtype of activations.
        parts: Numbers of elements, each with its dtype.
    """
    size = sum(elements * item_bytes(dtype) for elements, dtype in parts)
    return Computation(name, 0, size, sum(elements for elements, dtype in parts if dtype == activation))


class Ask(NamedTuple):
    """A request for a collective on the rank's group of an axis, which a pass writes on a tape.

    `elements` is the whole size of the operation. `held` names the moment until which it need not be awaited.
    """

    axis: str
    operation: str
    elements: int  # of the operation's whole size
    dtype: str
    held: str = ""  # for what it is kept, and waited for only there; "": it is waited for at once
    prompt: bool = False  # whether it is waited for at once even where what comes next does not read it
    splits: tuple[int, ...] = ()  # elements of each block that the rank gives; (): even


ENTERS, GRADIENT = "enters", "gradient"  # what a request is held for: what a block reads, or the gradient of what it gave


class Gradient(NamedTuple):
    """The moment of a backward at which the gradient of a parameter is computed for all tokens of the rank.

    `travels` marks experts to which token rows are sent, `shared` a weight that two stages have.
    """

    name: str
    elements: int  # of the rank's part
    late: bool  # whether autograd comes to it only after all that computes
    before: tuple["Action", ...] = ()  # what is still done with it then
    times: int = 1  # how many times as large it is until that is done; 0: it is added to what was there already
    travels: bool = False  # whether it is of experts of which other ranks have copies, to be added up by itself
    shared: bool = False  # whether another part's is added to it, which is reduced for both


Action = Computation | Ask | Moment
Item = Action | Gradient

PARAMETER = "parameter"  # a computation of the gradient of a parameter; a split backward leaves it for later
REPEATED = "repeated"  # the share of a kernel for both gradients that runs again when that of the parameter comes separately


def is_later(item: Item) -> bool:
    """Return whether an item belongs to the second half (the weight gradients) of a split backward."""
    return isinstance(item, Computation) and bool(item.later)


def held_last(items: Sequence[Action], what: str = ENTERS) -> list[Action]:
    """Return the actions with their last request held: the rank waits for it only at the moment `what`.

    A request that must be awaited at once (`prompt`) is not held.
    """
    if not items or not isinstance(items[-1], Ask) or items[-1].prompt:
        return [*items]
    return [*items[:-1], items[-1]._replace(held=what)]


CAST = "cast to FP8"


class ProductPlace(NamedTuple):
    """The neighbours of a product, which decide how many bytes its casts to FP8 move."""

    normed: bool = False  # a norm comes before
    apart: bool = False  # what it reads is gathered once it is cast, so that the kernel of the cast writes no turned copy
    known: bool = False  # another product has cast what it reads
    read_over: int = 0  # ranks over which what it reads is gathered in FP8; 0: it is not
    given_over: int = 0  # the same of the gradient of what it gives


@dataclass(frozen=True)
class Share(LayerOnRank):
    """A part of a model (embedding, layer or head) on one rank; it makes the computations and requests of its passes."""

    at: int = 0  # the rank's position in its group of context parallelism, where the ranks of one group do different things

    def work(self, name: str, amount: Amount, parameter: str, shape: Shape = MOVES) -> Computation:
        """Return a computation.

        Args:
            name: The name of the computation.
            amount: Its FLOPs, and the elements that it reads and writes.
            parameter: The dtype of its parameters, or of their gradients.
            shape: The shape of its products.
        """
        activation = self.stack.precision.activation
        same = amount.parameters if parameter == activation else 0
        size = amount.bytes(item_bytes(activation), item_bytes(parameter))
        return Computation(name, amount.flops, size, amount.whole + amount.cut + same, shape)

    def active(self, name: str, amount: Amount, shape: Shape = MOVES) -> Computation:
        """Return a computation that reads and writes activations alone."""
        return self.work(name, amount, self.stack.precision.activation, shape)

    def copied(self, name: str, elements: int) -> Computation:
        """Return a computation that copies a number of elements."""
        return self.active(name, Amount(whole=2 * elements))

    def own(self) -> tuple[Computation, ...]:
        """Return the copy of the rank's own tokens out of activations with the tokens of all ranks of tp."""
        return (self.copied("own tokens", self.elements // self.plan.tp),)

    def collective(self, operation: str, elements: int, axis: str = "tp", splits: tuple[int, ...] = ()) -> Ask:
        """Return a request for a collective of activations over the groups of an axis."""
        return Ask(axis, operation, elements, self.stack.precision.activation, splits=splits)

    def gathered(self) -> tuple[Action, ...]:
        """Return the all_gather over tp of the activations between blocks, which sequence parallelism divides.

        With several sequences in a microbatch, a copy follows that puts the parts of each sequence together.
        """
        together = (self.copied("gathered", self.elements),) if self.tokens.sequences > 1 else ()
        return self.collective("all_gather", self.elements), *together

    def scattered(self) -> tuple[Action, ...]:
        """Return the actions that scatter the activations between blocks over tp, so that each rank has its own tokens."""
        return self.copied("to scatter", self.elements), self.collective("reduce_scatter", self.elements)

    def reduced(self) -> tuple[Action, ...]:
        """Return the sum over tp of the activations between blocks.

        With sequence parallelism each rank gets the sum for its own tokens, else each rank gets it for all tokens.
        """
        return self.scattered() if self.plan.sp else (self.collective("all_reduce", self.elements),)

    def with_casts(
        self, operator: ModelOperator, what: str, works: list[Computation], around: ProductPlace
    ) -> list[Computation]:
        """Return the computations of one pass of an operator, with the casts to FP8 before them if the operator runs in FP8.

        Args:
            operator: The operator on the rank.
            what: The pass: FORWARD, INPUT or WEIGHT.
            works: The computations of the pass, of which the first is the product.
            around: The position of the operator among its neighbours.
        """
        if not in_fp8(operator, self.stack, layer=self.is_layer) or not works or not works[0].flops:
            return works
        moved = _cast_bytes(operator, what, casts_of(self.stack), around)
        product, *rest = works
        return [*_cast(moved), _narrowed(self, operator, what, product), *rest]


def _cast(moved: float) -> list[Computation]:
    return [Computation(CAST, 0, round(moved), 0)] if moved else []


def _sizes(operator: ModelOperator) -> tuple[int, int, int]:
    """Return the numbers of elements of an operator's input, of its output, and of its weight."""
    m, n, k = operator.shape or (0, 0, 0)
    return m * k, m * n, n * k * max(1, operator.experts)


def _cast_bytes(operator: ModelOperator, what: str, casts: Casts, around: ProductPlace) -> float:
    """Return the bytes that the casts to FP8 before a pass of a product move.

    A tensor that is gathered over ranks is cast before: each rank then casts its own share.
    """
    read, given, weight = _sizes(operator)
    read *= not around.known
    if what == FORWARD:
        each = casts.normed if around.normed else casts.read
        return each * read / max(1, around.read_over) + casts.weight * weight
    if what == INPUT:
        turned = casts.gradient_turned - casts.together * (not around.given_over)
        return (casts.gradient / max(1, around.given_over) + turned) * given + casts.weight_turned * weight
    by_norm = around.normed and not casts.normed  # which writes FP8 itself, but not turned
    return (casts.turned - casts.together * (not around.apart and not by_norm)) * read


def _narrowed(share: Share, operator: ModelOperator, what: str, product: Computation) -> Computation:
    """Return a product with the memory traffic of operands in FP8."""
    read, given, weight = _sizes(operator)
    activation, parameter = (item_bytes(dtype) for dtype in (share.stack.precision.activation, share.weight_dtype))
    if what == FORWARD:
        less = (activation - 1) * read + (parameter - 1) * weight
    elif what == INPUT:
        less = (activation - 1) * given + (parameter - 1) * weight
    else:
        less = (activation - 1) * (read + given)
    return product._replace(bytes=product.bytes - less, elements=0, dtype=FP8)
