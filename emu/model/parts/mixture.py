"""A decoder whose layers have grouped-query attention and SiLU-gated experts, each behind an RMSNorm; no weights are tied."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from emu.model.model import Model
from emu.model.operator import Tokens
from emu.model.parts.attention_block import Attention, Heads, attention_operators
from emu.model.parts.decoder import Parts, block_model, shards
from emu.model.parts.expert_block import ExpertBlock, Experts
from emu.model.parts.expert_operators import SPARSE_SHARDS, sparse_operators
from emu.model.parts.norms import RMS
from emu.model.parts.token_routing import ExpertRouting


@dataclass(frozen=True, slots=True)
class Mixture(ABC):
    """The sizes of a mixture-of-experts model."""

    kind: ClassVar[str]  # of all layers
    norm: ClassVar[str] = RMS
    first_std: ClassVar[float] = 0.02

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
    def kinds(self) -> tuple[str, ...]:
        """The kind of each layer."""
        return (self.kind,) * self.layers

    @property
    def routing(self) -> ExpertRouting:
        """Softmax over all experts, of which the best are normalised; this equals a softmax over the best."""
        return ExpertRouting(self.experts, self.top_k, balance=self.balance)


def _blocks(c: Mixture, kind: str, tokens: int) -> tuple[nn.Module, nn.Module]:
    """Return the attention and the experts of a layer; the weights of experts are drawn first."""
    experts = Experts(c.experts, c.hidden, c.ffn, "silu gate")
    return Attention(c.attention, tokens), ExpertBlock(c.hidden, c.routing, experts)


def _operators(c: Mixture, kind: str, tokens: Tokens) -> tuple[Parts, Parts]:
    """Return the operators of both blocks; a test compares them with those that the module runs."""
    ffn = sparse_operators("sparse", tokens, c.hidden, c.ffn, c.routing, "silu gate")
    return attention_operators(c.attention, tokens), ffn


def mixture(name: str, c: Mixture, attention_shards: Mapping[str, str]) -> Model:
    """Return the model of one configuration.

    Args:
        name: The name of the model.
        c: The sizes of the model.
        attention_shards: The sharding styles of its attention.
    """
    divides = {"key and value heads": c.kv_heads, "groups of 4 columns of an expert": c.ffn // 4}
    styles = shards({"attention": attention_shards, "sparse": SPARSE_SHARDS})
    return block_model(name, c, _blocks, _operators, divides, styles)
