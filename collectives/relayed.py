"""All-to-all between neighbours only: an item is passed from rank to rank, the shorter way round.

A torus goes dimension by dimension; a ring is a torus of one dimension. Where both ways are equally long, one part of the item
goes each way. Source: Saad and Schultz, Data communication in parallel architectures, Parallel Computing 11 (1989): total
exchange on a ring and on meshes. N ranks, dims of size d, 2 parts an item; channel 0 goes up, channel 1 down.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import prod

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import grids


def _hops(d: int) -> Fraction:
    """Return the mean distance the shorter way round, over two ways: d/8, or (d^2 - 1)/(8d) where d is odd."""
    return Fraction(d * d // 4, 2 * d)


_TORUS = Claim("channel", alpha=lambda dims: sum(d // 2 for d in dims), beta=lambda dims: sum(map(_hops, dims), Fraction(0)))
_RING = Claim("channel", alpha=lambda n: n // 2, beta=_hops)


def _items(dims: tuple[int, ...], i: int, s_i: int, d_i: I64) -> I64:
    """Return the items (s, d) on rank 0 with a given digit i: earlier digits are already d's, later ones still s's."""
    after = prod(dims[i + 1 :])
    earlier = np.arange(prod(dims[:i])).reshape(-1, 1, 1) * dims[i]
    s, d = (earlier + s_i) * after, d_i.reshape(-1, 1) * after + np.arange(after)
    return np.asarray(s * prod(dims) + d)


def _hop(dims: tuple[int, ...], i: int, t: int) -> Iterator[Sends]:
    """Yield what came to rank 0 by t hops along dimension i and goes further, both ways."""
    d, after = dims[i], prod(dims[i + 1 :])
    for way, up in enumerate((1, -1)):
        for part in range(2):
            reach = (d - (part != way)) // 2  # half way round only with the part of that way
            left = np.arange(1, reach - t + 1)
            yield Sends(0, up % d * after, _items(dims, i, -up * t % d, up * left % d) * 2 + part, channel=way)


@collective("all_to_all", "torus", claim=_TORUS, shapes=grids)
def torus(dims: tuple[int, ...]) -> Schedule:
    """Pass on both ways, dimension by dimension, what is not yet at its sink's digit."""
    n = prod(dims)
    rounds = (_hop(dims, i, t) for i, d in enumerate(dims) for t in range(d // 2))
    return Schedule.build(n, 2 * n * n, rounds, translate=dims, slot_digits=2)


@collective("all_to_all", "ring", claim=_RING)
def ring(n: int) -> Schedule:
    """Pass on both ways in round t what came by t hops, so that each item goes the shorter way round."""
    return torus((n,))
