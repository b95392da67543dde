"""Rooted collectives along a chain: rank r sends to r - 1 and r + 1 only, and passes on one piece while the next arrives.

Source: Sanders, Speck and Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel Computing 35
(2009): its linear pipeline. The root is rank 0, at the head of the chain. Letters: n ranks, k pieces.
"""

from fractions import Fraction

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.transform import dual

# Pieces of a block. Eight ranks then take less than twice the time of a single hop of the whole; each piece is a message.
PIECES = 8


def _whole_beta(n: int) -> Fraction:
    """Return the claimed beta: the number of rounds times the share of the size that is sent in one round."""
    return Fraction(n - 2 + PIECES, PIECES) if n > 1 else Fraction(0)


_WHOLE = Claim("rank", alpha=lambda n: n - 1, beta=_whole_beta)
_SPREAD = Claim("rank", alpha=lambda n: n - 1, beta=lambda n: Fraction(n - 1, n))


@collective("broadcast", "pipelined-chain", claim=_WHOLE)
def broadcast(n: int) -> Schedule:
    """Pass piece t-r from rank r to rank r+1 in round t."""
    rank = np.arange(n - 1)
    rounds = range(n - 2 + PIECES if n > 1 else 0)
    on = (rank[(t - PIECES < rank) & (rank <= t)] for t in rounds)
    return Schedule.build(n, PIECES, (Sends(r, r + 1, slot=t - r) for t, r in zip(rounds, on, strict=True)))


@collective("reduce", "pipelined-chain", claim=_WHOLE)
def reduce(n: int) -> Schedule:
    """Add the piece of the next rank to each rank's own, then pass the sum on towards the root: the dual of the broadcast."""
    return dual(broadcast(n))


@collective("scatter", "pipelined-chain", claim=_SPREAD)
def scatter(n: int) -> Schedule:
    """Pass slot n-1-t+r from rank r to rank r+1 in round t: the slot for the chain's end leaves first."""
    rank = np.arange(n - 1)
    on = ((t, rank[rank <= t]) for t in range(n - 1))
    return Schedule.build(n, n, (Sends(r, r + 1, slot=n - 1 - t + r) for t, r in on))


@collective("gather", "pipelined-chain", claim=_SPREAD)
def gather(n: int) -> Schedule:
    """Pass each rank's own slot to the rank before it, then the slots of the ranks after it: the scatter backwards."""
    return dual(scatter(n), reduce=False)
