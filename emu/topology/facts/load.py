"""The rate at which all NPUs can send to all others at once, each as much to each, over the topology's own routes.

Letters: N NPUs, L links, P pairs.
"""

import numpy as np

from emu.arrays import F64, I64
from emu.errors import must_be
from emu.topology.builders.route_parts import mix
from emu.topology.topology import Topology

MOST = 2**13  # largest number of NPUs: 67 million pairs take about a minute
_PAIRS, _ALL = 2**18, 2**24  # pairs routed at one time; routes in all, where a pair has several
_WAYS = 4  # largest number of routes of a pair
_CHANNELS = 64  # channels from which those of a pair are drawn


def exchange_rate(topology: Topology) -> float:
    """Return the largest rate (B/s) at which each NPU can send, all at once, without any link over its bandwidth.

    Each pair sends on up to four channels that a hash draws, so that paths of equal length are used.

    Raises:
        InputError: There are fewer than two NPUs or more than 8,192, or no route joins a pair.
    """
    n = topology.n_npus
    if not 2 <= n <= MOST:
        raise must_be(topology.name, "NPUs of an all-to-all", f"2..{MOST}", n, "take a smaller size")
    ways = max(1, min(_WAYS, _ALL // (n * n)))
    taken = sum(
        (_link_load(topology, sources, ways) for sources in np.array_split(np.arange(n), -(-n * n // _PAIRS))),
        _no_load(topology),
    )
    used = taken > 0
    return float((topology.links.bandwidth_Bps[used] / taken[used]).min() * (n - 1) * ways)


def _no_load(topology: Topology) -> F64:
    """Return [L] zeros, the load of no messages."""
    return np.zeros(len(topology.links))


def _link_load(topology: Topology, sources: I64, ways: int) -> F64:
    """Return [L] the number of messages of these sources that cross each link."""
    src, dst = (grid.ravel() for grid in np.meshgrid(sources, np.arange(topology.n_npus), indexing="ij"))
    src, dst = src[src != dst], dst[src != dst]
    count = _no_load(topology)
    for way in range(ways):
        routes = topology.routes(src, dst, mix(src, dst, way) % _CHANNELS)
        count += np.bincount(routes.link, minlength=len(topology.links))
    return count
