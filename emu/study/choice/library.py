"""Choosers that follow a library of collectives: they choose by its rules, whatever would be the fastest."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import AlgorithmOnDims as Served
from emu.collective.algorithm import Chooser, Request, algorithm
from emu.collective.libraries import LIBRARIES
from emu.collective.libraries import GroupNetwork as Around
from emu.collective.libraries import LibraryChoice as Pick
from emu.collective.operation import OPERATIONS
from emu.study.choice.requirement import item_bytes_of
from emu.topology.facts.hosts import hosts_of
from emu.topology.placement import order
from emu.topology.topology import Topology
from emu.topology.topology_cache import cached_by_topology as kept
from emu.trace.device.dtypes import timed_as


@dataclass(frozen=True, eq=False, slots=True)
class ChooserOnNpus(ABC):
    """A chooser for a run whose ranks are on NPUs; each group is chosen for as if it were alone. Call it with a request."""

    topology: Topology
    dtype: str  # what float32 is timed as
    asked: frozenset[str] = frozenset(OPERATIONS)  # OPERATION or AXIS.OPERATION that it chooses for
    otherwise: Chooser | None = None  # chooses for the others; None: nobody does
    npus: I64 | None = None  # [ranks] where they are; None: on the first NPUs, in their order

    def __call__(self, request: Request) -> Served | None:
        """Return what serves a request; None: what serves where none is named."""
        if not self.is_asked(request):
            return self.otherwise(request) if self.otherwise else None
        npus = order(self.topology) if self.npus is None else self.npus
        dtype = timed_as(request.dtype, self.dtype)
        return self.chosen(request._replace(ranks=tuple(npus[list(request.ranks)].tolist()), dtype=dtype, axis=""))

    def is_asked(self, request: Request) -> bool:
        """Return whether it chooses for a request itself."""
        return not self.asked.isdisjoint((request.operation, request.word))

    @abstractmethod
    def chosen(self, request: Request) -> Served | None:
        """Return what serves a request whose ranks are told as their NPUs, in the dtype in which it is timed."""


@dataclass(frozen=True, eq=False, slots=True)
class ByLibrary(ChooserOnNpus):
    """A chooser that takes what a library would."""

    name: str = ""

    def chosen(self, request: Request) -> Served | None:
        """Return what the library of that name takes; None: it says nothing of the operation."""
        size = request.elements * item_bytes_of(request.dtype)
        found = picked(self.name, self.topology, request.ranks, request.operation, size)
        return found.served if found else None


def picked(name: str, topology: Topology, npus: tuple[int, ...], operation: str, size: int) -> Pick | None:
    """Return what a library chooses for so many bytes of an operation of a group; None: the default serves.

    Raises:
        InputError: no such library, or it names an algorithm that there is not.
    """
    found = LIBRARIES.find(name)(operation, size, around(topology, npus))
    if found is not None:
        algorithm(operation, found.served.algorithm)
    return found


@kept(2**12)
def around(topology: Topology, npus: tuple[int, ...]) -> Around:
    """Return what a library sees of a group that is on these NPUs."""
    hosts, group = hosts_of(topology), np.array(npus)
    own = hosts.of[group]
    starts = np.flatnonzero(np.diff(own, prepend=-1))
    sizes, count = np.diff(np.append(starts, len(own))), len(np.unique(own))
    in_order = len(starts) == count and len(np.unique(sizes)) == 1
    within, between = (float(ports[group].min()) for ports in (hosts.within_Bps, hosts.between_Bps))
    return Around(len(npus), count, in_order, within, between, topology.adds, adds_between=False)
