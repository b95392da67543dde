"""The place of a group on a topology: the NPU of each rank, and the grid that they make."""

from dataclasses import dataclass
from itertools import pairwise

from emu.arrays import I32
from emu.collective.algorithm import Algorithm
from emu.collective.shape import Grid
from emu.collective.shape import PartialGrid as Part
from emu.topology.placement import order, place
from emu.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class Site:
    """The NPUs of a group's ranks, in their order."""

    topology: Topology
    npus: tuple[int, ...]
    grid: Grid = ()  # offered to the algorithms, in the order of the ranks; () = none
    only: bool = False  # whether an algorithm must be built on that grid

    @staticmethod
    def first(topology: Topology, n: int | None = None) -> "Site":
        """Return the site of the first n NPUs in the topology's own order, or of all that ranks can have.

        Raises:
            InputError: more ranks than that.
        """
        return Site.of(topology, tuple(place(topology, len(order(topology)) if n is None else n).tolist()))

    @staticmethod
    def of(topology: Topology, npus: tuple[int, ...]) -> "Site":
        """Return the site of some NPUs, with the topology's grid, or with their places on it where they are in its order."""
        if npus == tuple(range(topology.n_npus)):
            return Site(topology, npus, topology.dims)
        ascend = all(a < b for a, b in pairwise(npus)) and npus[-1:] < (topology.n_npus,)  # a backup has no place on the grid
        return Site(topology, npus, Part(topology.dims, npus) if ascend and len(topology.dims) > 1 else ())

    def placement(self) -> I32:
        """Return [N] the NPU of each rank.

        Raises:
            InputError: as `place`.
        """
        return place(self.topology, len(self.npus), self.npus)

    def takes(self, found: Algorithm) -> bool:
        """Return whether an algorithm can be built for these ranks."""
        if self.only:
            return found.takes(self.grid)
        return any(True for _ in found.shapes(len(self.npus))) or (isinstance(self.grid, Part) and found.takes(self.grid))
