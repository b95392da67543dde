"""The hosts (servers) of a topology, found from its links: which NPUs share one, and the bandwidths of both levels.

A port of an NPU is all its links of one dimension. A host is a set of NPUs that are still joined if every NPU keeps only its
fastest ports. The other ports are its NIC. Letters: n nodes, L links.
"""

from dataclasses import dataclass

import numpy as np

from emu.arrays import F64, I32, I64, Bool, column
from emu.equivalence import components
from emu.topology.topology import Topology, cached_by_topology

_AS_FAST = 1 - 1e-9  # share of the fastest port's rate from which a port counts as equally fast


@dataclass(frozen=True, eq=False, slots=True)
class Hosts:
    """The hosts of a topology: the host of each node, and the bandwidths out of it over its fastest and its other ports."""

    of: I64  # [n] host of each node
    within_Bps: F64  # [n] bandwidth out of a node over its fastest ports
    between_Bps: F64  # [n] bandwidth out of a node over its other ports


@cached_by_topology(1)
def hosts_of(topology: Topology) -> Hosts:
    """Return the hosts of a topology: the sets of NPUs that stay joined if each keeps only its fastest ports."""
    links, n = topology.links, topology.n_nodes
    ports = _ports(topology)
    fast = ports >= _AS_FAST * ports.max(axis=1, keepdims=True)
    kept_links = _keeps(topology, links.src, fast) & _keeps(topology, links.dst, fast)
    host = components(n, links.src[kept_links], links.dst[kept_links])
    within = np.where(fast, ports, 0).sum(axis=1)
    return Hosts(host, within, ports.sum(axis=1) - within)


@cached_by_topology(2**12)
def host_grid(topology: Topology, npus: tuple[int, ...]) -> tuple[int, int] | tuple[()]:
    """Return (hosts, NPUs of a host) of some NPUs; () unless they come host by host, and each host has as many of them."""
    own = hosts_of(topology).of[np.array(npus)]
    starts = np.flatnonzero(np.diff(own, prepend=-1))
    sizes = np.diff(np.append(starts, len(own)))
    alike = len(starts) == len(np.unique(own)) and len(np.unique(sizes)) == 1
    return (len(starts), int(sizes[0])) if alike else ()


def _ports(topology: Topology) -> F64:
    """Return [n, dimensions] the bytes per second out of each node over each dimension, at the rate of the wires."""
    links = topology.links
    shares = np.array(topology.shares or (1.0,))
    wire = links.bandwidth_Bps / shares[np.minimum(links.dimension, len(shares) - 1)]
    dimensions = int(links.dimension.max(initial=0)) + 1
    cell = links.src.astype(np.int64) * dimensions + links.dimension
    return column(np.bincount(cell, wire, topology.n_nodes * dimensions), np.float64).reshape(-1, dimensions)


def _keeps(topology: Topology, end: I32, fast: Bool) -> Bool:
    """Return [L] whether the end of a link is a switch or a fast port of an NPU."""
    return column((end >= topology.n_npus) | fast[end, topology.links.dimension], np.bool_)
