"""What a topology carries by its own routes where all NPUs send to all others, each as much to each.

N NPUs, L links, P asked pairs.
"""

import numpy as np

from emu.arrays import F64, I64
from emu.errors import must_be
from emu.topology.parts.routing import mix
from emu.topology.topology import Topology

MOST = 2**13  # NPUs: 67 million pairs are asked in about a minute
_PAIRS, _ALL = 2**18, 2**24  # asked at a time; asked in all, by further ways of each pair
_WAYS = 4  # of a pair, at most
_CHANNELS = 64  # from which those of a pair are drawn


def exchanged(topology: Topology) -> float:
    """Bytes per second that each NPU sends at most, all of them at once, when no link carries more than it can.

    Each pair sends by up to four channels that a hash draws, so that ways of equal length are spread over.

    Raises:
        InputError: fewer than two NPUs, or more than 8,192; a pair that no route joins.
    """
    n = topology.n_npus
    if not 2 <= n <= MOST:
        raise must_be(topology.name, "NPUs of an all-to-all", f"2..{MOST}", n, "take a smaller size")
    ways = max(1, min(_WAYS, _ALL // (n * n)))
    taken = sum(
        (_taken(topology, sources, ways) for sources in np.array_split(np.arange(n), -(-n * n // _PAIRS))), _none(topology)
    )
    used = taken > 0
    return float((topology.links.bandwidth_Bps[used] / taken[used]).min() * (n - 1) * ways)


def _none(topology: Topology) -> F64:
    return np.zeros(len(topology.links))


def _taken(topology: Topology, sources: I64, ways: int) -> F64:
    """[L] how many messages of those sources cross each link."""
    src, dst = (grid.ravel() for grid in np.meshgrid(sources, np.arange(topology.n_npus), indexing="ij"))
    src, dst = src[src != dst], dst[src != dst]
    count = _none(topology)
    for way in range(ways):
        routes = topology.routes(src, dst, mix(src, dst, way) % _CHANNELS)
        count += np.bincount(routes.link, minlength=len(topology.links))
    return count
