"""What latency a collective cannot avoid: from a rank that has a block to one that wants it, over the quickest path.

N ranks, V nodes, D sources.
"""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from emu.arrays import F64, I32, I64, Bool
from emu.bound.network import Network
from emu.bound.sets import ALL_PAIRS
from emu.collective.operation import Operation

_WORK = 2**20  # arcs that all searches together may pass, about


def least_latency_fs(net: Network, op: Operation) -> int:
    """The longest of the quickest paths that data must take, in ticks: of all, or of a sample where there are many."""
    most = max(1, _WORK // max(1, len(net.src)))
    if op.name == ALL_PAIRS:
        return int(_distances(net, net.ranks[_sample(op.n_ranks, most)])[:, net.ranks].max())
    have, want = op.have, op.want
    if len(np.unique(want[:, 0])) < len(np.unique(have[:, 0])):
        net, have, want = net.back(), want, have
    holders = np.unique(have[:, 0])
    asked = holders[_sample(len(holders), most)]
    source, sink = _pairs(have[np.isin(have[:, 0], asked)], want)
    found = _distances(net, net.ranks[asked])[np.searchsorted(asked, source), net.ranks[sink]]
    return int(found.max(initial=0))


def _sample(n: int, most: int) -> I64:
    return np.unique(np.linspace(0, n - 1, most).astype(np.int64))


def _pairs(have: I32, want: I32) -> tuple[I64, I64]:
    """Who has a block, and who wants it: a pair for each of both."""
    want = want[np.argsort(want[:, 1], kind="stable")]
    first, last = (np.searchsorted(want[:, 1], have[:, 1], side) for side in ("left", "right"))
    counts = last - first
    ends = np.cumsum(counts)
    place = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts - first, counts)
    return np.repeat(have[:, 0], counts).astype(np.int64), want[place, 0].astype(np.int64)


def crossing_fs(net: Network, inside: Bool, *, helpers: bool) -> int:
    """The least latency of a message from a set of nodes [V] to a rank that is not in it, in ticks.

    Args:
        net: Its arcs.
        inside: A rank in it, and one not.
        helpers: Whether switches send what they have added or copied; else only ranks send.
    """
    has_rank = net.has_rank
    may_send = has_rank | (np.arange(net.n_nodes) >= net.n_npus) if helpers else has_rank
    found = _distances(net, np.flatnonzero(inside & may_send), least=True)
    return int(found[has_rank & ~inside].min())


def message_fs(net: Network, *, helpers: bool) -> int:
    """What the latency of any message to a rank is at least, in ticks; `helpers` as of `crossing_fs`."""
    has_rank = net.has_rank
    away, here = has_rank[net.src], has_rank[net.dst]
    if helpers:
        return int(net.latency_fs[here].min())
    direct, up, down = (net.latency_fs[which] for which in (away & here, away & ~here, ~away & here))
    passed_on = int(up.min()) + int(down.min()) if len(up) and len(down) else None
    return min(t for t in (int(direct.min()) if len(direct) else None, passed_on) if t is not None)


def _distances(net: Network, sources: I64, *, least: bool = False) -> F64:
    """[D, V] latency of the quickest path from each source, or [V] from the nearest of them."""
    graph = csr_array((net.latency_fs.astype(np.float64), (net.src, net.dst)), shape=(net.n_nodes, net.n_nodes))
    return np.asarray(dijkstra(graph, indices=sources, min_only=least))
