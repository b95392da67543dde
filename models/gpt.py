"""GPT-3, and its shapes with which Megatron-LM was measured: LayerNorm, learned positions, GELU, biases, tied embeddings.

Sources: Brown et al., Language Models are Few-Shot Learners (2020), arXiv 2005.14165, table 2.1; Narayanan et al., Efficient
Large-Scale Language Model Training on GPU Clusters (SC21), table 1; Korthikanti et al., Reducing Activation Recomputation in
Large Transformer Models (2022), table 3. GPT-3's locally banded attention is left out, as Megatron-LM leaves it out.
"""

from dataclasses import dataclass
from typing import ClassVar

from emu.model.model import Model, model
from emu.model.parts.attention_block import ATTENTION_SHARDS, Heads, head_dim
from emu.model.parts.decoder import DecoderSizes, block_model, shards
from emu.model.parts.feed_forward import PLAIN_SHARDS
from emu.model.parts.rotary import TIED_SHARDS


@dataclass(frozen=True, slots=True)
class Config(DecoderSizes):
    """The sizes of one GPT; the feed-forward block is four times as wide as the hidden size."""

    norm: ClassVar[str] = "layer norm"
    norm_eps: ClassVar[float] = 1e-5
    activation: ClassVar[str] = "gelu"
    biased: ClassVar[bool] = True
    layers: int
    hidden: int
    heads: int
    vocab: int = 51_200
    max_seq: int = 2048
    source: str = ""

    @property
    def attention(self) -> Heads:
        """The sizes of the attention of each layer."""
        return Heads(self.hidden, self.heads, self.heads, head_dim(self.hidden, self.heads), biased=True)

    @property
    def ffn(self) -> int:
        """The width of the feed-forward block: the columns of its first product."""
        return 4 * self.hidden


def _sc21(layers: int, hidden: int, heads: int) -> Config:
    """Return the configuration of a GPT of Narayanan et al. (SC 2021)."""
    return Config(layers, hidden, heads, source="Narayanan et al., SC21, table 1")


def _korthikanti(layers: int, hidden: int, heads: int) -> Config:
    """Return the configuration of a GPT of Korthikanti et al. (2022)."""
    return Config(layers, hidden, heads, source="Korthikanti et al. (2022), table 3")


CONFIGS = {
    "gpt-tiny": Config(layers=8, hidden=64, heads=8, vocab=256, max_seq=1024),
    "gpt3-175b": Config(96, 12288, 96, 50_257, source="Brown et al. (2020), table 2.1"),
    "megatron-gpt-1.7b": _sc21(24, 2304, 24),
    "megatron-gpt-3.6b": _sc21(30, 3072, 32),
    "megatron-gpt-7.5b": _sc21(36, 4096, 32),
    "megatron-gpt-18b": _sc21(40, 6144, 48),
    "megatron-gpt-39b": _sc21(48, 8192, 64),
    "megatron-gpt-76b": _sc21(60, 10240, 80),
    "megatron-gpt-145b": _sc21(80, 12288, 96),
    "megatron-gpt-310b": _sc21(96, 16384, 128),
    "megatron-gpt-530b": _sc21(105, 20480, 128),
    "megatron-gpt-1t": _sc21(128, 25600, 160),
    "korthikanti-22b": _korthikanti(48, 6144, 64),
    "korthikanti-175b": _korthikanti(96, 12288, 96),
    "korthikanti-530b": _korthikanti(105, 20480, 128),
    "korthikanti-1t": _korthikanti(128, 25600, 160),
}
SHARDS = shards({"attention": ATTENTION_SHARDS, "ffn": PLAIN_SHARDS}, ends=TIED_SHARDS)


@model(CONFIGS)
def gpt(name: str, c: Config) -> Model:
    """Return the model of a configuration; `name` is its name in reports."""
    return block_model(name, c, {"feed-forward columns": c.ffn}, SHARDS)
