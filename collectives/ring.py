"""Collectives around a ring: rank r receives from its left, r - 1, and sends to its right, r + 1.

Bandwidth-optimal with one port a rank. Source: Patarasu and Yuan, Bandwidth optimal all-reduce algorithms for clusters of
workstations, J. Parallel Distrib. Comput. 69 (2009). n ranks, n slots a block. With both directions at once there are 2n slots:
the even ones go right on channel 0, the odd ones left on channel 1. Only rank 0's rows are stored; translations give the
others.
"""

from fractions import Fraction

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.transform import concatenate

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
    """Pass slot r-t from rank r to its right in round t: first its own, then what the round before brought."""
    return Schedule.build(n, n, (Sends(0, 1, -t % n) for t in range(n - 1)), translate=(n,))


@collective("all_reduce", "ring", claim=_BOTH, default=True)
def all_reduce(n: int) -> Schedule:
    """Do a reduce_scatter around the ring, then an all_gather."""
    return concatenate(reduce_scatter(n), all_gather(n))


def _each_way(n: int, first: int, *, reduce: bool) -> Schedule:
    """Return rounds in which rank r passes half of a slot each way.

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
