"""Broadcast and reduce of large blocks in two halves: one over a binomial tree, one around a ring.

Source: Barnett, Shuler, Gupta, Payne, van de Geijn and Watts, Building a high-performance collective communication library,
Supercomputing (1994). Slot s is the part of the block that rank s holds between the halves. n ranks, root 0.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.transform import concatenate, dual


def _height(n: int) -> int:
    """Return the number of rounds of the scatter."""
    return (n - 1).bit_length()


_CLAIM = Claim(
    "rank",
    alpha=lambda n: _height(n) + n - 1,
    beta=lambda n: Fraction(2 * (n - 1), n),
    exact=lambda n: n & (n - 1) == 0,
)


@collective("broadcast", "scatter-all-gather", claim=_CLAIM)
def broadcast(n: int) -> Schedule:
    """Scatter the root's slots down a binomial tree, then pass what every rank has around a ring."""
    return concatenate(_scatter(n), Schedule.build(n, n, _ring_rounds(n, first=0, reduce=False)))


@collective("reduce", "reduce-scatter-gather", claim=_CLAIM)
def reduce(n: int) -> Schedule:
    """Sum one slot on every rank around a ring, then send the sums up a binomial tree to the root."""
    # The dual of the broadcast would be wrong: there the root gets from the ring what it already has, and would add it twice.
    return concatenate(Schedule.build(n, n, _ring_rounds(n, first=1, reduce=True)), dual(_scatter(n), reduce=False))


def _scatter(n: int) -> Schedule:
    """Return rounds in which the subtrees halve: a subtree's root sends the upper half's slots to that half's root."""
    slot = np.arange(n)
    halves = [2**t for t in reversed(range(_height(n)))]
    upper = ((half, slot[slot // half % 2 == 1]) for half in halves)
    return Schedule.build(n, n, (Sends(s // (2 * half) * 2 * half, s // half * half, slot=s) for half, s in upper))


def _ring_rounds(n: int, first: int, reduce: bool) -> Iterator[Sends]:
    """Return rounds t in which rank r passes slot r-first-t to rank r+1.

    With first 1 and adds, a slot ends complete on its own rank.
    """
    rank = np.arange(n)
    return (Sends(rank, (rank + 1) % n, (rank - first - t) % n, reduce) for t in range(n - 1))
