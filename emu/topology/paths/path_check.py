"""Checks of paths between NPUs: each pair has one, equally short paths have equal rates, and routes cannot deadlock.

All NPUs are checked, or as many as a second or two allows. Letters: L links, D destinations, H hops.

Messages that hold a buffer while they wait for the next one cannot wait for one another in a cycle if the channel dependency
graph (which channel, a link's virtual channel, some route takes right after which other) has no cycle: Dally and Seitz,
Deadlock-free message routing in multiprocessor interconnection networks, IEEE Trans. Computers C-36 (1987).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import F64, I64, Bool, even_sample
from emu.topology.paths.shortest_paths import UNREACHED, ShortestPaths
from emu.topology.topology import Routes

_CHUNK_WORK = 2**22  # destinations times links or nodes that are held at one time
_WORK = 2**24  # destinations times links or nodes in all, where a sample is enough


@dataclass(frozen=True, slots=True)
class UnevenPaths:
    """The pairs of NPUs whose paths of equal cost differ in bandwidth: how many of the checked pairs, and the first of them."""

    pairs: int
    of: int  # pairs that were checked
    src: int  # source of the first such pair
    dst: int  # its destination
    rates_Bps: tuple[float, float]  # rate of its slowest path, and of its fastest


def find_unjoined(ways: ShortestPaths, n_npus: int) -> tuple[int, int] | None:
    """Return two NPUs without a path between them, or None if all are connected."""
    hub = np.argmax(ways.passes * (1 + np.bincount(ways.links.src, minlength=len(ways.passes))))
    if ways.passes[hub] and all(_reach_marks(way, int(hub))[:n_npus].all() for way in (ways, ways.back())):
        return None
    for targets in _chunks(ways, np.arange(n_npus)):
        lost = np.argwhere(ways.grades(targets)[:, :n_npus] >= UNREACHED * ways.rates)
        if len(lost):
            return int(lost[0, 1]), int(targets[lost[0, 0]])
    return None


def _reach_marks(ways: ShortestPaths, target: int) -> Bool:
    """Return [nodes] whether a path leads from each node to the target."""
    found: Bool = ways.grades(np.array([target]))[0] < UNREACHED * ways.rates
    return found


def find_uneven(ways: ShortestPaths, n_npus: int) -> UnevenPaths | None:
    """Return pairs whose paths of equal cost have different rates, with these rates; None if no checked pair has."""
    if len(np.unique(ways.links.bandwidth_Bps)) < 2:
        return None
    most = max(1, _WORK // max(len(ways.links), len(ways.passes)))
    asked = even_sample(n_npus, most)
    count, first = 0, None
    for targets in _chunks(ways, asked):
        slow, fast = (rates[:, :n_npus] for rates in _slowest_and_fastest(ways, targets))
        found = np.argwhere(slow < fast)
        if len(found) and first is None:
            row, src = found[np.lexsort((found[:, 0], found[:, 1]))[0]].tolist()
            first = src, int(targets[row]), (float(slow[row, src]), float(fast[row, src]))
        count += len(found)
    return UnevenPaths(count, len(asked) * (n_npus - 1), *first) if first else None


def _chunks(ways: ShortestPaths, targets: I64) -> Iterator[I64]:
    """Yield the targets in chunks that are small enough for the memory of a search."""
    size = max(1, _CHUNK_WORK // max(len(ways.links), len(ways.passes)))
    return (targets[i : i + size] for i in range(0, len(targets), size))


def _slowest_and_fastest(ways: ShortestPaths, targets: I64) -> tuple[F64, F64]:
    """Return the rates of the slowest and the fastest of the cheapest paths to each target, [D, nodes] and [D, nodes]."""
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


def _on_cheapest(ways: ShortestPaths, targets: I64) -> tuple[I64, I64, I64]:
    """Return the links on cheapest paths to each target, nearest first.

    The three arrays are the target's row, the link, and where each distance begins.
    """
    away = ways.grades(targets) // ways.rates
    there = away[:, ways.links.dst]
    on = away[:, ways.links.src] == there + ways.cost
    on &= ways.passes[ways.links.dst] | (there == 0)
    row, link = np.nonzero(on)
    far = away[row, ways.links.src[link]]
    order = np.argsort(far, kind="stable")
    starts = np.flatnonzero(np.diff(far[order], prepend=0, append=UNREACHED))
    return row[order], link[order], starts


def cycle(routes: Routes, virtual: ArrayLike = 0) -> list[tuple[int, int]]:
    """Return channels (link, virtual channel) that wait for one another in a cycle; an empty list if there is no cycle.

    Args:
        routes: All routes that may be in use at one time.
        virtual: [H] the virtual channel of each hop; by default each link has one.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    lanes = np.broadcast_to(np.asarray(virtual, np.int64), routes.link.shape)
    kinds = int(lanes.max(initial=0)) + 1
    channels, number = np.unique(routes.link * np.int64(kinds) + lanes, return_inverse=True)
    leads = np.ones(len(number), np.bool_)
    leads[routes.start[1:][routes.hops > 0] - 1] = False  # the last hop of a route leads nowhere
    held = np.flatnonzero(leads)
    graph = csr_array((np.ones(len(held), np.int8), (number[held], number[held + 1])), shape=(len(channels),) * 2)
    _, part = connected_components(graph, directed=True, connection="strong")
    itself, crowded = np.flatnonzero(graph.diagonal()), np.flatnonzero(np.bincount(part, minlength=1)[part] > 1)
    nodes = itself[:1] if len(itself) else _follow(graph, part, int(crowded[0])) if len(crowded) else ()
    return [divmod(int(channels[c]), kinds) for c in nodes]


def _follow(graph: Any, part: I64, node: int) -> list[int]:
    """Return a cycle, found by a walk inside a strong component until a node comes again."""
    seen: dict[int, int] = {}
    while node not in seen:
        seen[node] = len(seen)
        ahead = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
        node = int(ahead[part[ahead] == part[node]][0])
    return [n for n, at in seen.items() if at >= seen[node]]
