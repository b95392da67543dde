"""Collectives in which switches add what they are sent and send the sum back; a switch is a helper, numbered after all ranks.

One switch serves all ranks; `in-switch-tiers` has a tree of them: those of each tier add the sums of the tier below. So an
all_reduce moves one block out of each rank and one into it, fewer than the 2(n-1)/n blocks of algorithms in which ranks
add (from n = 3 on). Source: Graham et al., Scalable Hierarchical Aggregation Protocol (SHArP): a hardware architecture for
efficient data reduction, COMHPC (2016). Letters: n ranks, k pieces of a block.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import prod

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends, check_rows
from emu.collective.shape import grids
from emu.collective.transform import dual

# Pieces of a block: the first must arrive before the switch can send, which costs 1/k; each piece is a message.
PIECES = 8
TREE_PIECES = 64  # of a tree, which takes more hops to fill


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


def _trees(n: int) -> Iterator[tuple[int, ...]]:
    """Yield the grids of n ranks with two dims or more: the switches of each tier below the top, and the ranks of a switch."""
    return (dims for dims in grids(n) if len(dims) > 1)


def _tiers_beta(dims: tuple[int, ...]) -> Fraction:
    """Return the claimed beta of a tree: the time of all bytes over one port, plus one piece for each further hop."""
    return 1 + Fraction(2 * len(dims) - 1, TREE_PIECES)


_TIERS = Claim("pair", alpha=lambda dims: 2 * len(dims), beta=_tiers_beta)


@collective("all_reduce", "in-switch-tiers", claim=_TIERS, shapes=_trees, needs_adding=True)
def all_reduce_by_tiers(dims: tuple[int, ...]) -> Schedule:
    """Add each piece on the switch of each run of ranks, these sums on the switches above, and send the total down again."""
    steps, tiers = _tree(dims), len(dims)

    def sends(t: int) -> Iterator[Sends]:
        for tier, (below, above) in enumerate(steps):
            up, down = t - tier, t - (2 * tiers - 1 - tier)
            if 0 <= up < TREE_PIECES:
                yield Sends(below, above, slot=up, reduce=True)
            if 0 <= down < TREE_PIECES:
                yield Sends(above, below, slot=down, channel=1)  # a switch sends up and down at one time

    rounds = (sends(t) for t in range(TREE_PIECES + 2 * tiers - 1))
    return Schedule.build(prod(dims), TREE_PIECES, rounds, helpers=sum(prod(dims[:tier]) for tier in range(tiers)))


def _tree(dims: tuple[int, ...]) -> list[tuple[I64, I64]]:
    """Return, for each tier of switches from the lowest, the participants below it, and the switch above each of them."""
    found, below = [], np.arange(prod(dims))
    for tier in reversed(range(len(dims))):
        first = int(below[-1]) + 1
        found.append((below, first + np.arange(len(below)) // dims[tier]))
        below = first + np.arange(len(below) // dims[tier])
    return found
