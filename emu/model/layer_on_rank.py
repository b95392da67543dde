"""One rank's share of an embedding, a layer or a head: its operators, cut by the plan, for the tokens of one pass.

Rows of tokens that travel to experts are spread evenly, or as a run had them. N ranks of one stage, EP of them share the
experts of a layer, ETP an expert.

Software may pad a vocabulary that tensor parallelism does not divide. Source: Megatron-LM (commit d98e8a64),
megatron/training/vocab_utils.py, `calculate_padded_vocab_size`: to a multiple of 128 * tp, 128 being the default of
`make_vocab_size_divisible_by`. It pads every vocabulary; here a vocabulary that tp divides stays as the model's source prints
it, which is usually a padded size already.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple, cast

import numpy as np

from emu.arrays import I64
from emu.errors import must_be
from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.operator import OPS, SUM, ModelOperator, Passes, Tokens, outputs_kept
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import stage_layers
from emu.model.stack.stack import Stack, passes_of

_EACH = 128  # the rows of a rank are a multiple of this
_PARTS = 2**10  # the most cached parts of a model with a padded vocabulary
Splits = I64  # [L, P, N, EP] in layer l with experts and pass p, rows that rank n of a stage gives to each of its EP


class RoutedRows(NamedTuple):
    """The token rows that one rank sends to experts and receives for its own experts, in one pass of one layer.

    `given` and `taken` are the rows to and from each rank of the experts' group.
    """

    given: tuple[int, ...]  # [EP] to each rank of the experts
    taken: tuple[int, ...]  # [EP] from each
    shares: tuple[int, ...]  # [ETP] of all ranks that share its experts, those that each took
    most: int  # rows of the largest buffer that a rank of its experts gives or takes

    @property
    def here(self) -> int:
        """The number of token rows that come to this rank's experts from all ranks, all experts together."""
        return sum(self.shares)

    @property
    def share(self) -> tuple[int, int]:
        """The number of rows that the rank's experts process, and the number of rows that the rank sends."""
        return self.here, sum(self.given)


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


RoutedOf = Callable[[int, int], RoutedRows | None]  # of a layer of the model and a pass; None: no rows travel there


def classes(plan: Plan, model: Model, place: int, splits: Splits | None) -> list[tuple[I64, RoutedOf]]:
    """Return sets of ranks at one place of a pipeline that exchange equal numbers of token rows, with these numbers.

    Ranks are numbers in their stage.

    Args:
        plan: The plan.
        model: The model.
        place: The place in the pipeline.
        splits: The rows as a run had them; None: spread evenly.

    Raises:
        InputError: The splits have another shape, or rows cannot be spread evenly.
    """
    if splits is None or not plan.exchanges:
        return [(np.arange(plan.stage_ranks), rows_by_kind(even, plan, model))]
    travel = [layer for layer, kind in enumerate(model.kinds) if own_rows(plan, model, kind)]
    shape = (len(travel), plan.passes, plan.stage_ranks, plan.ep)
    if splits.shape != shape:
        raise must_be("generate", "routing", f"splits of the shape {shape}: layers, passes, ranks, ep", splits.shape)
    sizes = stage_layers(plan, model)
    here = {n for stage in plan.stages_of(place * plan.stage_ranks) for n in range(sum(sizes[:stage]), sum(sizes[: stage + 1]))}
    of = {(n, p): recorded(plan, splits[i, p]) for i, n in enumerate(travel) if n in here for p in range(plan.passes)}
    same: dict[tuple[RoutedRows, ...], list[int]] = {}
    for rank in range(plan.stage_ranks):
        same.setdefault(tuple(rows[rank] for rows in of.values()), []).append(rank)
    return [(np.array(ranks), partial(_rows_of_rank, of, ranks[0])) for ranks in same.values()]


def rows_by_kind(rows: Callable[[Plan, Model, str], RoutedRows | None], plan: Plan, model: Model) -> RoutedOf:
    """Return a function that gives the token rows of a layer and pass, if all layers of a kind have equal rows.

    Args:
        rows: The function that gives the rows of a kind of layers.
        plan: The plan.
        model: The model.
    """
    by_kind = {kind: rows(plan, model, kind) for kind in set(model.kinds)}
    return lambda layer, _: by_kind[model.kinds[layer]]


def _rows_of_rank(of: Mapping[tuple[int, int], list[RoutedRows]], rank: int, layer: int, pass_: int) -> RoutedRows | None:
    return of[layer, pass_][rank] if (layer, pass_) in of else None


def even(plan: Plan, model: Model, kind: str) -> RoutedRows | None:
    """Return the routed rows of a layer if all ranks of ep get equally many; None if no rows are sent.

    Raises:
        InputError: The rows that a rank gives are no multiple of ep.
    """
    rows = own_rows(plan, model, kind)
    if rows % plan.ep:
        mend = "another microbatch, seq or ep divides them, or a capacity fills them up"
        raise must_be("generate", "ep", f"a divisor of the {rows} rows that a rank gives in a pass", plan.ep, mend)
    return about_even(plan, model, kind)


def about_even(plan: Plan, model: Model, kind: str) -> RoutedRows | None:
    """Return the routed rows spread as evenly as possible: some ranks of ep get one row more; None if none are sent."""
    rows = own_rows(plan, model, kind)
    if not rows:
        return None
    less, more = divmod(rows, plan.ep)
    each = (less + 1,) * more + (less,) * (plan.ep - more)
    return RoutedRows(each, each, (rows,) * plan.expert_tp, rows)


def fullest(plan: Plan, model: Model, kind: str) -> RoutedRows | None:
    """Return the routed rows of the rank with the fullest expert; None if rows are spread evenly or not sent.

    One expert gets the most rows, all others 1 - `imbalance` as many.
    """
    rows, others = own_rows(plan, model, kind), 1 - plan.imbalance
    if not rows or not plan.imbalance:
        return None
    experts = model.experts // plan.ep
    most = round(rows * (1 + (experts - 1) * others) / (1 + (model.experts - 1) * others))
    rest, more = divmod(rows - most, max(1, plan.ep - 1))
    given = (most, *(rest + (i < more) for i in range(plan.ep - 1)))
    return RoutedRows(given, (most,) * plan.ep, (plan.ep * most,) * plan.expert_tp, max(rows, plan.ep * most))


def own_rows(plan: Plan, model: Model, kind: str) -> int:
    """Return the number of rows that a rank sends in a pass of a layer of a kind; 0 if none are sent."""
    if not plan.exchanges:
        return 0
    tokens = Tokens(plan.rank_seq // plan.tp, sequences=plan.pass_batch, capacity=plan.capacity)
    return max((o.shape[0] for o in model.part(kind, tokens) if o.experts and o.shape), default=0)


def recorded(plan: Plan, given: I64) -> list[RoutedRows]:
    """Return the routed rows of each rank of a stage, from the recorded numbers of rows that each rank sends.

    Args:
        plan: The plan.
        given: [N, EP] the number of rows that each rank of the stage sends to each member of its ep group.
    """
    found: list[RoutedRows | None] = [None] * len(given)
    sizes = {axis: plan.sizes[axis] for axis in ("etp", "ep")}
    took = np.zeros_like(given)
    largest = np.zeros(len(given), np.int64)
    places = np.arange(len(given)).reshape(-1, sizes["ep"], sizes["etp"])
    for members in np.moveaxis(places, 1, -1).reshape(-1, sizes["ep"]):
        took[members] = given[members].T
        largest[members] = max(given[members].sum(1).max(), took[members].sum(1).max())
    for members in places.reshape(-1, sizes["etp"]):
        shares = tuple(took[members].sum(1).tolist())
        for rank in members.tolist():
            found[rank] = RoutedRows(tuple(given[rank].tolist()), tuple(took[rank].tolist()), shares, int(largest[rank]))
    return [each for each in found if each is not None]
