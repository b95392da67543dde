"""Bucket algorithms on a torus: every rank uses its ring in each dimension in both directions at once, each for another part.

They are bandwidth-optimal with 2D ports a rank. Source: Jain and Sabharwal, Optimal bucket algorithms for large MPI collectives
on torus interconnects, ICS (2010); Sack and Gropp, Collective algorithms for multiported torus networks, ACM Trans. Parallel
Comput. 1 (2015). Letters: D dimensions, N ranks; N blocks, each in 2D parts. Part c is bucket c, on channel c: it reduces along
dimensions c//2, c//2 + 1, .. (mod D), gathers along them backwards, and goes up if c is even, down if c is odd.

The channel is the bucket, not the dimension: in one queue for each dimension, buckets that are out of step would block each
other. Its parity gives the direction, which in a dimension of 2 the two ranks alone do not give.

`torus-in-step` has one queue for each direction, so that all its buckets keep step. On equal dims each of them then has a
dimension of its own in every round. The buckets of `torus-buckets` do not, if some links are faster than others, as on RailX's
torus: ranks behind fast links begin the next dimension early, and take bandwidth from a bucket that is not done there.
"""

from dataclasses import replace
from fractions import Fraction
from math import prod

import numpy as np

from emu.arrays import column
from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule
from emu.collective.shape import around_ring, cubes, gather_along, grids
from emu.collective.transform import concatenate, dual

Dims = tuple[int, ...]


def _rounds(dims: Dims) -> int:
    """Return the claimed alpha: one round for each rank but one of every dimension."""
    return sum(d - 1 for d in dims)


def _share(dims: Dims) -> Fraction:
    """Return the share of the data that one port carries in a reduce_scatter or all_gather, one half of an all_reduce."""
    n = prod(dims)
    return Fraction(n - 1, n * 2 * len(dims))


# Equal on any dims: a bucket has its ports to itself, and its halvings along the dimensions add up to 1 - 1/N in any order.
_HALF = Claim("channel", alpha=_rounds, beta=_share)
_BOTH = Claim("channel", alpha=lambda dims: 2 * _rounds(dims), beta=lambda dims: 2 * _share(dims))


def _share_of_link(dims: Dims) -> Fraction:
    """Return the share of the data on one link in one half; in a dimension of size 2, both directions share a link."""
    return _share(dims) * (2 if dims[0] == 2 else 1)


_STEP = Claim("pair", alpha=_rounds, beta=_share_of_link)
_BOTH_STEP = Claim("pair", alpha=lambda dims: 2 * _rounds(dims), beta=lambda dims: 2 * _share_of_link(dims))


@collective("reduce_scatter", "torus-buckets", claim=_HALF, shapes=grids)
def reduce_scatter(dims: Dims) -> Schedule:
    """Pass, in each bucket, partial sums along the ring of one dimension after another; rank r ends with block r."""
    return dual(_gather(dims, turned=True))  # turned: the dual turns each send round, and the bucket must keep its direction


@collective("all_gather", "torus-buckets", claim=_HALF, shapes=grids)
def all_gather(dims: Dims) -> Schedule:
    """Pass, in each bucket, a rank's blocks along the ring of one dimension after another, its own block first."""
    return _gather(dims)


@collective("all_reduce", "torus-buckets", claim=_BOTH, shapes=grids)
def all_reduce(dims: Dims) -> Schedule:
    """Do a reduce_scatter in 2D buckets at once, then an all_gather back along the same dimensions."""
    return concatenate(reduce_scatter(dims), all_gather(dims))


@collective("reduce_scatter", "torus-in-step", claim=_STEP, shapes=cubes)
def reduce_scatter_in_step(dims: Dims) -> Schedule:
    """Do torus-buckets with the buckets of a direction in one queue: in every round each is on a dimension of its own."""
    return _in_step(reduce_scatter(dims))


@collective("all_gather", "torus-in-step", claim=_STEP, shapes=cubes)
def all_gather_in_step(dims: Dims) -> Schedule:
    """Do torus-buckets with the buckets of a direction in one queue: in every round each is on a dimension of its own."""
    return _in_step(all_gather(dims))


@collective("all_reduce", "torus-in-step", claim=_BOTH_STEP, shapes=cubes)
def all_reduce_in_step(dims: Dims) -> Schedule:
    """Do torus-buckets with the buckets of a direction in one queue: in every round each is on a dimension of its own."""
    return _in_step(all_reduce(dims))


def _in_step(free: Schedule) -> Schedule:
    """Return the schedule with one channel for each direction, so that its dimensions wait for one another."""
    return replace(free, channel=column(free.channel % 2, np.int16))


def _gather(dims: Dims, *, turned: bool = False) -> Schedule:
    """Return the rows of rank 0, in which every bucket makes its step t in round t.

    Translations give the rows of other ranks.
    """
    n, n_dims = prod(dims), len(dims)
    place = np.arange(n).reshape(dims)
    order = [[(first + k) % n_dims for k in reversed(range(n_dims))] for first in range(n_dims)]
    sides = [1 if (c % 2 == 0) != turned else -1 for c in range(2 * n_dims)]
    rings = [around_ring] * n_dims
    buckets = (gather_along(place.transpose(order[c // 2]), rings, up, c, 2 * n_dims) for c, up in enumerate(sides))
    return Schedule.build(n, n * 2 * n_dims, zip(*buckets, strict=True), translate=dims)
