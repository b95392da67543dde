"""Collectives among 2**q ranks whose partners differ in one binary digit: in round t, rank r and rank r ^ 2**t.

Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, Int. J. High Perform.
Comput. Appl. 19 (2005): its recursive doubling, and Rabenseifner's halving of the vector while the distance doubles.

Swing: partners on a ring, left and right in turn, at distances 1, 1, 3, 5, 11, ...: nearer than 1, 2, 4, 8, 16, ...

Source: De Sensi, Bonato, Saam and Hoefler, Swing: short-cutting rings for higher bandwidth allreduce, NSDI 2024; the
bandwidth-optimal version on one dimension, for even n, p in the paper.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from emu.arrays import I64, column
from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends, check_rows
from emu.collective.shape import Shape, powers_of_two
from emu.collective.transform import concatenate, dual


def _q(n: int) -> int:
    """Return log2(n), rounded down."""
    return n.bit_length() - 1


_WHOLE = Claim("rank", alpha=_q, beta=lambda n: Fraction(_q(n)))
_HALF = Claim("rank", alpha=_q, beta=lambda n: Fraction(n - 1, n))
_BOTH = Claim("rank", alpha=lambda n: 2 * _q(n), beta=lambda n: Fraction(2 * (n - 1), n))


@collective("all_reduce", "recursive-doubling", claim=_WHOLE, shapes=powers_of_two)
def all_reduce(n: int) -> Schedule:
    """Exchange the sums of ranks r and r ^ 2**t so far, in round t, and add them on both."""
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
    """Send half of a rank's slots in each round to a partner twice as far, keep the other half: the dual of the all_gather."""
    return dual(doubling(n))


@collective("all_reduce", "halving-doubling", claim=_BOTH, shapes=powers_of_two)
def halving_doubling(n: int) -> Schedule:
    """Halve the slots that a rank sums from round to round, then double those that it holds in full."""
    return concatenate(halving(n), doubling(n))


def _even(n: int) -> Iterator[Shape]:
    """Yield n if it is 1 or even: with an odd number of ranks, two neighbours would have the same parity."""
    if n == 1 or n % 2 == 0:
        yield n


def _rounds(n: int) -> int:
    """Return the number of rounds: log2(n), rounded up."""
    return (n - 1).bit_length()


def chain(n: int) -> int:
    """Return the number of messages in the longest chain in which each waits for the one before.

    It is the number of rounds, but one less for 3 * 2**k ranks.
    """
    # There, one round sends nothing that the round before it brought (counted for every even n to 400).
    third, rest = divmod(n, 3)
    return _rounds(n) - (rest == 0 and third & (third - 1) == 0)


_SWING_HALF = Claim("rank", alpha=chain, beta=lambda n: Fraction(n - 1, n))
_SWING_BOTH = Claim("rank", alpha=lambda n: 2 * chain(n), beta=lambda n: Fraction(2 * (n - 1), n))


def partners(n: int, s: int) -> I64:
    """Return [n] pi(r, s), the partner of each rank r in step s: r + rho(s) for an even rank, r - rho(s) for an odd one."""
    rank, rho = np.arange(n), (1 - (-2) ** (s + 1)) // 3
    return column((rank + np.where(rank % 2, -rho, rho)) % n, np.int64)


@collective("all_gather", "swing", claim=_SWING_HALF, shapes=_even)
def swing_all_gather(n: int) -> Schedule:
    """Send to a rank's partner all that the rank holds and the partner lacks; step 0 of the paper is the last round."""
    check_rows(n * (n - 1))
    held, rounds = np.eye(n, dtype=np.bool_), []
    for s in reversed(range(_rounds(n))):
        partner = partners(n, s)
        # Unless n is a power of two, both hold some slots already: if these were sent again, the dual would add them twice.
        missing = held[partner] & ~held
        dst, slot = np.nonzero(missing)
        rounds.append(Sends(partner[dst], dst, slot))
        held |= missing
    return Schedule.build(n, n, rounds)


@collective("reduce_scatter", "swing", claim=_SWING_HALF, shapes=_even)
def swing_reduce_scatter(n: int) -> Schedule:
    """Send sums to the partner of each round, the nearest first, most slots to it: the dual of the all_gather."""
    return dual(swing_all_gather(n))


@collective("all_reduce", "swing", claim=_SWING_BOTH, shapes=_even)
def swing_all_reduce(n: int) -> Schedule:
    """Do a reduce_scatter from step 0 to the last, then an all_gather from the last back to step 0."""
    return concatenate(swing_reduce_scatter(n), swing_all_gather(n))
