"""Rooted collectives over a binomial tree: the number of ranks that take part doubles from round to round.

Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, Int. J. High Perform.
Comput. Appl. 19 (2005). The root is rank 0.

Large blocks are broadcast and reduced in two halves: one over the tree, one around a ring. Source: Barnett, Shuler, Gupta,
Payne, van de Geijn and Watts, Building a high-performance collective communication library, Supercomputing (1994). Slot s is
the part of the block that rank s holds between the halves. Letter: n ranks.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.transform import concatenate, dual


def _height(n: int) -> int:
    """Return the height of the tree, which is the number of rounds."""
    return (n - 1).bit_length()


def _full(n: int) -> bool:
    """Return whether n is a power of two."""
    return n & (n - 1) == 0


_WHOLE = Claim("rank", alpha=_height, beta=lambda n: Fraction(_height(n)), exact=_full)
_SPREAD = Claim("rank", alpha=_height, beta=lambda n: Fraction(n - 1, n), exact=_full)


@collective("broadcast", "binomial", claim=_WHOLE, default=True)
def broadcast(n: int) -> Schedule:
    """Send the block, in round t, from each rank r of the first 2**t ranks, which hold it, to rank r + 2**t."""
    held = [2**t for t in range(_height(n))]
    return Schedule.build(n, 1, (Sends(r := np.arange(min(h, n - h)), r + h, slot=0) for h in held))


@collective("reduce", "binomial", claim=_WHOLE, default=True)
def reduce(n: int) -> Schedule:
    """Add on each rank the sums that its children sent, then send the result to its parent: the dual of the broadcast."""
    return dual(broadcast(n))


@collective("scatter", "binomial", claim=_SPREAD, default=True)
def scatter(n: int) -> Schedule:
    """Send, in each round, half of the slots of each subtree: its root sends those of the upper half to that half's root."""
    slot = np.arange(n)
    halves = [2**t for t in reversed(range(_height(n)))]
    moved = ((half, slot[slot // half % 2 == 1]) for half in halves)
    return Schedule.build(n, n, (Sends(s // (2 * half) * 2 * half, s // half * half, slot=s) for half, s in moved))


@collective("gather", "binomial", claim=_SPREAD, default=True)
def gather(n: int) -> Schedule:
    """Send the slots of each rank's subtree to its parent: the scatter backwards."""
    return dual(scatter(n), reduce=False)


_HALVES = Claim("rank", alpha=lambda n: _height(n) + n - 1, beta=lambda n: Fraction(2 * (n - 1), n), exact=_full)


@collective("broadcast", "scatter-all-gather", claim=_HALVES)
def broadcast_in_halves(n: int) -> Schedule:
    """Scatter the slots of the root down a binomial tree, then gather the slots of all ranks around a ring."""
    return concatenate(scatter(n), Schedule.build(n, n, _ring_rounds(n, first=0, reduce=False)))


@collective("reduce", "reduce-scatter-gather", claim=_HALVES)
def reduce_in_halves(n: int) -> Schedule:
    """Sum one slot on every rank around a ring, then send the sums up a binomial tree to the root."""
    # The dual of the broadcast would be wrong: there the root gets from the ring what it already has, and would add it twice.
    return concatenate(Schedule.build(n, n, _ring_rounds(n, first=1, reduce=True)), gather(n))


def _ring_rounds(n: int, first: int, reduce: bool) -> Iterator[Sends]:
    """Yield the rounds of a ring, in which rank r passes slot r - first - t to rank r + 1 in round t.

    Args:
        n: The number of ranks.
        first: See above; with 1 and adds, the sum of a slot ends on the rank with its number.
        reduce: Whether receivers add.
    """
    rank = np.arange(n)
    return (Sends(rank, (rank + 1) % n, (rank - first - t) % n, reduce) for t in range(n - 1))
