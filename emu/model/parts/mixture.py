"""A decoder whose layers have grouped-query attention and SiLU-gated experts, each behind an RMSNorm; no weights are tied."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import nn

from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.operator import ModelOperator, Tokens, lookup
from emu.model.parts.attention_block import Attention, Heads, attention_operators
from emu.model.parts.decoder import Decoder, DecoderLayer, decoder_model, initialise, layer_operators, output_operators, shards
from emu.model.parts.expert_block import ExpertBlock, Experts
from emu.model.parts.expert_operators import SPARSE_SHARDS, sparse_operators
from emu.model.parts.norms import rms_norm
from emu.model.parts.token_routing import ExpertRouting


@dataclass(frozen=True, slots=True)
class Mixture(ABC):
    """The sizes of a mixture-of-experts model."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int  # the width of one expert
    vocab: int
    max_seq: int
    experts: int
    top_k: int
    balance: float
    rope_theta: float
    norm_eps: float
    source: str

    @property
    @abstractmethod
    def attention(self) -> Heads:
        """The sizes of the attention of each layer."""

    @property
    def routing(self) -> ExpertRouting:
        """Softmax over all experts, of which the best are normalised; this equals a softmax over the best."""
        return ExpertRouting(self.experts, self.top_k, balance=self.balance)


def _build(c: Mixture, tokens: int) -> Decoder:
    """Return the module with its first weights."""

    def layer() -> DecoderLayer:
        norms = (nn.RMSNorm(c.hidden, c.norm_eps), nn.RMSNorm(c.hidden, c.norm_eps))
        experts = Experts(c.experts, c.hidden, c.ffn, "silu gate")
        return DecoderLayer(Attention(c.attention, tokens), ExpertBlock(c.hidden, c.routing, experts), *norms, block="sparse")

    output = nn.Linear(c.hidden, c.vocab, bias=False)
    norm = nn.RMSNorm(c.hidden, c.norm_eps)
    module = Decoder(nn.Embedding(c.vocab, c.hidden), (layer() for _ in range(c.layers)), norm, output)
    initialise(module)
    return module


def _part(c: Mixture, name: str, tokens: Tokens) -> tuple[ModelOperator, ...]:
    """Return the operators of a part of the model; a test compares them with those that the module runs."""
    n = tokens.n
    if name == EMBEDDING:
        return (lookup("embedding", n, c.vocab, c.hidden),)
    if name == HEAD:
        return rms_norm("norm", n, c.hidden), *output_operators(n, c.hidden, c.vocab)
    ffn = sparse_operators("sparse", tokens, c.hidden, c.ffn, c.routing, "silu gate")
    return layer_operators(rms_norm, n, c.hidden, attention_operators(c.attention, tokens), ffn)


def mixture(name: str, c: Mixture, kind: str, attention_shards: Mapping[str, str]) -> Model:
    """Return the model of one configuration.

    Args:
        name: The name of the model.
        c: The sizes of the model.
        kind: The name of the kind of its layers.
        attention_shards: The sharding styles of its attention.
    """
    divides = {"key and value heads": c.kv_heads, "groups of 4 columns of an expert": c.ffn // 4}
    styles = shards({"attention": attention_shards, "sparse": SPARSE_SHARDS})
    return replace(decoder_model(name, c, _part, _build, divides, styles), kinds=(kind,) * c.layers)
