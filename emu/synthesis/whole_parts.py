"""Shares of blocks rounded to equal parts: every part takes the way that adds least to a power of the loads of links.

A way is a path, or a tree; parts change their ways one at a time until none gains. Letters: B blocks, P ways, L links, X links
of all ways.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.compiled.function import F64_OUT, I64_OUT, compiled

_SWEEPS = 12  # sweeps over all parts


class BlockShares(NamedTuple):
    """The ways of blocks with the share of the block that each carries, in the order of the blocks."""

    block: I64  # [P]
    share: F64  # [P]
    way: I64  # [X] ascending
    link: I64  # [X]
    second: F64  # [X] seconds for which a byte on the way takes the link
    n_links: int


@compiled
def _added(start: I64, link: I64, second: F64, load: F64_OUT, way: int, longer: float) -> float:
    """Return what a part adds to the sum of the 24th powers of all loads if it takes a way; see `_spread`."""
    cost = 0.0
    for i in range(start[way], start[way + 1]):
        a = load[link[i]]
        c = a + second[i]
        a, c = a * a * a, c * c * c
        a, c = a * a, c * c
        a, c = a * a, c * c
        cost += c * c - a * a + longer
    return cost


@compiled
def _put(start: I64, link: I64, second: F64, load: F64_OUT, way: int, sign: int) -> None:
    """Add a part's time to the loads of the links of a way, or take it away (sign -1)."""
    for i in range(start[way], start[way + 1]):
        load[link[i]] += sign * second[i]


@compiled
def _spread(block: I64, start: I64, link: I64, second: F64, load: F64_OUT, count: I64_OUT) -> int:
    """Move parts of blocks, one at a time, to the way that adds least to a power of the loads; return the number of moves.

    Args:
        block: [B + 1] where the ways of each block begin.
        start: [P + 1] where the crossed links of each way begin.
        link: The links.
        second: The time for which a part takes each link, over the time of the busiest link that is hoped for.
        load: [L] the sum of these; it is changed.
        count: [P] the parts on each way; it is changed.
    """
    moved, longer = 0, 1e-6 / len(load)
    for b in range(len(block) - 1):
        for old in range(block[b], block[b + 1]):
            for _ in range(count[old]):
                _put(start, link, second, load, old, -1)
                best, least = old, _added(start, link, second, load, old, longer) - 1e-12
                for way in range(block[b], block[b + 1]):
                    cost = _added(start, link, second, load, way, longer)
                    if cost < least:
                        best, least = way, cost
                _put(start, link, second, load, best, 1)
                if best != old:
                    count[old] -= 1
                    count[best] += 1
                    moved += 1
    return moved


def whole_counts(shares: BlockShares, slowness: float, parts: int) -> tuple[I64, float]:
    """Return how many of the equal parts of its block each way carries, [P], and the time of the busiest link.

    Args:
        shares: The ways and their shares.
        slowness: The time of the busiest link by the shares, for a byte of every block; so is the other time.
        parts: The number of parts of a block.
    """
    way, link, second = shares.way, shares.link, shares.second / parts
    bounds = np.searchsorted(shares.block, np.arange(int(shares.block[-1]) + 2))
    count = _rounded(shares, bounds, parts)
    start = np.searchsorted(way, np.arange(len(shares.block) + 1))
    load = np.bincount(link, second * count[way], shares.n_links)
    for _ in range(_SWEEPS):
        before, kept = float(load.max()), count.copy()
        scale = max(slowness, before * 2**-8)
        moved = _spread(bounds, start, link, second / scale, load / scale, count)
        load = np.bincount(link, second * count[way], shares.n_links)
        if load.max() > before * (1 + 1e-12):
            return kept, before
        if not moved:
            break
    return count, float(load.max())


def _rounded(shares: BlockShares, bounds: I64, parts: int) -> I64:
    """Return the parts [P] of each way: shares rounded down, and one more for the largest remainders of each block."""
    wanted = shares.share * parts
    count = np.floor(wanted + 1e-9).astype(np.int64)
    left = parts - np.add.reduceat(count, bounds[:-1])
    order = np.lexsort((count - wanted, shares.block))
    rank = np.arange(len(order)) - bounds[shares.block[order]]
    count[order] += rank < left[shares.block[order]]
    return count
