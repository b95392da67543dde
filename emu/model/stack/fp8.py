"""Products in FP8: which operators are such products, and how many bytes the casts around them move.

A cast reads two bytes an element and writes one. With one scale for a tensor the largest element must be known before, by a
pass of its own that reads two bytes; `delayed` takes the scale of steps before and needs no such pass; with one scale for a
block or a row the kernel that casts finds it. Hopper's tensor cores multiply FP8 along rows only, so that the gradients of
inputs and weights need turned copies. A kernel may write both, unless one is gathered over ranks in between.

Sources: Transformer Engine v1.13, transformer_engine/pytorch/module/{linear,layernorm_linear,base}.py (delayed; weights are
cast once a step, and a norm writes FP8 itself); v2.8, pytorch/tensor/float8_blockwise_tensor.py (block); torchao at eab345c
(December 2024), torchao/float8/{float8_linear,float8_ops}.py (tensor, row).
"""

from collections.abc import Mapping
from typing import NamedTuple

from emu.model.operator import PRODUCT, ModelOperator
from emu.model.stack.stack import BLOCK, DELAYED, NOTHING, ROW, TENSOR, YES, Stack

_SCALED = 4 / 128  # bytes of a scale, of 128 elements


class Casts(NamedTuple):
    """The bytes that are moved beside a product, for each element of what is cast."""

    read: float  # of what the product reads, before its forward
    normed: float  # ... where a norm comes before
    turned: float  # of what the product reads, before the gradient of its weight: read from FP8 and written turned
    gradient: float  # of the gradient that comes in
    gradient_turned: float  # of the same, turned
    together: float  # less, of each turned copy that the kernel of the cast writes as well
    weight: float  # of the weight, before each forward
    weight_turned: float  # of the weight, before each gradient of what the product reads


CASTS: Mapping[tuple[str, str], Casts] = {
    ("megatron", DELAYED): Casts(3, 0, 2, 3, 2, 1, 0, 0),
    ("megatron", TENSOR): Casts(5, 5, 2, 5, 2, 1, 0, 0),
    ("megatron", BLOCK): Casts(3 + _SCALED, 3 + _SCALED, 3 + _SCALED, 3 + _SCALED, 3 + _SCALED, 2, 0, 0),
    ("pytorch", TENSOR): Casts(5, 5, 2, 5, 2, 0, 5, 2),
    ("pytorch", ROW): Casts(3, 3, 5, 3, 5, 0, 3, 5),  # along tokens the scales are found by a pass of their own
}


def in_fp8(operator: ModelOperator, stack: Stack, *, layer: bool) -> bool:
    """Return whether a stack runs an operator as a product in FP8: one of a layer; neither the head's nor a router's.

    PyTorch's experts are no linear layers, which is what torchao converts.
    """
    if stack.fp8 == NOTHING or operator.kind != PRODUCT or not layer or operator.routed:
        return False
    return stack.software == "megatron" or not operator.experts


def casts_of(stack: Stack) -> Casts:
    """Return what the casts of a stack move; weights that are gathered in FP8 come cast."""
    found = CASTS[stack.software, stack.fp8]
    return found._replace(weight=0) if stack.fp8_gather == YES else found
