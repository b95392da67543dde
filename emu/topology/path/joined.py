"""What can be said of the ways between NPUs before any is asked for: whether there is one, and whether equal ones are alike.

L links, D destinations. Asked are all NPUs, or as many as a second or two allows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from emu.arrays import F64, I64, Bool
from emu.topology.path.shortest import UNREACHED, Ways

_CHUNK_WORK = 2**22  # destinations times links or nodes that are held at a time
_WORK = 2**24  # of them in all, where a part tells enough


@dataclass(frozen=True, slots=True)
class Uneven:
    """Pairs of NPUs with ways of one cost that differ in how fast their narrowest link is."""

    pairs: int
    of: int  # pairs that were looked at
    src: int  # of the first of them
    dst: int
    rates_Bps: tuple[float, float]  # of its slowest way, and of its fastest


def unjoined(ways: Ways, n_npus: int) -> tuple[int, int] | None:
    """Two NPUs that no way joins."""
    hub = np.argmax(ways.passes * (1 + np.bincount(ways.links.src, minlength=len(ways.passes))))
    if ways.passes[hub] and all(_reached(way, int(hub))[:n_npus].all() for way in (ways, ways.back())):
        return None
    for targets in _chunks(ways, np.arange(n_npus)):
        lost = np.argwhere(ways.grades(targets)[:, :n_npus] >= UNREACHED * ways.rates)
        if len(lost):
            return int(lost[0, 1]), int(targets[lost[0, 0]])
    return None


def _reached(ways: Ways, target: int) -> Bool:
    """[nodes] whether a way leads from each to the target."""
    found: Bool = ways.grades(np.array([target]))[0] < UNREACHED * ways.rates
    return found


def uneven(ways: Ways, n_npus: int) -> Uneven | None:
    """Which pairs have ways of one cost and of several rates; None: of those looked at, no pair has."""
    if len(np.unique(ways.links.bandwidth_Bps)) < 2:
        return None
    most = max(1, _WORK // max(len(ways.links), len(ways.passes)))
    asked = np.unique(np.linspace(0, n_npus - 1, min(n_npus, most)).astype(np.int64))
    count, first = 0, None
    for targets in _chunks(ways, asked):
        slow, fast = (rates[:, :n_npus] for rates in _slowest_and_fastest(ways, targets))
        found = np.argwhere(slow < fast)
        if len(found) and first is None:
            row, src = found[np.lexsort((found[:, 0], found[:, 1]))[0]].tolist()
            first = src, int(targets[row]), (float(slow[row, src]), float(fast[row, src]))
        count += len(found)
    return Uneven(count, len(asked) * (n_npus - 1), *first) if first else None


def _chunks(ways: Ways, targets: I64) -> Iterator[I64]:
    size = max(1, _CHUNK_WORK // max(len(ways.links), len(ways.passes)))
    return (targets[i : i + size] for i in range(0, len(targets), size))


def _slowest_and_fastest(ways: Ways, targets: I64) -> tuple[F64, F64]:
    """[D, nodes] and [D, nodes] the rates of the slowest and the fastest of the cheapest ways to each target."""
    row, link, starts = _on_cheapest(ways, targets)
    src, dst, rate = ways.links.src, ways.links.dst, ways.links.bandwidth_Bps
    slow = np.full((len(targets), len(ways.passes)), np.inf)
    fast = np.zeros_like(slow)
    fast[np.arange(len(targets)), targets] = np.inf
    for first, end in pairwise(starts):
        at, over = row[first:end], link[first:end]
        np.minimum.at(slow, (at, src[over]), np.minimum(slow[at, dst[over]], rate[over]))
        np.maximum.at(fast, (at, src[over]), np.minimum(fast[at, dst[over]], rate[over]))
    return slow, fast


def _on_cheapest(ways: Ways, targets: I64) -> tuple[I64, I64, I64]:
    """The links on cheapest ways to each target, nearest first: whose row, which, and where each distance begins."""
    away = ways.grades(targets) // ways.rates
    there = away[:, ways.links.dst]
    on = away[:, ways.links.src] == there + ways.cost
    on &= ways.passes[ways.links.dst] | (there == 0)
    row, link = np.nonzero(on)
    far = away[row, ways.links.src[link]]
    order = np.argsort(far, kind="stable")
    starts = np.flatnonzero(np.diff(far[order], prepend=0, append=UNREACHED))
    return row[order], link[order], starts
