"""Rooted collectives over a binomial tree: the ranks that take part double from round to round.

Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, Int. J. High Perform.
Comput. Appl. 19 (2005). Root 0.
"""

from fractions import Fraction

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.transform import dual


def _height(n: int) -> int:
    return (n - 1).bit_length()


def _full(n: int) -> bool:
    return n & (n - 1) == 0


_WHOLE = Claim("rank", alpha=_height, beta=lambda n: Fraction(_height(n)), exact=_full)
_SPREAD = Claim("rank", alpha=_height, beta=lambda n: Fraction(n - 1, n), exact=_full)


@collective("broadcast", "binomial", claim=_WHOLE, default=True)
def broadcast(n: int) -> Schedule:
    """In round t, the first 2**t ranks hold the block, and rank r sends it to rank r + 2**t."""
    held = [2**t for t in range(_height(n))]
    return Schedule.build(n, 1, (Sends(r := np.arange(min(h, n - h)), r + h, slot=0) for h in held))


@collective("reduce", "binomial", claim=_WHOLE, default=True)
def reduce(n: int) -> Schedule:
    """The dual of the broadcast: each rank adds what its children sent, then sends the sum to its parent."""
    return dual(broadcast(n))


@collective("scatter", "binomial", claim=_SPREAD, default=True)
def scatter(n: int) -> Schedule:
    """From round to round the subtrees halve: a subtree's root sends the upper half's slots to that half's root."""
    slot = np.arange(n)
    halves = [2**t for t in reversed(range(_height(n)))]
    moved = ((half, slot[slot // half % 2 == 1]) for half in halves)
    return Schedule.build(n, n, (Sends(s // (2 * half) * 2 * half, s // half * half, slot=s) for half, s in moved))


@collective("gather", "binomial", claim=_SPREAD, default=True)
def gather(n: int) -> Schedule:
    """The scatter backwards: each rank sends its parent all slots of its subtree."""
    return dual(scatter(n), reduce=False)
