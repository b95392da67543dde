"""Qwen3-MoE: grouped-query attention with norms of queries and keys, and in every layer many small experts.

Source: Qwen Team, Qwen3 Technical Report (2025), arXiv 2505.09388, table 2; for sizes that it does not print, and for the
coefficient of the balancing loss, the configurations published with the weights.
"""

from dataclasses import dataclass
from typing import ClassVar

from emu.model.model import Model, model
from emu.model.parts.attention_block import NORMED_SHARDS, Heads
from emu.model.parts.decoder import Mixture, mixture


@dataclass(frozen=True, slots=True)
class Config(Mixture):
    """Sizes of one Qwen3-MoE."""

    kind: ClassVar[str] = "moe"

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


@model(CONFIGS)
def qwen3_moe(name: str, c: Config) -> Model:
    """Return the model of one configuration."""
    return mixture(name, c, NORMED_SHARDS)
