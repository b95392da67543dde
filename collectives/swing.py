"""Swing: partners on a ring, left and right in turn, at distances 1, 1, 3, 5, 11, ...: nearer than 1, 2, 4, 8, 16, ...

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
from emu.collective.shape import Shape
from emu.collective.transform import concatenate, dual


def _even(n: int) -> Iterator[Shape]:
    """Yield n where it is 1 or even: with an odd number of ranks, two neighbours would have the same parity."""
    if n == 1 or n % 2 == 0:
        yield n


def _rounds(n: int) -> int:
    """Return the number of rounds."""
    return (n - 1).bit_length()


def chain(n: int) -> int:
    """Return the longest chain of messages that wait for one another: all rounds, but one less for 3 * 2**k ranks."""
    # There, one round sends nothing that the round before it brought (counted for every even n to 400).
    third, rest = divmod(n, 3)
    return _rounds(n) - (rest == 0 and third & (third - 1) == 0)


_HALF = Claim("rank", alpha=chain, beta=lambda n: Fraction(n - 1, n))
_BOTH = Claim("rank", alpha=lambda n: 2 * chain(n), beta=lambda n: Fraction(2 * (n - 1), n))


def partners(n: int, s: int) -> I64:
    """Return [n] pi(r, s), the partner of each rank r in step s: r + rho(s) for an even rank, r - rho(s) for an odd one."""
    rank, rho = np.arange(n), (1 - (-2) ** (s + 1)) // 3
    return column((rank + np.where(rank % 2, -rho, rho)) % n, np.int64)


@collective("all_gather", "swing", claim=_HALF, shapes=_even)
def all_gather(n: int) -> Schedule:
    """Send to a rank's partner all that the rank holds and the partner lacks, from the last step to step 0."""
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


@collective("reduce_scatter", "swing", claim=_HALF, shapes=_even)
def reduce_scatter(n: int) -> Schedule:
    """Send sums to the partner of each step, step 0 first, most slots to the nearest: the dual of the all_gather."""
    return dual(all_gather(n))


@collective("all_reduce", "swing", claim=_BOTH, shapes=_even)
def all_reduce(n: int) -> Schedule:
    """Do a reduce_scatter from step 0 to the last, then an all_gather from the last back to step 0."""
    return concatenate(reduce_scatter(n), all_gather(n))
