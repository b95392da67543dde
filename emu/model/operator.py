"""The operators of a model: parameters, FLOPs, elements moved and saved; and the share of each on one rank.

All figures are for the given tokens, before any cut by tensor or expert parallelism (`ModelOperator.on` cuts). A multiply-add
is 2 FLOPs. Elements that are read and those that are written add up; parameters are apart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from emu.trace.kernel_shape import MOVES, Kernel, Shape

PRODUCT, ATTENTION, NORM, ROTATION, GATE, ACTIVATION = "product", "attention", "norm", "rotation", "gate", "activation"
RESIDUAL, SUM, SCALE, BIAS, LOOKUP = "residual", "sum", "scale", "bias", "lookup"
OPS = "ops"  # the way of recomputation that keeps the outputs of some operators of a layer
ROUTER, PERMUTATION, LOSS = "router", "permutation", "loss"
FORWARD, INPUT, WEIGHT = "forward", "input", "weight"  # a pass: the forward, or the gradient of what came in, or of parameters


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one rank in one pass: the number of sequences and their length.

    `context` is the number of keys that attention sees.
    """

    length: int  # of a sequence, on this rank
    context: int = 0  # keys that attention sees: under context parallelism more than `length`; 0: as many
    sequences: int = 1
    capacity: float = 0.0  # what an expert takes at most, as a multiple of its even share, filled up; 0: all that come

    @property
    def n(self) -> int:
        """The number of tokens of all sequences."""
        return self.sequences * self.length

    @property
    def keys(self) -> int:
        """The number of keys that attention sees for one sequence."""
        return self.context or self.length


@dataclass(frozen=True, slots=True)
class Cut:
    """The numbers of ranks that share dense layers, experts and one expert, and whether sequences are cut."""

    tp: int = 1
    ep: int = 1
    etp: int = 0  # tensor parallelism of an expert; 0: tp
    sequence: bool = False  # sequence parallelism: what tp leaves whole between the products is cut by tokens

    @property
    def expert_tp(self) -> int:
        """The number of ranks that share one expert."""
        return self.etp or self.tp

    @property
    def exchanges(self) -> bool:
        """True if tokens travel to their experts, as `Plan.exchanges`."""
        return self.ep > 1 or self.expert_tp != self.tp


@dataclass(frozen=True, slots=True)
class Amount:
    """Numbers of FLOPs, and of elements that are read, written or kept.

    Elements of activations are `whole` if tensor parallelism leaves them whole, and `cut` if it divides them.
    """

    flops: int = 0
    whole: int = 0  # elements of activations that tensor parallelism leaves whole
    cut: int = 0  # elements of activations that it cuts
    parameters: int = 0  # elements of parameters, or of their gradients
    fixed_bytes: int = 0  # of indices, masks and statistics, whose type is the same in every precision

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            self.flops + other.flops,
            self.whole + other.whole,
            self.cut + other.cut,
            self.parameters + other.parameters,
            self.fixed_bytes + other.fixed_bytes,
        )

    def times(self, n: int) -> "Amount":
        """Return this amount multiplied by n."""
        return Amount(n * self.flops, n * self.whole, n * self.cut, n * self.parameters, n * self.fixed_bytes)

    @property
    def elements(self) -> int:
        """The elements of activations and parameters that are read and written."""
        return self.whole + self.cut + self.parameters

    def bytes(self, activation: int = 4, parameter: int = 4) -> int:
        """Return the bytes of memory traffic, given the bytes of an element of activations and of one of parameters."""
        return activation * (self.whole + self.cut) + parameter * self.parameters + self.fixed_bytes


@dataclass(frozen=True, slots=True)
class Passes:
    """The FLOPs and memory traffic of each pass through one operator: the forward, and the gradients of its input and weight.

    `saved` is what the forward keeps for the backward.
    """

    forward: Amount = Amount()
    backward_input: Amount = Amount()  # the gradients of what came in
    backward_weight: Amount = Amount()  # the gradients of its parameters
    saved: Amount = Amount()  # kept from forward to backward, that no operator before it has kept already

    @property
    def backward(self) -> Amount:
        """The work of the whole backward: the sum of the input gradient's and the weight gradient's."""
        return self.backward_input + self.backward_weight

    def each(self, change: Callable[[Amount], Amount]) -> "Passes":
        """Return a copy in which every amount (forward, gradients, and what is saved) is replaced by `change` of it."""
        return Passes(change(self.forward), change(self.backward_input), change(self.backward_weight), change(self.saved))


@dataclass(frozen=True, slots=True)
class RowSum:
    """A kernel that adds rows to the rows of the tokens that they belong to, by atomic operations."""

    what: str  # the pass that it is in
    rows: int
    tokens: int
    elements: int  # of a row

    @property
    def amount(self) -> Amount:
        """The memory traffic of the kernel.

        Each row is read once with its index of 8 bytes. The sum of each token is read and written once.
        """
        return Amount(whole=(self.rows + 2 * self.tokens) * self.elements, fixed_bytes=8 * self.rows)

    @property
    def shape(self) -> Shape:
        """The shape of the kernel."""
        return Shape(Kernel.SCATTER_ADD, 1, self.rows, self.elements, 1) if self.rows else MOVES

    def shared(self, up: int, down: int) -> "RowSum":
        """Return that of a rank which has `up / down` of the tokens."""
        return replace(self, rows=self.rows * up // down, tokens=self.tokens * up // down)


_RUNS = ("eager", "fused", "unfused", "narrow", "compiled")  # the fields of an operator that are its passes


@dataclass(frozen=True, slots=True)
class ModelOperator:
    """One operator of a model, such as a product or a norm: its parameters, its work, and how ranks share it."""

    name: str  # the module's path in its layer, e.g. "attention.wq"; what is no module of its own has a name beside it
    kind: str  # one of the words at the top of this module, such as PRODUCT or NORM
    parameters: int = 0
    eager: Passes = Passes()  # as PyTorch runs it without a compiler, on a CPU
    fused: Passes = Passes()  # as one kernel that reads and writes each element once
    outputs: Amount = Amount()  # elements that come out
    cut: str = (
        ""  # by tensor parallelism: "out" a product's columns, "in" its rows; "both": all it does, no parameter; "": nothing
    )
    sequence: bool = False  # lies where sequence parallelism cuts the tokens
    latent: bool = False  # lies before the products that tensor parallelism cuts, in latent attention
    routed: bool = False  # lies in a block of experts outside them: where tokens travel, tensor parallelism cuts the tokens
    experts: int = 0  # of an expert's operator: how many share it
    active: int = 0  # ... and how many of them a token sees
    shape: tuple[int, int, int] | None = None  # of a product [M, K] x [K, N]: M (of all experts together), N, K
    attended: tuple[int, int, int, int] | None = None  # of attention: heads of all sequences, queries, keys, elements a head
    reads_with: str = ""  # products of one such name read the same input: a fused stack runs them as one
    unfused: Passes = Passes()  # by several kernels: of attention by products that write their scores, with a softmax between
    tensors: int = 1  # of equal size, that have its parameters: the weight and the bias of a norm are two
    ahead: Amount = Amount()  # the part of the forward that does not read the input that arrives last, so need not wait for it
    until_saved: Amount = Amount()  # the part of the forward up to the moment when all that the backward needs is kept
    table_bytes: int = 0  # of constants that its module has beside its parameters, whole on every rank
    sum_of_rows: RowSum | None = None  # a part of the passes, but for fused ones: a kernel of its own
    narrow: Passes | None = None  # as `eager`, of activations below float32, with what is worked out in float32; None: as eager
    compiled: Passes | None = None  # as the compiler of PyTorch fuses it with its neighbours; None: as it is without

    def changed(self, change: Callable[[Amount], Amount], **fields: Any) -> "ModelOperator":
        """Return the operator with every amount of its passes changed, and other fields replaced."""
        runs = {name: passes.each(change) for name in _RUNS if (passes := getattr(self, name)) is not None}
        return replace(self, **runs, **fields)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of elements of each of the operator's parameter tensors."""
        return (self.parameters // self.tensors,) * self.tensors if self.parameters else ()

    @property
    def active_parameters(self) -> int:
        """The number of parameters that one token uses."""
        return self.parameters * self.active // self.experts if self.experts else self.parameters

    def shape_of(self, what: str) -> Shape:
        """Return the shape of the operator's product or attention in pass `what`; experts have equal numbers of rows."""
        if self.attended is not None:
            own = Shape(Kernel.CAUSAL, *self.attended)
            return own if what == FORWARD else own.backward()
        if self.shape is None:
            return MOVES
        m, n, k = self.shape
        batch = max(1, self.experts)
        weight = (k, n) if self.experts else (n, k)  # as the parameter lies
        sizes = {FORWARD: (m // batch, n, k), INPUT: (m // batch, k, n), WEIGHT: (*weight, m // batch)}
        return Shape(Kernel.PRODUCT, batch, *sizes[what])

    def on(self, cut: Cut, share: tuple[int, int] | None = None) -> "ModelOperator":
        """Return the share of the operator that one rank has.

        A rank of an expert sees the tokens of the `etp` ranks that share it, each of which brings 1 / tp of the tokens.
        Source: Megatron-LM, tensor parallelism (columns, then rows), sequence parallelism and expert tensor parallelism.

        Args:
            cut: The numbers of ranks that share the model.
            share: For an operator of a block of experts, a numerator and a denominator: the rank's share of the operator's
                tokens, or of their rows at experts; None: an even share.
        """
        if self.experts:
            return _shared(self, cut.expert_tp if self.cut else 1, tokens=share or (cut.expert_tp, cut.tp), holders=cut.ep)
        if self.routed and (share or cut.exchanges):
            return _shared(self, 1, tokens=share or (1, cut.tp))
        if self.sequence:
            return _shared(self, 1, tokens=(1, cut.tp if cut.sequence else 1))
        return _shared(self, cut.tp if self.cut else 1)

    def untied(self) -> "ModelOperator":
        """Return the operator with parameters of its own, which no other operator shares."""
        return replace(self, parameters=self.own_parameters)

    @property
    def own_parameters(self) -> int:
        """The parameters whose gradient the operator's backward computes, even if another operator shares them."""
        return self.eager.backward_weight.parameters if self.kind == PRODUCT else self.parameters


@lru_cache(maxsize=2**13)
def _shared(operator: ModelOperator, n: int, tokens: tuple[int, int] = (1, 1), holders: int = 1) -> ModelOperator:
    """Return the share of an operator on one of n ranks; results are cached."""
    up, down = tokens
    weights = holders * (n if operator.cut in ("out", "in") else 1)

    def amount(a: Amount) -> Amount:
        fixed = a.fixed_bytes * up // down // (n if operator.cut == "both" else 1)
        fixed = a.fixed_bytes // holders if operator.experts else fixed  # where the rows of each expert end
        cut = a.cut * up // (down * n)
        return Amount(a.flops * up // (down * n), a.whole * up // down, cut, a.parameters // weights, fixed)

    return operator.changed(
        amount,
        parameters=operator.parameters // weights,
        outputs=amount(operator.outputs),
        ahead=amount(operator.ahead),
        until_saved=amount(operator.until_saved),
        sum_of_rows=operator.sum_of_rows and operator.sum_of_rows.shared(up, down),
        experts=operator.experts // holders,
        shape=_product_of(operator, n, up, down),
        attended=(operator.attended[0] // n, *operator.attended[1:]) if operator.attended is not None else None,
    )


def _product_of(operator: ModelOperator, n: int, up: int, down: int) -> tuple[int, int, int] | None:
    """Return the shape (m, n, k) of the operator's matrix product on one of n ranks; None if it has none."""
    if operator.shape is None:
        return None
    m, columns, rows = operator.shape
    return m * up // down, columns // n if operator.cut == "out" else columns, rows // n if operator.cut == "in" else rows


def product(
    name: str,
    tokens: int,
    n_in: int,
    n_out: int,
    cut: str = "",
    *,
    kept: bool = False,
    reads_with: str = "",
) -> ModelOperator:
    """Return a matrix product without bias: forward one product, backward two.

    Args:
        name: The module's path.
        tokens: The number of rows.
        n_in: The input elements of a token.
        n_out: The output elements of a token.
        cut: "out" if tensor parallelism cuts its outputs, "in" if its inputs.
        kept: Whether an operator before it keeps the input.
        reads_with: The name of the products that read the same input.
    """
    incoming = Amount(cut=tokens * n_in) if cut == "in" else Amount(whole=tokens * n_in)
    out = Amount(cut=tokens * n_out) if cut == "out" else Amount(whole=tokens * n_out)
    moved = Amount(2 * tokens * n_in * n_out, parameters=n_in * n_out) + incoming + out
    passes = Passes(moved, moved, moved, Amount() if kept else incoming)
    shape = tokens, n_out, n_in
    return ModelOperator(name, PRODUCT, n_in * n_out, passes, passes, out, cut, shape=shape, reads_with=reads_with)


def bias(name: str, tokens: int, n_out: int, cut: str = "") -> ModelOperator:
    """Return the bias operator of a product; its addition costs no extra traffic, its gradient reads the output's gradient."""
    out = Amount(cut=tokens * n_out) if cut == "out" else Amount(whole=tokens * n_out)
    passes = Passes(Amount(parameters=n_out), Amount(), out + Amount(parameters=n_out))
    # Added after the sum over the ranks where the product's rows are cut: then each rank has the whole bias.
    return ModelOperator(name, BIAS, n_out, passes, passes, cut=cut if cut == "out" else "")


def attention(name: str, tokens: Tokens, heads: int, kv_heads: int, head_dim: int, value_dim: int = 0) -> ModelOperator:
    """Return scaled dot-product attention by a flash kernel: two products forward, five backward, no causal halving.

    Args:
        name: Its name beside the modules.
        tokens: The queries, and the keys that they see.
        heads: The heads of the queries.
        kv_heads: The heads of keys and values.
        head_dim: The elements of a query and of a key.
        value_dim: The elements of a value, if different; PyTorch's kernel then takes values padded to `head_dim`.
    """
    value_dim = value_dim or head_dim
    fused = _flash(tokens, heads, kv_heads, head_dim, value_dim)
    out = Amount(cut=tokens.n * heads * value_dim)
    eager = fused if value_dim == head_dim else _flash(tokens, heads, kv_heads, head_dim, head_dim)
    sizes = (tokens.sequences * heads, tokens.length, tokens.keys, head_dim)
    unfused = _scored(tokens, heads, fused)
    return ModelOperator(name, ATTENTION, 0, eager, fused, out, "both", attended=sizes, unfused=unfused)


def _scored(tokens: Tokens, heads: int, flash: Passes) -> Passes:
    """Return the passes of unfused attention, which writes its scores and keeps their softmax.

    These are two products and a softmax forward, four products and the softmax's gradient backward. Source: Korthikanti et al.,
    Reducing Activation Recomputation in Large Transformer Models (2022), section 4.1, without dropout.
    """
    scores, rows = tokens.n * tokens.keys * heads, Amount(fixed_bytes=-4 * tokens.n * heads)  # no log-sum-exp
    forward = flash.forward + rows
    return Passes(
        forward + Amount(cut=4 * scores),  # written, read and written by the softmax, read
        forward.times(2) + Amount(cut=7 * scores),  # the softmax, both its gradients, twice read
        saved=flash.saved + rows + Amount(cut=scores),
    )


def _flash(tokens: Tokens, heads: int, kv_heads: int, head_dim: int, value_dim: int) -> Passes:
    """Return the passes of attention by a flash kernel."""
    pairs = 2 * tokens.n * tokens.keys * heads
    queries, rows = tokens.n * heads, 4 * tokens.n * heads  # a log-sum-exp of four bytes for each query of each head
    keys = tokens.sequences * tokens.keys * kv_heads
    q, k, v, out = queries * head_dim, keys * head_dim, keys * value_dim, queries * value_dim
    return Passes(
        Amount(pairs * (head_dim + value_dim), cut=q + k + v + out, fixed_bytes=rows),
        Amount(pairs * (3 * head_dim + 2 * value_dim), cut=2 * (q + k + v + out), fixed_bytes=rows),
        saved=Amount(cut=q + k + v + out, fixed_bytes=rows),
    )


def lookup(name: str, tokens: int, rows: int, width: int, cut: str = "in") -> ModelOperator:
    """Return the lookup of an embedding: one row of a table for each token, by its index of 8 bytes.

    The gradient of the table is as large as the table.

    Args:
        name: The path of the operator's module.
        tokens: The number of tokens.
        rows: The rows of the table.
        width: The elements of a row.
        cut: The dimension along which tensor parallelism cuts the table, as in `ModelOperator`.
    """
    moved, index = tokens * width, 8 * tokens
    passes = Passes(
        Amount(whole=2 * moved, fixed_bytes=index),
        backward_weight=Amount(whole=moved, parameters=rows * width, fixed_bytes=index),
        saved=Amount(fixed_bytes=index),
    )
    return ModelOperator(name, LOOKUP, rows * width, passes, passes, Amount(whole=moved), cut)


def outputs_kept(operators: Sequence[ModelOperator]) -> frozenset[int]:
    """Return the indices of the operators of a layer whose outputs are kept by `recompute=ops`.

    They are attention and every second product, from the first one on; a product with a bias is another operator of PyTorch,
    and counts as none, as one of experts does. Source: torchtitan at 9dec370 (December 2024), its option `op` of selective
    activation checkpointing, torchtitan/parallelisms/parallelize_llama.py.
    """
    biased = {operator.name for operator in operators if operator.kind == BIAS}
    products = [i for i, o in enumerate(operators) if o.kind == PRODUCT and not o.experts and o.name not in biased]
    return frozenset(products[::2]) | {i for i, operator in enumerate(operators) if operator.kind == ATTENTION}
