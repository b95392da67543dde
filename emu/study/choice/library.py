"""Choosers that follow the rules of a library of collectives, even where another algorithm would be faster."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import AlgorithmOnDims, Chooser, Request, algorithm
from emu.collective.libraries import LIBRARIES, GroupNetwork, LibraryChoice
from emu.collective.operation import OPERATIONS
from emu.study.choice.site import item_bytes_of
from emu.topology.facts.hosts import hosts_of
from emu.topology.placement import order
from emu.topology.topology import Topology
from emu.topology.topology_cache import cached_by_topology
from emu.trace.device.dtypes import timed_as


@dataclass(frozen=True, eq=False, slots=True)
class ChooserOnNpus(ABC):
    """A chooser for a run whose ranks are on NPUs; it treats each group as if it were alone. It is called with a request."""

    topology: Topology
    dtype: str  # the dtype as which float32 is timed
    asked: frozenset[str] = frozenset(OPERATIONS)  # words OPERATION or AXIS.OPERATION that it chooses for
    otherwise: Chooser | None = None  # chooser of all other requests; None: the default
    npus: I64 | None = None  # [ranks] the NPU of each rank; None: the first NPUs in their order

    def __call__(self, request: Request) -> AlgorithmOnDims | None:
        """Return the algorithm for a request; None where the default serves it."""
        if not self.chooses_for(request):
            return self.otherwise(request) if self.otherwise else None
        npus = order(self.topology) if self.npus is None else self.npus
        dtype = timed_as(request.dtype, self.dtype)
        return self.algorithm_for(request._replace(ranks=tuple(npus[list(request.ranks)].tolist()), dtype=dtype, axis=""))

    def chooses_for(self, request: Request) -> bool:
        """Return whether this chooser itself chooses for a request."""
        return not self.asked.isdisjoint((request.operation, request.word))

    @abstractmethod
    def algorithm_for(self, request: Request) -> AlgorithmOnDims | None:
        """Return the algorithm for a request whose ranks are given as NPUs, in the dtype in which it is timed."""


@dataclass(frozen=True, eq=False, slots=True)
class LibraryChooser(ChooserOnNpus):
    """A chooser that takes the algorithm that a library would take."""

    name: str = ""

    def algorithm_for(self, request: Request) -> AlgorithmOnDims | None:
        """Return the algorithm that the library takes; None if the library has no rule for the operation."""
        size = request.elements * item_bytes_of(request.dtype)
        found = library_choice(self.name, self.topology, request.ranks, request.operation, size)
        return found.served if found else None


def library_choice(name: str, topology: Topology, npus: tuple[int, ...], operation: str, size: int) -> LibraryChoice | None:
    """Return what a library chooses for an operation of so many bytes on a group; None if the default serves.

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
    own = hosts.of[group]
    starts = np.flatnonzero(np.diff(own, prepend=-1))
    sizes, count = np.diff(np.append(starts, len(own))), len(np.unique(own))
    in_order = len(starts) == count and len(np.unique(sizes)) == 1
    within, between = (float(ports[group].min()) for ports in (hosts.within_Bps, hosts.between_Bps))
    return GroupNetwork(len(npus), count, in_order, within, between, topology.adds, adds_between=False)
