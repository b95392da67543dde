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
from emu.collective.transform import dual, then


def _height(n: int) -> int:
    return (n - 1).bit_length()


_CLAIM = Claim(
    "rank",
    alpha=lambda n: _height(n) + n - 1,
    beta=lambda n: Fraction(2 * (n - 1), n),
    exact=lambda n: n & (n - 1) == 0,
)


@collective("broadcast", "scatter-all-gather", claim=_CLAIM)
def broadcast(n: int) -> Schedule:
    """The root scatters its slots down a binomial tree, then every rank passes what it has around a ring."""
    return then(_scatter(n), Schedule.build(n, n, _around(n, first=0, reduce=False)))


@collective("reduce", "reduce-scatter-gather", claim=_CLAIM)
def reduce(n: int) -> Schedule:
    """Every rank sums one slot around a ring, then sends it up a binomial tree to the root."""
    # Not the dual of the broadcast: there the root gets from the ring what it already has, and would be added twice.
    return then(Schedule.build(n, n, _around(n, first=1, reduce=True)), dual(_scatter(n), reduce=False))


def _scatter(n: int) -> Schedule:
    """From round to round the subtrees halve: a subtree's root sends the upper half's slots to that half's root."""
    slot = np.arange(n)
    halves = [2**t for t in reversed(range(_height(n)))]
    upper = ((half, slot[slot // half % 2 == 1]) for half in halves)
    return Schedule.build(n, n, (Sends(s // (2 * half) * 2 * half, s // half * half, slot=s) for half, s in upper))


def _around(n: int, first: int, reduce: bool) -> Iterator[Sends]:
    """In round t, rank r passes slot r-first-t to rank r+1: added from first 1 on, it ends complete on its own rank."""
    rank = np.arange(n)
    return (Sends(rank, (rank + 1) % n, (rank - first - t) % n, reduce) for t in range(n - 1))
