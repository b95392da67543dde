"""Distances between nodes for any weights of links: the search of Bellman and Ford, from the nodes that came nearer last.

Letters: L links, V nodes, D searches.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import F64, I64, column
from emu.topology.paths.incidence import IncidentLinks


def least_weights(
    ends: tuple[ArrayLike, ArrayLike], weight: ArrayLike, n_nodes: int, sources: Sequence[ArrayLike] | I64
) -> F64:
    """Return [D, V] the least sum of weights from the nearest source of each search to each node; infinite: there is no path.

    Args:
        ends: [L] and [L] the nodes that each link leaves and enters.
        weight: [L] 0 or more.
        n_nodes: V.
        sources: The nodes of each search, one or several.
    """
    out, dst, cost = IncidentLinks.of(column(ends[0], np.int64), n_nodes), column(ends[1], np.int64), column(weight, np.float64)
    found = np.full(len(sources) * n_nodes, np.inf)
    here: I64 = np.concatenate([row * n_nodes + column(of, np.int64) for row, of in enumerate(sources)])
    found[here] = 0
    while len(here):
        link, place = out.at(here % n_nodes)
        there = (here // n_nodes * n_nodes)[place] + dst[link]
        away = found[here][place] + cost[link]
        better = away < found[there]
        np.minimum.at(found, there[better], away[better])
        here = np.unique(there[better])
    return found.reshape(len(sources), n_nodes)
