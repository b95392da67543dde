"""One rank's share of an embedding, a layer or a head: its operators, cut by the plan, for the tokens of one pass.

Software may pad a vocabulary that tensor parallelism does not divide. Source: Megatron-LM (commit d98e8a64),
megatron/training/vocab_utils.py, `calculate_padded_vocab_size`: to a multiple of 128 * tp, 128 being the default of
`make_vocab_size_divisible_by`. It pads every vocabulary; here a vocabulary that tp divides stays as the model's source prints
it, which is usually a padded size already.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, cast

from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.operator import SUM, ModelOperator, Passes, Tokens
from emu.model.plan.plan import Plan
from emu.model.routed_rows import RoutedRows
from emu.model.stack.stack import Stack
from emu.model.stack.stack_kernels import passes_of

_EACH = 128  # the rows of a rank are a multiple of this
_PARTS = 2**10  # the most cached parts of a model with a padded vocabulary


@dataclass(frozen=True)
class LayerOnRank:
    """An embedding, a layer of one kind, or a head, as far as one rank computes and stores it."""

    model: Model
    plan: Plan
    stack: Stack
    name: str  # EMBEDDING, HEAD, or a kind of layer of the model
    routed: RoutedRows | None = None  # rows that travel to experts in one pass; None: none travel here

    @cached_property
    def operators(self) -> tuple[ModelOperator, ...]:
        """The rank's share of each operator.

        Where tokens travel to their experts, the operators of a block of experts see the rank's own tokens, or the rows that
        its experts take. All other operators see the tokens of the whole tensor-parallel group.
        """
        model = padded_model(self.plan, self.model, self.stack) if not self.is_layer else self.model
        cut, every = self.plan.cut, model.part(self.name, self.tokens)
        if self.name == HEAD and self.model.tied and not self.tied:
            every = tuple(operator.untied() for operator in every if operator.kind != SUM)
        if self.routed is None:
            whole = (1, 1) if self.stack.software.routes_whole_sequences else None
            return tuple(operator.on(cut, whole if operator.routed else None) for operator in every)
        own, rows = self.model.part(self.name, self.own_tokens), self.routed.share

        def on_rank(whole: ModelOperator, mine: ModelOperator) -> ModelOperator:
            if mine.experts:
                return mine.on(cut, rows)
            return mine.on(cut, (1, 1)) if mine.routed else whole.on(cut)

        return tuple(map(on_rank, every, own))

    @property
    def is_layer(self) -> bool:
        """True if it is a layer, and neither the embedding nor the head."""
        return self.name not in (EMBEDDING, HEAD)

    @property
    def tied(self) -> bool:
        """True if the rank's head uses the embedding's weight. Where two ranks are the ends of a pipeline, each has a copy."""
        return self.model.tied and self.plan.ends_meet

    @cached_property
    def tokens(self) -> Tokens:
        """The tokens of one pass."""
        return Tokens(self.plan.rank_seq, sequences=self.plan.pass_batch, capacity=self.plan.capacity)

    @property
    def own_tokens(self) -> Tokens:
        """The tokens that the rank itself routes to experts: each rank of tensor parallelism routes its own share."""
        return replace(self.tokens, length=self.plan.rank_seq // self.plan.tp)

    @property
    def elements(self) -> int:
        """Elements of the activations between two blocks, of all tokens."""
        return self.tokens.n * self.model.hidden

    @property
    def weight_dtype(self) -> str:
        """The dtype in which weights enter computations: FSDP2 casts those that it gathers to that of activations."""
        return self.stack.gathered if self.plan.shards_weights else self.stack.precision.weight

    @property
    def gradient_dtype(self) -> str:
        """The dtype in which autograd makes the gradients of weights: that of the weights that FSDP2 gathered."""
        return self.stack.gathered if self.plan.shards_weights else self.stack.precision.gradient

    def passes(self, operator: ModelOperator) -> Passes:
        """Return what the software moves in each pass of an operator of the layer."""
        return passes_of(operator, self.stack, layer=self.is_layer)

    def travels(self, operator: ModelOperator) -> bool:
        """Return whether the operator is of experts that tokens travel to."""
        return bool(operator.experts) and self.routed is not None

    def within(self, path: str) -> Iterable[int]:
        """Yield the positions of the operators of a module and of the modules inside it."""
        return (i for i, o in enumerate(self.operators) if o.name == path or o.name.startswith(f"{path}."))


def padded_model(plan: Plan, model: Model, stack: Stack) -> Model:
    """Return the model with the vocabulary that its ranks share; the model itself if tp divides its vocabulary."""
    if not stack.software.pads_vocabulary or model.vocab % plan.tp == 0 or model.describe is None:
        return model
    multiple = _EACH * plan.tp
    return _with_vocabulary(model, -(-model.vocab // multiple) * multiple)


def padding_note(plan: Plan, model: Model, stack: Stack) -> tuple[str, ...]:
    """Return a sentence with the padded size of the vocabulary; () if it is not padded."""
    size = padded_model(plan, model, stack).vocab
    if size == model.vocab:
        return ()
    filled = f"the vocabulary of {model.vocab:,} is filled up to {size:,}, a multiple of {_EACH} x tp={plan.tp}"
    return (f"{filled}; MFU counts its own",)


@lru_cache(maxsize=16)
def _with_vocabulary(model: Model, size: int) -> Model:
    if model.describe is None:
        return model
    found = model.describe(replace(cast("Any", model.config), vocab=size))
    return replace(found, part=lru_cache(_PARTS)(found.part))
