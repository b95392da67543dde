"""Feed-forward blocks: gated (SwiGLU, GeGLU), or plain with GELU or squared ReLU.

Source: Shazeer, GLU Variants Improve Transformer (2020), equation 6; So et al., Primer (2021), section 4 (squared ReLU).
"""

from collections.abc import Callable, Mapping

from torch import Tensor, nn
from torch.nn import functional

from emu.model.operator import ModelOperator, bias, product
from emu.model.stack.passes import element_wise

Activation = Callable[[Tensor], Tensor]


def squared_relu(x: Tensor) -> Tensor:
    """Return max(x, 0) squared."""
    return functional.relu(x).square()


def gelu(x: Tensor) -> Tensor:
    """Return GELU of x in its tanh approximation, as in GPT-3 and Megatron-LM."""
    return functional.gelu(x, approximate="tanh")


GATES: Mapping[str, Activation] = {"silu gate": functional.silu, "gelu gate": gelu}
ACTIVATIONS: Mapping[str, Activation] = {"gelu": gelu, "squared relu": squared_relu}


class FeedForward(nn.Module):
    """A feed-forward block: w2(f(w1 x)), or w2(f(w1 x) * w3 x) if the activation f is one of GATES."""

    def __init__(self, hidden: int, ffn: int, activation: str = "silu gate", *, biased: bool = False) -> None:
        super().__init__()
        self.activation = activation
        self.w1 = nn.Linear(hidden, ffn, bias=biased)
        self.w2 = nn.Linear(ffn, hidden, bias=biased)
        if activation in GATES:
            self.w3 = nn.Linear(hidden, ffn, bias=biased)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., hidden] to [..., hidden]."""
        if self.activation in GATES:
            return self.w2(GATES[self.activation](self.w1(x)) * self.w3(x))  # type: ignore[no-any-return]
        return self.w2(ACTIVATIONS[self.activation](self.w1(x)))  # type: ignore[no-any-return]


GATED_SHARDS = {"": "shared", ".w1": "colwise", ".w3": "colwise", ".w2": "rowwise"}
PLAIN_SHARDS = {"": "shared", ".w1": "colwise", ".w2": "rowwise"}


def gated_operators(name: str, tokens: int, hidden: int, ffn: int, *, kept: bool = False) -> tuple[ModelOperator, ...]:
    """Return the operators of the SiLU-gated block of this name.

    Args:
        name: The name of the module.
        tokens: The tokens of the rank.
        hidden: The width of the model.
        ffn: The width of the block.
        kept: True if an operator before the block saves the block's input.
    """
    return (
        product(f"{name}.w1", tokens, hidden, ffn, "out", kept=kept, reads_with="gate"),
        product(f"{name}.w3", tokens, hidden, ffn, "out", kept=True, reads_with="gate"),
        element_wise(f"{name}.inputs", "sum of gradients", tokens * hidden),
        element_wise(f"{name}.gate", "silu gate", tokens * ffn, cut=True),
        product(f"{name}.w2", tokens, ffn, hidden, "in"),
    )


def plain_operators(
    name: str, tokens: int, hidden: int, ffn: int, activation: str, *, biased: bool
) -> tuple[ModelOperator, ...]:
    """Return the operators of a block of two products with an activation between them."""
    up, down = product(f"{name}.w1", tokens, hidden, ffn, "out"), product(f"{name}.w2", tokens, ffn, hidden, "in")
    activated = element_wise(f"{name}.{activation.replace(' ', '_')}", activation, tokens * ffn, cut=True)
    if not biased:
        return up, activated, down
    return up, bias(up.name, tokens, ffn, "out"), activated, down, bias(down.name, tokens, hidden, "in")
