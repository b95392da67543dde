"""What a library would choose for each request of a run on a topology: by its own rules, whatever would be the fastest."""

from dataclasses import dataclass

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import Chooser, Request, Served, algorithm
from emu.collective.library import LIBRARIES, Around, Pick
from emu.collective.operation import OPERATIONS
from emu.study.choice.wanted import item_bytes_of
from emu.topology.facts.hosts import hosts_of
from emu.topology.kept import kept
from emu.topology.placement import order
from emu.topology.topology import Topology
from emu.trace.device.dtypes import timed_as


@dataclass(frozen=True, eq=False, slots=True)
class ByLibrary:
    """Chooses for a run with its ranks on NPUs as the library of that name would; call it with a request."""

    name: str
    topology: Topology
    dtype: str  # what float32 is timed as
    asked: frozenset[str] = frozenset(OPERATIONS)  # OPERATION or AXIS.OPERATION that it chooses for
    otherwise: Chooser | None = None  # chooses for the others; None: nobody does
    npus: I64 | None = None  # [ranks] where they are; None: on the first NPUs, in their order

    def __call__(self, request: Request) -> Served | None:
        """What serves it; None: what serves where none is named."""
        if self.asked.isdisjoint((request.operation, request.word)):
            return self.otherwise(request) if self.otherwise else None
        npus = order(self.topology) if self.npus is None else self.npus
        size = request.elements * item_bytes_of(timed_as(request.dtype, self.dtype))
        found = picked(self.name, self.topology, tuple(npus[list(request.ranks)].tolist()), request.operation, size)
        return found.served if found else None


def picked(name: str, topology: Topology, npus: tuple[int, ...], operation: str, size: int) -> Pick | None:
    """What a library chooses for a size in bytes of an operation of a group; None: what serves where none is named.

    Raises:
        InputError: no such library, or it names an algorithm that there is not.
    """
    found = LIBRARIES.find(name)(operation, size, around(topology, npus))
    if found is not None:
        algorithm(operation, found.served.algorithm)
    return found


@kept(2**12)
def around(topology: Topology, npus: tuple[int, ...]) -> Around:
    """What a library sees of a group that is on these NPUs."""
    hosts, group = hosts_of(topology), np.array(npus)
    own = hosts.of[group]
    starts = np.flatnonzero(np.diff(own, prepend=-1))
    sizes, count = np.diff(np.append(starts, len(own))), len(np.unique(own))
    in_order = len(starts) == count and len(np.unique(sizes)) == 1
    within, between = (float(ports[group].min()) for ports in (hosts.within_Bps, hosts.between_Bps))
    return Around(len(npus), count, in_order, within, between, topology.adds, adds_between=False)
