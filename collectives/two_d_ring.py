"""The 2D ring on P x Q ranks: one half of the data reduces along x rings and then y rings, the other half y first.

Source: Cho et al., BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy, MLSys (2019), for
one half; Feng et al., RailX (2025), eq. 7, for both at once. Rank (x, y), N = P Q; N blocks, each with a part for either half.
All rings go upwards. With both directions it would be the torus buckets of two dimensions, in half the time for each byte.

The first ring leaves a rank with the block of that rank's own place in it, and the second ring reduces this block. In the paper
the ring leaves the next place's block; to mix the two is a common mistake.
"""

from fractions import Fraction

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule
from emu.collective.shape import around_ring, gather_along, planes
from emu.collective.transform import concatenate, dual

Plane = tuple[int, int]


def _rounds(dims: Plane) -> int:
    """Return the claimed alpha: one round for each rank but one of both dimensions."""
    return sum(d - 1 for d in dims)


def _share(dims: Plane) -> Fraction:
    """Return the share of the whole that one half's port carries in a reduce_scatter or an all_gather."""
    n = dims[0] * dims[1]
    return Fraction(n - 1, 2 * n)


_HALF = Claim("channel", alpha=_rounds, beta=_share)
_BOTH = Claim("channel", alpha=lambda dims: 2 * _rounds(dims), beta=lambda dims: 2 * _share(dims))


@collective("reduce_scatter", "2d-ring", claim=_HALF, shapes=planes)
def reduce_scatter(dims: Plane) -> Schedule:
    """Pass half of rank r's partial sums along its x ring and then its y ring, half y first; rank r ends with block r."""
    return dual(_gather(dims, step=-1))  # downwards, because the dual turns each send round


@collective("all_gather", "2d-ring", claim=_HALF, shapes=planes)
def all_gather(dims: Plane) -> Schedule:
    """Pass half of rank r's block along its y ring and then all it has along its x ring, the other half x first."""
    return _gather(dims, step=1)


@collective("all_reduce", "2d-ring", claim=_BOTH, shapes=planes)
def all_reduce(dims: Plane) -> Schedule:
    """Do a reduce_scatter in two halves at once, then an all_gather back along the same rings."""
    return concatenate(reduce_scatter(dims), all_gather(dims))


def _gather(dims: Plane, step: int) -> Schedule:
    """Return the rows of rank (0, 0); translations give the other ranks' rows."""
    n = dims[0] * dims[1]
    place = np.arange(n).reshape(dims)
    halves = (gather_along(grid, [around_ring] * 2, step, half, 2) for half, grid in enumerate((place.T, place)))
    return Schedule.build(n, 2 * n, zip(*halves, strict=True), translate=dims)
