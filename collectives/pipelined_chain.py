"""Rooted collectives along a chain, where rank r talks to r - 1 and r + 1 only and passes on one piece while the next arrives.

Source: Sanders, Speck and Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel Computing
35 (2009): its linear pipeline. n ranks, k pieces. Root 0, at the chain's head.
"""

from fractions import Fraction

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends
from emu.collective.transform import dual

# Of a block. Eight ranks then take less than twice the time of a single hop of the whole; each more is a message.
PIECES = 8


def _whole_beta(n: int) -> Fraction:
    return Fraction(n - 2 + PIECES, PIECES) if n > 1 else Fraction(0)


_WHOLE = Claim("rank", alpha=lambda n: n - 1, beta=_whole_beta)
_SPREAD = Claim("rank", alpha=lambda n: n - 1, beta=lambda n: Fraction(n - 1, n))


@collective("broadcast", "pipelined-chain", claim=_WHOLE)
def broadcast(n: int) -> Schedule:
    """In round t, rank r passes piece t-r to rank r+1."""
    rank = np.arange(n - 1)
    rounds = range(n - 2 + PIECES if n > 1 else 0)
    on = (rank[(t - PIECES < rank) & (rank <= t)] for t in rounds)
    return Schedule.build(n, PIECES, (Sends(r, r + 1, slot=t - r) for t, r in zip(rounds, on, strict=True)))


@collective("reduce", "pipelined-chain", claim=_WHOLE)
def reduce(n: int) -> Schedule:
    """The dual of the broadcast: each rank adds the next one's piece to its own, then passes the sum on."""
    return dual(broadcast(n))


@collective("scatter", "pipelined-chain", claim=_SPREAD)
def scatter(n: int) -> Schedule:
    """In round t, rank r passes slot n-1-t+r to rank r+1: what is for the chain's end leaves first."""
    rank = np.arange(n - 1)
    on = ((t, rank[rank <= t]) for t in range(n - 1))
    return Schedule.build(n, n, (Sends(r, r + 1, slot=n - 1 - t + r) for t, r in on))


@collective("gather", "pipelined-chain", claim=_SPREAD)
def gather(n: int) -> Schedule:
    """The scatter backwards: each rank passes its own slot to the rank before it, then those of the ranks behind."""
    return dual(scatter(n), reduce=False)
