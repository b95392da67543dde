"""Orbits of links: links that the translations of a grid of all NPUs map onto one another.

If every rank sends at the same time what translations make of the sends of rank 0, all links of an orbit carry as much.
"""

from dataclasses import dataclass

import numpy as np

from emu.arrays import I64, Bool, column
from emu.collective.schedule import Translations
from emu.equivalence import orbits
from emu.topology.symmetry_search import LinkImages, switch_images
from emu.topology.topology import Topology, cached_by_topology


@dataclass(frozen=True, eq=False, slots=True)
class GridLinks:
    """A grid of all NPUs, and the orbits of links under its translations. Letter: L links."""

    dims: tuple[int, ...]
    orbit: I64  # [L]

    def is_along_axis(self, to: I64) -> Bool:
        """Return whether the way from rank 0 to each of the ranks `to` leads along one axis of the grid."""
        return np.asarray((np.stack(np.unravel_index(to, self.dims)) > 0).sum(axis=0) == 1)

    def reaches_all(self, to: I64) -> bool:
        """Return whether rank 0 reaches every rank by hops to the ranks `to` and their translations."""
        n, to = int(np.prod(self.dims)), np.unique(to)
        seen, moves, new = np.arange(n) == 0, Translations(self.dims, n, 1), np.zeros(1, np.int64)
        while len(new) and len(to):
            ahead = np.unique(moves.rank(new[:, None], to[None]))
            new = ahead[~seen[ahead]]
            seen[new] = True
        return bool(seen.all())


@cached_by_topology(1)
def grid_links(topology: Topology) -> GridLinks | None:
    """Return the grid of the topology's dims, or a ring, if its translations map links onto links; None if neither does."""
    n = topology.n_npus
    for dims in dict.fromkeys((tuple(d for d in topology.dims if d > 1) or (n,), (n,))):
        images = _link_images(topology, dims)
        if images is not None:
            return GridLinks(dims, orbits(len(topology.links), images))
    return None


def _link_images(topology: Topology, dims: tuple[int, ...]) -> list[I64] | None:
    """Return the image of every link under a step along each axis of a grid; None if one does not map links onto links."""
    links, found = topology.links, list[I64]()
    table = LinkImages.of(links, topology.n_nodes)
    for axis in range(len(dims)):
        npus = np.roll(np.arange(topology.n_npus).reshape(dims), -1, axis).ravel()
        node = switch_images((links.src, links.dst), links.bandwidth_Bps, npus, topology.n_nodes)
        image = table.links_by(column(node, np.int64))
        if image is None:
            return None
        found.append(image)
    return found
