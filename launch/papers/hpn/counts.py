"""Rows of the HPN paper that count the links and nodes of built topologies; no bill of parts is used."""

import numpy as np

from emu.arrays import I64, Bool
from emu.topology.topology import Topology
from launch.papers.networks import build_once, npus

POD, SEGMENT, DCN, CORE = "hpn:pod", "hpn:segment", "hpn:dcn-plus", "hpn"
_BELOW = {"ToR": "NIC to ToR", "Agg": "ToR to Agg", "Core": "Agg to Core"}
_HOSTS, _GPUS = 289, 8  # more than 288 hosts (9.1), and the GPUs of a host


def nodes_of_kind(topology: Topology, kind: str) -> I64:
    """Return the numbers of the nodes of a kind: GPU, ToR, Agg or Core."""
    if kind == "GPU":
        return np.arange(topology.n_npus)
    links, tier = topology.links, topology.tiers.index(_BELOW[kind])
    return np.unique(np.maximum(links.src, links.dst)[links.dimension == tier]).astype(np.int64)


def links_between(topology: Topology, kind: str, to: str) -> Bool:
    """Return [links] whether a link leads from a node of a kind to a node of another kind."""
    ends = topology.links
    return np.isin(ends.src, nodes_of_kind(topology, kind)) & np.isin(ends.dst, nodes_of_kind(topology, to))


def _between(topology: Topology, node: int, to: I64) -> I64:
    """Return the numbers of the links from a node to the nodes `to`."""
    return np.flatnonzero((topology.links.src == node) & np.isin(topology.links.dst, to))


def links(word: str, kind: str, to: str, first: float = np.inf) -> int:
    """Return the number of links from the first node of a kind to nodes of another kind.

    Args:
        word: The topology.
        kind: The kind of the first node.
        to: The kind of the other nodes.
        first: The number of other nodes that count, from the first on; by default all.
    """
    topology = build_once(word)
    nodes = nodes_of_kind(topology, to)
    return len(_between(topology, int(nodes_of_kind(topology, kind)[0]), nodes[: int(min(first, len(nodes)))]))


def rate(word: str, kind: str, to: str) -> float:
    """Return the bytes per second of all links from the first node of a kind to the nodes of another."""
    topology = build_once(word)
    of = _between(topology, int(nodes_of_kind(topology, kind)[0]), nodes_of_kind(topology, to))
    return float(topology.links.bandwidth_Bps[of].sum())


def switches(word: str, kind: str) -> int:
    """Return the number of switches of a kind."""
    return len(nodes_of_kind(build_once(word), kind))


def segments(word: str, size: float) -> int:
    """Return the number of segments of a given size over which the hosts of a job are spread."""
    return len(np.unique(build_once(word).place(_HOSTS * _GPUS) // size))


def npus_if_down(word: str, ports: float) -> float:
    """Return the number of GPUs; 0 if an Agg has another number of ports down than given."""
    return float(npus(word) * (links(word, "Agg", "ToR") == ports))


def pod_npus(word: str) -> float:
    """Return the number of GPUs in a pod of a topology, which `word` names as in `hpn:dcn-plus`."""
    return npus(word) / build_once(word).dims[0]


def nvlink_rate(gigabytes: float) -> float:
    """Return the bandwidth in bytes per second that a built topology gives to NVLink, for a setting `nvlink` in GB/s."""
    return float(build_once(f"{SEGMENT}:nvlink={gigabytes:g}GB/s").links.bandwidth_Bps.max())


WORDS = (npus, links, rate, switches, segments, npus_if_down, pod_npus, nvlink_rate)
