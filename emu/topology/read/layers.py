"""How switches of any wiring are drawn: over the NPUs, layer over layer, each above what it joins."""

from collections.abc import Callable
from functools import partial

import numpy as np

from emu.arrays import F64, I64, column
from emu.topology.topology import Drawing, Links

_GAP = 2.0  # between layers, at least, in gaps between NPUs


def layers(links: Links, n_npus: int, n_nodes: int) -> Callable[[], Drawing]:
    """NPUs in a row, then switches that NPUs are linked to, then those that these are linked to, and so on."""
    return partial(_drawn, links, n_npus, n_nodes)


def _drawn(links: Links, n_npus: int, n_nodes: int) -> Drawing:
    layer = _layer(links, n_npus, n_nodes)
    at = np.zeros((n_nodes, 2))
    at[:n_npus, 0] = np.arange(n_npus)
    gap = max(_GAP, n_npus / 6)
    for height in range(1, int(layer.max()) + 1):
        nodes = np.flatnonzero(layer == height)
        at[nodes] = np.stack((_spread(links, nodes, layer, at[:, 0]), np.full(len(nodes), height * gap)), axis=-1)
    return Drawing(at)


def _layer(links: Links, n_npus: int, n_nodes: int) -> I64:
    """[nodes] links to the nearest NPU."""
    found = np.full(n_nodes, n_nodes)
    found[:n_npus] = 0
    for _ in range(n_nodes):
        nearer = found.copy()
        np.minimum.at(nearer, links.src, found[links.dst] + 1)
        np.minimum.at(nearer, links.dst, found[links.src] + 1)
        if np.array_equal(nearer, found):
            break
        found = nearer
    return column(found, np.int64)


def _spread(links: Links, nodes: I64, layer: I64, across: F64) -> F64:
    """Where the nodes of a layer stand: evenly over the row, in the order of the middle of what each joins below."""
    below = layer[links.dst] < layer[links.src]
    joined = np.bincount(links.src[below], minlength=len(layer))
    middle = np.bincount(links.src[below], across[links.dst[below]], len(layer)) / np.maximum(joined, 1)
    width = max(across.max() + 1, len(nodes))
    places = (np.arange(len(nodes)) + 0.5) * width / len(nodes) - 0.5 * (width - across.max())
    found = np.empty(len(nodes))
    found[np.lexsort((nodes, middle[nodes]))] = places
    return found
