"""Collectives among any number of ranks in ceil(log2 n) rounds: in round t, rank r deals with ranks r +- 2**t (mod n).

Source: Bruck, Ho, Kipnis, Upfal and Weathersby, Efficient algorithms for all-to-all communications in multiport
message-passing systems, IEEE Trans. Parallel Distrib. Syst. 8 (1997), on one port; the all_reduce of such an all_gather and
its dual, on a circulant graph, Träff, Optimal, non-pipelined reduce-scatter and allreduce algorithms (2024).
"""

from fractions import Fraction

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.transform import concatenate, dual


def chain(n: int) -> int:
    """Return the number of messages in the longest chain in which each waits for the one before.

    A short last round need not wait for the round before it.
    """
    last = n - 1
    f = max(last.bit_length() - 1, 0)  # the last round
    return max(f, 1 + (last - 2**f).bit_length()) if n > 1 else 0


def _steps(n: int) -> list[int]:
    """Return the distances over which ranks send, round by round: 1, 2, 4, ..."""
    return [2**t for t in range((n - 1).bit_length())]


def _a2a_beta(n: int) -> Fraction:
    """Return the claimed beta: an item for the rank at distance x is sent once for each digit 1 of x in binary."""
    return Fraction(sum(x.bit_count() for x in range(n)), n)


_HALF = Claim("rank", alpha=chain, beta=lambda n: Fraction(n - 1, n))
_BOTH = Claim("rank", alpha=lambda n: 2 * chain(n), beta=lambda n: Fraction(2 * (n - 1), n))


@collective("all_gather", "bruck", claim=_HALF)
def all_gather(n: int) -> Schedule:
    """Send the d slots r, r+1, ... that rank r holds to rank r-d, where d = 2**t in round t.

    The last round sends the missing ones.
    """
    held = ((d, np.arange(min(d, n - d))) for d in _steps(n))
    return Schedule.build(n, n, (Sends(0, -d % n, slot=j) for d, j in held), translate=(n,))


@collective("reduce_scatter", "bruck", claim=_HALF)
def reduce_scatter(n: int) -> Schedule:
    """Send sums of at most d slots r+d, r+d+1, ... from rank r to r+d, the longest step first: the dual of the all_gather."""
    return dual(all_gather(n))


@collective("all_reduce", "circulant", claim=_BOTH)
def all_reduce(n: int) -> Schedule:
    """Sum each rank's slot by the dual of the all_gather, then gather: halving-doubling for any number of ranks."""
    return concatenate(reduce_scatter(n), all_gather(n))


@collective("all_to_all", "bruck", claim=Claim("rank", alpha=chain, beta=_a2a_beta))
def all_to_all(n: int) -> Schedule:
    """Pass on by 2**t in round t the items whose distance, sink - source mod n, has binary digit t."""
    way = np.arange(n)

    def hop(d: int) -> Sends:
        far = way[way & d > 0]
        source = -(far % d) % n  # from where the digits below d have brought it to rank 0
        return Sends(0, d, source * n + (source + far) % n)

    return Schedule.build(n, n * n, map(hop, _steps(n)), translate=(n,), slot_digits=2)
