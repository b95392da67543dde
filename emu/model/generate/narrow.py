"""Products in FP8 on one rank: the casts before them, and the product of operands of one byte.

A product of M x K and K x N reads two of three matrices in each pass: forward what comes in and the weight, backward the
gradient of what it gave with the weight, and that gradient with what came in.
"""

from typing import NamedTuple

from emu.dtypes import FP8, item_bytes
from emu.model.generate.item import Computation, Share
from emu.model.operator import FORWARD, INPUT, ModelOperator
from emu.model.stack.software import Casts
from emu.model.stack.stack_kernels import casts_of, in_fp8

CAST = "cast to FP8"


class Around(NamedTuple):
    """The surroundings of a product, which decide what its casts to FP8 have to move."""

    normed: bool = False  # a norm comes before
    apart: bool = False  # what it reads is gathered once it is cast, so that the kernel of the cast writes no turned copy
    known: bool = False  # another product has cast what it reads
    read_over: int = 0  # ranks over which what it reads is gathered in FP8; 0: it is not
    given_over: int = 0  # the same of the gradient of what it gives


def with_casts(share: Share, operator: ModelOperator, what: str, works: list[Computation], around: Around) -> list[Computation]:
    """Return the works of one pass of an operator, with casts before and in FP8 where the stack has it so.

    Args:
        share: The part of the model.
        operator: The operator on the rank.
        what: The pass.
        works: The works of the pass, of which the first is the product.
        around: Where the operator stands.
    """
    if not in_fp8(operator, share.stack, layer=share.is_layer) or not works or not works[0].flops:
        return works
    moved = _cast_bytes(operator, what, casts_of(share.stack), around)
    product, *rest = works
    return [*_cast(moved), _narrowed(share, operator, what, product), *rest]


def _cast(moved: float) -> list[Computation]:
    return [Computation(CAST, 0, round(moved), 0)] if moved else []


def _sizes(operator: ModelOperator) -> tuple[int, int, int]:
    """Return the elements of what an operator reads, of what it gives and of its weight."""
    m, n, k = operator.shape or (0, 0, 0)
    return m * k, m * n, n * k * max(1, operator.experts)


def _cast_bytes(operator: ModelOperator, what: str, casts: Casts, around: Around) -> float:
    """Return the bytes that the casts before a pass move; each rank casts what it gathers before that is gathered."""
    read, given, weight = _sizes(operator)
    read *= not around.known
    if what == FORWARD:
        each = casts.normed if around.normed else casts.read
        return each * read / max(1, around.read_over) + casts.weight * weight
    if what == INPUT:
        turned = casts.gradient_turned - casts.together * (not around.given_over)
        return (casts.gradient / max(1, around.given_over) + turned) * given + casts.weight_turned * weight
    by_norm = around.normed and not casts.normed  # which writes FP8 itself, but not turned
    return (casts.turned - casts.together * (not around.apart and not by_norm)) * read


def _narrowed(share: Share, operator: ModelOperator, what: str, product: Computation) -> Computation:
    """Return a product that reads its two operands in FP8."""
    read, given, weight = _sizes(operator)
    activation, parameter = (item_bytes(dtype) for dtype in (share.stack.precision.activation, share.weight))
    if what == FORWARD:
        less = (activation - 1) * read + (parameter - 1) * weight
    elif what == INPUT:
        less = (activation - 1) * given + (parameter - 1) * weight
    else:
        less = (activation - 1) * (read + given)
    return product._replace(bytes=product.bytes - less, elements=0, dtype=FP8)
