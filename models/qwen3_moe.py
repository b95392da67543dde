"""Qwen3-MoE: grouped-query attention with norms of queries and keys, and in every layer many small experts.

Source: Qwen Team, Qwen3 Technical Report (2025), arXiv 2505.09388, table 2; for sizes that it does not print, and for the
coefficient of the balancing loss, the configurations published with the weights.
"""

from dataclasses import dataclass
from typing import ClassVar

from emu.model.model import EXPERT_COLUMNS, Model, model
from emu.model.parts.attention_block import NORMED_SHARDS, Heads
from emu.model.parts.decoder import DecoderSizes, block_model, shards
from emu.model.parts.expert_block import SPARSE_SHARDS


@dataclass(frozen=True, slots=True)
class Config(DecoderSizes):
    """The sizes of one Qwen3-MoE model."""

    draws_experts_first: ClassVar[bool] = True
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int  # the width of one expert
    vocab: int
    max_seq: int
    experts: int = 128
    top_k: int = 8
    balance: float = 0.001
    rope_theta: float = 1_000_000.0
    norm_eps: float = 1e-6
    source: str = ""
    head_dim: int = 128

    @property
    def attention(self) -> Heads:
        """The sizes of the attention of each layer."""
        sizes = (self.hidden, self.heads, self.kv_heads, self.head_dim, self.head_dim, self.rope_theta)
        return Heads(*sizes, normed=True, norm_eps=self.norm_eps)


_SOURCE = "Qwen3 Technical Report (2025), table 2"
CONFIGS = {
    "qwen3-moe-tiny": Config(8, 64, 8, 4, 32, 256, 1024, head_dim=16, experts=8, top_k=2),
    "qwen3-30b-a3b": Config(48, 2048, 32, 4, 768, 151_936, 40_960, source=_SOURCE),
    "qwen3-235b-a22b": Config(94, 4096, 64, 4, 1536, 151_936, 40_960, source=_SOURCE),
}
SHARDS = shards({"attention": NORMED_SHARDS, "sparse": SPARSE_SHARDS})


@model(CONFIGS)
def qwen3_moe(name: str, c: Config) -> Model:
    """Return the model of a configuration; `name` is its name in reports."""
    divides = {"key and value heads": c.kv_heads, EXPERT_COLUMNS: c.ffn // 4}
    return block_model(name, c, divides, SHARDS)
