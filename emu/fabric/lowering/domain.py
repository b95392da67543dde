"""Which nodes and links stand for all that symmetries of a topology bring them to.

L links, O orbits.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.arrays import I64, column
from emu.topology.orbits import orbits

if TYPE_CHECKING:
    from emu.fabric.lowering.ways import Ways


class Move(NamedTuple):
    """Where one symmetry brings everything."""

    node: I64  # [n_nodes]
    link: I64  # [L]


class Orbits(NamedTuple):
    """What several permutations bring to one another, orbits numbered by their least."""

    number: I64  # of each its orbit
    first: I64  # [O] the least of each
    size: I64  # [O]

    @staticmethod
    def each(count: int) -> "Orbits":
        """Each of `count` things for itself."""
        every = np.arange(count)
        return Orbits(every, every, np.ones_like(every))

    @staticmethod
    def of(count: int, permutations: list[I64]) -> "Orbits":
        """Those of `count` things."""
        return Orbits.numbered(orbits(count, permutations))

    @staticmethod
    def numbered(number: I64) -> "Orbits":
        """Those of things that are numbered alike; the numbers are given anew."""
        _, first, again, size = np.unique(number, return_index=True, return_inverse=True, return_counts=True)
        return Orbits(column(again, np.int64), column(first, np.int64), column(size, np.int64))


@dataclass(frozen=True, eq=False, slots=True)
class Domain:
    """What stands for all of a job."""

    nodes: Orbits
    links: Orbits
    ways: "dict[object, Ways]" = field(default_factory=dict)  # of what has been tried on it, by what was laid

    @staticmethod
    def of(moves: tuple[Move, ...]) -> "Domain":
        """What is left of a job with one or more symmetries."""
        nodes, links = map(list, zip(*moves, strict=True))
        return Domain(Orbits.of(len(nodes[0]), nodes), Orbits.of(len(links[0]), links))
