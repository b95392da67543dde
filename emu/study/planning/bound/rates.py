"""What a request takes at least on a topology, whatever serves it and wherever its ranks are.

It takes a rank what the rank itself sends and receives of it, over all links of an NPU: no message leaves before both its ends
have entered, and a rank leaves once all that it sends and gets is through. Each rank gives every slot of others that it adds
to, and gets every slot of others that it wants, once at least.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple, Protocol

import numpy as np

from emu.dtypes import item_bytes
from emu.model.generate.item import Ask
from emu.model.plan.plan import Plan
from emu.study.training.composed.request_parts import goes_round
from emu.topology.topology import Topology
from emu.trace.matching.role_requests import MESSAGE
from emu.units import seconds


class Taken(NamedTuple):
    """What a request takes, seconds."""

    left_s: float  # until a message has left its sender
    there_s: float  # until all ranks have left a collective, or a message is delivered
    is_told: bool = True  # whether nothing more will be known of it


class Requests(Protocol):
    """What the requests of one plan take at least, in one placement or in any."""

    def alike(self, place: int) -> Hashable:
        """Equal for places whose requests all take as long."""

    def of(self, place: int, axes: tuple[str, ...]) -> Hashable:
        """Equal where the requests of these axes take as long."""

    def collective(self, place: int, ask: Ask) -> Taken:
        """Of all ranks that ask at one place; a message goes from each to the next of its group."""

    def messages(self, to: int, size: int) -> Sequence[Taken]:
        """[P] of so many bytes from each rank of a place to its own of another, so many further."""


class Rates(NamedTuple):
    """What no NPU of a topology sends or receives faster, bytes per second; and what each message takes besides, seconds."""

    out: float
    into: float
    alpha_s: float = 0.0

    @staticmethod
    def of(topology: Topology) -> "Rates":
        """All links of the NPU that has most, and the least latency of a way out of an NPU and into one."""
        links = topology.links
        out, into = (np.bincount(node, links.bandwidth_Bps, topology.n_nodes) for node in (links.src, links.dst))
        leaves, comes = links.src < topology.n_npus, links.dst < topology.n_npus
        direct, up, down = leaves & comes, leaves & ~comes, comes & ~leaves
        ways = [sum(int(links.latency_fs[of].min()) for of in way) for way in ((direct,), (up, down)) if way[0].any()]
        alpha_s = seconds(min(ways, default=0) + topology.message_fs)
        return Rates(float(out[: topology.n_npus].max()), float(into[: topology.n_npus].max()), alpha_s)

    def least_s(self, operation: str, elements: int, item: int, ranks: int) -> float:
        """What a rank takes at least to leave an operation of the whole size that so many ranks share evenly."""
        size, own = elements * item, -(-elements // ranks) * item
        cut = dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), size - own)
        moved = {**cut, "all_reduce": size}.get(operation, 0)
        return self.alpha_s + moved / max(self.out, self.into) if moved and ranks > 1 else 0.0

    def message(self, size: int) -> Taken:
        """What a message takes at least."""
        return Taken(size / self.out, self.alpha_s + size / min(self.out, self.into))


@dataclass(frozen=True, eq=False)
class Anywhere:
    """The requests of a plan in any placement."""

    rates: Rates
    plan: Plan

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Of the plan's axes."""
        return self.plan.sizes

    def alike(self, place: int) -> Hashable:
        """As of `Requests`: all are."""
        return ()

    def of(self, place: int, axes: tuple[str, ...]) -> Hashable:
        """As of `Requests`."""
        return tuple(ranks_of(self.sizes, axis) for axis in axes)

    def collective(self, place: int, ask: Ask) -> Taken:
        """As of `Requests`."""
        if ask.operation == MESSAGE or goes_round(ask.splits):
            return self.rates.message(ask.elements * item_bytes(ask.dtype))
        elements = 0 if ask.splits else ask.elements  # of blocks that differ a rank may have the largest itself
        took_s = self.rates.least_s(ask.operation, elements, item_bytes(ask.dtype), ranks_of(self.sizes, ask.axis))
        return Taken(0.0, took_s)

    def messages(self, to: int, size: int) -> Sequence[Taken]:
        """As of `Requests`."""
        return [self.rates.message(size)] * self.plan.pp


def ranks_of(sizes: Mapping[str, int], axis: str) -> int:
    """Of a group of an axis; 1 of others than a plan's own, of which nothing is counted."""
    names = axis.split("+")
    return prod(sizes[name] for name in names) if set(names) <= set(sizes) else 1
