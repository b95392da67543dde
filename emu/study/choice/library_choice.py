"""The choice that a library of collectives makes for a group, by its own tuning."""

import numpy as np

from emu.collective.algorithm import algorithm
from emu.collective.libraries import LIBRARIES, GroupNetwork, LibraryChoice
from emu.topology.facts.hosts import host_grid, hosts_of
from emu.topology.topology import Topology, cached_by_topology


def library_choice(name: str, topology: Topology, npus: tuple[int, ...], operation: str, size: int) -> LibraryChoice | None:
    """Return the algorithm that a library (such as NCCL) uses for an operation of `size` bytes; None: the default.

    Raises:
        InputError: there is no such library, or no algorithm of the name that it gives.
    """
    found = LIBRARIES.find(name)(operation, size, group_network(topology, npus))
    if found is not None:
        algorithm(operation, found.served.algorithm)
    return found


@cached_by_topology(2**12)
def group_network(topology: Topology, npus: tuple[int, ...]) -> GroupNetwork:
    """Return the facts that a library sees of the network of a group on these NPUs."""
    hosts, group = hosts_of(topology), np.array(npus)
    count, in_order = len(np.unique(hosts.of[group])), bool(host_grid(topology, npus))
    within, between = (float(ports[group].min()) for ports in (hosts.within_Bps, hosts.between_Bps))
    return GroupNetwork(len(npus), count, in_order, within, between, topology.adds, adds_between=False)
