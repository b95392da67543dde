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
from emu.model.operator import ATTENTION, OPS, SUM, ModelOperator, Passes, Tokens, outputs_kept
from emu.model.plan.plan import Plan
from emu.model.routed_rows import RoutedRows
from emu.model.stack.stack import Stack, passes_of

_EACH = 128  # the rows of a rank are a multiple of this
_PARTS = 2**10  # the most cached parts of a model with a padded vocabulary


@dataclass(frozen=True)
class LayerOnRank:
    """A part of a model (an embedding, a layer of one kind, or a head), as the share that one rank computes and stores."""

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
        if self.stack.software.cuts_latents and self.plan.tp > 1:
            every = tuple(replace(operator, sequence=True) if operator.latent else operator for operator in every)
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
    def defers(self) -> bool:
        """True if the gradient of a weight can wait for the end of the pipeline.

        Only that of the head can, as nothing comes after it.
        """
        return self.name == HEAD and self.plan.pp > 1

    @property
    def tied(self) -> bool:
        """True if the rank's head uses the embedding's own weight; at the two ends of a pipeline, each rank has a copy."""
        return self.model.tied and self.plan.ends_meet

    @cached_property
    def tokens(self) -> Tokens:
        """The tokens that the rank processes in one pass."""
        return Tokens(self.plan.rank_seq, sequences=self.plan.pass_batch, capacity=self.plan.capacity)

    @property
    def own_tokens(self) -> Tokens:
        """The tokens that the rank routes to experts: its share of the tokens of its tensor-parallel group."""
        return replace(self.tokens, length=self.plan.rank_seq // self.plan.tp)

    @property
    def elements(self) -> int:
        """Elements of the activations between two blocks, of all tokens."""
        return self.tokens.n * self.model.hidden

    @property
    def weight_dtype(self) -> str:
        """The dtype of weights in computations; FSDP2 casts gathered weights to the dtype of activations."""
        return self.stack.gathered if self.plan.shards_weights else self.stack.precision.weight

    @property
    def gradient_dtype(self) -> str:
        """The dtype in which autograd computes weight gradients: that of the gathered weights under FSDP2."""
        return self.stack.gathered if self.plan.shards_weights else self.stack.precision.gradient

    @property
    def recomputed(self) -> bool:
        """True if the forward keeps only the layer's input and some outputs, and is run again in the backward."""
        return self.plan.recompute in ("full", OPS) and self.is_layer

    @property
    def outputs_kept(self) -> frozenset[int]:
        """The indices of the operators whose outputs are kept when the rest of the layer is recomputed."""
        return outputs_kept(self.operators) if self.plan.recompute == OPS else frozenset()

    def passes(self, operator: ModelOperator) -> Passes:
        """Return the FLOPs and the memory traffic of each pass of an operator, as the software's kernels have them."""
        return passes_of(operator, self.stack, layer=self.is_layer)

    @cached_property
    def recompute_end(self) -> int:
        """The index of the operator before which the forward that recomputation repeats ends; -1 if it is not repeated.

        Eager checkpoints stop before the last operator that saved anything: it need not run again, because it saves its input.
        Other software runs the whole layer.
        """
        if not self.recomputed:
            return -1
        if not self.stack.software.is_eager:
            return len(self.operators)
        return max(i for i, operator in enumerate(self.operators) if self.passes(operator).saved.bytes())

    @property
    def repeated(self) -> list[int]:
        """The indices of the operators whose forward recomputation runs again."""
        if self.plan.recompute == "selective" and self.is_layer:
            return [i for i, operator in enumerate(self.operators) if operator.kind == ATTENTION]
        return [i for i in range(self.recompute_end) if i not in self.outputs_kept]

    def attended_elements(self, operator: ModelOperator) -> int:
        """Return the number of elements of the keys and values that an operator of attention reads."""
        queries = self.tokens.n * self.model.heads * self.model.head_dim // self.plan.tp
        return operator.fused.forward.cut - operator.outputs.cut - queries

    def travels(self, operator: ModelOperator) -> bool:
        """Return whether an operator belongs to experts to which token rows are sent."""
        return bool(operator.experts) and self.routed is not None

    def within(self, path: str) -> Iterable[int]:
        """Yield the positions of the operators of a module and of the modules inside it."""
        return (i for i, o in enumerate(self.operators) if o.name == path or o.name.startswith(f"{path}."))


def padded_model(plan: Plan, model: Model, stack: Stack) -> Model:
    """Return the model with its vocabulary padded to a multiple of 128 tp words, so that tp divides it.

    The model itself is returned if tp divides its vocabulary, or if the software pads no vocabulary.
    """
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
