"""Figure 14 of the RailX paper (6.3): the throughput of an all_to_all, and the latency of packets.

A port of a chip carries one flit in a cycle.
"""

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from launch.papers.railx.counts import HYPERX
from launch.papers.railx.packets import latency, saturated_throughput
from launch.papers.targets import Answer
from launch.papers.timing import collective_s
from launch.papers.topology_counts import build_once


@cache
def all_to_all(word: str, ports_a_link: int = 1) -> float:
    """Return the flits of a chip in a cycle during an all_to_all.

    Args:
        word: The topology.
        ports_a_link: The ports of the slowest link.
    """
    topology = build_once(word)
    n, item = topology.n_npus, 2**20
    found = collective_s(word, "all_to_all", "at-once", n, n * item)
    return float((n - 1) * item / found / topology.links.bandwidth_Bps.min() * ports_a_link)


class ChipFabric(NamedTuple):
    """A fabric of about 1,300 chips with 8 ports each."""

    name: str
    word: str
    ports_a_link: int = 1

    def through(self) -> float:
        """Return the flits of a chip in a cycle during an all_to_all of large messages."""
        return all_to_all(self.word, self.ports_a_link)

    def loads(self) -> list[float]:
        """Return the loads that the fabric can carry without end, in flits of a chip in a cycle."""
        most = 0.95 * self.through()
        return [load for load in (0.05, *np.arange(1, 9) / 10) if load <= most]

    def latency(self, load: float) -> float:
        """Return the mean latency of a packet in cycles."""
        return latency(self.word, load, self.ports_a_link)


BY_K = {k: ChipFabric(f"RailX, k={k}", f"{HYPERX},k={k}") for k in (1, 2, 4)}
OTHERS = (
    ChipFabric("HammingMesh", "hammingmesh:boards=9x9,side=4,planes=2"),
    ChipFabric("2D torus", "torus:dims=36x36,bandwidth=200GB/s,latency=300ns", ports_a_link=2),
)


def _throughput() -> Answer:
    """Answer the throughput of random packets."""
    word = f"{HYPERX},k=4"
    words = (
        "packets of 4 flits to chips drawn at random, one under way from each of a chip's 8 ports; links share max-min fairly: "
        "no buffers, virtual channels or routers are modelled"
    )
    others = (
        f"with 4 under way {saturated_throughput(word, 4):.2f}; an all_to_all of 1 MiB a pair, at once, {all_to_all(word):.2f}"
    )
    return Answer(saturated_throughput(word), (words, others, "the bound by equation 3 is 1.125"))


def _throughput_by_k() -> Answer:
    """Answer how the throughput grows with the bandwidth k of links inside nodes."""
    by = {k: drawn.through() for k, drawn in BY_K.items()}
    words = ", ".join(f"k={k} {found:.2f}" for k, found in by.items())
    return Answer(words, holds=by[2] > 1.5 * by[1] and by[4] < 1.25 * by[2])


def _best() -> Answer:
    """Answer whether RailX has more throughput and less latency than the other fabrics."""
    ours, load = BY_K[4], 0.3
    through = {each: each.through() for each in (ours, *OTHERS)}
    cycles = {each: each.latency(load) for each in (ours, *OTHERS)}
    words = "; ".join(f"{each.word} {through[each]:.2f}, {cycles[each]:.0f} cycles" for each in OTHERS)
    holds = all(through[ours] > through[each] and cycles[ours] < cycles[each] for each in OTHERS)
    told = f"flits a cycle and chip; cycles of a packet where each chip offers {load}; {words}; the torus has two ports a link"
    return Answer(f"{through[ours]:.2f}, {cycles[ours]:.0f} cycles", (told,), holds=holds)


ALL_TO_ALL: Mapping[str, Callable[[], Answer]] = MappingProxyType(
    {"rx-f14-thr": _throughput, "rx-f14-k1": _throughput_by_k, "rx-f14-best": _best}
)
