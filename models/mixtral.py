"""Mixtral: Llama's attention, and in every layer experts that are SwiGLU blocks; each token goes to two of them.

Sources: Jiang et al., Mixtral of Experts (2024), arXiv 2401.04088, table 1; for 8x22B, and for the coefficient of the balancing
loss, the configurations published with the weights.
"""

from dataclasses import dataclass
from typing import ClassVar

from emu.model.model import EXPERT_COLUMNS, Model, model
from emu.model.parts.attention_block import ATTENTION_SHARDS
from emu.model.parts.decoder import DecoderSizes, block_model, shards
from emu.model.parts.expert_block import SPARSE_SHARDS


@dataclass(frozen=True, slots=True)
class Config(DecoderSizes):
    """The sizes of one Mixtral model."""

    draws_experts_first: ClassVar[bool] = True
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int  # the width of one expert
    vocab: int
    max_seq: int
    experts: int = 8
    top_k: int = 2
    balance: float = 0.02
    rope_theta: float = 1_000_000.0
    norm_eps: float = 1e-5
    source: str = ""


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


@model(CONFIGS)
def mixtral(name: str, c: Config) -> Model:
    """Return the model of a configuration; `name` is its name in reports."""
    divides = {"key and value heads": c.kv_heads, EXPERT_COLUMNS: c.ffn // 4}
    return block_model(name, c, divides, SHARDS)
