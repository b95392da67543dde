"""Collectives among 2**q ranks whose partners differ in one binary digit: in round t, rank r and rank r ^ 2**t.

Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, Int. J. High Perform.
Comput. Appl. 19 (2005): its recursive doubling, and Rabenseifner's halving of the vector while the distance doubles.
"""

from fractions import Fraction

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends, check_rows
from emu.collective.shape import powers_of_two
from emu.collective.transform import concatenate, dual


def _q(n: int) -> int:
    """Return the base-2 logarithm of n, rounded down."""
    return n.bit_length() - 1


_WHOLE = Claim("rank", alpha=_q, beta=lambda n: Fraction(_q(n)))
_HALF = Claim("rank", alpha=_q, beta=lambda n: Fraction(n - 1, n))
_BOTH = Claim("rank", alpha=lambda n: 2 * _q(n), beta=lambda n: Fraction(2 * (n - 1), n))


@collective("all_reduce", "recursive-doubling", claim=_WHOLE, shapes=powers_of_two)
def all_reduce(n: int) -> Schedule:
    """Exchange all that ranks r and r ^ 2**t have summed between them in round t, and add it on both."""
    rank = np.arange(n)
    return Schedule.build(n, 1, (Sends(rank, rank ^ 2**t, slot=0, reduce=True) for t in range(_q(n))))


@collective("all_gather", "recursive-doubling", claim=_HALF, shapes=powers_of_two)
def all_gather(n: int) -> Schedule:
    """Send the 2**t slots that rank r holds, r ^ 0 to r ^ (2**t - 1), to rank r ^ 2**t in round t."""
    check_rows(n * (n - 1))
    rank = np.arange(n)[:, None]
    return Schedule.build(n, n, (Sends(rank, rank ^ 2**t, rank ^ np.arange(2**t)) for t in range(_q(n))))


@collective("all_gather", "halving-doubling", claim=_HALF, shapes=powers_of_two)
def doubling(n: int) -> Schedule:
    """Halve the distance to a rank's partner and double the slots it sends from round to round: most go to the nearest."""
    check_rows(n * (n - 1))
    rank = np.arange(n)[:, None]
    distances = [2**t for t in reversed(range(_q(n)))]
    # At distance d a rank holds the slots that differ from its own in digits above d only.
    return Schedule.build(n, n, (Sends(rank, rank ^ d, rank ^ np.arange(0, n, 2 * d)) for d in distances))


@collective("reduce_scatter", "halving-doubling", claim=_HALF, shapes=powers_of_two)
def halving(n: int) -> Schedule:
    """Send half of a rank's slots to a partner twice as far each round, and keep the other half: the dual of the all_gather."""
    return dual(doubling(n))


@collective("all_reduce", "halving-doubling", claim=_BOTH, shapes=powers_of_two)
def halving_doubling(n: int) -> Schedule:
    """Halve the slots that a rank sums from round to round, then double those that it holds in full."""
    return concatenate(halving(n), doubling(n))
