"""Collectives around a ring: rank r receives from its left, r - 1, and sends to its right, r + 1.

Bandwidth-optimal on one port a rank. Source: Patarasu and Yuan, Bandwidth optimal all-reduce algorithms for clusters of
workstations, J. Parallel Distrib. Comput. 69 (2009). n ranks, n slots a block.
"""

from fractions import Fraction

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.transform import then

_HALF = Claim("rank", alpha=lambda n: n - 1, beta=lambda n: Fraction(n - 1, n))
_BOTH = Claim("rank", alpha=lambda n: 2 * (n - 1), beta=lambda n: Fraction(2 * (n - 1), n))


@collective("reduce_scatter", "ring", claim=_HALF, default=True)
def reduce_scatter(n: int) -> Schedule:
    """In round t, rank r passes slot r-t-1 to its right, which adds it to its own; rank r ends with slot r."""
    rank = np.arange(n)
    return Schedule.build(n, n, (Sends(rank, (rank + 1) % n, (rank - t - 1) % n, reduce=True) for t in range(n - 1)))


@collective("all_gather", "ring", claim=_HALF, default=True)
def all_gather(n: int) -> Schedule:
    """In round t, rank r passes slot r-t to its right: first its own, then what the round before brought."""
    rank = np.arange(n)
    return Schedule.build(n, n, (Sends(rank, (rank + 1) % n, (rank - t) % n) for t in range(n - 1)))


@collective("all_reduce", "ring", claim=_BOTH, default=True)
def all_reduce(n: int) -> Schedule:
    """A reduce_scatter around the ring, then an all_gather."""
    return then(reduce_scatter(n), all_gather(n))
