"""Hops between ranks and switches that copy and add: such a switch takes part in trees, as a helper after all ranks.

A helper sits on a switch and has hops over its own links alone, as it is placed by these. Letters: N ranks, W switches,
H hops.
"""

from dataclasses import replace

import numpy as np

from emu.arrays import I64, Bool, column, ramps
from emu.synthesis.hops import HopNetwork, hops_among
from emu.topology.topology import Topology

_MOST = 2**18  # the largest number of pairs of ranks and switches whose routes are looked at


def adding_switches(topology: Topology) -> I64:
    """Return the switches that copy and add what is sent to them, ascending; none if software does not ask for it."""
    node = np.arange(topology.n_npus, topology.n_nodes)
    if not topology.adds:
        return node[:0]
    return node if topology.adders is None else node[topology.adders[node]]


def adding_hops(topology: Topology, npus: tuple[int, ...]) -> HopNetwork | None:
    """Return the hops between ranks and the switches that add; None if there is no such switch, or there are too many pairs.

    Args:
        topology: The topology.
        npus: [N] the NPU of each rank.
    """
    switches = adding_switches(topology)
    if not len(switches) or (len(npus) + len(switches)) ** 2 > _MOST:
        return None
    hops = replace(hops_among(topology, column((*npus, *switches.tolist()), np.int64)), helpers=len(switches))
    helps = (hops.src >= len(npus)) | (hops.dst >= len(npus))
    return _only(hops, ~helps | (np.diff(hops.start) == 1))


def with_used(hops: HopNetwork, used: Bool) -> tuple[HopNetwork, I64, I64]:
    """Return the hops between ranks and some switches, those near ranks first, as helpers are placed in this order.

    Args:
        hops: The hops.
        used: [N + W] whether a switch is used; ranks always are.

    Returns:
        The hops, [N + W] the new number of each rank and switch, and [H] the new number of each hop; -1 for what is left out.
    """
    n = hops.n_ranks - hops.helpers
    away = _tiers(hops, n)
    order = np.lexsort((np.arange(hops.n_ranks), away))
    order = order[used[order] | (order < n)]
    number = np.full(hops.n_ranks, -1)
    number[order] = np.arange(len(order))
    kept = (number[hops.src] >= 0) & (number[hops.dst] >= 0)
    fewer = _only(hops, kept)
    moved = replace(fewer, npus=hops.npus[order], src=number[fewer.src], dst=number[fewer.dst], helpers=len(order) - n)
    return moved, number, np.where(kept, np.cumsum(kept) - 1, -1)


def _only(hops: HopNetwork, kept: Bool) -> HopNetwork:
    """Return some of the hops."""
    width = np.diff(hops.start)[kept]
    link = hops.link[ramps(hops.start[:-1][kept], width)]
    start = np.concatenate(([0], np.cumsum(width)))
    columns = {name: getattr(hops, name)[kept] for name in ("src", "dst", "channel", "head_s")}
    return replace(hops, start=start, link=link, **columns)


def _tiers(hops: HopNetwork, n: int) -> I64:
    """Return [N + W] the number of hops between each switch and the nearest rank; 0 for a rank."""
    away = np.where(np.arange(hops.n_ranks) < n, 0, hops.n_ranks)
    for _ in range(hops.helpers):
        before = away.copy()
        np.minimum.at(away, hops.dst, before[hops.src] + 1)
        np.minimum.at(away, hops.src, before[hops.dst] + 1)
        if np.array_equal(away, before):
            break
    return column(away, np.int64)
