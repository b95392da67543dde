"""Qwen3-MoE: grouped-query attention with norms of queries and keys, and in every layer many small experts.

Source: Qwen Team, Qwen3 Technical Report (2025), arXiv 2505.09388, table 2; sizes that it does not print, and the coefficient
of the balancing loss: the configurations published with the weights.
"""

from dataclasses import dataclass

from torch import nn

from emu.model.model import EMBEDDING, HEAD, Model, model
from emu.model.operator import ModelOperator, Tokens, lookup
from emu.model.parts.attention import NORMED_SHARDS, Attention, Heads, attention_operators
from emu.model.parts.decoder import Decoder, Layer, initialised, layer_operators, output_operators, shards
from emu.model.parts.experts import Experts, Sparse
from emu.model.parts.norms import rms_norm
from emu.model.parts.routing import Routing
from emu.model.parts.sparse import SPARSE_SHARDS, sparse_operators


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of one Qwen3-MoE."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int  # of one expert
    vocab: int
    max_seq: int
    head_dim: int = 128
    experts: int = 128
    top_k: int = 8
    balance: float = 0.001
    rope_theta: float = 1_000_000.0
    norm_eps: float = 1e-6
    source: str = ""

    @property
    def attention(self) -> Heads:
        """Sizes of the attention of each layer."""
        sizes = (self.hidden, self.heads, self.kv_heads, self.head_dim, self.head_dim, self.rope_theta)
        return Heads(*sizes, normed=True, norm_eps=self.norm_eps)

    @property
    def routing(self) -> Routing:
        """Softmax over all experts, of which the best are normalised."""
        return Routing(self.experts, self.top_k, balance=self.balance)


_SOURCE = "Qwen3 Technical Report (2025), table 2"
CONFIGS = {
    "qwen3-moe-tiny": Config(8, 64, 8, 4, 32, 256, 1024, head_dim=16, experts=8, top_k=2),
    "qwen3-30b-a3b": Config(48, 2048, 32, 4, 768, 151_936, 40_960, source=_SOURCE),
    "qwen3-235b-a22b": Config(94, 4096, 64, 4, 1536, 151_936, 40_960, source=_SOURCE),
}
SHARDS = shards({"attention": NORMED_SHARDS, "sparse": SPARSE_SHARDS})


def build(c: Config, tokens: int) -> Decoder:
    """The module, with its first weights."""

    def layer() -> Layer:
        norms = (nn.RMSNorm(c.hidden, c.norm_eps), nn.RMSNorm(c.hidden, c.norm_eps))
        experts = Experts(c.experts, c.hidden, c.ffn, "silu gate")
        return Layer(Attention(c.attention, tokens), Sparse(c.hidden, c.routing, experts), *norms, block="sparse")

    output = nn.Linear(c.hidden, c.vocab, bias=False)
    norm = nn.RMSNorm(c.hidden, c.norm_eps)
    module = Decoder(nn.Embedding(c.vocab, c.hidden), (layer() for _ in range(c.layers)), norm, output)
    initialised(module)
    return module


def part(c: Config, name: str, tokens: Tokens) -> tuple[ModelOperator, ...]:
    """The operators of a part; held equal to the module by the counting mode."""
    n = tokens.n
    if name == EMBEDDING:
        return (lookup("embedding", n, c.vocab, c.hidden),)
    if name == HEAD:
        return rms_norm("norm", n, c.hidden), *output_operators(n, c.hidden, c.vocab)
    ffn = sparse_operators("sparse", tokens, c.hidden, c.ffn, c.routing, "silu gate")
    return layer_operators(rms_norm, n, c.hidden, attention_operators(c.attention, tokens), ffn)


@model(CONFIGS)
def qwen3_moe(name: str, c: Config) -> Model:
    """The model of one configuration."""
    return Model(
        name=name,
        hidden=c.hidden,
        heads=c.heads,
        head_dim=c.attention.head_dim,
        vocab=c.vocab,
        max_seq=c.max_seq,
        kinds=("moe",) * c.layers,
        part=lambda part_name, tokens: part(c, part_name, tokens),
        build=lambda tokens: build(c, tokens),
        tp_divides={
            "heads": c.heads,
            "key and value heads": c.kv_heads,
            "groups of 4 columns of an expert": c.ffn // 4,
            "vocabulary": c.vocab,
        },
        shards=SHARDS,
        experts=c.experts,
        top_k=c.top_k,
        source=c.source,
    )
