"""Nemotron-4: LayerNorm of 1 + weight, rotary embedding of half of each head, grouped-query attention, squared ReLU.

There are no biases and no dropout; input and output embeddings are not tied.
Sources: Parmar et al., Nemotron-4 15B Technical Report (2024), arXiv 2402.16819, table 1; NVIDIA, Nemotron-4 340B Technical
Report (2024), arXiv 2406.11704, table 1.
"""

from dataclasses import dataclass
from typing import ClassVar

from emu.model.model import Model, model
from emu.model.parts.attention_block import ATTENTION_SHARDS, Heads, head_dim
from emu.model.parts.decoder import DecoderSizes, block_model, shards
from emu.model.parts.feed_forward import PLAIN_SHARDS


@dataclass(frozen=True, slots=True)
class Config(DecoderSizes):
    """The sizes of one Nemotron-4; the feed-forward block is four times as wide as the hidden size."""

    norm: ClassVar[str] = "layer norm 1p"
    norm_eps: ClassVar[float] = 1e-5
    activation: ClassVar[str] = "squared relu"
    layers: int
    hidden: int
    heads: int
    kv_heads: int = 8
    vocab: int = 256_000
    max_seq: int = 4096
    turned: float = 0.5  # share of each head that rotary embedding turns
    source: str = ""

    @property
    def attention(self) -> Heads:
        """The sizes of the attention of each layer."""
        dim = head_dim(self.hidden, self.heads)
        return Heads(self.hidden, self.heads, self.kv_heads, dim, round(dim * self.turned))

    @property
    def ffn(self) -> int:
        """The width of the feed-forward block: the columns of its first product."""
        return 4 * self.hidden


CONFIGS = {
    "nemotron-tiny": Config(layers=8, hidden=64, heads=8, kv_heads=4, vocab=256, max_seq=1024),
    "nemotron4-15b": Config(32, 6144, 48, source="Parmar et al., Nemotron-4 15B (2024), table 1"),
    "nemotron4-340b": Config(96, 18432, 96, source="NVIDIA, Nemotron-4 340B (2024), table 1"),
}
SHARDS = shards({"attention": ATTENTION_SHARDS, "ffn": PLAIN_SHARDS})


@model(CONFIGS)
def nemotron(name: str, c: Config) -> Model:
    """Return the model of a configuration; `name` is its name in reports."""
    return block_model(name, c, {"key and value heads": c.kv_heads, "feed-forward columns": c.ffn}, SHARDS)
