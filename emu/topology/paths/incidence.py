"""The links that leave each node, or lead to it, found for many nodes at one time."""

from dataclasses import dataclass

import numpy as np

from emu.arrays import I64, column


@dataclass(frozen=True, eq=False, slots=True)
class IncidentLinks:
    """The links at each node, by one of their two ends."""

    order: I64  # [L] links, sorted by that end
    starts: I64  # [nodes + 1] where the links of each node begin in `order`

    @classmethod
    def of(cls, node: I64, n_nodes: int) -> "IncidentLinks":
        """Return the table of links whose end is `node` [L]."""
        order = np.argsort(node, kind="stable")
        starts = np.searchsorted(node[order], np.arange(n_nodes + 1))
        return cls(column(order, np.int64), column(starts, np.int64))

    def at(self, nodes: I64) -> tuple[I64, I64]:
        """Return every link at each of some nodes, and for each link the index of its node in `nodes`."""
        counts = self.starts[nodes + 1] - self.starts[nodes]
        ends = np.cumsum(counts)
        place = np.repeat(np.arange(len(nodes)), counts)
        within = np.arange(len(place)) - np.repeat(ends - counts, counts)
        return self.order[within + np.repeat(self.starts[nodes], counts)], place
