"""The site of a group on a topology, the algorithms that fit there, and the requirement that one of them must serve.

Groups that a symmetry of the topology maps onto one another get the same algorithm. Letters: n nodes, S symmetries.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64, column
from emu.collective.algorithm import ALGORITHMS, Algorithm, compact_schedule
from emu.collective.choice import AlgorithmOnDims
from emu.collective.chooser_names import OWN_CHOOSERS
from emu.collective.libraries import LIBRARIES
from emu.collective.operation import operation
from emu.collective.schedule import RowsError, Schedule
from emu.collective.shape import Grid, PartialGrid, Shape
from emu.errors import InputError
from emu.fabric.job_symmetry import SymmetryPower, image_of
from emu.study.timing import CollectiveJob, time_bound
from emu.topology.facts.facts import routes_spread, some_pairs
from emu.topology.facts.hosts import host_grid, hosts_of
from emu.topology.placement import hubs, npu_order, place
from emu.topology.symmetry_search import keeps_routes
from emu.topology.topology import Topology, cached_by_topology

_LARGE = 2**30  # bytes of a collective at which the shapes of an algorithm are compared


@lru_cache(maxsize=2**14)
def canonical_group(topology: Topology, npus: tuple[int, ...]) -> tuple[int, ...]:
    """Return the representative of a group: its image whose first NPU has the lowest number, under declared symmetries.

    The declared symmetries are not checked against routes: all groups with one image get one algorithm. Where no symmetry is
    declared, the group itself is returned.
    """
    shifts = _shifts(topology)
    return tuple(shifts(np.array(npus)).tolist()) if shifts is not None else npus


def canonical_npus(topology: Topology, npus: I64) -> I64:
    """Return equivalent NPUs, which a symmetry of the topology maps the NPUs to; the first one gets the lowest possible number.

    A declared symmetry is used if it maps links to links of equal rate and latency, and the routes of some pairs to routes. The
    NPUs themselves are returned where no symmetry is left, or where the routes of pairs depend on a key.
    """
    shifts = _route_shifts(topology)
    return shifts(npus.ravel()).reshape(npus.shape) if shifts is not None else npus


@cached_by_topology(1)
def _route_shifts(topology: Topology) -> Callable[[I64], I64] | None:
    """Return the function that moves NPUs by all symmetries that keep routes; None if there are no such symmetries."""
    if topology.symmetry is None or routes_spread(topology):
        return None
    found = (image_of(topology, SymmetryPower(which, 1, 0)) for which in range(len(topology.symmetry())))
    pairs = some_pairs(topology)
    moves = [each[0] for each in found if each is not None and keeps_routes(topology, *each, pairs)]
    return _shifts_of(moves) if moves else None


@lru_cache(maxsize=16)
def _shifts(topology: Topology) -> Callable[[I64], I64] | None:
    """Return the function that moves NPUs by all declared symmetries, without a check of routes; None if there are none."""
    if topology.symmetry is None or topology.circuits is not None:
        return None
    declared = [column(node, np.int64) for node in topology.symmetry()]
    return _shifts_of(declared) if declared else None  # the rails of a HyperX declare an empty list


def _shifts_of(symmetries: list[I64]) -> Callable[[I64], I64]:
    """Return a function that moves NPUs by symmetries so that the first NPU gets the lowest number of its orbit.

    If the symmetries do not commute, the function moves nothing. Each symmetry is the image [n] of each node. To go from the
    least node of an orbit to a node, each of them is applied a number of times; for the way back its inverse is, by its powers
    of 1, 2, 4, ...
    """
    n = len(symmetries[0])
    times, least = np.zeros((n, len(symmetries)), np.int64), np.full(n, -1)
    for first in range(n):
        if least[first] >= 0:
            continue
        least[first], found = first, [first]
        for node in found:
            for s, symmetry in enumerate(symmetries):
                image = int(symmetry[node])
                if least[image] < 0:
                    least[image], times[image] = first, times[node]
                    times[image, s] += 1
                    found.append(image)
    bits = [int(most).bit_length() for most in times.max(axis=0)]
    doubled = list(map(_powers, map(np.argsort, symmetries), bits))

    def to_orbit_start(npus: I64) -> I64:
        there = npus
        for powers, of in zip(doubled, times[npus[0]].tolist(), strict=True):
            for bit, power in enumerate(powers):
                there = power[there] if of >> bit & 1 else there
        return there if there[0] == least[npus[0]] else npus

    return to_orbit_start


def _powers(permutation: I64, bits: int) -> tuple[I64, ...]:
    """Return the powers 1, 2, 4, ... of a permutation, one for each of `bits` bits."""
    powers = [permutation]
    while len(powers) < bits:
        powers.append(powers[-1][powers[-1]])
    return tuple(powers)


@dataclass(frozen=True, slots=True)
class Site:
    """The NPUs of a group's ranks, in the order of the ranks, and the grid that they make."""

    topology: Topology
    npus: tuple[int, ...]
    grid: Grid = ()  # the grid of the ranks, in their order; () = none
    only: bool = False  # whether an algorithm must be built on that grid

    @staticmethod
    def first(topology: Topology, n: int | None = None) -> "Site":
        """Return the site of the first n NPUs in the topology's order of placement; None: of all NPUs.

        Raises:
            InputError: n is more than the number of NPUs that can have ranks.
        """
        return Site.of(topology, tuple(place(topology, len(npu_order(topology)) if n is None else n).tolist()))

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

    def dims_for(self, found: Algorithm) -> Grid:
        """Return the grid on which an algorithm is built here: the site's if it takes it, else hosts x NPUs of a host.

        An algorithm that takes neither has its best shape: if that is a number of ranks, the grid is (). Where hosts are joined
        by faster links than their NPUs, its best shape may leave the busiest link less to carry than hosts do; then it has it.

        Raises:
            InputError: The algorithm does not take that many ranks.
        """
        return _dims_for(self, found)

    def takes(self, found: Algorithm) -> bool:
        """Return whether an algorithm can be built for the ranks of this site."""
        if self.only:
            return found.takes(self.grid)
        return any(True for _ in found.shapes(len(self.npus))) or (
            isinstance(self.grid, PartialGrid) and found.takes(self.grid)
        )


@lru_cache(maxsize=2**14)
def _dims_for(site: Site, found: Algorithm) -> Grid:
    """Return `Site.dims_for`, cached: to list the shapes of many ranks takes long."""
    if site.only:
        return _dims(found.fit(len(site.npus), site.grid))
    on_hosts = _dims(found.fit(len(site.npus), site.grid, host_grid(site.topology, site.npus)))
    if not hosts_of(site.topology).by_slower:
        return on_hosts
    shapes = dict.fromkeys((on_hosts, _dims(found.fit(len(site.npus), site.grid))))
    return min(shapes, key=lambda dims: _busiest_fs(site, found, dims)) if len(shapes) > 1 else on_hosts


def _dims(shape: Shape) -> Grid:
    """Return a shape as a grid; () for a number of ranks."""
    return () if isinstance(shape, int) else shape


def _busiest_fs(site: Site, found: Algorithm, dims: Grid) -> float:
    """Return the ticks of the busiest link with an algorithm on a grid, for a size at which bytes take most of the time."""
    n = len(site.npus)
    try:
        plan = compact_schedule(found.operation, found.name, n, 0, dims)
        job = CollectiveJob(operation(found.operation, n), plan, _LARGE, 1, site.topology, site.placement())
        return (time_bound(job).busiest_fs or np.inf) if has_helpers(plan, site) else np.inf
    except RowsError:
        return np.inf


def choosers() -> tuple[str, ...]:
    """Return the values that may replace an algorithm's name: those of `OWN_CHOOSERS` and the names of libraries."""
    return *OWN_CHOOSERS, *(name for name, _ in LIBRARIES)


def item_bytes_of(dtype: str) -> int:
    """Return the bytes of an element of a dtype; the digits in its name are its bits, and bool has one byte."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1


class Requirement(NamedTuple):
    """An operation that a group needs, with its size in elements and the bytes of an element, whatever the dtype is."""

    operation: str
    root: int  # the root of a rooted operation
    elements: int  # elements of the operation's size
    item_bytes: int
    send_overhead_fs: int = 0
    groups: int = 1  # groups that ask at once


class Selection(NamedTuple):
    """The algorithm that serves a requirement best, and the algorithms that were not tried."""

    served: AlgorithmOnDims
    skipped: tuple[str, ...] = ()  # algorithms that have too many messages to be timed for a choice


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
    """Return whether a site can run an algorithm: its schedule fits the memory, and there are enough adding switches."""
    try:
        grid = site.dims_for(found)
        return has_helpers(compact_schedule(found.operation, found.name, len(site.npus), 0, grid), site)
    except RowsError:
        return False


def has_helpers(schedule: Schedule, site: Site) -> bool:
    """Return whether there are switches that add for all helpers of a schedule; True if it has none."""
    if not schedule.helpers:
        return True
    return site.topology.adds and len(hubs(site.topology, site.placement(), schedule.helped)) == schedule.helpers
