"""Collectives in which data go straight to their destination, and an all_to_all that halves the distance in each round.

`pairwise` and `at-once` send each item of an all_to_all straight from its source to its sink. In the `direct` collectives every
rank sends to all others at once: they take the fewest rounds, and are only as fast as the links. Source: Thakur, Rabenseifner
and Gropp, Optimization of collective communication operations in MPICH, Int. J. High Perform. Comput. Appl. 19 (2005). Its n -
1 latencies of pairwise are those of a blocking exchange; here a round does not wait for the answer to the one before. The
direct collectives are its pairwise exchange, with all rounds in one.

`binary-exchange` has p = 2**q ranks; in each of q rounds, a rank gives half of its items to one partner. Source: InfiniteHBD
(SIGCOMM 2025), Algorithm 6, with two corrections: the destinations sent in the round of bit b begin at the partner with its low
b bits cleared (the print keeps only bit b, which is wrong from the second round on), and their end is exclusive.
"""

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends, check_rows
from emu.collective.shape import powers_of_two
from emu.collective.transform import concatenate


def _q(p: int) -> int:
    """Return log2(p), rounded down."""
    return p.bit_length() - 1


_TWO_AT_A_TIME = Claim("rank", alpha=_q, beta=lambda p: Fraction(_q(p), 2))


def _round(p: int, b: int) -> Sends:
    """Return the sends of the round of bit b, as [rank i, source s, destination d].

    The sources s are the ranks whose items rank i holds by then; the destinations d agree with its partner in all bits from b
    on.
    """
    i = np.arange(p).reshape(-1, 1, 1)
    r = i ^ (1 << b)
    s = i % (2 << b) + np.arange(0, p, 2 << b).reshape(-1, 1)  # Commset(i): it differs from i only above bit b
    d = r >> b << b | np.arange(1 << b)
    return Sends(i, r, slot=s * p + d)


@collective("all_to_all", "binary-exchange", claim=_TWO_AT_A_TIME, shapes=powers_of_two)
def all_to_all(p: int) -> Schedule:
    """Exchange items with rank i ^ 2**b in the round of bit b, the highest first: rank i sends those for its partner's half."""
    check_rows(p * p // 2 * _q(p))
    return Schedule.build(p, p * p, (_round(p, b) for b in reversed(range(_q(p)))))


# A single rank sends nothing, so that there is no latency either.
_HALF = Claim("rank", alpha=lambda n: min(n - 1, 1), beta=lambda n: Fraction(n - 1, n))
_BOTH = Claim("rank", alpha=lambda n: 2 * min(n - 1, 1), beta=lambda n: Fraction(2 * (n - 1), n))


@collective("reduce_scatter", "direct", claim=_HALF)
def reduce_scatter(n: int) -> Schedule:
    """Send slot j from every rank to rank j, which adds all of these to its own."""
    others = np.arange(1, n)
    return Schedule.build(n, n, [Sends(0, others, slot=others, reduce=True)], translate=(n,))


@collective("all_gather", "direct", claim=_HALF)
def all_gather(n: int) -> Schedule:
    """Send every rank's own slot to all others."""
    return Schedule.build(n, n, [Sends(0, np.arange(1, n), slot=0)], translate=(n,))


@collective("all_reduce", "direct", claim=_BOTH)
def all_reduce(n: int) -> Schedule:
    """Do a direct reduce_scatter, then a direct all_gather."""
    return concatenate(reduce_scatter(n), all_gather(n))


def _translated_schedule(n: int, rounds: Iterable[Sends]) -> Schedule:
    """Return the schedule of all ranks from the rounds of rank 0, by translations; slot d is the item of rank 0 for rank d."""
    return Schedule.build(n, n * n, rounds, translate=(n,), slot_digits=2)


_CLAIM = Claim("rank", alpha=lambda n: min(n - 1, 1), beta=lambda n: Fraction(n - 1, n))


@collective("all_to_all", "pairwise", claim=_CLAIM)
def pairwise(n: int) -> Schedule:
    """Send rank r's item for rank r+t to that rank in round t."""
    return _translated_schedule(n, (Sends(0, t, slot=t) for t in range(1, n)))


@collective("all_to_all", "at-once", claim=_CLAIM, default=True)
def at_once(n: int) -> Schedule:
    """Send every item straight to its sink, all in one round."""
    others = np.arange(1, n)
    return _translated_schedule(n, [Sends(0, others, slot=others)] * (n > 1))
