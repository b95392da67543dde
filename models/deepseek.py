"""DeepSeek-V3: multi-head latent attention; three dense layers, then layers with many small experts and a shared one.

A token goes to experts of four of eight groups only. Multi-token prediction is left out. The bias that evens out the choice of
experts is present and is not updated. The balancing loss is the sequence-wise one of the paper, taken over a whole batch.
Source: DeepSeek-AI, DeepSeek-V3 Technical Report (2024), arXiv 2412.19437, sections 2.1 and 4.2.
"""

from dataclasses import dataclass
from typing import ClassVar

from emu.errors import must_be
from emu.model.model import EXPERT_COLUMNS, Model, model
from emu.model.parts.attention_block import LATENT_SHARDS, LatentSizes
from emu.model.parts.decoder import DecoderSizes, block_model, shards
from emu.model.parts.expert_block import SHARED_SHARDS, SPARSE_SHARDS
from emu.model.parts.feed_forward import GATED_SHARDS
from emu.model.parts.token_routing import ExpertRouting


@dataclass(frozen=True, slots=True)
class Config(DecoderSizes):
    """The sizes of one model of the DeepSeek-V3 architecture."""

    shares_expert: ClassVar[bool] = True
    layers: int
    dense_layers: int  # number of dense layers, which come first
    hidden: int
    heads: int
    query_rank: int
    key_rank: int
    turned: int  # elements of a head that rotary embedding turns
    plain: int  # elements of a head that it does not turn
    value: int  # elements of a head's value
    dense_ffn: int
    ffn: int  # columns of one expert, and of the shared one
    vocab: int
    max_seq: int
    experts: int
    top_k: int
    groups: int
    top_groups: int
    scale: float = 2.5  # factor of the experts' weights
    balance: float = 0.0001
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-6
    source: str = ""

    def __post_init__(self) -> None:
        if self.dense_layers > self.layers:
            raise must_be("model", "dense_layers", f"at most the {self.layers} layers", self.dense_layers)

    @property
    def attention(self) -> LatentSizes:
        """The sizes of the attention of each layer."""
        sizes = (self.hidden, self.heads, self.query_rank, self.key_rank, self.turned, self.plain, self.value)
        return LatentSizes(*sizes, self.rope_theta, self.norm_eps)

    @property
    def routing(self) -> ExpertRouting:
        """The routing of tokens: a sigmoid for each expert, normalised and scaled.

        Experts are chosen by groups, corrected by a bias.
        """
        groups = (self.groups, self.top_groups)
        return ExpertRouting(
            self.experts, self.top_k, "sigmoid", True, self.scale, *groups, corrected=True, balance=self.balance
        )

    @property
    def first_std(self) -> float:
        """The standard deviation of the normal distribution from which all weights are drawn at the start."""
        return 0.006 if self.hidden > 1024 else 0.02

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each layer, in the order of the model."""
        return ("dense",) * self.dense_layers + ("sparse",) * (self.layers - self.dense_layers)


CONFIGS = {
    "deepseek-tiny": Config(
        layers=8,
        dense_layers=1,
        hidden=64,
        heads=8,
        query_rank=32,
        key_rank=16,
        turned=4,
        plain=8,
        value=8,
        dense_ffn=192,
        ffn=32,
        vocab=256,
        max_seq=1024,
        experts=8,
        top_k=2,
        groups=4,
        top_groups=2,
    ),
    "deepseek-v3": Config(
        layers=61,
        dense_layers=3,
        hidden=7168,
        heads=128,
        query_rank=1536,
        key_rank=512,
        turned=64,
        plain=128,
        value=128,
        dense_ffn=18432,
        ffn=2048,
        vocab=129_280,
        max_seq=4096,
        experts=256,
        top_k=8,
        groups=8,
        top_groups=4,
        source="DeepSeek-V3 Technical Report (2024), section 4.2",
    ),
}
SHARDS = shards({"attention": LATENT_SHARDS, "ffn": GATED_SHARDS, "sparse": {**SPARSE_SHARDS, **SHARED_SHARDS}})


@model(CONFIGS)
def deepseek(name: str, c: Config) -> Model:
    """Return the model of a configuration; `name` is its name in reports."""
    divides = {"feed-forward columns": c.dense_ffn, EXPERT_COLUMNS: c.ffn // 4}
    return block_model(name, c, divides, SHARDS)
