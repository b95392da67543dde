"""Counts on built topologies: nodes of a kind, cables and bandwidths."""

from functools import cache

import numpy as np

from emu.arrays import I64, Bool
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology

GBPS = 1e9 / 8  # bytes per second


@cache
def build_once(word: str) -> Topology:
    """Return a built topology; each is built once."""
    return build_topology(word)


def is_of_tier(topology: Topology, word: str) -> Bool:
    """Return [L] whether a link is of the tier with this name."""
    return np.asarray(topology.links.dimension == topology.tiers.index(word))


def above(topology: Topology, tier: str) -> I64:
    """Return the switches at the upper end of a tier's links; upper nodes have higher numbers."""
    links, of = topology.links, is_of_tier(topology, tier)
    return np.unique(np.maximum(links.src[of], links.dst[of])).astype(np.int64)


def out_of(topology: Topology, node: int, to: I64) -> tuple[float, int]:
    """Return the bytes per second, and the number of links, from a node to some others."""
    chosen = (topology.links.src == node) & np.isin(topology.links.dst, to)
    return float(topology.links.bandwidth_Bps[chosen].sum()), int(chosen.sum())
