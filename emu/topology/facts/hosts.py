"""The hosts (servers) of a topology, found from its links: which NPUs share one, and the bandwidths of both levels.

A port of an NPU is all its links of one dimension. A host is a set of NPUs that are still joined if every NPU keeps only its
fastest ports. The other ports are its NIC. If the fastest ports join all NPUs, and slower ones join some, then the fastest are
the network between hosts: a fabric whose uplinks are widened keeps its hosts. Letters: n nodes, L links.
"""

from dataclasses import dataclass, replace

import numpy as np

from emu.arrays import F64, I32, I64, Bool, column
from emu.equivalence import components
from emu.topology.topology import Topology, cached_by_topology

_AS_FAST = 1 - 1e-9  # share of the fastest port's rate from which a port counts as equally fast


@dataclass(frozen=True, eq=False, slots=True)
class Hosts:
    """The hosts of a topology: the host of each node, and the bandwidths out of it over its fastest and its other ports."""

    of: I64  # [n] host of each node
    within_Bps: F64  # [n] bandwidth out of a node over the ports that join its host
    between_Bps: F64  # [n] bandwidth out of a node over its other ports
    by_slower: bool = False  # whether ports that join a host are slower than those that join hosts


@cached_by_topology(1)
def hosts_of(topology: Topology) -> Hosts:
    """Return the hosts of a topology: the sets of NPUs that stay joined if each keeps only its fastest ports.

    Ports that join all NPUs are left out, the fastest first, if several hosts are found without them.
    """
    left = _ports(topology)
    found = first = _joined_by_fastest(topology, left)
    while not _apart(topology, found) and left[: topology.n_npus].any():
        found = _joined_by_fastest(topology, left)
        left = np.where(_fastest(left), 0.0, left)
    return replace(found, by_slower=found is not first) if _apart(topology, found) else first


def _apart(topology: Topology, hosts: Hosts) -> bool:
    """Return whether the NPUs are on several hosts, and each has a port within its own."""
    npus = slice(topology.n_npus)
    return bool(np.ptp(hosts.of[npus])) and bool(hosts.within_Bps[npus].all())


def _joined_by_fastest(topology: Topology, ports: F64) -> Hosts:
    """Return the sets of NPUs that stay joined over the fastest of the given ports.

    Args:
        topology: The topology.
        ports: [n, dimensions] the bandwidth of each port; 0 for those that are left out.
    """
    links, fast = topology.links, _fastest(ports)
    kept_links = _keeps(topology, links.src, fast) & _keeps(topology, links.dst, fast)
    host = components(topology.n_nodes, links.src[kept_links], links.dst[kept_links])
    within = np.where(fast, ports, 0).sum(axis=1)
    return Hosts(host, within, _ports(topology).sum(axis=1) - within)


def _fastest(ports: F64) -> Bool:
    """Return [n, dimensions] whether each port is as fast as the fastest of its node, and not left out."""
    fast: Bool = (ports >= _AS_FAST * ports.max(axis=1, keepdims=True)) & (ports > 0)
    return fast


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
