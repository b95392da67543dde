"""The least time of a request on a topology, by any algorithm and in any placement.

The time is that of the bytes that a rank itself sends and receives, over all links of an NPU: no message leaves before both its
ends have entered, and a rank leaves when all its own messages are delivered. Each rank gives every slot of others that it adds
to, and gets every slot of others that it wants, at least once.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from emu.bound.limit import least_between_fs
from emu.dtypes import item_bytes
from emu.model.generate.item import Ask
from emu.model.plan.plan import Plan
from emu.study.training.composed.request_parts import goes_round
from emu.topology.topology import Topology
from emu.trace.matching.role_requests import MESSAGE
from emu.units import seconds


class RequestTime(NamedTuple):
    """The least time of a request, in seconds."""

    left_s: float  # until a message has left its sender
    there_s: float  # until all ranks have left a collective, or a message is delivered
    is_told: bool = True  # the time is final: no better one will be known


class Rates(NamedTuple):
    """The largest rates of an NPU of a topology, out and in, in bytes per second, and the least latency in seconds."""

    out: float
    into: float
    alpha_s: float = 0.0

    @staticmethod
    def of(topology: Topology) -> "Rates":
        """Return the rates of the NPU with the most links, and the least latency of a way out of an NPU and into one."""
        links = topology.links
        out, into = (np.bincount(node, links.bandwidth_Bps, topology.n_nodes) for node in (links.src, links.dst))
        n = topology.n_npus
        alpha_fs = int(least_between_fs(links.latency_fs, links.src < n, links.dst < n, default=0)) + topology.message_fs
        return Rates(float(out[:n].max()), float(into[:n].max()), seconds(alpha_fs))

    def least_s(self, operation: str, elements: int, item: int, ranks: int) -> float:
        """Return the least time of an operation for a rank, in seconds; the ranks share its elements evenly."""
        size, own = elements * item, -(-elements // ranks) * item
        cut = dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), size - own)
        moved = {**cut, "all_reduce": size}.get(operation, 0)
        return self.alpha_s + moved / max(self.out, self.into) if moved and ranks > 1 else 0.0

    def message(self, size: int) -> RequestTime:
        """Return the least time of a message."""
        return RequestTime(size / self.out, self.alpha_s + size / min(self.out, self.into))


@dataclass(frozen=True, eq=False)
class Requests:
    """The least times of the requests of a plan in any placement; those in one placement are a subclass."""

    rates: Rates
    plan: Plan

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Sizes of the plan's axes."""
        return self.plan.sizes

    def place_key(self, place: int) -> Hashable:
        """Return a key that is equal for places whose requests all take equally long; here all places have one."""
        return ()

    def axes_key(self, place: int, axes: tuple[str, ...]) -> Hashable:
        """Return a key that is equal where the requests of these axes take equally long."""
        return tuple(ranks_of(self.sizes, axis) for axis in axes)

    def collective(self, place: int, ask: Ask) -> RequestTime:
        """Return the least time of a request of all ranks at one place; a message goes to the next member of the group."""
        if ask.operation == MESSAGE or goes_round(ask.splits):
            return self.rates.message(ask.elements * item_bytes(ask.dtype))
        elements = 0 if ask.splits else ask.elements  # of blocks that differ a rank may have the largest itself
        took_s = self.rates.least_s(ask.operation, elements, item_bytes(ask.dtype), ranks_of(self.sizes, ask.axis))
        return RequestTime(0.0, took_s)

    def messages(self, to: int, size: int) -> Sequence[RequestTime]:
        """Return [P] the least times of messages from each place to the place that is `to` places after it."""
        return [self.rates.message(size)] * self.plan.pp


def ranks_of(sizes: Mapping[str, int], axis: str) -> int:
    """Return the number of ranks of a group of an axis; 1 for an axis that the plan does not have."""
    names = axis.split("+")
    return prod(sizes[name] for name in names) if set(names) <= set(sizes) else 1
