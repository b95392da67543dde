"""A decoder-only transformer: an embedding, layers of two blocks behind a norm each, a norm, an output product."""

from collections.abc import Callable, Iterable, Mapping

from torch import Tensor, nn

from emu.model.operator import SUM, Amount, ModelOperator, Passes, product
from emu.model.stack.passes import element_wise

ENDS = {"embedding": "vocabulary", "output": "gathered"}


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and added to what came in; `block` is what the latter is called."""

    def __init__(
        self, attention: nn.Module, ffn: nn.Module, attention_norm: nn.Module, ffn_norm: nn.Module, block: str = "ffn"
    ) -> None:
        super().__init__()
        self.block = block
        self.attention_norm, self.attention, self.ffn_norm = attention_norm, attention, ffn_norm
        self.add_module(block, ffn)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, hidden] -> [B, T, hidden]."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.get_submodule(self.block)(self.ffn_norm(x))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """Tokens in, logits out."""

    def __init__(self, embedding: nn.Module, layers: Iterable[nn.Module], norm: nn.Module, output: nn.Module) -> None:
        super().__init__()
        self.embedding, self.layers, self.norm, self.output = embedding, nn.ModuleList(layers), norm, output

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, T] -> [B, T, vocab]."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))  # type: ignore[no-any-return]


def initialised(module: nn.Module, std: float = 0.02) -> None:
    """Draw the weights of products and tables, with a standard deviation of `std`, and set biases to 0."""
    for each in module.modules():
        if isinstance(each, (nn.Linear, nn.Embedding)):
            nn.init.normal_(each.weight, std=std)
        if isinstance(each, nn.Linear) and each.bias is not None:
            nn.init.zeros_(each.bias)


def residual(name: str, tokens: int, hidden: int) -> ModelOperator:
    """The sum that ends a block."""
    return element_wise(name, "residual", tokens * hidden, sequence=True)


def layer_operators(
    norm: Callable[[str, int, int], ModelOperator],
    tokens: int,
    hidden: int,
    attention: Iterable[ModelOperator],
    ffn: Iterable[ModelOperator],
) -> tuple[ModelOperator, ...]:
    """Of a `Layer`, by the operators of its blocks, and by what gives that of a norm: name, tokens, hidden."""
    first, second = norm("attention_norm", tokens, hidden), norm("ffn_norm", tokens, hidden)
    attended, fed = (residual(f"{name}_residual", tokens, hidden) for name in ("attention", "ffn"))
    return first, *attention, attended, second, *ffn, fed


def output_operators(tokens: int, hidden: int, vocab: int, *, tied: bool = False) -> tuple[ModelOperator, ...]:
    """The output product and the loss; one fused kernel takes the loss of a part of the vocabulary.

    Tied weights have two gradients, which are added where one rank has both the embedding and the head.
    """
    moved = Passes(backward_weight=Amount(parameters=3 * vocab * hidden))
    return (
        product("output", tokens, hidden, vocab, "out", tied=tied),
        *((ModelOperator("output.sum", SUM, eager=moved, cut="out"),) if tied else ()),
        element_wise("loss", "cross entropy", tokens * vocab, tokens),
    )


def shards(layer: Mapping[str, Mapping[str, str]], ends: Mapping[str, str] = ENDS) -> dict[str, str]:
    """Styles by path: of the blocks of a layer by name, and of the embedding and the output."""
    inner = {f"layers.*.{block}{path}": style for block, styles in layer.items() for path, style in styles.items()}
    norms = dict.fromkeys(("layers.*.attention_norm", "layers.*.ffn_norm", "norm"), "between")
    return {**ends, **norms, **inner}
