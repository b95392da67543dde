"""All-reduce over two binary trees at once, each with half the block: who is a leaf of one is inside the other.

Source: Sanders, Speck and Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel Computing
35 (2009). Its in-order trees, with place 0 above the root so that no rank is left out. n ranks, height H, k pieces a tree.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule, Sends

# Of a tree's half. Filling the trees costs (2H - 1) / k of what the half itself takes; each more is one more message an edge.
PIECES = 8

_Edges = tuple[I64, I64, I64]  # [n - 1] child, parent, and how deep the child is


def _height(n: int) -> int:
    return (n - 1).bit_length()


def _beta(n: int) -> Fraction:
    return Fraction(2 * _height(n) + PIECES - 1, 2 * PIECES) if n > 1 else Fraction(0)


# On links of its own: with one port a rank both children of a parent collide there, which has no closed form.
_CLAIM = Claim("link", alpha=lambda n: 2 * _height(n), beta=_beta)


@collective("all_reduce", "double-tree", claim=_CLAIM)
def all_reduce(n: int) -> Schedule:
    """Each rank adds its children's pieces to its own, sends the sum to its parent, and passes the total back to them."""
    one, other = _trees(n)
    rounds = range(2 * _height(n) + PIECES - 1)
    return Schedule.build(n, 2 * PIECES, ((*_round(n, 0, one, t), *_round(n, 1, other, t)) for t in rounds))


def _trees(n: int) -> tuple[_Edges, _Edges]:
    """A tree's inner places are even, its leaves odd; the other is it mirrored for even n, moved by one for odd n."""
    place = np.arange(1, n)
    lowest = place & -place
    up = (place - lowest) | (2 * lowest)
    parent = np.where(up < n, up, place - lowest)
    above, ancestor, depth = np.append(0, parent), parent, np.ones_like(place)
    for _ in range(_height(n)):
        depth, ancestor = depth + (ancestor > 0), above[ancestor]
    child, its_parent = ((n - 1 - p if n % 2 == 0 else (p + 1) % n) for p in (place, parent))
    return (place, parent, depth), (child, its_parent, depth)


def _round(n: int, tree: int, edges: _Edges, t: int) -> Iterator[Sends]:
    """A tree's rows of round t: an edge d deep carries piece j up in round H - d + j and down in round H + d - 1 + j.

    Up and down are two channels, or a piece on its way up would wait for one that comes down.
    """
    child, parent, depth = edges
    up, down = t - _height(n) + depth, t - _height(n) - depth + 1
    for piece, src, dst, falls in ((up, child, parent, False), (down, parent, child, True)):
        on = (piece >= 0) & (piece < PIECES)
        yield Sends(src[on], dst[on], tree * PIECES + piece[on], reduce=not falls, channel=2 * tree + falls)
