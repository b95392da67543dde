"""Collectives level by level: reduce inside the node, then between nodes what is left, then between racks, and back.

Each level moves only what the one inside it has reduced, so that the links of the outer levels carry the least. Source: Cho et
al., BlueConnect: decomposing all-reduce for deep learning on heterogeneous network hierarchy, MLSys (2019). dims are the
levels, the outermost first (racks x nodes x ranks of a node); N ranks, N blocks. Any nesting up to four levels, with a ring in
each, all to all others in each, or the latter in the innermost and rings outside it.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import prod

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import grids
from emu.collective.transform import dual, then

Dims = tuple[int, ...]
Level = Callable[[I64, int], Iterator[Sends]]  # of [d, held], the blocks that rank 0 and its peers of that level hold; up


def _share(dims: Dims) -> Fraction:
    n = prod(dims)
    return Fraction(n - 1, n)


def _claims(rounds: Callable[[Dims], int]) -> tuple[Claim, Claim]:
    """Of a half and of both: on one port a rank, nesting costs no bytes."""
    half = Claim("rank", alpha=rounds, beta=_share)
    return half, Claim("rank", alpha=lambda dims: 2 * rounds(dims), beta=lambda dims: 2 * _share(dims))


_RING, _BOTH_RING = _claims(lambda dims: sum(d - 1 for d in dims))
_DIRECT, _BOTH_DIRECT = _claims(lambda dims: sum(d > 1 for d in dims))
_MIXED, _BOTH_MIXED = _claims(lambda dims: sum(d - 1 for d in dims[:-1]) + (dims[-1] > 1))


def _ring(held: I64, up: int) -> Iterator[Sends]:
    """Rank 0 passes on first what it has, then what came from the other side; a rank's name is its first block's."""
    d = len(held)
    return (Sends(0, held[up % d, 0], held[-up * t % d]) for t in range(d - 1))


def _direct(held: I64, up: int) -> Iterator[Sends]:
    """Rank 0 sends what it has to all others."""
    yield Sends(0, held[1:, :1], held[0])


def _gather(dims: Dims, inner: Level, outer: Level, up: int = 1) -> Schedule:
    """Rank 0's rows, the outermost level first (translations give the other ranks')."""
    n = prod(dims)
    return Schedule.build(n, n, _levels(dims, inner, outer, up), translate=dims)


def _reduce(dims: Dims, inner: Level, outer: Level) -> Schedule:
    """Its dual, of rings downwards: the dual turns each send round, so that these go upwards too."""
    return dual(_gather(dims, inner, outer, up=-1))


def _levels(dims: Dims, inner: Level, outer: Level, up: int) -> Iterator[Sends]:
    for level, d in enumerate(dims):
        within = prod(dims[level + 1 :])
        own = np.arange(prod(dims[:level])) * d * within  # what the levels outside this one have brought rank 0
        yield from (inner if within == 1 else outer)(own + np.arange(d)[:, None] * within, up)


@collective("all_gather", "hierarchical-ring", claim=_RING, shapes=grids)
def ring_all_gather(dims: Dims) -> Schedule:
    """From the outermost level to the innermost, rank r passes all it has around its ring of that level."""
    return _gather(dims, _ring, _ring)


@collective("all_gather", "hierarchical-direct", claim=_DIRECT, shapes=grids)
def direct_all_gather(dims: Dims) -> Schedule:
    """From the outermost level to the innermost, rank r sends all it has to its peers of that level."""
    return _gather(dims, _direct, _direct)


@collective("all_gather", "hierarchical-direct-ring", claim=_MIXED, shapes=grids)
def mixed_all_gather(dims: Dims) -> Schedule:
    """Rank r passes all it has around its ring of each outer level, then sends it to its peers of the innermost."""
    return _gather(dims, _direct, _ring)


@collective("reduce_scatter", "hierarchical-ring", claim=_RING, shapes=grids)
def ring_reduce_scatter(dims: Dims) -> Schedule:
    """From the innermost level to the outermost, rank r passes partial sums around its ring; it ends with block r."""
    return _reduce(dims, _ring, _ring)


@collective("reduce_scatter", "hierarchical-direct", claim=_DIRECT, shapes=grids)
def direct_reduce_scatter(dims: Dims) -> Schedule:
    """From the innermost level to the outermost, rank r sends each peer what it reduces on; it ends with block r."""
    return _reduce(dims, _direct, _direct)


@collective("reduce_scatter", "hierarchical-direct-ring", claim=_MIXED, shapes=grids)
def mixed_reduce_scatter(dims: Dims) -> Schedule:
    """Rank r sends each peer of the innermost level what it reduces on, then passes partial sums around the outer rings."""
    return _reduce(dims, _direct, _ring)


@collective("all_reduce", "hierarchical-ring", claim=_BOTH_RING, shapes=grids)
def ring_all_reduce(dims: Dims) -> Schedule:
    """A reduce_scatter around rings from the innermost level outwards, then an all_gather back inwards."""
    return then(ring_reduce_scatter(dims), ring_all_gather(dims))


@collective("all_reduce", "hierarchical-direct", claim=_BOTH_DIRECT, shapes=grids)
def direct_all_reduce(dims: Dims) -> Schedule:
    """A direct reduce_scatter from the innermost level outwards, then a direct all_gather back inwards."""
    return then(direct_reduce_scatter(dims), direct_all_gather(dims))


@collective("all_reduce", "hierarchical-direct-ring", claim=_BOTH_MIXED, shapes=grids)
def mixed_all_reduce(dims: Dims) -> Schedule:
    """A reduce_scatter direct inside and around rings outside, then an all_gather back."""
    return then(mixed_reduce_scatter(dims), mixed_all_gather(dims))
