"""The kinds of switches in a picture: the distance of each switch from the NPUs, and its name."""

import re

import numpy as np

from emu.arrays import I64, column
from emu.topology.topology import Topology


def layers(topology: Topology) -> I64:
    """Return [nodes] the links between each node and the nearest NPU, in either direction.

    A node that no link joins is one layer above all others.
    """
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
    """Return the name of the kind of each switch.

    The name is `ToR` where the tier that joins the switch to the NPUs' side is called `NIC to ToR`. Without tiers it is
    `switch`.
    """
    links, layer, n = topology.links, layers(topology), topology.n_npus
    tier = np.full(topology.n_nodes, len(topology.tiers))
    up = layer[links.src] < layer[links.dst]
    np.minimum.at(tier, links.dst[up], links.dimension[up])
    named = [_upper_end(name) for name in topology.tiers]
    return [named[t] if t < len(named) else "switch" for t in tier[n:]]


def _upper_end(tier: str) -> str:
    """Return the upper end of a tier's name: `tier 2` of `tier 1 to 2`, `LRS` of `NPU to LRS x4`."""
    lower, to, upper = re.sub(r" x\d+$", "", tier).partition(" to ")
    if not to:
        return "switch"
    return re.sub(r"\d+$", "", lower) + upper if upper.isdigit() else upper
