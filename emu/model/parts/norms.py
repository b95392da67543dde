"""Norms over the last dimension, and the operators of each.

Source: Zhang and Sennrich, Root Mean Square Layer Normalization (2019); Ba et al., Layer Normalization (2016).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor, nn
from torch.nn import functional

from emu.model.operator import Amount, ModelOperator
from emu.model.stack.passes import element_wise

RMS = "rms norm"


class LayerNorm1p(nn.LayerNorm):
    """A layer norm whose weight is stored as its difference from 1, so that weight decay pulls it to 1.

    Source: NVIDIA, Nemotron-4 15B Technical Report (2024), section 2; the layer norm "1p" of NeMo.
    """

    def reset_parameters(self) -> None:
        """Set the weight to 1 and the bias to 0."""
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., hidden] to [..., hidden]."""
        return functional.layer_norm(x, self.normalized_shape, self.weight + 1, self.bias, self.eps)


def rms_norm(name: str, tokens: int, width: int, *, heads: int = 1, sequence: bool = True, cut: bool = False) -> ModelOperator:
    """Return the operator of an RMSNorm over rows of `width` elements, a row for each token and head, a weight an element."""
    rows = tokens * heads
    norm = element_wise(name, "rms norm", rows * width, rows, weights=width, sequence=sequence, cut=cut)
    weighed = norm.outputs.times(2) + Amount(parameters=width)  # the last product, which saves its input
    return replace(norm, until_saved=norm.eager.forward + weighed.times(-1))


def layer_norm(name: str, tokens: int, width: int) -> ModelOperator:
    """Return the operator of a layer norm with a weight and a bias for each element of a row."""
    return replace(element_wise(name, "layer norm", tokens * width, tokens, weights=2 * width, sequence=True), tensors=2)


def layer_norm_1p(name: str, tokens: int, width: int) -> ModelOperator:
    """Return the operator of a layer norm whose weight is stored as its difference from 1."""
    norm = element_wise(name, "layer norm 1p", tokens * width, tokens, width, weights=2 * width, sequence=True)
    # The sum is over the weight alone, so it is neither sharded with the tokens nor does it wait for them.
    moved = Amount(whole=-2 * width, parameters=2 * width)
    eager = replace(norm.eager, forward=norm.eager.forward + moved)
    return replace(norm, eager=eager, tensors=2, ahead=Amount(parameters=2 * width))


# Of each kind of norm, the module for a width and an epsilon, and the operator for a name, tokens and a width.
NORMS: Mapping[str, tuple[Callable[[int, float], nn.Module], Callable[[str, int, int], ModelOperator]]] = {
    RMS: (nn.RMSNorm, rms_norm),
    "layer norm": (nn.LayerNorm, layer_norm),
    "layer norm 1p": (LayerNorm1p, layer_norm_1p),
}
