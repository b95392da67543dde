"""The sizes of an InfiniteHBD, their checks, and the text of its settings.

Symbols (4.2, appendix D): n nodes of R GPUs, K bundles of OCSTrx a node; t GPUs of a TP group, on m = t/R nodes; p nodes
under a ToR, d under a set of aggregation switches.

The drawing of an InfiniteHBD (Fig. 6b and 7): ToRs as columns of nodes, each a circle of GPUs, and the DCN on top.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Annotated

import numpy as np

from emu.errors import must_be
from emu.topology.catalogue import HOP_LATENCY, Bandwidth, Latency, SettingKind, check_sizes, whole_number
from emu.topology.topology import Drawing, frames

TURN = 70_000_000_000  # ticks: 70 us, the middle of 60-80 us (5.1)
OCSTRX = 8  # OCSTrx in a bundle (Fig. 4)


@dataclass(frozen=True)
class OcstrxRates:
    """The rates of a GPU in bytes per second, one direction, and the latency of a link."""

    bandwidth: Bandwidth = 800e9  # in the HBD, all OCSTrx of a GPU together: 8 of 800 Gb/s (6.1)
    dcn: Bandwidth = 50e9  # in the DCN: ConnectX-7, 400 Gb/s (6.1)
    latency: Latency = HOP_LATENCY


@dataclass(frozen=True)
class OcstrxPlan:
    """The sizes and rates of an InfiniteHBD; nodes are numbered ToR by ToR."""

    name: str
    dims: tuple[int, ...]  # domains, ToRs of a domain, nodes of a ToR, GPUs of a node
    k: int  # K
    tp: int  # t
    rates: OcstrxRates
    closed: bool = True  # whether the last node is joined to the first
    powers: bool = False  # whether fibres lead 1, 2, 4 ... nodes away (appendix G.3), not 1, 2, 3 ...
    apart: bool = False  # whether fibres lead along lines of nodes for each GPU (7), and not K nodes to either side
    turn_fs: int = TURN  # ticks that OCSTrx take to light other paths
    taper: int = 0  # bandwidth of a ToR's GPUs over that of its link up; 0: the DCN is one switch that never blocks

    def __post_init__(self) -> None:
        what = "domains x ToRs of a domain x nodes of a ToR x GPUs of a node, such as 1x360x2x4"
        check_sizes(self.name, "dims", self.dims, 4, what)
        if self.gpus < 2:
            raise must_be(self.name, "GPUs of a node", "2 or more, such as 4 or 8", self.gpus)
        if not 2 <= self.k <= self.gpus:
            what = f"2..{self.gpus}, as a node of {self.gpus} GPUs has as many bundles and a ring takes two"
            raise must_be(self.name, "k", what, self.k)
        if self.tp % self.gpus or not self.gpus <= self.tp <= self.npus:
            raise must_be(self.name, "tp", f"a multiple of {self.gpus}, the GPUs of a node, up to {self.npus}", self.tp)
        self._check_line()

    def _check_line(self) -> None:
        """Check that the fibres of each node lead to different nodes of the line."""
        if self.powers and self.nodes % 2**self.k:
            what = f"a multiple of {2**self.k}, the groups that fibres to 1..{2 ** (self.k - 1)} nodes away serve"
            raise must_be(self.name, "nodes", what, self.nodes)
        least = (2 * self.k if self.closed else self.k) + 1
        if not (self.powers or self.apart) and self.nodes < least:
            what = f"{least} or more, so that the fibres of a node lead to different ones"
            raise must_be(self.name, "nodes", what, self.nodes, "take more nodes or a smaller k")

    @property
    def nodes(self) -> int:
        """The number of nodes of all domains, n."""
        return prod(self.dims[:3])

    @property
    def gpus(self) -> int:
        """The number of GPUs of a node, R."""
        return self.dims[3]

    @property
    def tor(self) -> int:
        """The number of nodes under a ToR, p."""
        return self.dims[2]

    @property
    def npus(self) -> int:
        """The number of GPUs of all nodes."""
        return self.nodes * self.gpus

    @property
    def tors(self) -> int:
        """The number of ToRs."""
        return self.nodes // self.tor

    @property
    def m(self) -> int:
        """The number of nodes of a TP group: its GPUs divided by those of a node."""
        return self.tp // self.gpus

    @property
    def subline(self) -> int:
        """The number of nodes of a sub-line, l: nodes with the same position under their ToRs, within a domain."""
        return self.dims[1]

    @property
    def sublines(self) -> int:
        """The number of sub-lines of all domains, n p/d."""
        return self.dims[0] * self.dims[2]

    @property
    def edge(self) -> float:
        """The bytes per second of a link to the next GPU.

        Half of the lanes of a bundle belong to one GPU, and each GPU has two bundles.
        """
        return self.rates.bandwidth / 2

    @cached_property
    def reach(self) -> tuple[int, ...]:
        """The distances, in nodes, to which the K fibres on either side lead."""
        return tuple(2**i if self.powers else i + 1 for i in range(self.k))


def _read_nodes(text: str, name: str) -> tuple[int, ...]:
    """Return nodes from a setting's text such as `3+17-19`."""
    if text == "none":
        return ()
    found: set[int] = set()
    for piece in text.split("+"):
        ends = re.fullmatch(r"([0-9]{1,8})(?:-([0-9]{1,8}))?", piece)
        if ends is None or (ends[2] and int(ends[2]) < int(ends[1])):
            raise must_be("topology", name, "nodes and ranges of them joined by +, such as 3+17-19, or none", text)
        found.update(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    return tuple(sorted(found))


def _show_nodes(nodes: tuple[int, ...]) -> str:
    """Return nodes as a setting's text."""
    return "+".join(map(str, nodes)) or "none"


All = Annotated[int, whole_number(1, "all")]  # 0: all
Taper = Annotated[int, whole_number(1, "none")]  # 0: none
Nodes = Annotated[tuple[int, ...], SettingKind(_read_nodes, _show_nodes)]


_GAP = 1.6  # gap between the circles of two nodes


def draw(plan: OcstrxPlan) -> Drawing:
    """Return the drawing of an InfiniteHBD.

    The bundles to the left of a node are on its left, so that a ring runs along a row, as its sub-line does.
    """
    radius = max(0.7, plan.gpus / 6)
    pitch = 2 * radius + _GAP
    domain, column, row = np.unravel_index(np.arange(plan.nodes), plan.dims[:3])
    along = (domain * (plan.subline + 0.7) + column) * pitch
    node = np.stack((along, -row * pitch), axis=-1)
    turn = np.pi - (np.arange(plan.gpus) - 0.5 - (plan.k // 2 - 1) / 2) * 2 * np.pi / plan.gpus
    circle = radius * np.stack((np.cos(turn), np.sin(turn)), axis=-1)
    gpus = (node[:, None] + circle).reshape(-1, 2)
    tor = np.stack((along[:: plan.tor], np.full(plan.tors, pitch)), axis=-1)[: plan.tors if plan.taper else 0]
    hub = [[along[-1] / 2, pitch * (1 + (plan.taper > 0)) + along[-1] / 12]]
    boxes = frames("ToR" if plan.tor > 1 else "node", plan.tor * plan.gpus, plan.nodes // plan.tor)
    return Drawing(np.concatenate((gpus, hub, tor)), boxes)
