"""Llama: RMSNorm, rotary embedding, grouped-query attention, SwiGLU; no biases, input and output embeddings not tied.

Sources: Touvron et al., Llama 2 (2023), arXiv 2307.09288, section 2.2 and table 1; Dubey et al., The Llama 3 Herd of Models
(2024), arXiv 2407.21783, section 3.2 and table 3; for sizes that these do not print, the configurations published with the
weights.
"""

from dataclasses import dataclass, replace

from emu.model.model import Model, model
from emu.model.parts.attention_block import ATTENTION_SHARDS, Heads, head_dim
from emu.model.parts.decoder import DecoderSizes, block_model, shards
from emu.model.parts.feed_forward import GATED_SHARDS
from emu.model.parts.rotary import RotaryScaling


@dataclass(frozen=True, slots=True)
class Config(DecoderSizes):
    """The sizes of one Llama model."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    max_seq: int
    rope_theta: float = 500_000.0
    norm_eps: float = 1e-5
    stretch: RotaryScaling | None = None  # scaling of the rotary angles, for a context longer than that of pre-training
    source: str = ""

    @property
    def attention(self) -> Heads:
        """The sizes of the attention of each layer."""
        dim = head_dim(self.hidden, self.heads)
        return Heads(self.hidden, self.heads, self.kv_heads, dim, dim, self.rope_theta, self.stretch)


def _llama2(layers: int, hidden: int, heads: int, kv_heads: int, ffn: int) -> Config:
    """Return the configuration of a Llama 2 with these sizes."""
    source = "Touvron et al., Llama 2 (2023), table 1"
    return Config(layers, hidden, heads, kv_heads, ffn, 32_000, 4096, 10_000.0, source=source)


def _llama3(layers: int, hidden: int, heads: int, ffn: int) -> Config:
    """Return the configuration of a Llama 3 with these sizes."""
    source = "Dubey et al., The Llama 3 Herd of Models (2024), table 3"
    return Config(layers, hidden, heads, 8, ffn, 128_256, 8192, source=source)


def _llama3_1(config: Config) -> Config:
    """Return the sizes of a Llama 3.1, from those of a Llama 3: longer sequences, with scaled rotary frequencies."""
    return replace(config, max_seq=131_072, stretch=RotaryScaling(8.0, 1.0, 4.0, 8192))


_8B, _70B, _405B = _llama3(32, 4096, 32, 14336), _llama3(80, 8192, 64, 28672), _llama3(126, 16384, 128, 53248)
CONFIGS = {
    "llama-tiny": Config(layers=8, hidden=64, heads=8, kv_heads=4, ffn=192, vocab=256, max_seq=1024),
    "llama-small": Config(layers=6, hidden=256, heads=8, kv_heads=4, ffn=768, vocab=256, max_seq=2048),
    "llama2-7b": _llama2(32, 4096, 32, 32, 11008),
    "llama2-13b": _llama2(40, 5120, 40, 40, 13824),
    "llama2-70b": _llama2(80, 8192, 64, 8, 28672),
    "llama3-8b": _8B,
    "llama3-70b": _70B,
    "llama3.1-8b": _llama3_1(_8B),
    "llama3.1-70b": _llama3_1(_70B),
    "llama3.1-405b": _llama3_1(_405B),
    # Keys and values of every head, so that tensor parallelism can go beyond 8.
    "llama3.1-405b-mha": replace(
        _llama3_1(_405B), kv_heads=128, source="Llama 3.1 405B as simplified in the InfiniteHBD paper (2025), section 6.3"
    ),
}
SHARDS = shards({"attention": ATTENTION_SHARDS, "ffn": GATED_SHARDS})


@model(CONFIGS)
def llama(name: str, c: Config) -> Model:
    """Return the model of a configuration; `name` is its name in reports."""
    return block_model(name, c, {"key and value heads": c.kv_heads, "feed-forward columns": c.ffn}, SHARDS)
