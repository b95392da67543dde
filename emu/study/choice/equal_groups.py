"""Groups that a symmetry of the topology maps to one another: all of them get the algorithm of one group.

n is the number of nodes, S the number of symmetries.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from emu.arrays import I64, column
from emu.fabric.job_symmetry import SymmetryPower, move
from emu.fabric.lowering.classes import SymmetryMove
from emu.topology.facts.facts import routes_spread, some_pairs
from emu.topology.topology import Topology
from emu.topology.topology_cache import cached_by_topology


@lru_cache(maxsize=2**14)
def canonical_group(topology: Topology, npus: tuple[int, ...]) -> tuple[int, ...]:
    """Return the group that stands for a group: its image when symmetries bring its first NPU to the least possible number.

    The declared symmetries are not checked against routes: all groups with one image get one algorithm. Where no symmetry is
    declared, the group itself is returned.
    """
    shifts = _shifts(topology)
    return tuple(shifts.to_orbit_start(np.array(npus)).tolist()) if shifts is not None else npus


def canonical_npus(topology: Topology, npus: I64) -> I64:
    """Return the image of NPUs when symmetries bring the first one to the least possible number; times there are equal.

    A declared symmetry is used if it maps links to links of equal rate and latency, and the routes of some pairs to routes. The
    NPUs themselves are returned where no symmetry is left, or where the routes of pairs depend on a key.
    """
    shifts = _route_shifts(topology)
    return shifts.to_orbit_start(npus.ravel()).reshape(npus.shape) if shifts is not None else npus


@cached_by_topology(1)
def _route_shifts(topology: Topology) -> "_Shifts | None":
    """Return the shifts of all symmetries that map routes to routes; None if there are none."""
    if topology.symmetry is None or routes_spread(topology):
        return None
    found = (move(topology, SymmetryPower(which, 1, 0)) for which in range(len(topology.symmetry())))
    moves = [each for each in found if each is not None and _keeps_routes(topology, each)]
    return _Shifts.of([each.node for each in moves]) if moves else None


def _keeps_routes(topology: Topology, by: SymmetryMove) -> bool:
    """Return whether a symmetry maps the routes of some pairs to routes."""
    src, dst = some_pairs(topology)
    keys = np.zeros(len(src), np.int64)
    here, there = topology.routes(src, dst, keys), topology.routes(by.node[src], by.node[dst], keys)
    return np.array_equal(here.start, there.start) and np.array_equal(by.link[here.link], there.link)


@lru_cache(maxsize=16)
def _shifts(topology: Topology) -> "_Shifts | None":
    """Return the shifts of all declared symmetries, without a check of routes; None if there are none."""
    if topology.symmetry is None or topology.circuits is not None:
        return None
    declared = [column(node, np.int64) for node in topology.symmetry()]
    return _Shifts.of(declared) if declared else None  # the rails of a HyperX declare an empty list


@dataclass(frozen=True, eq=False, slots=True)
class _Shifts:
    """The number of times that each symmetry is applied to go from the least node of an orbit to each of its nodes."""

    doubled: tuple[tuple[I64, ...], ...]  # [S][bits][n] each symmetry's inverse, applied 1, 2, 4, ... times
    times: I64  # [n, S]
    least: I64  # [n]

    @staticmethod
    def of(symmetries: list[I64]) -> "_Shifts":
        """Return the shifts of symmetries; each symmetry is the image of each node."""
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
        return _Shifts(tuple(map(_powers, map(np.argsort, symmetries), bits)), times, least)

    def to_orbit_start(self, npus: I64) -> I64:
        """Return NPUs moved so that the first is the least of its orbit; unmoved if the symmetries do not commute."""
        there = npus
        for doubled, times in zip(self.doubled, self.times[npus[0]].tolist(), strict=True):
            for bit, power in enumerate(doubled):
                there = power[there] if times >> bit & 1 else there
        return there if there[0] == self.least[npus[0]] else npus


def _powers(permutation: I64, bits: int) -> tuple[I64, ...]:
    """Return a permutation applied 1, 2, 4, ... times, as many as there are bits."""
    powers = [permutation]
    while len(powers) < bits:
        powers.append(powers[-1][powers[-1]])
    return tuple(powers)
