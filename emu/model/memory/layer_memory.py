"""The memory of an embedding, layer or head on one rank: bytes kept by its forward, and bytes made by its backward.

The numbers of elements were counted from the memory of real ranks, as those of `emu.model.stack.passes` were. The `Ledger`
counts the bytes that live on a rank during its step, and their peak.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from operator import add
from typing import NamedTuple

from emu.dtypes import item_bytes
from emu.model.layer_on_rank import LayerOnRank, padded_model
from emu.model.model import HEAD
from emu.model.operator import ATTENTION, BIAS, GATE, LOOKUP, LOSS, NORM, PRODUCT, SUM, ModelOperator, Tokens
from emu.model.routed_rows import RoutedRows
from emu.model.stack.software import FUSED, LAYERS
from emu.model.stack.stack import passes_of, saved_amount


class LiveBytes(NamedTuple):
    """The bytes that live on a rank, by kind, without the optimizer's state (which always lives)."""

    weights: int = 0
    gradients: int = 0
    activations: int = 0


class Pools(NamedTuple):
    """The live bytes by the stream that allocated them; PyTorch's allocator does not share memory between streams."""

    default: int = 0
    gathers: int = 0  # weights that are gathered
    reduces: int = 0  # gradients that were reduced


_NOTHING, _EMPTY = LiveBytes(), Pools()
GATHERS, REDUCES = Pools._fields[1:]


@dataclass
class Ledger:
    """The live bytes of a rank at present, at their peak, and at the peak of each allocation pool.

    A pool is the memory that PyTorch's allocator reserves for one stream.
    """

    now: LiveBytes = _NOTHING
    peak: LiveBytes = _NOTHING
    pools: Pools = _EMPTY
    reserved: Pools = _EMPTY  # the peak of each pool, at its own time

    def change(self, weights: int = 0, gradients: int = 0, activations: int = 0, pool: str = "default") -> None:
        """Add bytes that live from now on; a negative number frees bytes."""
        more = LiveBytes(weights, gradients, activations)
        self.now, self.pools = LiveBytes(*map(add, self.now, more)), Pools(*map(add, self.pools, Pools(**{pool: sum(more)})))
        self._see(self.now, self.pools)

    def rise(self, gradients: int = 0, activations: int = 0) -> None:
        """Count bytes that live only at this moment and are freed at once; they raise the peak."""
        self._see_with(LiveBytes(0, gradients, activations), Pools(gradients + activations))

    def append(self, other: "Ledger") -> None:
        """Add the changes of another ledger, which started empty, as if they happened now."""
        self._see_with(other.peak, other.reserved)
        self.now, self.pools = LiveBytes(*map(add, self.now, other.now)), Pools(*map(add, self.pools, other.pools))
        self._see(self.now, self.pools)

    def _see_with(self, more: LiveBytes, pools: Pools) -> None:
        """Update the peaks as if further bytes lived at this moment, without keeping these bytes."""
        self._see(LiveBytes(*map(add, self.now, more)), Pools(*map(add, self.pools, pools)))

    def _see(self, lives: LiveBytes, pools: Pools) -> None:
        """Raise the peak to the bytes that live at one moment, if these are more."""
        if sum(lives) > sum(self.peak):
            self.peak = lives
        self.reserved = Pools(*map(max, self.reserved, pools))


_INDEX = 8  # bytes of the index of one row
_SINGLE = item_bytes("float32")
# Gradients of an operator's inputs, as multiples of the elements of its output; of a norm also its temporary tensors.
_INPUT_GRADIENTS = {GATE: 2, NORM: 3, SUM: 2}


@dataclass(frozen=True)
class LayerMemory(LayerOnRank):
    """The bytes that one embedding, layer or head of a rank keeps after its forward, and those that its backward makes.

    The argument `operator` of its methods is always one of `operators`.
    """

    backwards: dict[Hashable, tuple[Ledger, int]] = field(default_factory=dict, compare=False, repr=False)  # that have gone by

    @cached_property
    def tokens(self) -> Tokens:
        """The tokens of one pass; if context parallelism gathers all keys, attention sees the keys of the whole sequence."""
        plan = self.plan
        context = plan.seq if plan.cp > 1 and plan.cp_comm == "all_gather" else 0
        return Tokens(plan.rank_seq, context, plan.pass_batch, plan.capacity)

    @cached_property
    def item(self) -> int:
        """The bytes of one element of activations."""
        return item_bytes(self.stack.precision.activation)

    @cached_property
    def between(self) -> int:
        """The bytes of the activations that one layer passes to the next."""
        return self.item * self.tokens.n * self.model.hidden // (self.plan.tp if self.plan.sp else 1)

    @property
    def logits(self) -> int:
        """The bytes of the logits on a rank."""
        vocabulary = padded_model(self.plan, self.model, self.stack).vocab
        return self.item * self.tokens.n * vocabulary // (1 if self.stack.software.keeps_whole_logits else self.plan.tp)

    @property
    def waiting(self) -> int:
        """The bytes that a deferred gradient of the head's weight needs: the gradient of the logits, and what the head reads.

        Source: Megatron-LM, megatron/core/tensor_parallel/layers.py, `grad_output_buffer` and `embedding_activation_buffer`.
        """
        return self.logits + self.between if self.defers else 0

    @property
    def scored(self) -> int:
        """Bytes that the loss keeps of the logits, in float32 or wider.

        The gradient of each step of the loss has as many bytes.
        """
        return self.logits * max(self.item, _SINGLE) // self.item if self.stack.is_narrow else self.logits

    @cached_property
    def saved(self) -> tuple[int, ...]:
        """Bytes that the forward of each operator keeps for its backward.

        Tokens and targets are left out, because they always live.
        """
        kept = (
            saved_amount(operator, self.stack, self.plan, layer=self.is_layer).bytes(self.item) for operator in self.operators
        )
        anyway = {LOSS: self.scored, LOOKUP: 0}
        found = [anyway.get(o.kind, size) - self._gathered(o) for o, size in zip(self.operators, kept, strict=True)]
        if self._ordered is not None:  # in which order rows lie by expert, and by where they come from
            found[next(i for i, o in enumerate(self.operators) if o.experts)] += 2 * _INDEX * self._ordered.here
        return tuple(found)

    def _gathered(self, operator: ModelOperator) -> int:
        """Return the bytes of other ranks' keys and values that attention gathers once more in its backward.

        They are 0 if context parallelism gathers none, and for eager attention, which keeps them from its forward.
        """
        if operator.kind != ATTENTION or not self.tokens.context or self.stack.software.is_eager:
            return 0
        return self.item * self.attended_elements(operator) * (self.plan.cp - 1) // self.plan.cp

    @property
    def again(self) -> int:
        """The bytes that live in the backward because of recomputation, beyond those that the forward kept."""
        return sum(self.saved) - self.kept + self._never_read if self.recomputed else 0

    @cached_property
    def kept(self) -> int:
        """The bytes that the forward keeps for the backward, including the logits of a head."""
        own = self.between + sum(map(self._output_bytes, self._keepers)) if self.recomputed else sum(self.saved)
        whole = self.between if self.name == HEAD and self.has_dtensors else 0
        return own + whole + (self.logits if self.name == HEAD else 0)

    @property
    def _never_read(self) -> int:
        """The bytes of the kept output of the operator before the layer's last sum; 0 if it is not kept.

        Eager PyTorch keeps this output, though the backward of a sum reads none of its inputs. A compiler drops it.
        """
        return sum(self._output_bytes(operator) for operator in self._keepers if operator is self.operators[-2])

    @property
    def _keepers(self) -> list[ModelOperator]:
        """The operators whose outputs are kept if the rest of the layer is recomputed."""
        kept = self.outputs_kept - ({len(self.operators) - 2} if self.stack.compile == LAYERS else set())
        return [self.operators[i] for i in sorted(kept)]

    def _output_bytes(self, operator: ModelOperator) -> int:
        """Return the bytes of an operator's output and of the statistics that it keeps."""
        statistics = passes_of(operator, self.stack).saved.fixed_bytes
        return self.item * (operator.outputs.whole + operator.outputs.cut) + statistics

    @property
    def has_dtensors(self) -> bool:
        """True if parameters that tensor parallelism cuts are DTensors."""
        return self.plan.tp > 1 and self.stack.software.keeps_dtensors

    @property
    def parameters(self) -> int:
        """The number of parameters of the layer on this rank."""
        return sum(operator.parameters for operator in self.operators)

    @property
    def averaged(self) -> int:
        """The bytes of the gradients that data parallelism averages: all except those of experts to which rows are sent."""
        return sum(self.gradient(o) for o in self.operators if not self.travels(o))

    @cached_property
    def table_bytes(self) -> int:
        """Bytes of constants of eager modules, such as tables of rotary angles."""
        if not self.stack.software.is_eager:
            return 0
        return sum(map(self._table, self.model.part(self.name, self.tokens)))

    def _table(self, operator: ModelOperator) -> int:
        """Return the bytes of an operator's constant table; with cp, only of the positions of the rank."""
        if operator.kind != LOOKUP or self.plan.cp == 1:
            return operator.table_bytes
        return operator.table_bytes * self.plan.rank_seq * self.model.hidden // operator.parameters

    @property
    def _ordered(self) -> RoutedRows | None:
        """The rows that travel, if operators of their own put them in the order of experts, as grouped kernels need them."""
        return self.routed if self.stack.software.groups_experts else None

    @cached_property
    def travelling(self) -> int:
        """Bytes by which the peak during the exchange of token rows exceeds the bytes that the forward keeps.

        During the exchange, the sent and the received rows live, and the rows that the experts have computed live in two
        orders. What the operators after the experts keep does not live yet.
        """
        routed = self._ordered
        if routed is None:
            return 0
        taken = routed.here if self.plan.ep * self.plan.expert_tp > 1 else 0
        rows = sum(routed.given) + taken + 2 * routed.here
        last = max(i for i, o in enumerate(self.operators) if o.experts)
        return self.item * rows * self.model.hidden - sum(self.saved[last + 1 :])

    def gradient(self, operator: ModelOperator) -> int:
        """Return the bytes of the gradient of the operator's parameters."""
        return operator.parameters * item_bytes(self.stack.precision.gradient)

    def made_bytes(self, operator: ModelOperator) -> int:
        """Return the bytes of the weight gradient that an operator's backward allocates.

        A gradient that is added to a buffer is made in the dtype of the weights. A fused product adds to the buffer at once, so
        that its gradient takes no bytes of its own.
        """
        if not self.stack.software.adds_gradients:
            return operator.own_parameters * item_bytes(self.gradient_dtype)
        fused = operator.kind == PRODUCT and self.stack.accumulation == FUSED
        return 0 if fused else operator.own_parameters * item_bytes(self.stack.precision.weight)

    def waits(self, operator: ModelOperator) -> int:
        """Return the bytes that an operator's weight gradient occupies until it is reduced.

        Without DDP, DTensor keeps the gradient of a whole embedding table until then.
        """
        late = self.plan.shards_weights or self.plan.splits
        return (self.whole(operator) if late else 0) or self.made_bytes(operator)

    def whole(self, operator: ModelOperator) -> int:
        """Return the bytes of the gradient of the whole embedding table, which DTensor makes for tp; 0 for others."""
        cut = operator.kind == LOOKUP and operator.cut and self.has_dtensors
        return self.plan.tp * self.made_bytes(operator) if cut else 0

    def partial(self, operator: ModelOperator) -> bool:
        """Return whether DTensor leaves a gradient unreduced over tp until the last backward of the stage (split backwards)."""
        plan = self.plan
        if not plan.splits or plan.tp == 1 or not operator.parameters:
            return False
        return (operator.kind == LOOKUP and bool(operator.cut)) or (plan.sp and operator.sequence)

    def sums_tied(self, operator: ModelOperator) -> bool:
        """Return whether this rank sums two gradients of one table, because embedding and head are tied."""
        if not self.model.tied or not self.plan.ends_meet:
            return False
        return (operator.kind == LOOKUP and bool(operator.cut)) or operator.own_parameters > operator.parameters

    def _attended(self, operator: ModelOperator, given: int) -> int:
        """Return the elements of the gradients of queries, keys and values, which live beside that of attention's output.

        A ring of context parallelism packs keys and values into messages. Then a sum of each gradient lives, the gradients of
        the last two steps, and keys, values and their gradients three times: packed, arriving, and awaited. Source: PyTorch,
        torch/distributed/tensor/experimental/_context_parallel/_attention.py.

        Args:
            operator: The operator of attention.
            given: The elements of the gradient of its output.
        """
        saved = saved_amount(operator, self.stack, self.plan)
        own = max(given, saved.whole + saved.cut - given)  # of queries, keys and values
        if self.plan.ring == 1 or not self.stack.software.packs_ring:
            return own
        return 3 * own - given // 2 + 6 * (own - given)

    def given(self, operator: ModelOperator) -> int:
        """Return the bytes of the gradient of an operator's output, which a split backward keeps for its second half."""
        if not operator.own_parameters or operator.kind == BIAS:  # a product has one with its bias
            return 0
        return self.item * (operator.outputs.whole + operator.outputs.cut)

    def beside(self, operator: ModelOperator) -> int:
        """Return the bytes of gradients of activations that live while an operator's backward runs."""
        if operator.kind == LOSS:
            return 2 * self.scored
        if operator.kind == LOOKUP:
            return self.between + self.whole(operator)
        if not self.passes(operator).backward.elements:  # one kernel with another
            return 0
        given = operator.outputs.whole + operator.outputs.cut
        grouped = operator.experts and self.stack.software.groups_experts
        if self._ordered is not None and operator.experts and operator.cut == "in":  # put in the order of experts again
            return self.item * 3 * self._ordered.here * self.model.hidden + self.between
        if operator.kind == PRODUCT and operator.shape and not grouped:
            rows, columns, inner = operator.shape
            taken, given = rows * inner, rows * columns
        elif operator.kind == ATTENTION:
            taken = self._attended(operator, given)
        else:
            taken = _INPUT_GRADIENTS.get(operator.kind, 1) * given
        return self.item * (given + taken) + self._gathered(operator) + (self.between if self.is_layer else 0)
