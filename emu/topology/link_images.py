"""The image of every link under a permutation of nodes.

Letter: L links.
"""

from dataclasses import dataclass

import numpy as np

from emu.arrays import I64, Bool
from emu.equivalence import turns
from emu.topology.topology import Links


@dataclass(frozen=True, eq=False, slots=True)
class LinkImages:
    """The tables that give the image of every link under a permutation of nodes."""

    links: Links
    order: I64  # [L] links sorted by (src, dst)
    ends: I64  # [L] (src, dst) as one number, in that order
    parallel: I64  # [L] the place of each link among links with equal ends

    @staticmethod
    def of(links: Links, n_nodes: int) -> "LinkImages":
        """Return the tables of some links."""
        ends = links.src.astype(np.int64) * n_nodes + links.dst
        order = np.argsort(ends, kind="stable")
        return LinkImages(links, order, ends[order], turns(ends))

    def links_by(self, node: I64) -> I64 | None:
        """Return the image of each link, which has the same bandwidth and latency; None where there is none.

        A link among parallel ones goes to the one in the same place.
        """
        ends = node[self.links.src] * len(node) + node[self.links.dst]
        at = np.minimum(np.searchsorted(self.ends, ends) + self.parallel, len(ends) - 1)
        if not np.array_equal(self.ends[at], ends):
            return None
        link = self.order[at]
        alike: Bool = np.array([np.array_equal(c[link], c) for c in (self.links.bandwidth_Bps, self.links.latency_fs)])
        return link if alike.all() else None
