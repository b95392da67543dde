"""A decoder-only transformer: an embedding, layers of two blocks each, a final norm and an output product."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.operator import SUM, Amount, ModelOperator, Passes, Tokens, lookup, product
from emu.model.parts.attention_block import Heads, attention_block, attention_operators, head_dim
from emu.model.parts.expert_block import ExpertBlock, Experts, sparse_operators
from emu.model.parts.feed_forward import GATES, FeedForward, gated_operators, plain_operators
from emu.model.parts.norms import NORMS, RMS
from emu.model.parts.rotary import LearnedEmbedding, TiedOutput, learned_operators
from emu.model.parts.token_routing import ExpertRouting
from emu.model.stack.passes import element_wise

Parts = tuple[ModelOperator, ...]
ENDS = {"embedding": "vocabulary", "output": "gathered"}


class DecoderSizes:
    """The sizes that most decoders have in common; each architecture adds its own."""

    __slots__ = ()
    norm: ClassVar[str] = RMS
    activation: ClassVar[str] = "silu gate"
    biased: ClassVar[bool] = False
    shares_expert: ClassVar[bool] = False  # one more expert of each block sees all tokens
    draws_experts_first: ClassVar[bool] = False  # their first weights come before those of the layer's attention
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    rope_theta: float
    experts: int
    top_k: int
    balance: float  # the coefficient of the loss that balances the experts

    @property
    def attention(self) -> Any:
        """The sizes of the attention of each layer: `Heads`, or `LatentSizes`."""
        dim = head_dim(self.hidden, self.heads)
        return Heads(self.hidden, self.heads, self.kv_heads, dim, dim, self.rope_theta)

    @property
    def routing(self) -> ExpertRouting:
        """The routing rule of the model: a softmax over all experts, with the chosen ones normalised."""
        return ExpertRouting(self.experts, self.top_k, balance=self.balance)

    @property
    def first_std(self) -> float:
        """The standard deviation of the normal distribution from which all weights are drawn at the start: 0.02."""
        return 0.02

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each layer, in the order of the model."""
        return ("sparse" if hasattr(self, "experts") else "dense",) * self.layers


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
        c: The sizes, those of `DecoderSizes` with `vocab`, `max_seq` and `source`.
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
        experts=getattr(c, "experts", 0),
        top_k=getattr(c, "top_k", 0),
        tied=styles.get("output") == "tied",
        source=c.source,
    )


def block_model(name: str, c: Any, divides: Mapping[str, int], styles: Mapping[str, str]) -> Model:
    """Return the model of a configuration whose layers are attention and a feed-forward block, or one of experts.

    Each of them is behind a norm. Words are in a table of their own, or, where the output is tied to them, with learned
    positions.

    Args:
        name: The name of the model.
        c: The sizes, as in `decoder_model`, with `norm_eps` and `ffn`, the width of the feed-forward block or of an expert;
            `dense_ffn`, if blocks of layers without experts have another.
        divides: The sizes beside the heads that tensor parallelism must divide, by what they are.
        styles: The sharding style of each module, by its path.
    """
    tied = styles["output"] == "tied"
    return decoder_model(name, c, partial(_part, tied=tied), partial(_build, tied=tied), divides, styles)


def _build(c: Any, tokens: int, *, tied: bool) -> Decoder:
    """Return the module with its initial weights."""

    def norm() -> nn.Module:
        return NORMS[c.norm][0](c.hidden, c.norm_eps)

    def layer(kind: str) -> DecoderLayer:
        attention, ffn = _blocks(c, kind, tokens)
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


def _blocks(c: Any, kind: str, tokens: int) -> tuple[nn.Module, nn.Module]:
    """Return the attention and the feed-forward block, or block of experts, of a layer."""

    def experts() -> Experts:
        return Experts(c.experts, c.hidden, c.ffn, c.activation)

    first = experts() if c.draws_experts_first else None
    attention = attention_block(c.attention, tokens)
    if kind == "dense":
        return attention, FeedForward(c.hidden, getattr(c, "dense_ffn", c.ffn), c.activation, biased=c.biased)
    of_tokens = first or experts()
    return attention, ExpertBlock(c.hidden, c.routing, of_tokens, FeedForward(c.hidden, c.ffn) if c.shares_expert else None)


def _part(c: Any, name: str, tokens: Tokens, *, tied: bool) -> Parts:
    """Return the operators of one part of a decoder; a test compares them with the operators of the module."""
    norm = NORMS[c.norm][1]
    if name == EMBEDDING and tied:
        return learned_operators(tokens, c.vocab, c.max_seq, c.hidden)
    if name == EMBEDDING:
        return (lookup("embedding", tokens.n, c.vocab, c.hidden),)
    if name == HEAD:
        return norm("norm", tokens.n, c.hidden), *output_operators(tokens.n, c.hidden, c.vocab, tied=tied)
    attention, ffn = attention_operators(c.attention, tokens), _ffn_operators(c, name, tokens)
    return layer_operators(norm, tokens.n, c.hidden, attention, ffn)


def _ffn_operators(c: Any, kind: str, tokens: Tokens) -> Parts:
    """Return the operators of the feed-forward block, or block of experts, of a layer."""
    if kind != "dense":
        shared = gated_operators("sparse.shared", tokens.n, c.hidden, c.ffn, kept=True) if c.shares_expert else ()
        return sparse_operators("sparse", tokens, c.hidden, c.ffn, c.routing, c.activation, shared)
    width = getattr(c, "dense_ffn", c.ffn)
    if c.activation in GATES:
        return gated_operators("ffn", tokens.n, c.hidden, width)
    return plain_operators("ffn", tokens.n, c.hidden, width, c.activation, biased=c.biased)
