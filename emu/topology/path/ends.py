"""Which links leave each node, or lead to it: looked up for many nodes at a time."""

from dataclasses import dataclass

import numpy as np

from emu.arrays import I64, column


@dataclass(frozen=True, eq=False, slots=True)
class Ends:
    """The links at each node, by one of their ends."""

    order: I64  # [L]
    starts: I64  # [nodes + 1]

    @classmethod
    def of(cls, node: I64, n_nodes: int) -> "Ends":
        """The links whose end is `node` [L]."""
        order = np.argsort(node, kind="stable")
        starts = np.searchsorted(node[order], np.arange(n_nodes + 1))
        return cls(column(order, np.int64), column(starts, np.int64))

    def at(self, nodes: I64) -> tuple[I64, I64]:
        """Every link at each of some nodes, and the place of its node among them."""
        counts = self.starts[nodes + 1] - self.starts[nodes]
        ends = np.cumsum(counts)
        place = np.repeat(np.arange(len(nodes)), counts)
        within = np.arange(len(place)) - np.repeat(ends - counts, counts)
        return self.order[within + np.repeat(self.starts[nodes], counts)], place
