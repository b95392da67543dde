"""The test for deadlock: can messages that hold a buffer while they wait for the next one wait for one another in a cycle?

They cannot if the channel dependency graph (which channel, a link's virtual channel, some route takes right after which other)
has no cycle: Dally and Seitz, Deadlock-free message routing in multiprocessor interconnection networks, IEEE Trans. Computers
C-36 (1987).
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from emu.arrays import I64, column
from emu.topology.topology import Routes


def cycle(routes: Routes, virtual: ArrayLike = 0) -> list[tuple[int, int]]:
    """Return channels (link, virtual channel) that wait for one another in a cycle, in order; [] where routes cannot deadlock.

    Args:
        routes: All routes that may be in use at one time.
        virtual: [H] the virtual channel of each hop; by default each link has one.
    """
    lanes = np.broadcast_to(np.asarray(virtual, np.int64), routes.link.shape)
    kinds = int(lanes.max(initial=0)) + 1
    channels, number = np.unique(routes.link * np.int64(kinds) + lanes, return_inverse=True)
    leads = np.ones(len(number), np.bool_)
    leads[routes.start[1:][routes.hops > 0] - 1] = False  # the last hop of a route leads nowhere
    held = np.flatnonzero(leads)
    graph = csr_array((np.ones(len(held), np.int8), (number[held], number[held + 1])), shape=(len(channels),) * 2)
    return [divmod(int(channels[c]), kinds) for c in _circle(graph)]


def _circle(graph: csr_array) -> list[int]:
    """Return the nodes of one cycle of a directed graph, or none."""
    _, part = connected_components(graph, directed=True, connection="strong")
    crowded = np.flatnonzero(np.bincount(part, minlength=1)[part] > 1) if len(part) else column([], np.int64)
    itself = np.flatnonzero(graph.diagonal())
    if len(itself):
        return [int(itself[0])]
    if not len(crowded):
        return []
    return _follow(graph, part, int(crowded[0]))


def _follow(graph: csr_array, part: I64, node: int) -> list[int]:
    """Return a cycle, found by a walk inside a strong component until a node comes again."""
    seen: dict[int, int] = {}
    while node not in seen:
        seen[node] = len(seen)
        ahead = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
        node = int(ahead[part[ahead] == part[node]][0])
    return [n for n, at in seen.items() if at >= seen[node]]
