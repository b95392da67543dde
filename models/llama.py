"""Llama 3: RMSNorm, rotary embedding, grouped-query attention, SwiGLU; no bias, input and output embeddings not tied.

B sequences, T tokens, H heads, G key and value heads, D elements a head.
Source: Dubey et al., The Llama 3 Herd of Models (2024), arXiv 2407.21783, section 3.2 and table 3.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from emu.model.model import Model, ModelOperator, attention, model, product


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of one Llama."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    max_seq: int
    rope_theta: float = 500_000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        """D."""
        return self.hidden // self.heads


CONFIGS = {
    "llama-tiny": Config(layers=2, hidden=64, heads=8, kv_heads=4, ffn=192, vocab=256, max_seq=1024),
    "llama-small": Config(layers=6, hidden=256, heads=8, kv_heads=4, ffn=768, vocab=256, max_seq=2048),
    "llama3-8b": Config(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128_256, max_seq=8192),
    "llama3-70b": Config(layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672, vocab=128_256, max_seq=8192),
}


def rotation(tokens: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines [T, D/2] of the angles t * theta**(-2i/D) by which pair i of token t is turned.

    Source: Su et al., RoFormer (2021), equation 15.
    """
    speeds = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.outer(torch.arange(tokens, dtype=torch.float64), speeds)
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn adjacent pairs of each head of x [B, H, T, D]; a checkpoint with halves instead of pairs needs its rows permuted."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Attention(nn.Module):
    """Causal grouped-query attention; under tensor parallelism it sees only the heads of its shard."""

    cos: Tensor
    sin: Tensor

    def __init__(self, c: Config, tokens: int) -> None:
        super().__init__()
        self.head_dim = c.head_dim
        self.wq = nn.Linear(c.hidden, c.heads * c.head_dim, bias=False)
        self.wk = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.wv = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.wo = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)
        cos, sin = rotation(tokens, c.head_dim, c.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, hidden] -> [B, T, hidden]."""
        q, k, v = (w(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        cos, sin = self.cos[: q.size(2)], self.sin[: q.size(2)]
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.wo(out.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    """SwiGLU: w2(silu(w1 x) * w3 x). Source: Shazeer, GLU Variants Improve Transformer (2020), equation 6."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.w1 = nn.Linear(c.hidden, c.ffn, bias=False)
        self.w2 = nn.Linear(c.ffn, c.hidden, bias=False)
        self.w3 = nn.Linear(c.hidden, c.ffn, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, hidden] -> [B, T, hidden]."""
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))  # type: ignore[no-any-return]


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and added to what came in."""

    def __init__(self, c: Config, tokens: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(c.hidden, c.norm_eps)
        self.attention = Attention(c, tokens)
        self.ffn_norm = nn.RMSNorm(c.hidden, c.norm_eps)
        self.ffn = FeedForward(c)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, hidden] -> [B, T, hidden]."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.ffn(self.ffn_norm(x))  # type: ignore[no-any-return]


class Llama(nn.Module):
    """Tokens in, logits out."""

    def __init__(self, c: Config, tokens: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(c.vocab, c.hidden)
        self.layers = nn.ModuleList(Layer(c, tokens) for _ in range(c.layers))
        self.norm = nn.RMSNorm(c.hidden, c.norm_eps)
        self.output = nn.Linear(c.hidden, c.vocab, bias=False)
        self.apply(_initialise)

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, T] -> [B, T, vocab]."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))  # type: ignore[no-any-return]


def _initialise(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)


SHARDS = {
    "embedding": "vocabulary",
    "layers.*.attention": "shared",
    "layers.*.attention.wq": "colwise",
    "layers.*.attention.wk": "colwise",
    "layers.*.attention.wv": "colwise",
    "layers.*.attention.wo": "rowwise",
    "layers.*.ffn": "shared",
    "layers.*.ffn.w1": "colwise",
    "layers.*.ffn.w3": "colwise",
    "layers.*.ffn.w2": "rowwise",
    "output": "gathered",
}


def operators(c: Config, seq: int) -> tuple[ModelOperator, ...]:
    """What one sequence runs through; held equal to the module by the counting mode."""
    one, logits = seq * c.hidden, seq * c.vocab
    return (
        ModelOperator("embedding", 1, c.vocab * c.hidden, writes=one, cut_in=True, lookup=True),
        *_attention_operators(c, seq),
        *_ffn_operators(c, seq),
        ModelOperator("norm", 1, c.hidden, writes=one),
        product("output", seq, c.hidden, c.vocab, 1, "out"),
        ModelOperator("loss", writes=logits),
    )


def _attention_operators(c: Config, seq: int) -> tuple[ModelOperator, ...]:
    wide, narrow, n, one = c.heads * c.head_dim, c.kv_heads * c.head_dim, c.layers, seq * c.hidden
    turned = seq * (wide + narrow)
    return (
        ModelOperator("layers.*.attention_norm", n, c.hidden, writes=one),
        product("layers.*.attention.wq", seq, c.hidden, wide, n, "out"),
        product("layers.*.attention.wk", seq, c.hidden, narrow, n, "out"),
        product("layers.*.attention.wv", seq, c.hidden, narrow, n, "out"),
        ModelOperator("layers.*.attention.rotate", n, writes=turned, cut_in=True, cut_out=True),
        attention("layers.*.attention.attention", seq, c.heads, c.head_dim, n),
        product("layers.*.attention.wo", seq, wide, c.hidden, n, "in"),
        ModelOperator("layers.*.attention.residual", n, writes=one),
    )


def _ffn_operators(c: Config, seq: int) -> tuple[ModelOperator, ...]:
    n, one, gated = c.layers, seq * c.hidden, seq * c.ffn
    return (
        ModelOperator("layers.*.ffn_norm", n, c.hidden, writes=one),
        product("layers.*.ffn.w1", seq, c.hidden, c.ffn, n, "out"),
        product("layers.*.ffn.w3", seq, c.hidden, c.ffn, n, "out"),
        ModelOperator("layers.*.ffn.swiglu", n, writes=gated, cut_in=True, cut_out=True),
        product("layers.*.ffn.w2", seq, c.ffn, c.hidden, n, "in"),
        ModelOperator("layers.*.ffn.residual", n, writes=one),
    )


@model(CONFIGS)
def llama(name: str, c: Config) -> Model:
    """The model of one configuration."""
    return Model(
        name=name,
        layers=c.layers,
        hidden=c.hidden,
        heads=c.heads,
        head_dim=c.head_dim,
        vocab=c.vocab,
        max_seq=c.max_seq,
        operators=lambda seq: operators(c, seq),
        build=lambda tokens: Llama(c, tokens),
        tp_divides={"heads": c.heads, "key and value heads": c.kv_heads, "feed-forward columns": c.ffn, "vocabulary": c.vocab},
        shards=SHARDS,
    )
