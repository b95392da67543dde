"""The domain of a job with symmetries: the nodes and links that stand for all that the symmetries map them to.

Letter: L links.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from emu.arrays import I64
from emu.fabric.lowering.message_routes import MessageRoutes
from emu.topology.orbits import Orbits


class SymmetryMove(NamedTuple):
    """One symmetry, as a permutation of nodes and of links."""

    node: I64  # [n_nodes] image of each node
    link: I64  # [L] image of each link


@dataclass(frozen=True, eq=False, slots=True)
class Domain:
    """The orbits of nodes and links of a job under its symmetries; one of each orbit stands for all."""

    nodes: Orbits
    links: Orbits
    ways: dict[object, MessageRoutes] = field(default_factory=dict)  # routes of each placed schedule that was tested

    @staticmethod
    def of(moves: tuple[SymmetryMove, ...]) -> "Domain":
        """Return the domain of one or more symmetries."""
        nodes, links = map(list, zip(*moves, strict=True))
        return Domain(Orbits.of(len(nodes[0]), nodes), Orbits.of(len(links[0]), links))
