"""Figure 14 of the RailX paper (6.3): what gets through of an all_to_all, and how long packets take.

A port of a chip carries one flit a cycle.
"""

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from launch.papers.railx.counts import HYPERX
from launch.papers.railx.packets import latency, saturated
from launch.papers.targets import Answer
from launch.papers.timing import collective_s
from launch.papers.wiring import built


@cache
def all_to_all(word: str, ports_a_link: int = 1) -> float:
    """Flits a cycle and chip, where each port of the slowest link carries one a cycle."""
    topology = built(word)
    n, item = topology.n_npus, 2**20
    found = collective_s(word, "all_to_all", "at-once", n, n * item)
    return float((n - 1) * item / found / topology.links.bandwidth_Bps.min() * ports_a_link)


class Drawn(NamedTuple):
    """A fabric of some 1.3K chips of 8 ports each."""

    name: str
    word: str
    ports_a_link: int = 1

    def through(self) -> float:
        """Flits a cycle and chip of an all_to_all of large messages."""
        return all_to_all(self.word, self.ports_a_link)

    def loads(self) -> list[float]:
        """Flits a cycle and chip: what may be offered without end."""
        most = 0.95 * self.through()
        return [load for load in (0.05, *np.arange(1, 9) / 10) if load <= most]

    def latency(self, load: float) -> float:
        """Cycles of a packet."""
        return latency(self.word, load, self.ports_a_link)


BY_K = {k: Drawn(f"RailX, k={k}", f"{HYPERX},k={k}") for k in (1, 2, 4)}
OTHERS = (
    Drawn("HammingMesh", "hammingmesh:boards=9x9,side=4,planes=2"),
    Drawn("2D torus", "torus:dims=36x36,bandwidth=200GB/s,latency=300ns", ports_a_link=2),
)


def _saturated() -> Answer:
    """Of random packets, as the paper has it."""
    word = f"{HYPERX},k=4"
    words = (
        "packets of 4 flits to chips drawn at random, one under way from each of a chip's 8 ports; links share max-min fairly: "
        "no buffers, virtual channels or routers are modelled"
    )
    others = f"with 4 under way {saturated(word, 4):.2f}; an all_to_all of 1 MiB a pair, at once, {all_to_all(word):.2f}"
    return Answer(saturated(word), (words, others, "the bound by equation 3 is 1.125"))


def _of_k() -> Answer:
    by = {k: drawn.through() for k, drawn in BY_K.items()}
    words = ", ".join(f"k={k} {found:.2f}" for k, found in by.items())
    return Answer(words, holds=by[2] > 1.5 * by[1] and by[4] < 1.25 * by[2])


def _best() -> Answer:
    ours, load = BY_K[4], 0.3
    through = {each: each.through() for each in (ours, *OTHERS)}
    cycles = {each: each.latency(load) for each in (ours, *OTHERS)}
    words = "; ".join(f"{each.word} {through[each]:.2f}, {cycles[each]:.0f} cycles" for each in OTHERS)
    holds = all(through[ours] > through[each] and cycles[ours] < cycles[each] for each in OTHERS)
    told = f"flits a cycle and chip; cycles of a packet where each chip offers {load}; {words}; the torus has two ports a link"
    return Answer(f"{through[ours]:.2f}, {cycles[ours]:.0f} cycles", (told,), holds=holds)


EXCHANGED: Mapping[str, Callable[[], Answer]] = MappingProxyType(
    {"rx-f14-thr": _saturated, "rx-f14-k1": _of_k, "rx-f14-best": _best}
)
