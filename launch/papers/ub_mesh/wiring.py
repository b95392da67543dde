"""The NPUs, switches and lanes of the UB-Mesh paper's built topologies."""

from functools import cache

import numpy as np

from emu.arrays import I64, Bool
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology

RACK, POD, SUPERPOD, CLOS = "ub-mesh:rack-full", "ub-mesh:pod", "ub-mesh:superpod", "ub-mesh:clos"
_LANE = 14e9  # bytes per second of a lane: 112 Gb/s, the topologies' default


@cache
def build_once(word: str) -> Topology:
    """Return a built topology; each is built once."""
    return build_topology(word)


def tier(topology: Topology, word: str) -> Bool:
    """Return [L] whether a link is of a tier whose name has this word."""
    return np.isin(topology.links.dimension, [i for i, name in enumerate(topology.tiers) if word in name])


def lanes(topology: Topology, of: Bool | slice = slice(None)) -> I64:
    """Return [nodes] the lanes out of each node over some of the links."""
    links = topology.links
    out = np.bincount(links.src[of], links.bandwidth_Bps[of] / _LANE, topology.n_nodes)
    return np.rint(out).astype(np.int64)


def mean_count(counts: I64) -> float:
    """Return the mean of counts that should be equal; where they differ it is no whole number and no exact row is met."""
    return float(counts.mean())


def switches(topology: Topology) -> slice:
    """Return the nodes of LRS, which follow the NPUs."""
    return slice(topology.n_npus, topology.n_npus + topology.bill["LRS"])


def lrs_of_npus(topology: Topology, per_plane: int, for_cpus: int = 2) -> I64:
    """Return [LRS] the lanes out of the LRS of each plane, without those LRS that serve CPUs.

    Args:
        topology: The topology.
        per_plane: The LRS of a plane.
        for_cpus: The LRS of a plane that serve CPUs, which are its last.
    """
    of = lanes(topology)[switches(topology)].reshape(-1, per_plane)
    return np.asarray(of[:, : per_plane - for_cpus].ravel())


def rack_lanes_to_hrs(topology: Topology) -> I64:
    """Return [racks] the lanes from each rack to HRS."""
    racks, up = topology.bill["backup NPU"], tier(topology, "HRS")
    out = lanes(topology, up & (topology.links.src < switches(topology).stop))
    lrs = out[switches(topology)]
    return np.asarray(lrs.reshape(racks, -1).sum(1) + out[: topology.n_npus].reshape(racks, -1).sum(1))
