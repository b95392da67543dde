"""A decoder-only transformer: an embedding, layers of two blocks behind a norm each, a norm, an output product."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.operator import SUM, Amount, ModelOperator, Passes, Tokens, lookup, product
from emu.model.parts.attention_block import Attention, Heads, attention_operators
from emu.model.parts.expert_block import SPARSE_SHARDS, ExpertBlock, Experts, sparse_operators
from emu.model.parts.norms import NORMS, RMS
from emu.model.parts.rotary import LearnedEmbedding, TiedOutput, learned_operators
from emu.model.parts.token_routing import ExpertRouting
from emu.model.stack.passes import element_wise

Parts = tuple[ModelOperator, ...]
ENDS = {"embedding": "vocabulary", "output": "gathered"}
Blocks = Callable[[Any, str, int], tuple[nn.Module, nn.Module]]  # attention and feed-forward: configuration, kind, tokens
BlockOperators = Callable[[Any, str, Tokens], tuple[Parts, Parts]]  # those of both blocks


class DenseLayers:
    """The sizes that every decoder without experts has in common."""

    __slots__ = ()
    experts: ClassVar[int] = 0
    top_k: ClassVar[int] = 0
    first_std: ClassVar[float] = 0.02
    layers: int

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each layer."""
        return ("dense",) * self.layers


class DecoderLayer(nn.Module):
    """A layer of a decoder: attention and feed-forward, each behind a norm and added to its input.

    `block` is the name of the feed-forward block.
    """

    def __init__(
        self, attention: nn.Module, ffn: nn.Module, attention_norm: nn.Module, ffn_norm: nn.Module, block: str = "ffn"
    ) -> None:
        super().__init__()
        self.block = block
        self.attention_norm, self.attention, self.ffn_norm = attention_norm, attention, ffn_norm
        self.add_module(block, ffn)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, T, hidden] to [B, T, hidden]."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.get_submodule(self.block)(self.ffn_norm(x))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """A decoder that maps tokens to logits."""

    def __init__(self, embedding: nn.Module, layers: Iterable[nn.Module], norm: nn.Module, output: nn.Module) -> None:
        super().__init__()
        self.embedding, self.layers, self.norm, self.output = embedding, nn.ModuleList(layers), norm, output

    def forward(self, tokens: Tensor) -> Tensor:
        """Map [B, T] to [B, T, vocab]."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))  # type: ignore[no-any-return]


def initialise(module: nn.Module, std: float = 0.02) -> None:
    """Draw the weights of products and tables with standard deviation `std`, and set biases to 0."""
    for each in module.modules():
        if isinstance(each, (nn.Linear, nn.Embedding)):
            nn.init.normal_(each.weight, std=std)
        if isinstance(each, nn.Linear) and each.bias is not None:
            nn.init.zeros_(each.bias)


def residual(name: str, tokens: int, hidden: int) -> ModelOperator:
    """Return the operator of the sum that ends a block."""
    return element_wise(name, "residual", tokens * hidden, sequence=True)


def layer_operators(
    norm: Callable[[str, int, int], ModelOperator],
    tokens: int,
    hidden: int,
    attention: Iterable[ModelOperator],
    ffn: Iterable[ModelOperator],
) -> tuple[ModelOperator, ...]:
    """Return the operators of a `DecoderLayer`.

    Args:
        norm: A function that gives a norm's operator for a name, tokens and hidden.
        tokens: The tokens of the rank.
        hidden: The width of the model.
        attention: The operators of the attention block.
        ffn: The operators of the feed-forward block.
    """
    first, second = norm("attention_norm", tokens, hidden), norm("ffn_norm", tokens, hidden)
    attended, fed = (residual(f"{name}_residual", tokens, hidden) for name in ("attention", "ffn"))
    return first, *attention, attended, second, *ffn, fed


def output_operators(tokens: int, hidden: int, vocab: int, *, tied: bool = False) -> tuple[ModelOperator, ...]:
    """Return the operators of the output product and the loss; one fused kernel computes the loss of a part of the vocabulary.

    Tied weights have two gradients, which are summed if one rank has both the embedding and the head.
    """
    output = product("output", tokens, hidden, vocab, "out")
    loss = element_wise("loss", "cross entropy", tokens * vocab, tokens)
    if not tied:
        return output, loss
    summed = Passes(backward_weight=Amount(parameters=3 * vocab * hidden))
    return replace(output, parameters=0), ModelOperator("output.sum", SUM, eager=summed, cut="out"), loss


def shards(layer: Mapping[str, Mapping[str, str]], ends: Mapping[str, str] = ENDS) -> dict[str, str]:
    """Return the sharding style of each module path.

    Args:
        layer: For each block of a layer by name, the style of each path inside it.
        ends: The styles of the embedding and the output.
    """
    inner = {f"layers.*.{block}{path}": style for block, styles in layer.items() for path, style in styles.items()}
    norms = dict.fromkeys(("layers.*.attention_norm", "layers.*.ffn_norm", "norm"), "between")
    return {**ends, **norms, **inner}


def decoder_model(
    name: str,
    c: Any,
    part: Callable[..., Parts],
    build: Callable[..., nn.Module],
    divides: Mapping[str, int],
    styles: Mapping[str, str],
) -> Model:
    """Return the model of a configuration whose embedding, layers or head are its own.

    Args:
        name: The name of the model.
        c: The sizes: `kinds` (of each layer), `hidden`, `heads`, `vocab`, `max_seq`, `experts`, `top_k`, `source`, and
            `attention` with its `head_dim`.
        part: The function that returns the operators of a part of the configuration, given its name and the tokens.
        build: The function that returns the module of the configuration, given the tokens.
        divides: The sizes beside the heads that tensor parallelism must divide, by what they are.
        styles: The sharding style of each module, by its path.
    """
    return Model(
        name=name,
        hidden=c.hidden,
        heads=c.heads,
        head_dim=c.attention.head_dim,
        vocab=c.vocab,
        max_seq=c.max_seq,
        kinds=c.kinds,
        part=lambda part_name, tokens: part(c, part_name, tokens),
        build=lambda tokens: build(c, tokens),
        tp_divides={"heads": c.heads, **divides},
        shards=styles,
        experts=c.experts,
        top_k=c.top_k,
        tied=styles.get("output") == "tied",
        source=c.source,
    )


def block_model(
    name: str, c: Any, blocks: Blocks, operators: BlockOperators, divides: Mapping[str, int], styles: Mapping[str, str]
) -> Model:
    """Return the model of a configuration whose layers are two blocks behind a norm each.

    Its words are in a table of their own, or, where the output is tied to them, with learned positions.

    Args:
        name: The name of the model.
        c: The sizes, as in `decoder_model`, with `norm`, one of NORMS, `norm_eps`, and `first_std`, the standard deviation
            of the first weights.
        blocks: The function that returns the two blocks of a layer.
        operators: The function that returns the operators of each of them.
        divides: The sizes beside the heads that tensor parallelism must divide, by what they are.
        styles: The sharding style of each module, by its path.
    """
    tied = styles["output"] == "tied"
    part, build = partial(_part, operators=operators, tied=tied), partial(_build, blocks=blocks, tied=tied)
    return decoder_model(name, c, part, build, divides, styles)


def _build(c: Any, tokens: int, blocks: Blocks, *, tied: bool) -> Decoder:
    """Return the module with its first weights."""

    def norm() -> nn.Module:
        return NORMS[c.norm][0](c.hidden, c.norm_eps)

    def layer(kind: str) -> DecoderLayer:
        attention, ffn = blocks(c, kind, tokens)
        return DecoderLayer(attention, ffn, norm(), norm(), "sparse" if isinstance(ffn, ExpertBlock) else "ffn")

    ends: tuple[nn.Module, nn.Module]
    if tied:
        words = LearnedEmbedding(c.vocab, c.max_seq, c.hidden)
        ends = words, TiedOutput(words.words)
    else:
        ends = nn.Embedding(c.vocab, c.hidden), nn.Linear(c.hidden, c.vocab, bias=False)
    module = Decoder(ends[0], map(layer, c.kinds), norm(), ends[1])
    initialise(module, c.first_std)
    return module


def _part(c: Any, name: str, tokens: Tokens, operators: BlockOperators, *, tied: bool) -> Parts:
    """Return the operators of a part; a test compares them with those that the module runs."""
    norm = NORMS[c.norm][1]
    if name == EMBEDDING and tied:
        return learned_operators(tokens, c.vocab, c.max_seq, c.hidden)
    if name == EMBEDDING:
        return (lookup("embedding", tokens.n, c.vocab, c.hidden),)
    if name == HEAD:
        return norm("norm", tokens.n, c.hidden), *output_operators(tokens.n, c.hidden, c.vocab, tied=tied)
    return layer_operators(norm, tokens.n, c.hidden, *operators(c, name, tokens))


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
