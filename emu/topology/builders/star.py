"""NPUs round one switch that is never the bottleneck: link i goes up from NPU i, link n + i goes down to it."""

from functools import partial

import numpy as np

from emu.arrays import I64, column
from emu.topology.topology import Links, Routes, Topology, check_link_count


def star(name: str, n_npus: int, bandwidth_Bps: float, latency_fs: int) -> Topology:
    """Return the topology of `n_npus` NPUs and one switch, node `n_npus`; a route from NPU to NPU has two links.

    Raises:
        InputError: There is no NPU, there are more than 2**24 links, or links have no bandwidth.
    """
    check_link_count(name, 2 * n_npus)
    npus = np.arange(n_npus)
    hub = np.full(len(npus), n_npus)
    links = Links(
        column(np.concatenate((npus, hub)), np.int32),
        column(np.concatenate((hub, npus)), np.int32),
        column(np.full(2 * len(npus), bandwidth_Bps), np.float64),
        column(np.full(2 * len(npus), latency_fs), np.int64),
        column(np.zeros(2 * len(npus)), np.int16),
    )
    bill = {"NPU": n_npus, "switch": 1, "cable": n_npus}
    return Topology(name, n_npus, n_npus + 1, links, partial(_route, n_npus), bill=bill, symmetry=partial(_turn, n_npus))


def _turn(n_npus: int) -> tuple[I64]:
    """Return the symmetry that maps each NPU to the next; any permutation of the NPUs is a symmetry."""
    return (column([*range(1, n_npus), 0, n_npus], np.int64),)


def _route(n_npus: int, src: I64, dst: I64, key: I64) -> Routes:
    """Return the routes of pairs: the link up to the switch, and the link down from it; the switch itself may be an end."""
    up, down = (src < n_npus) & (src != dst), (dst < n_npus) & (src != dst)
    if up.all() and down.all():
        both = np.stack((src, n_npus + dst), axis=1).ravel()
        return Routes(column(np.arange(0, len(both) + 1, 2), np.int64), column(both, np.int32))
    start = np.concatenate(([0], np.cumsum(up.astype(np.int64) + down)))
    link = np.empty(start[-1], np.int32)
    link[start[:-1][up]] = src[up]
    link[start[1:][down] - 1] = n_npus + dst[down]
    return Routes(column(start, np.int64), column(link, np.int32))
