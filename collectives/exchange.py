"""All-to-all where each item goes straight from its source to its sink.

Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, Int. J. High Perform.
Comput. Appl. 19 (2005). Its n - 1 latencies of pairwise are those of a blocking exchange; here a round does not wait for
the answer to the one before.

Collectives where every rank sends to every other at once: fewest rounds, and only as fast as the links it is given.

Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, Int. J. High Perform.
Comput. Appl. 19 (2005): its pairwise exchange, here with all rounds in one.
"""

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.transform import concatenate

# A single rank sends nothing, so that there is no latency either.
_HALF = Claim("rank", alpha=lambda n: min(n - 1, 1), beta=lambda n: Fraction(n - 1, n))
_BOTH = Claim("rank", alpha=lambda n: 2 * min(n - 1, 1), beta=lambda n: Fraction(2 * (n - 1), n))


@collective("reduce_scatter", "direct", claim=_HALF)
def reduce_scatter(n: int) -> Schedule:
    """Send slot j from every rank to rank j, which adds all of them to its own."""
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


def _of_rank_0(n: int, rounds: Iterable[Sends]) -> Schedule:
    """Return a schedule from the rounds of rank 0, whose item for rank d is slot d.

    Translations give the other ranks' rounds.
    """
    return Schedule.build(n, n * n, rounds, translate=(n,), slot_digits=2)


_CLAIM = Claim("rank", alpha=lambda n: min(n - 1, 1), beta=lambda n: Fraction(n - 1, n))


@collective("all_to_all", "pairwise", claim=_CLAIM)
def pairwise(n: int) -> Schedule:
    """Send rank r's item for rank r+t to that rank in round t."""
    return _of_rank_0(n, (Sends(0, t, slot=t) for t in range(1, n)))


@collective("all_to_all", "at-once", claim=_CLAIM, default=True)
def at_once(n: int) -> Schedule:
    """Send every item to its sink in the one round."""
    others = np.arange(1, n)
    return _of_rank_0(n, [Sends(0, others, slot=others)] * (n > 1))
