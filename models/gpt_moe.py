"""GPT-MoE: GPT with experts in place of every second feed-forward block, each expert as wide as the block that it replaces.

Experts have no biases. Sources: the InfiniteHBD paper (2025), appendix B; Fedus et al., Switch Transformers (2021), section 2.2
(coefficient of the balancing loss).
"""

from dataclasses import dataclass
from typing import ClassVar

from emu.model.model import EXPERT_COLUMNS, Model, model
from emu.model.parts.attention_block import ATTENTION_SHARDS, Heads, head_dim
from emu.model.parts.decoder import DecoderSizes, block_model, shards
from emu.model.parts.expert_block import SPARSE_SHARDS
from emu.model.parts.feed_forward import PLAIN_SHARDS
from emu.model.parts.rotary import TIED_SHARDS


@dataclass(frozen=True, slots=True)
class Config(DecoderSizes):
    """The sizes of one GPT-MoE; feed-forward blocks and experts are four times as wide as the hidden size."""

    norm: ClassVar[str] = "layer norm"
    norm_eps: ClassVar[float] = 1e-5
    activation: ClassVar[str] = "gelu"
    biased: ClassVar[bool] = True
    layers: int
    hidden: int
    heads: int
    vocab: int
    max_seq: int = 2048
    experts: int = 8
    top_k: int = 2
    every: int = 2  # one layer in so many has experts: the last of them
    balance: float = 0.01  # the coefficient of the loss that balances the experts
    source: str = ""

    @property
    def attention(self) -> Heads:
        """The sizes of the attention of each layer."""
        return Heads(self.hidden, self.heads, self.heads, head_dim(self.hidden, self.heads), biased=True)

    @property
    def ffn(self) -> int:
        """The number of columns of a feed-forward block, and of an expert."""
        return 4 * self.hidden

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each layer, in the order of the model."""
        return tuple("dense" if layer % self.every else "sparse" for layer in range(1, self.layers + 1))


CONFIGS = {
    "gpt-moe-tiny": Config(layers=8, hidden=64, heads=8, vocab=256, max_seq=1024, experts=4),
    "gpt-moe-1.1t": Config(192, 12288, 128, 64_000, source="InfiniteHBD paper (2025), appendix B"),
}
SHARDS = shards({"attention": ATTENTION_SHARDS, "ffn": PLAIN_SHARDS, "sparse": SPARSE_SHARDS}, ends=TIED_SHARDS)


@model(CONFIGS)
def gpt_moe(name: str, c: Config) -> Model:
    """Return the model of a configuration; `name` is its name in reports."""
    divides = {"feed-forward columns": c.ffn, EXPERT_COLUMNS: c.ffn // 4}
    return block_model(name, c, divides, SHARDS)
