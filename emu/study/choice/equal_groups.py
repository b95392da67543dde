"""Groups that a symmetry of the topology maps to one another: all are served like the first of them.

n nodes, S symmetries.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from emu.arrays import I64, column
from emu.fabric.job_symmetry import SymmetryPower as Power
from emu.fabric.job_symmetry import move
from emu.fabric.lowering.domain import SymmetryMove as Move
from emu.topology.facts.route_spread import routes_spread as spreads
from emu.topology.facts.route_spread import some_pairs
from emu.topology.topology import Topology
from emu.topology.topology_cache import cached_by_topology as kept


@lru_cache(maxsize=2**14)
def first_alike(topology: Topology, npus: tuple[int, ...]) -> tuple[int, ...]:
    """Return where a group comes when the declared symmetries bring its first NPU to the least that they can.

    It is not checked that they map routes to routes: all groups that come to one place are served alike. Where no symmetry is
    declared, the group itself comes back.
    """
    shifts = _shifts(topology)
    return tuple(shifts.back(np.array(npus)).tolist()) if shifts is not None else npus


def first_equal(topology: Topology, npus: I64) -> I64:
    """Return where NPUs come when symmetries bring the first to the least that they can: what runs there takes as long.

    A declared symmetry is used if it maps links to links of the same rate and latency, and routes of some pairs to routes.
    Without one, or where pairs take other ways by their key, the NPUs themselves come back.
    """
    shifts = _kept_shifts(topology)
    return shifts.back(npus.ravel()).reshape(npus.shape) if shifts is not None else npus


@kept(1)
def _kept_shifts(topology: Topology) -> "_Shifts | None":
    if topology.symmetry is None or spreads(topology):
        return None
    found = (move(topology, Power(which, 1, 0)) for which in range(len(topology.symmetry())))
    moves = [each for each in found if each is not None and _keeps_routes(topology, each)]
    return _Shifts.of([each.node for each in moves]) if moves else None


def _keeps_routes(topology: Topology, by: Move) -> bool:
    """Whether a symmetry maps routes to routes, as far as some pairs tell."""
    src, dst = some_pairs(topology)
    keys = np.zeros(len(src), np.int64)
    here, there = topology.routes(src, dst, keys), topology.routes(by.node[src], by.node[dst], keys)
    return np.array_equal(here.start, there.start) and np.array_equal(by.link[here.link], there.link)


@lru_cache(maxsize=16)
def _shifts(topology: Topology) -> "_Shifts | None":
    if topology.symmetry is None or topology.circuits is not None:
        return None
    declared = [column(node, np.int64) for node in topology.symmetry()]
    return _Shifts.of(declared) if declared else None  # the rails of a HyperX declare an empty list


@dataclass(frozen=True, eq=False, slots=True)
class _Shifts:
    """The number of times that each symmetry is applied to come to a node from the least of its orbit."""

    doubled: tuple[tuple[I64, ...], ...]  # [S][bits][n] each symmetry's inverse, applied 1, 2, 4, ... times
    times: I64  # [n, S]
    least: I64  # [n]

    @staticmethod
    def of(symmetries: list[I64]) -> "_Shifts":
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
        return _Shifts(tuple(map(_doubled, map(np.argsort, symmetries), bits)), times, least)

    def back(self, npus: I64) -> I64:
        """Return where all come when the first comes to the least of its orbit; as they are, if symmetries do not commute."""
        there = npus
        for doubled, times in zip(self.doubled, self.times[npus[0]].tolist(), strict=True):
            for bit, power in enumerate(doubled):
                there = power[there] if times >> bit & 1 else there
        return there if there[0] == self.least[npus[0]] else npus


def _doubled(permutation: I64, bits: int) -> tuple[I64, ...]:
    powers = [permutation]
    while len(powers) < bits:
        powers.append(powers[-1][powers[-1]])
    return tuple(powers)
