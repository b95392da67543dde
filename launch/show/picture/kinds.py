"""What a picture shows of the switches: how far each is from the NPUs, and what it is called."""

import re

import numpy as np

from emu.arrays import I64, column
from emu.topology.topology import Topology


def layers(topology: Topology) -> I64:
    """[nodes] links between each node and the nearest NPU, either way; those that nothing joins are one beyond all."""
    links, found = topology.links, np.full(topology.n_nodes, topology.n_nodes)
    found[: topology.n_npus] = 0
    for _ in range(topology.n_nodes):
        nearer = found.copy()
        np.minimum.at(nearer, links.src, found[links.dst] + 1)
        np.minimum.at(nearer, links.dst, found[links.src] + 1)
        if np.array_equal(nearer, found):
            break
        found = nearer
    joined = found < topology.n_nodes
    return column(np.where(joined, found, found[joined].max() + 1), np.int64)


def switch_names(topology: Topology) -> list[str]:
    """What each switch is called: `ToR` where the tier that joins it to the NPUs' side is `NIC to ToR`, else `switch`."""
    links, layer, n = topology.links, layers(topology), topology.n_npus
    tier = np.full(topology.n_nodes, len(topology.tiers))
    up = layer[links.src] < layer[links.dst]
    np.minimum.at(tier, links.dst[up], links.dimension[up])
    named = [_upper_end(name) for name in topology.tiers]
    return [named[t] if t < len(named) else "switch" for t in tier[n:]]


def _upper_end(tier: str) -> str:
    """`tier 2` of `tier 1 to 2`, `LRS` of `NPU to LRS x4`."""
    lower, to, upper = re.sub(r" x\d+$", "", tier).partition(" to ")
    if not to:
        return "switch"
    return re.sub(r"\d+$", "", lower) + upper if upper.isdigit() else upper
