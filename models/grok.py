"""Grok-1: four RMSNorms a layer, grouped-query attention, and in every layer experts that are GeGLU blocks.

Input and output embeddings are tied, and both are scaled. The cap of attention scores at 30 (by a hyperbolic tangent) is left
out: it changes no size, and PyTorch's attention has none.
Source: xAI, Grok-1 (2024), model.py and run.py published with the weights.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from emu.model.model import EMBEDDING, EXPERT_COLUMNS, HEAD, Model, model
from emu.model.operator import ModelOperator, Tokens, lookup
from emu.model.parts.attention_block import ATTENTION_SHARDS, Attention, attention_operators
from emu.model.parts.decoder import Decoder, DecoderSizes, decoder_model, initialise, output_operators, residual, shards
from emu.model.parts.expert_block import SPARSE_SHARDS, ExpertBlock, Experts, sparse_operators
from emu.model.parts.norms import rms_norm
from emu.model.parts.rotary import TiedOutput
from emu.model.parts.token_routing import ExpertRouting
from emu.model.stack.passes import element_wise


@dataclass(frozen=True, slots=True)
class Config(DecoderSizes):
    """The sizes of one model of the Grok-1 architecture."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int  # columns of one expert
    vocab: int
    max_seq: int = 8192
    experts: int = 8
    top_k: int = 2
    embedding_scale: float = 78.38367176906169
    output_scale: float = 0.5773502691896257
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    source: str = ""

    @property
    def routing(self) -> ExpertRouting:
        """The routing of tokens: a softmax over all experts, of which the best ones keep their weights."""
        return ExpertRouting(self.experts, self.top_k, normalised=False)


CONFIGS = {
    "grok-tiny": Config(8, 64, 8, 4, 96, 256, 1024, experts=4, embedding_scale=8.0),
    "grok1-314b": Config(64, 6144, 48, 8, 32768, 131_072, source="xAI, Grok-1 (2024), run.py"),
}
_NORMS = dict.fromkeys(("layers.*.attention_out_norm", "layers.*.sparse_out_norm"), "between out")
_ENDS = {"embedding.words": "vocabulary", "output": "tied"}
SHARDS = {**shards({"attention": ATTENTION_SHARDS, "sparse": SPARSE_SHARDS}, ends=_ENDS), **_NORMS}


class Embedding(nn.Module):
    """A table of embeddings, whose output is scaled."""

    def __init__(self, vocab: int, hidden: int, scale: float) -> None:
        super().__init__()
        self.words, self.scale = nn.Embedding(vocab, hidden), scale

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scaled embeddings [B, T, hidden] of tokens [B, T]."""
        return self.words(tokens) * self.scale  # type: ignore[no-any-return]


class Layer(nn.Module):
    """A layer of Grok: attention and experts, each between two norms, with the input added to the output."""

    def __init__(self, c: Config, tokens: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(c.hidden, c.norm_eps)
        self.attention = Attention(c.attention, tokens)
        self.attention_out_norm = nn.RMSNorm(c.hidden, c.norm_eps)
        self.ffn_norm = nn.RMSNorm(c.hidden, c.norm_eps)
        self.sparse = ExpertBlock(c.hidden, c.routing, Experts(c.experts, c.hidden, c.ffn, "gelu gate"))
        self.sparse_out_norm = nn.RMSNorm(c.hidden, c.norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output [B, T, hidden] for x [B, T, hidden]."""
        x = x + self.attention_out_norm(self.attention(self.attention_norm(x)))
        return x + self.sparse_out_norm(self.sparse(self.ffn_norm(x)))  # type: ignore[no-any-return]


def build(c: Config, tokens: int) -> Decoder:
    """Return the PyTorch module with its initial weights.

    Args:
        c: The sizes.
        tokens: The number of tokens of a sequence.
    """
    embedding = Embedding(c.vocab, c.hidden, c.embedding_scale)
    output, norm = TiedOutput(embedding.words, c.output_scale), nn.RMSNorm(c.hidden, c.norm_eps)
    module = Decoder(embedding, (Layer(c, tokens) for _ in range(c.layers)), norm, output)
    initialise(module)
    return module


def part(c: Config, name: str, tokens: Tokens) -> tuple[ModelOperator, ...]:
    """Return the operators of a part of the model; a test compares them with the operators that the module runs.

    Args:
        c: The sizes.
        name: The name of the part.
        tokens: The tokens of one pass.
    """
    n, h = tokens.n, c.hidden
    if name == EMBEDDING:
        return lookup("embedding.words", n, c.vocab, h), element_wise("embedding.scale", "scale", n * h, sequence=True)
    if name == HEAD:
        product, added, loss = output_operators(n, h, c.vocab, tied=True)
        return rms_norm("norm", n, h), product, added, element_wise("output.scale", "scale", n * c.vocab, cut=True), loss
    return (
        rms_norm("attention_norm", n, h),
        *attention_operators(c.attention, tokens),
        rms_norm("attention_out_norm", n, h),
        residual("attention_residual", n, h),
        rms_norm("ffn_norm", n, h),
        *sparse_operators("sparse", tokens, h, c.ffn, c.routing, "gelu gate"),
        rms_norm("sparse_out_norm", n, h),
        residual("sparse_residual", n, h),
    )


@model(CONFIGS)
def grok(name: str, c: Config) -> Model:
    """Return the model of a configuration; `name` is its name in reports."""
    divides = {"key and value heads": c.kv_heads, EXPERT_COLUMNS: c.ffn // 4}
    return decoder_model(name, c, part, build, divides, SHARDS)
