"""What one rank has of a part of a model, and the amounts of what it computes and asks for there."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from emu.dtypes import item_bytes
from emu.model.generate.item import Ask, Doing, Work
from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.operator import SUM, Amount, ModelOperator, Tokens
from emu.model.plan.plan import Plan
from emu.model.plan.vocabulary import padded_model
from emu.model.routed import Routed
from emu.model.stack.stack import Stack
from emu.trace.kernel import MOVES, Shape


@dataclass(frozen=True)
class Share:
    """Of an embedding, a layer of one kind, or a head."""

    model: Model
    plan: Plan
    stack: Stack
    name: str
    routed: Routed | None = None  # rows that travel to experts in one pass; None: none do here
    at: int = 0  # the rank's place in its group of context parallelism, where ranks of one do other things

    @cached_property
    def operators(self) -> tuple[ModelOperator, ...]:
        """What the rank has of each; where tokens travel, those of a block of experts have its own tokens, or rows of them."""
        model = padded_model(self.plan, self.model, self.stack) if self.name in (EMBEDDING, HEAD) else self.model
        cut, every = self.plan.cut, model.part(self.name, self.tokens)
        if self.name == HEAD and self.model.tied and not self.tied:
            every = tuple(o.untied() for o in every if o.kind != SUM)
        if self.routed is None:
            # PyTorch's router sees whole sequences where no token travels; Megatron-LM's its own tokens.
            whole = (1, 1) if self.stack.software == "pytorch" else None
            return tuple(operator.on(cut, whole if operator.routed else None) for operator in every)
        own, rows = self.model.part(self.name, self.own_tokens), self.routed.share
        return tuple(
            mine.on(cut, rows if mine.experts else (1, 1)) if mine.experts or mine.routed else whole.on(cut)
            for whole, mine in zip(every, own, strict=True)
        )

    @property
    def tied(self) -> bool:
        """Whether the rank has the embedding's weight in its head, too; where two ranks are the ends each has a copy."""
        return self.model.tied and self.plan.ends_meet

    def travels(self, operator: ModelOperator) -> bool:
        """Whether it is of experts that tokens travel to."""
        return bool(operator.experts) and self.routed is not None

    @property
    def tokens(self) -> Tokens:
        """Of one pass."""
        return Tokens(self.plan.rank_seq, sequences=self.plan.pass_batch, capacity=self.plan.capacity)

    @property
    def own_tokens(self) -> Tokens:
        """Those that the rank routes itself: each of tensor parallelism its own."""
        return Tokens(self.plan.rank_seq // self.plan.tp, sequences=self.plan.pass_batch, capacity=self.plan.capacity)

    @property
    def elements(self) -> int:
        """Of what lies between the blocks, of all tokens."""
        return self.tokens.n * self.model.hidden

    def within(self, path: str) -> Iterable[int]:
        """The numbers of the operators of a module, and of what is in it."""
        return (i for i, o in enumerate(self.operators) if o.name == path or o.name.startswith(f"{path}."))

    def work(self, name: str, amount: Amount, parameter: str, shape: Shape = MOVES) -> Work:
        """A computation, its parameters (or their gradients) of that dtype; `shape` is that of its products."""
        activation = self.stack.precision.activation
        same = amount.parameters if parameter == activation else 0
        size = amount.bytes(item_bytes(activation), item_bytes(parameter))
        return Work(name, amount.flops, size, amount.whole + amount.cut + same, shape if amount.flops else MOVES)

    def active(self, name: str, amount: Amount) -> Work:
        """A computation on activations."""
        return self.work(name, amount, self.stack.precision.activation)

    def copied(self, name: str, elements: int) -> Work:
        """So many elements read and written."""
        return self.active(name, Amount(whole=2 * elements))

    def own(self) -> tuple[Work, ...]:
        """Of what lies between the blocks, the rank's tokens taken out."""
        return (self.copied("own tokens", self.elements // self.plan.tp),)

    def asked(self, operation: str, elements: int, axis: str = "tp", splits: tuple[int, ...] = ()) -> Ask:
        """Of activations, on the rank's group of an axis."""
        return Ask(axis, operation, elements, self.stack.precision.activation, splits=splits)

    def gathered(self) -> tuple[Doing, ...]:
        """What lies between the blocks, whole again; along tokens the parts are put together by a copy of more sequences."""
        together = (self.copied("gathered", self.elements),) if self.tokens.sequences > 1 else ()
        return self.asked("all_gather", self.elements), *together

    def scattered(self) -> tuple[Doing, ...]:
        """What lies between the blocks added up over the ranks, each its tokens."""
        return self.copied("to scatter", self.elements), self.asked("reduce_scatter", self.elements)

    def reduced(self) -> tuple[Doing, ...]:
        """The same, whole on each rank or each its tokens, as the plan has it."""
        return self.scattered() if self.plan.sp else (self.asked("all_reduce", self.elements),)
