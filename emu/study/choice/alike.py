"""Groups that a topology's symmetry brings to one another are served alike: each is asked about as the first of its kind.

n nodes, S symmetries.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from emu.arrays import I64, column
from emu.topology.topology import Topology


@lru_cache(maxsize=2**14)
def first_alike(topology: Topology, npus: tuple[int, ...]) -> tuple[int, ...]:
    """Where a group comes when its first NPU is brought to the least that the declared symmetries bring it to.

    That they bring routes to routes is not asked: whatever they bring a group to, all groups that they bring there are served
    alike. The group itself, where none is declared.
    """
    shifts = _shifts(topology)
    return shifts.back(npus) if shifts is not None else npus


@lru_cache(maxsize=16)
def _shifts(topology: Topology) -> "_Shifts | None":
    if topology.symmetry is None or topology.circuits is not None:
        return None
    return _Shifts.of([column(node, np.int64) for node in topology.symmetry()])


@dataclass(frozen=True, eq=False, slots=True)
class _Shifts:
    """How often each symmetry is applied to come to a node from the least of its orbit."""

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

    def back(self, npus: tuple[int, ...]) -> tuple[int, ...]:
        """Where all come that brings the first to the least of its orbit; as they are, if symmetries do not commute."""
        there = np.array(npus)
        for doubled, times in zip(self.doubled, self.times[npus[0]].tolist(), strict=True):
            for bit, power in enumerate(doubled):
                there = power[there] if times >> bit & 1 else there
        return tuple(there.tolist()) if there[0] == self.least[npus[0]] else npus


def _doubled(permutation: I64, bits: int) -> tuple[I64, ...]:
    powers = [permutation]
    while len(powers) < bits:
        powers.append(powers[-1][powers[-1]])
    return tuple(powers)
