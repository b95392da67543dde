"""Rotary position embedding: pair i of token t is rotated by the angle t * theta**(-2i/D).

B sequences, T tokens, H heads, D rotated elements of a head.
Source: Su et al., RoFormer (2021), equation 15.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from emu.model.operator import ModelOperator, Tokens
from emu.model.stack.passes import element_wise


@dataclass(frozen=True, slots=True)
class RotaryScaling:
    """The slowdown of angles for a longer context.

    Source: Dubey et al., The Llama 3 Herd of Models (2024), section 3.4.2, and the model code published with it.
    """

    factor: float  # the divisor of slow angles
    slow: float  # angles with fewer turns than this in the old context are slow
    fast: float  # angles with more turns than this stay; between the two the change is linear
    context: int  # tokens of the old context


def rotation(tokens: int, dim: int, theta: float, stretch: RotaryScaling | None = None) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines [T, D/2] of the angles."""
    speeds = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    if stretch is not None:
        turns = stretch.context * speeds / (2 * math.pi)
        kept = ((turns - stretch.slow) / (stretch.fast - stretch.slow)).clamp(0, 1)
        speeds = speeds * (kept + (1 - kept) / stretch.factor)
    angles = torch.outer(torch.arange(tokens, dtype=torch.float64), speeds)
    return angles.cos().to(torch.get_default_dtype()), angles.sin().to(torch.get_default_dtype())


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate adjacent pairs of x [..., D] by angles of a matching shape; a checkpoint of halves needs its rows permuted."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)  # type: ignore[no-untyped-call]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def rotate_part(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate as many first elements of each head of x as there are angles, and leave the rest."""
    turned = 2 * cos.size(-1)
    if turned == x.size(-1):
        return rotate(x, cos, sin)
    first, rest = x.split((turned, x.size(-1) - turned), -1)  # type: ignore[no-untyped-call]
    return torch.cat((rotate(first, cos, sin), rest), -1)


def angles_bytes(tokens: Tokens, turned: int) -> int:
    """Return the bytes of the float32 cosines and sines that a module stores for `turned` elements of a head."""
    return 4 * tokens.length * turned


def rotation_operators(
    name: str, tokens: Tokens, heads: int, dim: int, turned: int = 0, *, cut: bool = True
) -> tuple[ModelOperator, ...]:
    """Return the operators of the rotation of queries or keys: the rotation, and a copy if only a part of each head is rotated.

    Args:
        name: The name of the operators.
        tokens: The tokens of this rank.
        heads: The heads of queries or keys.
        dim: The elements of a head.
        turned: The rotated elements of a head; 0: all.
        cut: True if tensor parallelism shards the heads.
    """
    turned = turned or dim
    angles = tokens.length * turned // 2
    whole = element_wise(name, "rotation", tokens.n * heads * turned, constants=angles, cut=cut)
    if turned == dim:
        return (whole,)
    return whole, element_wise(f"{name}_part", "part of a rotation", tokens.n * heads * dim, cut=cut)
