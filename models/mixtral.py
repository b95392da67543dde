"""Mixtral: Llama's attention, and in every layer experts that are SwiGLU blocks, of which a token takes two.

Sources: Jiang et al., Mixtral of Experts (2024), arXiv 2401.04088, table 1; for 8x22B, and for the coefficient of the balancing
loss, the configurations published with the weights.
"""

from dataclasses import dataclass

from torch import nn

from emu.model.model import EMBEDDING, HEAD, Model, model
from emu.model.operator import ModelOperator, Tokens, lookup
from emu.model.parts.attention import ATTENTION_SHARDS, Attention, Heads, attention_operators, head_dim
from emu.model.parts.decoder import Decoder, Layer, initialised, layer_operators, output_operators, shards
from emu.model.parts.experts import Experts, Sparse
from emu.model.parts.norms import rms_norm
from emu.model.parts.routing import Routing
from emu.model.parts.sparse import SPARSE_SHARDS, sparse_operators


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of one Mixtral."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int  # of one expert
    vocab: int
    max_seq: int
    experts: int = 8
    top_k: int = 2
    balance: float = 0.02
    rope_theta: float = 1_000_000.0
    norm_eps: float = 1e-5
    source: str = ""

    @property
    def attention(self) -> Heads:
        """Sizes of the attention of each layer."""
        dim = head_dim(self.hidden, self.heads)
        return Heads(self.hidden, self.heads, self.kv_heads, dim, dim, self.rope_theta)

    @property
    def routing(self) -> Routing:
        """Softmax over all experts, of which the best are normalised: the softmax over the best of the paper."""
        return Routing(self.experts, self.top_k, balance=self.balance)


CONFIGS = {
    "mixtral-tiny": Config(layers=8, hidden=64, heads=8, kv_heads=4, ffn=96, vocab=256, max_seq=1024, experts=4),
    "mixtral-8x7b": Config(32, 4096, 32, 8, 14336, 32_000, 32_768, source="Jiang et al., Mixtral of Experts (2024), table 1"),
    "mixtral-8x22b": Config(
        56,
        6144,
        48,
        8,
        16384,
        32_768,
        65_536,
        balance=0.001,
        source="Mixtral-8x22B-v0.3, config.json with the weights",
    ),
}
SHARDS = shards({"attention": ATTENTION_SHARDS, "sparse": SPARSE_SHARDS})


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
def mixtral(name: str, c: Config) -> Model:
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
