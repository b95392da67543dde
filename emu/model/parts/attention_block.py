"""Causal attention: grouped queries, with or without rotary embedding, biases and norms of queries and keys; or latent.

B sequences, T tokens, H heads, G key and value heads, D elements a head.
Source: Ainslie et al., GQA (2023); the norms: Henry et al., Query-Key Normalization for Transformers (2020).

In latent attention queries, and keys and values, each go through a narrow product first. A query and a key have a part that is
rotated and one that is not, R + P elements; the rotated part of a key is shared by all heads. A value has V elements, padded
with zeros to R + P for PyTorch's kernel. Source: DeepSeek-AI, DeepSeek-V2 (2024), arXiv 2405.04434, section 2.1.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from emu.errors import must_be
from emu.model.operator import ROTATION, SUM, Amount, ModelOperator, Passes, Tokens, attention, bias, product
from emu.model.parts.norms import rms_norm
from emu.model.parts.rotary import PositionedModule, RotaryScaling, angles_bytes, rotate, rotate_part, rotation_operators
from emu.model.plan.plan import divisors, nearest
from emu.model.stack.passes import element_wise


def head_dim(hidden: int, heads: int) -> int:
    """Return the elements of one attention head, if all heads together are as wide as the model.

    Raises:
        InputError: the heads do not divide the width.
    """
    if hidden % heads:
        raise must_be("model", "heads", f"a divisor of hidden = {hidden}", heads, f"take {nearest(heads, divisors(hidden))}")
    return hidden // heads


@dataclass(frozen=True, slots=True)
class Heads:
    """The sizes of an attention block: its width, its heads, and the elements of a head."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    turned: int = 0  # elements of a head that rotary embedding rotates; 0: no rotary embedding
    theta: float = 10_000.0
    stretch: RotaryScaling | None = None
    biased: bool = False
    normed: bool = False  # queries and keys go through an RMSNorm for each head
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            mend = f"take {nearest(self.kv_heads, divisors(self.heads))}"
            raise must_be("model", "kv_heads", f"a divisor of the {self.heads} heads", self.kv_heads, mend)
        _check_turned(self.turned, self.head_dim)

    @property
    def columns(self) -> tuple[int, int]:
        """The number of columns of the query projection, and that of the key projection (or of the value projection)."""
        return self.heads * self.head_dim, self.kv_heads * self.head_dim


class AttentionCore(nn.Module):
    """The core of attention without its products: scores, softmax, and the weighted sum of values.

    The core is a module without parameters, which attention calls `core`. So the backward pass can compute it again without the
    products, and context parallelism can replace it.
    """

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Map queries [B, H, T, D], keys and values [B, G, T, D] to the result of causal attention [B, H, T, D]."""
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


class Attention(PositionedModule):
    """Grouped-query attention; under tensor parallelism a rank has only the heads of its shard."""

    def __init__(self, c: Heads, tokens: int) -> None:
        super().__init__()
        self.head_dim, self.turned, self.normed = c.head_dim, c.turned, c.normed
        wide, narrow = c.columns
        self.wq = nn.Linear(c.hidden, wide, bias=c.biased)
        self.wk = nn.Linear(c.hidden, narrow, bias=c.biased)
        self.wv = nn.Linear(c.hidden, narrow, bias=c.biased)
        if c.normed:
            self.q_norm = nn.RMSNorm(c.head_dim, c.norm_eps)
            self.k_norm = nn.RMSNorm(c.head_dim, c.norm_eps)
        self.wo = nn.Linear(wide, c.hidden, bias=c.biased)
        if c.turned:
            self.add_rotation(tokens, c.turned, c.theta, c.stretch)
        self.core = AttentionCore()

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, T, hidden] to [B, T, hidden]."""
        q, k, v = (w(x).unflatten(-1, (-1, self.head_dim)) for w in (self.wq, self.wk, self.wv))
        if self.normed:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.turned:
            q, k = (rotate_part(t, *self.angles(x)) for t in (q, k))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return self.wo(self.core(q, k, v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


ATTENTION_SHARDS = {"": "shared", ".wq": "colwise", ".wk": "colwise", ".wv": "colwise", ".wo": "rowwise"}
NORMED_SHARDS = {**ATTENTION_SHARDS, ".q_norm": "heads", ".k_norm": "heads"}


def _projection(c: Heads, name: str, tokens: int, columns: int, *, kept: bool) -> tuple[ModelOperator, ...]:
    one = product(name, tokens, c.hidden, columns, "out", kept=kept, reads_with="qkv")
    return (one, bias(name, tokens, columns, "out")) if c.biased else (one,)


def _preparation_operators(c: Heads, tokens: Tokens) -> tuple[ModelOperator, ...]:
    """Return the operators that prepare queries and keys before their product: norms, rotation."""
    found: list[ModelOperator] = []
    for of, heads in (("q", c.heads), ("k", c.kv_heads)):
        if c.normed:
            found.append(rms_norm(f"attention.{of}_norm", tokens.n, c.head_dim, heads=heads, sequence=False, cut=True))
        if c.turned:
            found += rotation_operators(f"attention.{of}_turned", tokens, heads, c.head_dim, c.turned)
    return tuple(found)


def _check_turned(turned: int, head_dim: int) -> None:
    """Check the number of elements of a head that rotary embedding turns.

    Raises:
        InputError: it is odd, or more than the head has.
    """
    if turned % 2 or not 0 <= turned <= head_dim:
        raise must_be("model", "rotary elements of a head", f"even and at most the {head_dim} of a head", turned)


@dataclass(frozen=True, slots=True)
class LatentSizes:
    """The sizes of one latent attention (DeepSeek): the ranks of its narrow products, and the elements of a head.

    A query or key has `turned` rotated and `plain` other elements; a value has `value` elements.
    """

    hidden: int
    heads: int
    query_rank: int
    key_rank: int
    turned: int  # R
    plain: int  # P
    value: int  # V
    theta: float = 10_000.0
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        _check_turned(self.turned, self.head_dim)

    @property
    def head_dim(self) -> int:
        """The number of elements of a query or a key of one head: the rotated ones and the others."""
        return self.turned + self.plain


class LatentAttention(PositionedModule):
    """Latent attention; under tensor parallelism the narrow products are whole, and a rank has the heads of its shard."""

    def __init__(self, c: LatentSizes, tokens: int) -> None:
        super().__init__()
        self.c = c
        self.q_down = nn.Linear(c.hidden, c.query_rank, bias=False)
        self.q_norm = nn.RMSNorm(c.query_rank, c.norm_eps)
        self.q_up = nn.Linear(c.query_rank, c.heads * c.head_dim, bias=False)
        self.kv_down = nn.Linear(c.hidden, c.key_rank + c.turned, bias=False)
        self.kv_norm = nn.RMSNorm(c.key_rank, c.norm_eps)
        self.kv_up = nn.Linear(c.key_rank, c.heads * (c.plain + c.value), bias=False)
        self.k_turned = nn.Identity()  # tensor parallelism adds the gradients of the shared part here
        self.wo = nn.Linear(c.heads * c.value, c.hidden, bias=False)
        self.add_rotation(tokens, c.turned, c.theta)
        self.core = AttentionCore()

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, T, hidden] to [B, T, hidden]."""
        c, (cos, sin) = self.c, self.angles(x)
        q = self.q_up(self.q_norm(self.q_down(x))).unflatten(-1, (-1, c.head_dim))
        latent, shared = self.kv_down(x).split((c.key_rank, c.turned), -1)
        kv = self.kv_up(self.kv_norm(latent)).unflatten(-1, (-1, c.plain + c.value))
        (q_plain, q_turned), (k_plain, v) = q.split((c.plain, c.turned), -1), kv.split((c.plain, c.value), -1)
        k_turned = rotate(self.k_turned(shared).unsqueeze(2), cos, sin).expand(*k_plain.shape[:-1], -1)
        q = torch.cat((q_plain, rotate(q_turned, cos, sin)), -1)
        k = torch.cat((k_plain, k_turned), -1)
        if c.value < c.head_dim:
            v = functional.pad(v, (0, c.head_dim - c.value))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return self.wo(self.core(q, k, v).transpose(1, 2)[..., : c.value].flatten(2))  # type: ignore[no-any-return]


LATENT_SHARDS = {"": "whole", ".q_up": "colwise", ".kv_up": "colwise", ".k_turned": "summed", ".wo": "rowwise"}


def latent_operators(c: LatentSizes, tokens: Tokens) -> tuple[ModelOperator, ...]:
    """Return the operators of the latent attention, which is called `attention`."""
    n, heads = tokens.n, c.heads
    parted, put = _joined_gradients(n, c)
    core = attention("attention.attention", tokens, heads, heads, c.head_dim, c.value)
    values = (_values("attention.values", n, c),) if c.value < c.head_dim else ()
    return (
        element_wise("attention.inputs", "sum of gradients", n * c.hidden),
        _latent(product("attention.q_down", n, c.hidden, c.query_rank, reads_with="down")),
        _latent(rms_norm("attention.q_norm", n, c.query_rank, sequence=False)),
        product("attention.q_up", n, c.query_rank, heads * c.head_dim, "out"),
        _latent(product("attention.kv_down", n, c.hidden, c.key_rank + c.turned, kept=True, reads_with="down")),
        _latent(parted),
        _latent(rms_norm("attention.kv_norm", n, c.key_rank, sequence=False)),
        product("attention.kv_up", n, c.key_rank, heads * (c.plain + c.value), "out"),
        put,
        *rotation_operators("attention.k_turned", tokens, 1, c.turned, cut=False),
        *rotation_operators("attention.q_turned", tokens, heads, c.turned),
        _joined_heads("attention.heads", n, c),
        replace(core, table_bytes=angles_bytes(tokens, c.turned)),
        *values,
        product("attention.wo", n, heads * c.value, c.hidden, "in", kept=c.value == c.head_dim),
    )


def _latent(operator: ModelOperator) -> ModelOperator:
    """Return the operator, marked as one of those that make the latents of queries, keys and values."""
    return replace(operator, latent=True)


def _joined_heads(name: str, n: int, c: LatentSizes) -> ModelOperator:
    """Return the operator that joins the rotated and the plain elements of queries and keys, and pads values.

    A fused kernel writes the rotated parts where they belong: it copies the shared part of a key to every head.
    """
    heads, shared, joined = c.heads * c.turned, c.turned, c.heads * c.head_dim
    filled = joined + c.heads * c.value if c.value < c.head_dim else 0  # the values are read and written; so is the gradient
    eager = Passes(
        Amount(whole=n * shared, cut=n * (3 * joined + c.heads * c.plain + filled)),
        Amount(whole=n * shared, cut=n * (filled + heads)),
        # A norm saves the keys' whole narrow product, and with values the keys beside them are saved.
        saved=Amount(whole=n * shared, cut=0 if filled else n * c.heads * c.plain),
    )
    fused = Passes(Amount(whole=n * shared, cut=n * heads), Amount(whole=n * shared, cut=n * heads))
    return ModelOperator(name, ROTATION, 0, eager, fused, cut="both")


def _values(name: str, n: int, c: LatentSizes) -> ModelOperator:
    """Return the operator that cuts the padding off the results; its backward pads the gradient."""
    kept, filled = 2 * c.heads * c.value, c.heads * (c.head_dim + c.value)
    return ModelOperator(name, SUM, eager=Passes(Amount(cut=n * kept), Amount(cut=n * filled)), cut="both")


def _joined_gradients(n: int, c: LatentSizes) -> tuple[ModelOperator, ModelOperator]:
    """Return the operators that join the gradients of a product's parts: of the narrow one; and of queries, keys and values."""
    narrow = Passes(backward_input=Amount(whole=2 * n * (c.key_rank + c.turned)))
    wide = Passes(backward_input=Amount(cut=2 * n * c.heads * (c.plain + c.value + c.head_dim)))
    return (
        ModelOperator("attention.narrow_parts", SUM, eager=narrow),
        ModelOperator("attention.parts", SUM, eager=wide, cut="both"),
    )


def attention_block(c: Heads | LatentSizes, tokens: int) -> nn.Module:
    """Return the attention module of these sizes, for sequences of at most `tokens` tokens."""
    return LatentAttention(c, tokens) if isinstance(c, LatentSizes) else Attention(c, tokens)


def attention_operators(c: Heads | LatentSizes, tokens: Tokens) -> tuple[ModelOperator, ...]:
    """Return the operators of the attention module, which is called `attention`."""
    if isinstance(c, LatentSizes):
        return latent_operators(c, tokens)
    n, (wide, narrow) = tokens.n, c.columns
    core = attention("attention.attention", tokens, c.heads, c.kv_heads, c.head_dim)
    return (
        *_projection(c, "attention.wq", n, wide, kept=False),
        *_projection(c, "attention.wk", n, narrow, kept=True),
        *_projection(c, "attention.wv", n, narrow, kept=True),
        element_wise("attention.inputs", "sum of gradients", 2 * n * c.hidden),
        *_preparation_operators(c, tokens),
        replace(core, table_bytes=angles_bytes(tokens, c.turned)),
        product("attention.wo", n, wide, c.hidden, "in", kept=True),
        *((bias("attention.wo", n, c.hidden, "in"),) if c.biased else ()),
    )
