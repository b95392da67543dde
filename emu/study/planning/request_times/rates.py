"""The largest rates at which NPUs send and receive, and the lower bounds of request times that follow from them.

A rate is that of a whole NPU, or of the ports by which the members of some groups reach one another (`ports`).
"""

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

import numpy as np

from emu.bound.limit import least_between_fs
from emu.topology.topology import Topology
from emu.units import seconds


class LeastTime(NamedTuple):
    """The least time of a request or message in seconds: until it has left, and until it is delivered."""

    left_s: float  # until a message has left its sender
    delivered_s: float  # until all ranks have left a collective, or a message is delivered
    is_final: bool = True  # False: a better bound can still be computed


class Rates(NamedTuple):
    """The largest rates of an NPU of a topology, out and in, in bytes per second, and the least latency in seconds."""

    out: float
    into: float
    alpha_s: float = 0.0

    @staticmethod
    def of(topology: Topology) -> "Rates":
        """Return the rates of the NPU with the most links, and the least latency out of an NPU and into one."""
        links = topology.links
        out, into = (np.bincount(node, links.bandwidth_Bps, topology.n_nodes) for node in (links.src, links.dst))
        n = topology.n_npus
        alpha_fs = int(least_between_fs(links.latency_fs, links.src < n, links.dst < n, default=0)) + topology.message_fs
        return Rates(float(out[:n].max()), float(into[:n].max()), seconds(alpha_fs))

    def least_s(self, operation: str, elements: int, item: int, ranks: int) -> float:
        """Return the least time of a collective for a rank, in seconds.

        Args:
            operation: The operation; one that is not known takes no time.
            elements: The elements of the whole input or output, of which each rank has an even share.
            item: The bytes of an element.
            ranks: The number of ranks of the group.
        """
        size, own = elements * item, -(-elements // ranks) * item
        cut = dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), size - own)
        moved = {**cut, "all_reduce": size}.get(operation, 0)
        return self.alpha_s + moved / max(self.out, self.into) if moved and ranks > 1 else 0.0

    def message(self, size: int) -> LeastTime:
        """Return the least time of a message of `size` bytes."""
        return LeastTime(size / self.out, self.alpha_s + size / min(self.out, self.into))


def ranks_of(sizes: Mapping[str, int], axis: str) -> int:
    """Return the number of ranks of a group of an axis, such as `tp` or `etp+ep`; 1 for an axis that the plan does not have."""
    names = axis.split("+")
    return prod(sizes[name] for name in names) if set(names) <= set(sizes) else 1
