"""Collectives around a ring, on which rank r receives from its left, r - 1, and sends to its right, r + 1; and around 2D rings.

They are bandwidth-optimal with one port a rank. Source: Patarasu and Yuan, Bandwidth optimal all-reduce algorithms for clusters
of workstations, J. Parallel Distrib. Comput. 69 (2009). n ranks, n slots a block. With both directions at once there are 2n
slots: the even ones go right on channel 0, the odd ones left on channel 1. Only the rows of rank 0 are stored; translations
give the others.

The 2D ring is on P x Q ranks: one half of the data is reduced along x rings and then y rings, the other half along y rings
first. Source: Cho et al., BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy, MLSys
(2019), for one half; Feng et al., RailX (2025), eq. 7, for both at once. Rank (x, y), N = P Q; N blocks, each with a part for
either half. All rings go upwards. With both directions it would be the torus buckets of two dimensions, in half the time for
each byte.

The first ring leaves a rank with the block of that rank's own place in it, and the second ring reduces this block. In the paper
the ring leaves the block of the next place; to mix the two is a common mistake.
"""

from fractions import Fraction

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import around_ring, gather_along, planes
from emu.collective.transform import concatenate, dual

_HALF = Claim("rank", alpha=lambda n: n - 1, beta=lambda n: Fraction(n - 1, n))
_BOTH = Claim("rank", alpha=lambda n: 2 * (n - 1), beta=lambda n: Fraction(2 * (n - 1), n))
_HALF_EACH_WAY = Claim("channel", alpha=lambda n: n - 1, beta=lambda n: Fraction(n - 1, 2 * n))
_BOTH_EACH_WAY = Claim("channel", alpha=lambda n: 2 * (n - 1), beta=lambda n: Fraction(n - 1, n))


@collective("reduce_scatter", "ring", claim=_HALF, default=True)
def reduce_scatter(n: int) -> Schedule:
    """Pass slot r-t-1 from rank r to its right in round t, which adds it to its own; rank r ends with slot r."""
    return Schedule.build(n, n, (Sends(0, 1, (-t - 1) % n, reduce=True) for t in range(n - 1)), translate=(n,))


@collective("all_gather", "ring", claim=_HALF, default=True)
def all_gather(n: int) -> Schedule:
    """Pass slot r-t from rank r to its right in round t: first its own, then the one that it got in the round before."""
    return Schedule.build(n, n, (Sends(0, 1, -t % n) for t in range(n - 1)), translate=(n,))


@collective("all_reduce", "ring", claim=_BOTH, default=True)
def all_reduce(n: int) -> Schedule:
    """Do a reduce_scatter around the ring, then an all_gather."""
    return concatenate(reduce_scatter(n), all_gather(n))


def _each_way(n: int, first: int, *, reduce: bool) -> Schedule:
    """Return rounds in which rank r passes half of a slot in each direction.

    In round t these are slot r - t - first to its right and slot r + t + first to its left.
    """

    def both(far: int) -> tuple[Sends, Sends]:
        return Sends(0, 1, 2 * (-far % n), reduce, channel=0), Sends(0, n - 1, 2 * far + 1, reduce, channel=1)

    return Schedule.build(n, 2 * n, (both(t + first) for t in range(n - 1)), translate=(n,))


@collective("reduce_scatter", "bidirectional-ring", claim=_HALF_EACH_WAY)
def reduce_scatter_each_way(n: int) -> Schedule:
    """Pass half of slot r-t-1 from rank r to its right and half of slot r+t+1 to its left in round t; both add."""
    return _each_way(n, 1, reduce=True)


@collective("all_gather", "bidirectional-ring", claim=_HALF_EACH_WAY)
def all_gather_each_way(n: int) -> Schedule:
    """Pass half of slot r-t from rank r to its right and half of slot r+t to its left in round t."""
    return _each_way(n, 0, reduce=False)


@collective("all_reduce", "bidirectional-ring", claim=_BOTH_EACH_WAY)
def all_reduce_each_way(n: int) -> Schedule:
    """Do a reduce_scatter around the ring in both directions, then an all_gather."""
    return concatenate(reduce_scatter_each_way(n), all_gather_each_way(n))


Plane = tuple[int, int]


def _rounds_2d(dims: Plane) -> int:
    """Return the claimed alpha: one round for each rank but one of both dimensions."""
    return sum(d - 1 for d in dims)


def _share_2d(dims: Plane) -> Fraction:
    """Return the share of the data that a port carries in a reduce_scatter or an all_gather on a grid of two dimensions."""
    n = dims[0] * dims[1]
    return Fraction(n - 1, 2 * n)


_HALF_2D = Claim("channel", alpha=_rounds_2d, beta=_share_2d)
_BOTH_2D = Claim("channel", alpha=lambda dims: 2 * _rounds_2d(dims), beta=lambda dims: 2 * _share_2d(dims))


@collective("reduce_scatter", "2d-ring", claim=_HALF_2D, shapes=planes)
def reduce_scatter_2d(dims: Plane) -> Schedule:
    """Pass half of rank r's partial sums along its x ring and then its y ring, half y first; rank r ends with block r."""
    return dual(_gather_2d(dims, step=-1))  # downwards, because the dual turns each send round


@collective("all_gather", "2d-ring", claim=_HALF_2D, shapes=planes)
def all_gather_2d(dims: Plane) -> Schedule:
    """Pass half of rank r's block along its y ring and then its blocks along its x ring, the other half along x first."""
    return _gather_2d(dims, step=1)


@collective("all_reduce", "2d-ring", claim=_BOTH_2D, shapes=planes)
def all_reduce_2d(dims: Plane) -> Schedule:
    """Do a reduce_scatter in two halves at once, then an all_gather back along the same rings."""
    return concatenate(reduce_scatter_2d(dims), all_gather_2d(dims))


def _gather_2d(dims: Plane, step: int) -> Schedule:
    """Return the rows of rank (0, 0); translations give the other ranks' rows."""
    n = dims[0] * dims[1]
    place = np.arange(n).reshape(dims)
    halves = (gather_along(grid, [around_ring] * 2, step, half, 2) for half, grid in enumerate((place.T, place)))
    return Schedule.build(n, 2 * n, zip(*halves, strict=True), translate=dims)
