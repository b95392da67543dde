"""The memory traffic of element-wise operators, counted per element: in eager PyTorch, compiled, and as one fused kernel.

Found by running each alone under the counting mode (`OperatorCounter`) with PyTorch 2.13 on a CPU, forward and backward, at
several sizes: bytes of every kernel that ran, divided by the bytes of an element. The tests count them again. A fused kernel
reads each input and writes each output once; what it keeps is what a backward of one kernel needs.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from emu.model.operator import (
    ACTIVATION,
    GATE,
    LOSS,
    NORM,
    RESIDUAL,
    ROTATION,
    SCALE,
    SUM,
    Amount,
    ModelOperator,
    Passes,
)

_WIDE = 4  # bytes of an element of float32


class ElementCounts(NamedTuple):
    """The numbers of elements that a kernel reads and writes: for each element of the operator, for each row, and constants."""

    element: float = 0  # for each element of the operator
    row: int = 0  # for each row: statistics of norms; figures of one token
    constant: int = 0  # for each element of a constant that all rows share, e.g. a table of cosines
    row_bytes: int = 0  # bytes for each row, of indices
    wide: float = 0  # elements of float32 for each element of the operator, whatever dtype activations have


class Kernels(NamedTuple):
    """The element counts of an operator's forward and backward kernels, and of what is saved between them."""

    forward: ElementCounts
    backward: ElementCounts
    saved: ElementCounts = ElementCounts()


KIND: Mapping[str, str] = {
    **dict.fromkeys(("rms norm", "layer norm", "layer norm 1p"), NORM),
    **dict.fromkeys(("rotation", "part of a rotation"), ROTATION),
    **dict.fromkeys(("silu gate", "gelu gate"), GATE),
    **dict.fromkeys(("gelu", "squared relu"), ACTIVATION),
    **dict.fromkeys(("residual", "positions"), RESIDUAL),
    **dict.fromkeys(("sum of gradients", "sum of blocks"), SUM),
    "scale": SCALE,
    "cross entropy": LOSS,
}
EAGER: Mapping[str, Kernels] = {
    # x: pow, mean, add, rsqrt, two products; nn.RMSNorm has no kernel of its own on a CPU.
    "rms norm": Kernels(ElementCounts(7, 6), ElementCounts(23, 10), ElementCounts(2, 1)),
    "layer norm": Kernels(ElementCounts(2, 2), ElementCounts(3, 2), ElementCounts(1, 2)),
    "layer norm 1p": Kernels(ElementCounts(2, 2, 2), ElementCounts(3, 2), ElementCounts(1, 2, 1)),  # 1 + weight is made first
    # Of the halves of each pair: four products with cosines and sines, a difference, a sum, a stack.
    "rotation": Kernels(ElementCounts(9, 0, 4), ElementCounts(10, 0, 4)),
    "part of a rotation": Kernels(ElementCounts(2), ElementCounts(2)),  # the rotated part and the rest put together again
    "silu gate": Kernels(ElementCounts(5), ElementCounts(9), ElementCounts(3)),
    "gelu gate": Kernels(ElementCounts(5), ElementCounts(9), ElementCounts(3)),
    "gelu": Kernels(ElementCounts(2), ElementCounts(3), ElementCounts(1)),
    "squared relu": Kernels(ElementCounts(4), ElementCounts(10), ElementCounts(1)),
    "positions": Kernels(
        ElementCounts(2, 0, 1), ElementCounts(1, 0, 1)
    ),  # a row for each token of a sequence, added to all sequences
    "residual": Kernels(ElementCounts(3), ElementCounts(3)),  # backward: the gradients of both ways are added
    "sum of blocks": Kernels(ElementCounts(3), ElementCounts()),  # of two blocks that read the same input
    "sum of gradients": Kernels(ElementCounts(), ElementCounts(3)),  # of one more reader of the same input
    "scale": Kernels(ElementCounts(2), ElementCounts(2)),
    "cross entropy": Kernels(ElementCounts(2, 1, 0, 8), ElementCounts(4, 0, 0, 8), ElementCounts(1, 0, 0, 8)),
}
FUSED: Mapping[str, Kernels] = {
    "rms norm": Kernels(ElementCounts(2, 1), ElementCounts(3, 1), ElementCounts(1, 1)),
    "layer norm": Kernels(ElementCounts(2, 2), ElementCounts(3, 2), ElementCounts(1, 2)),
    "layer norm 1p": Kernels(ElementCounts(2, 2), ElementCounts(3, 2), ElementCounts(1, 2)),
    "rotation": Kernels(ElementCounts(2, 0, 2), ElementCounts(2, 0, 2)),
    "part of a rotation": Kernels(ElementCounts(), ElementCounts()),
    "silu gate": Kernels(ElementCounts(3), ElementCounts(5), ElementCounts(2)),
    "gelu gate": Kernels(ElementCounts(3), ElementCounts(5), ElementCounts(2)),
    "gelu": Kernels(ElementCounts(2), ElementCounts(3), ElementCounts(1)),
    "squared relu": Kernels(ElementCounts(2), ElementCounts(3), ElementCounts(1)),
    "positions": Kernels(ElementCounts(2, 0, 1), ElementCounts(1, 0, 1)),
    "residual": Kernels(ElementCounts(3), ElementCounts(3)),
    "sum of blocks": Kernels(ElementCounts(3), ElementCounts()),
    "sum of gradients": Kernels(ElementCounts(), ElementCounts()),  # one product reads for all
    "scale": Kernels(ElementCounts(2), ElementCounts(2)),
    "cross entropy": Kernels(ElementCounts(2, 1, 0, 8), ElementCounts(2, 0, 0, 8), ElementCounts(1, 0, 0, 8)),
}
# What Megatron-LM runs by several kernels where its configuration does not fuse them, of elements of the activations' type.
# Its loss of a cut vocabulary makes float32 of the scores, and then finds the largest, subtracts, takes powers, adds up and
# divides, in place; backward it multiplies in place and goes back to the activations' type. Sources: Megatron-LM,
# core_v0.15.3, megatron/core/tensor_parallel/cross_entropy.py; NeMo, nemo/collections/nlp/modules/common/megatron/utils.py,
# whose squared ReLU is two operators of PyTorch (that of Megatron-LM, megatron/core/activations.py, is fused).
UNFUSED: Mapping[str, Kernels] = {
    "squared relu": EAGER["squared relu"],
    "cross entropy": Kernels(ElementCounts(19, 1, 0, 8), ElementCounts(7, 0, 0, 8), ElementCounts(2, 0, 0, 8)),
}

# Of activations below float32, where not as EAGER: a norm and a rotation are worked out in float32 between two casts, the
# rotation as one product of complex numbers, and the loss takes logits that were cast to float32.
# Source: torchtitan at 9dec370 (December 2024), torchtitan/models/norms.py, models/llama/model.py and train.py.
NARROW: Mapping[str, Kernels] = {
    "rms norm": Kernels(ElementCounts(4, 6, wide=7), ElementCounts(8, 10, wide=19), ElementCounts(1, 1, wide=1)),
    "rotation": Kernels(ElementCounts(2, 0, 2, wide=4), ElementCounts(2, 0, 6, wide=4)),
    "cross entropy": Kernels(
        ElementCounts(1, 1, 0, 8, wide=3), ElementCounts(1, 0, 0, 8, wide=5), ElementCounts(0, 0, 0, 8, wide=1)
    ),
}
# As torch.compile has it, where not as without it. A norm and the sums around it are one kernel, but that the gradient of its
# weight, which adds up along tokens, reads once more; complex numbers and the loss are not compiled. Source: the bytes that
# PyTorch's own scheduler counts for a layer, which a test compares.
COMPILED: Mapping[str, Kernels] = {
    "rms norm": Kernels(ElementCounts(2, 1), ElementCounts(5, 1), ElementCounts(0, 1)),
    "silu gate": FUSED["silu gate"],
    "gelu gate": FUSED["gelu gate"],
    "gelu": FUSED["gelu"],
    "squared relu": FUSED["squared relu"],
    "residual": Kernels(ElementCounts(2.5), ElementCounts(1.5)),
    "sum of gradients": Kernels(ElementCounts(), ElementCounts(2)),
}


def element_wise(
    name: str,
    what: str,
    elements: int,
    rows: int = 0,
    constants: int = 0,
    *,
    weights: int = 0,
    cut: bool = False,
    sequence: bool = False,
) -> ModelOperator:
    """Return an element-wise (or row-wise) operator with the traffic of row `what` of the tables in this module.

    Args:
        name: The module's path, or a name beside it.
        what: The row of the tables above.
        elements: The elements of its output.
        rows: The rows of its output.
        constants: The elements that all rows share, apart from parameters.
        weights: Its parameters, whole on each rank of tp: read forward and backward, their gradients written once.
        cut: Whether tensor parallelism cuts all its work.
        sequence: Whether it lies where sequence parallelism cuts the tokens.
    """

    def amount(moved: ElementCounts, parameters: int) -> Amount:
        mine = round(moved.element * elements) + moved.row * rows
        shared, fixed = moved.constant * constants, moved.row_bytes * rows + _WIDE * round(moved.wide * elements)
        return Amount(0, shared, mine, parameters, fixed) if cut else Amount(0, mine + shared, 0, parameters, fixed)

    def passes(k: Kernels) -> Passes:
        own = Amount(parameters=weights)
        return Passes(amount(k.forward, weights), amount(k.backward, weights), own, amount(k.saved, 0))

    out = Amount(cut=elements) if cut else Amount(whole=elements)
    eager, fused, unfused = (passes(of[what]) for of in (EAGER, FUSED, {**FUSED, **UNFUSED}))
    narrow, compiled = (passes(table[what]) if what in table else None for table in (NARROW, COMPILED))
    own = ModelOperator(name, KIND[what], weights, eager, fused, out, "both" if cut else "", sequence, unfused=unfused)
    return replace(own, narrow=narrow, compiled=compiled)
