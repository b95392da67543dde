"""The latency that a collective cannot avoid: from a rank that has a block to one that wants it, over the quickest path.

Letters: N ranks, V nodes, D searches, S sources.
"""

import numpy as np

from emu.arrays import I32, I64, Bool
from emu.bound.network import Network
from emu.bound.sets import ALL_PAIRS
from emu.bound.symmetry import Symmetry
from emu.collective.operation import Operation
from emu.topology.paths.shortest_paths import least_weights

_WORK = 2**18  # arcs that all searches together may visit, about
_ALL_TO_ALL = frozenset({ALL_PAIRS, "all_reduce", "all_gather", "reduce_scatter"})  # each rank has something for each other


def least_latency_fs(net: Network, alike: Symmetry, op: Operation) -> int:
    """Return the longest of the quickest paths that data must take, in ticks.

    Where there are many paths, of a sample of them.
    """
    most = max(1, _WORK // max(1, len(net.src)))
    if op.name in _ALL_TO_ALL:
        return int(_quickest_fs(net, alike.ranks[_sample(len(alike.ranks), most)][:, None])[:, net.ranks].max())
    have, want = op.have, op.want
    if len(np.unique(want[:, 0])) < len(np.unique(have[:, 0])):
        net, have, want = net.back(), want, have
    holders = np.unique(have[:, 0])
    asked = holders[_sample(len(holders), most)]
    source, sink = _pairs(have[np.isin(have[:, 0], asked)], want)
    found = _quickest_fs(net, net.ranks[asked][:, None])[np.searchsorted(asked, source), net.ranks[sink]]
    return int(found.max(initial=0))


def _sample(n: int, most: int) -> I64:
    """Return at most `most` numbers below n, evenly spread."""
    return np.unique(np.linspace(0, n - 1, most).astype(np.int64))


def _pairs(have: I32, want: I32) -> tuple[I64, I64]:
    """Return a pair of ranks for each block and two ranks of which one has it and the other wants it."""
    want = want[np.argsort(want[:, 1], kind="stable")]
    first, last = (np.searchsorted(want[:, 1], have[:, 1], side) for side in ("left", "right"))
    counts = last - first
    ends = np.cumsum(counts)
    place = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts - first, counts)
    return np.repeat(have[:, 0], counts).astype(np.int64), want[place, 0].astype(np.int64)


def crossing_fs(net: Network, inside: Bool, *, helpers: bool) -> int:
    """Return the least latency of a message from a set of nodes [V] to a rank outside it, in ticks.

    Args:
        net: The network.
        inside: A set with at least one rank, and not with all.
        helpers: Whether switches send what they have added or copied; else only ranks send.
    """
    has_rank = net.has_rank
    may_send = has_rank | (np.arange(net.n_nodes) >= net.n_npus) if helpers else has_rank
    found = _quickest_fs(net, np.flatnonzero(inside & may_send)[None])
    return int(found[0, has_rank & ~inside].min())


def message_fs(net: Network, *, helpers: bool) -> int:
    """Return the least latency of any message to a rank, in ticks; `helpers` is that of `crossing_fs`."""
    has_rank = net.has_rank
    away, here = has_rank[net.src], has_rank[net.dst]
    if helpers:
        return int(net.latency_fs[here].min())
    return int(least_between_fs(net.latency_fs, away, here))


def least_between_fs(latency_fs: I64, leaves: Bool, comes: Bool, default: float = np.inf) -> float:
    """Return the least latency from end to end, over one arc, or over one into the switches and one out of them.

    Args:
        latency_fs: [A] the latency of each arc.
        leaves: [A] whether the arc leaves an end, such as a rank.
        comes: [A] whether it comes to one.
        default: The value that is returned where no arcs join ends.
    """
    direct, up, down = (latency_fs[of] for of in (leaves & comes, leaves & ~comes, ~leaves & comes))
    ways = [sum(int(part.min()) for part in way) for way in ((direct,), (up, down)) if all(map(len, way))]
    return min(ways, default=default)


def _quickest_fs(net: Network, sources: I64) -> I64:
    """Return [D, V] the ticks of the quickest path to each node from the nearest of the sources [D, S] of each search."""
    found = least_weights((net.src, net.dst), net.latency_fs, net.n_nodes, sources)
    reached, ticks = np.isfinite(found), np.full(found.shape, np.iinfo(np.int64).max)
    ticks[reached] = found[reached]
    return ticks
