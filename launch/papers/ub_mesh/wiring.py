"""What the topologies of the UB-Mesh paper have when they are built: NPUs, switches, and lanes from one to another."""

from functools import cache

import numpy as np

from emu.arrays import I64, Bool
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology

RACK, POD, SUPERPOD, CLOS = "ub-mesh:rack-full", "ub-mesh:pod", "ub-mesh:superpod", "ub-mesh:clos"
_LANE = 14e9  # bytes per second: 112 Gb/s, as the topologies have it unless they are asked for another


@cache
def built(word: str) -> Topology:
    """Each is built once."""
    return build_topology(word)


def tier(topology: Topology, word: str) -> Bool:
    """[L] the links of the tiers whose names have a word."""
    return np.isin(topology.links.dimension, [i for i, name in enumerate(topology.tiers) if word in name])


def lanes(topology: Topology, of: Bool | slice = slice(None)) -> I64:
    """[nodes] out of each node, over some of the links."""
    links = topology.links
    out = np.bincount(links.src[of], links.bandwidth_Bps[of] / _LANE, topology.n_nodes)
    return np.rint(out).astype(np.int64)


def same(counts: I64) -> float:
    """What all are; the mean where they differ, which no exact row is."""
    return float(counts.mean())


def switches(topology: Topology) -> slice:
    """The nodes of LRS: those after the NPUs."""
    return slice(topology.n_npus, topology.n_npus + topology.bill["LRS"])


def lrs_of_npus(topology: Topology, per_plane: int, for_cpus: int = 2) -> I64:
    """[LRS] lanes out of those of each plane but its last, which CPUs take the rest of."""
    of = lanes(topology)[switches(topology)].reshape(-1, per_plane)
    return np.asarray(of[:, : per_plane - for_cpus].ravel())


def rack_lanes_to_hrs(topology: Topology) -> I64:
    """[racks] lanes that leave each rack for HRS."""
    racks, up = topology.bill["backup NPU"], tier(topology, "HRS")
    out = lanes(topology, up & (topology.links.src < switches(topology).stop))
    lrs = out[switches(topology)]
    return np.asarray(lrs.reshape(racks, -1).sum(1) + out[: topology.n_npus].reshape(racks, -1).sum(1))
