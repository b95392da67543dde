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
from emu.collective.transform import dual, then


def _q(n: int) -> int:
    return n.bit_length() - 1


_WHOLE = Claim("rank", alpha=_q, beta=lambda n: Fraction(_q(n)))
_HALF = Claim("rank", alpha=_q, beta=lambda n: Fraction(n - 1, n))
_BOTH = Claim("rank", alpha=lambda n: 2 * _q(n), beta=lambda n: Fraction(2 * (n - 1), n))


@collective("all_reduce", "recursive-doubling", claim=_WHOLE, shapes=powers_of_two)
def all_reduce(n: int) -> Schedule:
    """In round t, ranks r and r ^ 2**t send each other all that they have summed, and both add it."""
    rank = np.arange(n)
    return Schedule.build(n, 1, (Sends(rank, rank ^ 2**t, slot=0, reduce=True) for t in range(_q(n))))


@collective("all_gather", "recursive-doubling", claim=_HALF, shapes=powers_of_two)
def all_gather(n: int) -> Schedule:
    """In round t, rank r sends rank r ^ 2**t the 2**t slots that it holds: r ^ 0 to r ^ (2**t - 1)."""
    check_rows(n * (n - 1))
    rank = np.arange(n)[:, None]
    return Schedule.build(n, n, (Sends(rank, rank ^ 2**t, rank ^ np.arange(2**t)) for t in range(_q(n))))


@collective("all_gather", "halving-doubling", claim=_HALF, shapes=powers_of_two)
def doubling(n: int) -> Schedule:
    """From round to round the distance to a rank's partner halves and the slots it sends double: most go to the nearest."""
    check_rows(n * (n - 1))
    rank = np.arange(n)[:, None]
    distances = [2**t for t in reversed(range(_q(n)))]
    # Held at distance d: the slots that differ from the rank's own in digits above d only.
    return Schedule.build(n, n, (Sends(rank, rank ^ d, rank ^ np.arange(0, n, 2 * d)) for d in distances))


@collective("reduce_scatter", "halving-doubling", claim=_HALF, shapes=powers_of_two)
def halving(n: int) -> Schedule:
    """The dual of the all_gather: a rank keeps half of its slots and sends the other to a partner twice as far each round."""
    return dual(doubling(n))


@collective("all_reduce", "halving-doubling", claim=_BOTH, shapes=powers_of_two)
def halving_doubling(n: int) -> Schedule:
    """The slots that a rank sums halve from round to round, then those that it holds in full double."""
    return then(halving(n), doubling(n))
