"""The place of a group on a topology, the algorithms that fit there, the operation that one must serve, and the chosen one."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from emu.arrays import I32
from emu.collective.algorithm import ALGORITHMS, AUTO, Algorithm, AlgorithmOnDims, stored
from emu.collective.libraries import LIBRARIES
from emu.collective.schedule import RowsError
from emu.collective.shape import Grid, PartialGrid
from emu.errors import InputError
from emu.topology.placement import hubs, order, place
from emu.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class Site:
    """The NPUs of a group's ranks, in the order of the ranks, and the grid that they make."""

    topology: Topology
    npus: tuple[int, ...]
    grid: Grid = ()  # the grid of the ranks, in their order; () = none
    only: bool = False  # whether an algorithm must be built on that grid

    @staticmethod
    def first(topology: Topology, n: int | None = None) -> "Site":
        """Return the site of the first n NPUs in the topology's own order, or of all NPUs that can have ranks.

        Raises:
            InputError: n is more than the number of NPUs that can have ranks.
        """
        return Site.of(topology, tuple(place(topology, len(order(topology)) if n is None else n).tolist()))

    @staticmethod
    def of(topology: Topology, npus: tuple[int, ...]) -> "Site":
        """Return the site of some NPUs.

        The site has the topology's grid if it has all NPUs in their order, a part of the grid if the NPUs ascend, else none.
        """
        if npus == tuple(range(topology.n_npus)):
            return Site(topology, npus, topology.dims)
        ascend = all(a < b for a, b in pairwise(npus)) and npus[-1:] < (topology.n_npus,)  # a backup has no place on the grid
        return Site(topology, npus, PartialGrid(topology.dims, npus) if ascend and len(topology.dims) > 1 else ())

    def placement(self) -> I32:
        """Return [N] the NPU of each rank.

        Raises:
            InputError: the topology cannot have ranks there, as in `place`.
        """
        return place(self.topology, len(self.npus), self.npus)

    def takes(self, found: Algorithm) -> bool:
        """Return whether an algorithm can be built for these ranks."""
        if self.only:
            return found.takes(self.grid)
        return any(True for _ in found.shapes(len(self.npus))) or (
            isinstance(self.grid, PartialGrid) and found.takes(self.grid)
        )


def choosers() -> tuple[str, ...]:
    """Return the words that stand in place of an algorithm and choose one for each request: `auto` and the libraries."""
    return AUTO, *(name for name, _ in LIBRARIES)


def item_bytes_of(dtype: str) -> int:
    """Return the bytes of an element of a dtype; the digits in its name are its bits, and bool has one byte."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1


class Requirement(NamedTuple):
    """An operation on a number of elements of a size in bytes, of any dtype."""

    operation: str
    root: int  # the root of a rooted operation
    elements: int  # elements of the operation's size
    item_bytes: int
    send_overhead_fs: int = 0
    groups: int = 1  # groups that ask at once


class Selection(NamedTuple):
    """The algorithm that serves a requirement best, and the algorithms that were not tried."""

    served: AlgorithmOnDims
    passed: tuple[str, ...] = ()  # algorithms that have too many messages to be timed for a choice


def fitting_algorithms(operation: str, site: Site) -> list[Algorithm]:
    """Return the algorithms of an operation that fit the ranks of a site, without building a schedule.

    Algorithms that need a switch that adds are left out where no switch adds.

    Raises:
        InputError: no algorithm fits.
    """
    adds = site.topology.adds
    found = [a for _, a in ALGORITHMS if a.operation == operation and site.takes(a) and (adds or not a.needs_adding)]
    if not found:
        where = f"{len(site.npus)} ranks of {site.topology.name}"
        raise InputError(f"choice: no algorithm of {operation} fits {where}; take another number of ranks")
    return found


def candidates(operation: str, site: Site) -> list[Algorithm]:
    """Return the fitting algorithms whose schedule fits the memory, and whose switches the topology has.

    Raises:
        InputError: no algorithm fits, as in `fitting_algorithms`.
    """
    return [found for found in fitting_algorithms(operation, site) if _fits(found, site)]


def _fits(found: Algorithm, site: Site) -> bool:
    """Return whether the schedule of an algorithm fits the memory and the topology has the switches that it needs."""
    try:
        return has_helpers(stored(found.operation, found.name, len(site.npus), 0, site.grid).helpers, site)
    except RowsError:
        return False


def has_helpers(helpers: int, site: Site) -> bool:
    """Return whether all ranks of a site reach this number of switches that add; true for 0 switches."""
    if not helpers:
        return True
    return site.topology.adds and len(hubs(site.topology, site.placement(), helpers)) == helpers
