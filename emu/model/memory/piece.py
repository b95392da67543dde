"""An embedding, a layer of one kind, or a head on one rank: what its forward keeps, and what lives as its backward runs.

Counted as `emu.model.stack.passes` was, from what real ranks hold.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from emu.dtypes import item_bytes
from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.operator import ATTENTION, BIAS, GATE, LOOKUP, LOSS, NORM, PRODUCT, SUM, ModelOperator, Tokens
from emu.model.plan.plan import Plan
from emu.model.plan.vocabulary import padded_model
from emu.model.routed import Routed
from emu.model.stack.kernels import kept_by, passes_of
from emu.model.stack.stack import FUSED, Stack

_INDEX = 8  # bytes of one of a row
_TAKES = {
    GATE: 2,
    NORM: 3,
    SUM: 2,
}  # gradients of what an operator took, as many as it gave elements; with what a norm works with


@dataclass(frozen=True)
class Piece:
    """An embedding, a layer of one kind, or a head on one rank."""

    model: Model
    plan: Plan
    stack: Stack
    name: str
    routed: Routed | None = None  # rows that travel to experts in one pass, as PyTorch's pieces have them; None: none do here

    @cached_property
    def operators(self) -> tuple[ModelOperator, ...]:
        """What the rank has of each; a head in a stage of its own has its own copy of a tied table."""
        part = (self.model if self.is_layer else self._filled_up).part(self.name, self.tokens)
        own = part if self.name != HEAD or self.plan.ends_meet else (o.untied() for o in part)
        if self.routed is not None:
            return self._routed(tuple(own), self.routed.share)
        # PyTorch's router sees whole sequences where no token travels; Megatron-LM's its own tokens.
        whole = (1, 1) if self.stack.software == "pytorch" and not self.plan.exchanges else None
        return tuple(operator.on(self.plan.cut, whole if operator.routed else None) for operator in own)

    @property
    def _filled_up(self) -> Model:
        """The model with the vocabulary that its ranks share."""
        return padded_model(self.plan, self.model, self.stack)

    def _routed(self, every: tuple[ModelOperator, ...], rows: tuple[int, int]) -> tuple[ModelOperator, ...]:
        """Where tokens travel, those of a block of experts have the rank's own tokens, or such a share of their rows."""
        cut = self.plan.cut
        own = self.model.part(self.name, replace(self.tokens, length=self.plan.rank_seq // self.plan.tp))
        return tuple(
            mine.on(cut, rows if mine.experts else (1, 1)) if mine.experts or mine.routed else whole.on(cut)
            for whole, mine in zip(every, own, strict=True)
        )

    @cached_property
    def tokens(self) -> Tokens:
        """Of one pass."""
        plan = self.plan
        context = plan.seq if plan.cp > 1 and plan.cp_comm == "all_gather" else 0
        return Tokens(plan.rank_seq, context, plan.pass_batch, plan.capacity)

    @cached_property
    def item(self) -> int:
        """Bytes of an element of activations."""
        return item_bytes(self.stack.precision.activation)

    @cached_property
    def between(self) -> int:
        """Bytes of what lies between two layers."""
        return self.item * self.tokens.n * self.model.hidden // (self.plan.tp if self.plan.sp else 1)

    @property
    def logits(self) -> int:
        """Bytes; whole on each rank where the loss is not worked out on parts of them."""
        return self.item * self.tokens.n * self._filled_up.vocab // (1 if self.stack.software == "pytorch" else self.plan.tp)

    @property
    def is_layer(self) -> bool:
        """Whether it is one; the embedding and the head are what FSDP2 calls the root."""
        return self.name not in (EMBEDDING, HEAD)

    @cached_property
    def saved(self) -> tuple[int, ...]:
        """By operator, bytes that its forward keeps; tokens and targets are there anyway."""
        kept = (kept_by(operator, self.stack, self.plan).bytes(self.item) for operator in self.operators)
        anyway = {LOSS: self.logits, LOOKUP: 0}
        found = [anyway.get(o.kind, size) for o, size in zip(self.operators, kept, strict=True)]
        if self.routed is not None:  # in which order rows lie by expert, and by where they come from
            found[next(i for i, o in enumerate(self.operators) if o.experts)] += 2 * _INDEX * self.routed.here
        return tuple(found)

    @property
    def recomputed(self) -> bool:
        """Whether its forward keeps no more than what came in."""
        return self.plan.recompute == "full" and self.is_layer

    @property
    def again(self) -> int:
        """Bytes of what lives once more where it is worked out again, beside what its forward keeps."""
        return sum(self.saved) - self.between if self.recomputed else 0

    @cached_property
    def kept(self) -> int:
        """Bytes that a forward leaves for the backward; a head's logits live as long."""
        own = self.between if self.recomputed else sum(self.saved)
        whole = self.between if self.name == HEAD and self.plan.tp > 1 and self.stack.software == "pytorch" else 0
        return own + whole + (self.logits if self.name == HEAD else 0)

    @property
    def parameters(self) -> int:
        """Of the rank."""
        return sum(operator.parameters for operator in self.operators)

    @property
    def weights(self) -> int:
        """Bytes of all its parameters."""
        return sum(map(self.weight, self.operators))

    def weight(self, operator: ModelOperator) -> int:
        """Bytes of its parameters."""
        return operator.parameters * item_bytes(self.stack.precision.weight)

    def travels(self, operator: ModelOperator) -> bool:
        """Whether it is of experts that tokens travel to."""
        return self.plan.exchanges and bool(operator.experts)

    @property
    def weights_gradients(self) -> int:
        """Bytes of those of all its parameters."""
        return sum(map(self.gradient, self.operators))

    @property
    def averaged(self) -> int:
        """Bytes of those that are averaged over all ranks that see other tokens: not of experts that tokens travel to."""
        return sum(self.gradient(o) for o in self.operators if not self.travels(o))

    @cached_property
    def table_bytes(self) -> int:
        """Of constants beside the parameters, of eager PyTorch; a table of all positions is cut to those of the rank."""
        if self.stack.software != "pytorch":
            return 0
        return sum(map(self._table, self.model.part(self.name, self.tokens)))

    def _table(self, operator: ModelOperator) -> int:
        if operator.kind != LOOKUP or self.plan.cp == 1:
            return operator.table_bytes
        return operator.table_bytes * self.plan.rank_seq * self.model.hidden // operator.parameters

    @cached_property
    def travelling(self) -> int:
        """Bytes that live as rows come from their experts, but not all of what the forward keeps is there.

        Those given and taken, and what experts made of them, as it was and in the order in which it goes back.
        """
        if self.routed is None:
            return 0
        taken = self.routed.here if self.plan.ep * self.plan.expert_tp > 1 else 0
        rows = sum(self.routed.given) + taken + 2 * self.routed.here
        last = max(i for i, o in enumerate(self.operators) if o.experts)
        return self.item * rows * self.model.hidden - sum(self.saved[last + 1 :])

    def gradient(self, operator: ModelOperator) -> int:
        """Bytes of that of its parameters."""
        return operator.parameters * item_bytes(self.stack.precision.gradient)

    def made(self, operator: ModelOperator) -> int:
        """Bytes of the gradient that its backward makes: of a tied product's parameters too, which are the embedding's.

        Megatron-LM's are of the dtype of weights, and then added to others; a fused product adds at once.
        """
        precision = self.stack.precision
        if self.stack.software == "pytorch":
            return operator.own_parameters * item_bytes(precision.gradient)
        fused = operator.kind == PRODUCT and self.stack.accumulation == FUSED
        return 0 if fused else operator.own_parameters * item_bytes(precision.weight)

    def waits(self, operator: ModelOperator) -> int:
        """Bytes of it until it is reduced over all ranks: DTensor leaves a table's whole till then, where it is not DDP's."""
        late = self.plan.sharding == "fsdp" or self.plan.splits
        return (self.whole(operator) if late else 0) or self.made(operator)

    def whole(self, operator: ModelOperator) -> int:
        """Bytes of the gradient of all of a table, which DTensor makes first under tensor parallelism; 0: it makes none."""
        cut = operator.kind == LOOKUP and operator.cut and self.plan.tp > 1 and self.stack.software == "pytorch"
        return self.plan.tp * self.gradient(operator) if cut else 0

    def partial(self, operator: ModelOperator) -> bool:
        """Whether DTensor leaves its gradient to be added up till a stage has had its last backward in two."""
        plan = self.plan
        if not plan.splits or plan.tp == 1 or not operator.parameters:
            return False
        return (operator.kind == LOOKUP and bool(operator.cut)) or (plan.sp and operator.sequence)

    def tied(self, operator: ModelOperator) -> bool:
        """Whether its gradient is one of two of the table of words, which are added up on this rank."""
        if not self.model.tied or not self.plan.ends_meet:
            return False
        return (operator.kind == LOOKUP and bool(operator.cut)) or self.made(operator) > self.gradient(operator)

    def _attended(self, operator: ModelOperator, given: int) -> int:
        """Elements beside the gradient of what attention gave: those of queries, keys and values.

        In a ring: a sum of each, what one more block adds and the one before did, and keys and values, then their gradients,
        as they are put together, as they come, and as they are waited for.
        Source: PyTorch, torch/distributed/tensor/experimental/_context_parallel/_attention.py.
        """
        saved = kept_by(operator, self.stack, self.plan)
        own = max(given, saved.whole + saved.cut - given)  # of queries, keys and values
        if self.plan.ring == 1 or self.stack.software != "pytorch":
            return own
        return 3 * own - given // 2 + 6 * (own - given)

    def given(self, operator: ModelOperator) -> int:
        """Bytes of the gradient of what it gave, that waits where the backward is in two: for that of its parameters."""
        if not operator.own_parameters or operator.kind == BIAS:  # a product has one with its bias
            return 0
        return self.item * (operator.outputs.whole + operator.outputs.cut)

    def beside(self, operator: ModelOperator) -> int:
        """Bytes of activations' gradients that live as its backward runs."""
        if operator.kind == LOSS:
            return 2 * self.logits
        if operator.kind == LOOKUP:
            return self.between + self.whole(operator)
        if not passes_of(operator, self.stack).backward.elements:  # one kernel with another
            return 0
        given = operator.outputs.whole + operator.outputs.cut
        grouped = operator.experts and self.stack.software == "pytorch"
        if self.routed is not None and operator.experts and operator.cut == "in":  # put in the order of experts again
            return self.item * 3 * self.routed.here * self.model.hidden + self.between
        if operator.kind == PRODUCT and operator.shape and not grouped:
            rows, columns, inner = operator.shape
            taken, given = rows * inner, rows * columns
        elif operator.kind == ATTENTION:
            taken = self._attended(operator, given)
        else:
            taken = _TAKES.get(operator.kind, 1) * given
        return self.item * (given + taken) + (self.between if self.is_layer else 0)
