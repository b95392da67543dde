"""Which nodes and links stand for all that symmetries of a topology bring them to.

L links.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from emu.arrays import I64
from emu.fabric.lowering.ways import Ways
from emu.topology.orbits import Orbits


class Move(NamedTuple):
    """Where one symmetry brings everything."""

    node: I64  # [n_nodes]
    link: I64  # [L]


@dataclass(frozen=True, eq=False, slots=True)
class Domain:
    """What stands for all of a job."""

    nodes: Orbits
    links: Orbits
    ways: dict[object, Ways] = field(default_factory=dict)  # of what has been tried on it, by what was laid

    @staticmethod
    def of(moves: tuple[Move, ...]) -> "Domain":
        """What is left of a job with one or more symmetries."""
        nodes, links = map(list, zip(*moves, strict=True))
        return Domain(Orbits.of(len(nodes[0]), nodes), Orbits.of(len(links[0]), links))
