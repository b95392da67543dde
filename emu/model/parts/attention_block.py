"""Causal grouped-query attention, with or without rotary embedding, biases and norms of queries and keys.

B sequences, T tokens, H heads, G key and value heads, D elements a head.
Source: Ainslie et al., GQA (2023); the norms: Henry et al., Query-Key Normalization for Transformers (2020).
"""

from dataclasses import dataclass, replace

from torch import Tensor, nn
from torch.nn import functional

from emu.errors import must_be
from emu.model.operator import ModelOperator, Tokens, attention, bias, product
from emu.model.parts.norms import rms_norm
from emu.model.parts.rotary import PositionedModule, RotaryScaling, angles_bytes, rotate_part, rotation_operators
from emu.model.plan.plan import divisors, nearest
from emu.model.stack.passes import element_wise


def head_dim(hidden: int, heads: int) -> int:
    """Return the elements of a head, if all heads together are as wide as the model.

    Raises:
        InputError: the heads do not divide the width.
    """
    if hidden % heads:
        raise must_be("model", "heads", f"a divisor of hidden = {hidden}", heads, f"take {nearest(heads, divisors(hidden))}")
    return hidden // heads


@dataclass(frozen=True, slots=True)
class Heads:
    """The sizes of one attention."""

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
        if self.turned % 2:
            raise must_be("model", "rotary elements of a head", "even", self.turned)

    @property
    def columns(self) -> tuple[int, int]:
        """The columns of the queries, and those of the keys or of the values."""
        return self.heads * self.head_dim, self.kv_heads * self.head_dim


class AttentionCore(nn.Module):
    """The core of an attention, between its products: scores, their softmax, and the sum of values that they weigh.

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


def attention_operators(c: Heads, tokens: Tokens) -> tuple[ModelOperator, ...]:
    """Return the operators of the attention module, which is called `attention`."""
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


def _projection(c: Heads, name: str, tokens: int, columns: int, *, kept: bool) -> tuple[ModelOperator, ...]:
    one = product(name, tokens, c.hidden, columns, "out", kept=kept, reads_with="qkv")
    return (one, bias(name, tokens, columns, "out")) if c.biased else (one,)


def _preparation_operators(c: Heads, tokens: Tokens) -> tuple[ModelOperator, ...]:
    """Return the operators that queries and keys go through before their product."""
    found: list[ModelOperator] = []
    for of, heads in (("q", c.heads), ("k", c.kv_heads)):
        if c.normed:
            found.append(rms_norm(f"attention.{of}_norm", tokens.n, c.head_dim, heads=heads, sequence=False, cut=True))
        if c.turned:
            found += rotation_operators(f"attention.{of}_turned", tokens, heads, c.head_dim, c.turned)
    return tuple(found)
