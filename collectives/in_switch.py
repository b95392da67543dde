"""Collectives in which the switch adds what the ranks send and sends the sum to all: the switch is the one helper, rank n.

So an all_reduce moves one block out of each rank and one into it, fewer than the 2(n-1)/n blocks of algorithms in which ranks
add (from n = 3 on). Source: Graham et al., Scalable Hierarchical Aggregation Protocol (SHArP): a hardware architecture for
efficient data reduction, COMHPC (2016). Letters: n ranks, k pieces of a block.
"""

from fractions import Fraction

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends, check_rows
from emu.collective.transform import dual

# Pieces of a block: the first must arrive before the switch can send, which costs 1/k; each piece is a message.
PIECES = 8


def _hops(n: int) -> int:
    """Return the claimed alpha: one hop up to the switch, and one down."""
    return 2 if n > 1 else 0


def _whole_beta(n: int) -> Fraction:
    """Return the claimed beta of an all_reduce: the time of all bytes over one port, plus one piece for the second hop."""
    return 1 + Fraction(1, PIECES) if n > 1 else Fraction(0)


def _half_beta(n: int) -> Fraction:
    """Return the claimed beta of a reduce_scatter or an all_gather, with one more piece for the second hop."""
    return Fraction(n - 1, n) + Fraction(1, n * PIECES) if n > 1 else Fraction(0)


# Every rank has one wire each way, to the switch; on `rank` the switch would have a single port as well.
_WHOLE = Claim("pair", alpha=_hops, beta=_whole_beta)
_HALF = Claim("pair", alpha=_hops, beta=_half_beta)


@collective("all_reduce", "in-switch", claim=_WHOLE, needs_adding=True)
def all_reduce(n: int) -> Schedule:
    """Send piece t from every rank to the switch in round t; the switch adds them and sends the sum of piece t-1 to all."""
    rank, rounds = np.arange(n), range(PIECES + 1 if n > 1 else 0)
    up = ([Sends(rank, n, slot=t, reduce=True)] if t < PIECES else [] for t in rounds)
    down = ([Sends(n, rank, slot=t - 1)] if t else [] for t in rounds)
    return Schedule.build(n, PIECES, (a + b for a, b in zip(up, down, strict=True)), helpers=min(n - 1, 1))


@collective("all_gather", "in-switch", claim=_HALF, needs_adding=True)
def all_gather(n: int) -> Schedule:
    """Send piece t of every rank's block to the switch in round t; the switch sends its pieces t-1 to all but their owner."""
    check_rows(n * (n - 1) * PIECES)
    block, (owner, other) = np.arange(n), np.nonzero(~np.eye(n, dtype=np.bool_))
    rounds = range(PIECES + 1 if n > 1 else 0)
    up = ([Sends(block, n, slot=block * PIECES + t)] if t < PIECES else [] for t in rounds)
    down = ([Sends(n, other, slot=owner * PIECES + t - 1)] if t else [] for t in rounds)
    return Schedule.build(n, n * PIECES, (a + b for a, b in zip(up, down, strict=True)), helpers=min(n - 1, 1))


@collective("reduce_scatter", "in-switch", claim=_HALF, needs_adding=True)
def reduce_scatter(n: int) -> Schedule:
    """Add each block of all other ranks on the switch, then on the block's owner: the dual of the all_gather."""
    return dual(all_gather(n))
