"""How busy the links are in a step.

L links of the topology, H hops of the graph's messages.
"""

from dataclasses import dataclass

import numpy as np

from emu.arrays import F64
from emu.fabric.timeline import Timeline
from emu.topology.topology import Topology
from emu.trace.replay import Replayed
from emu.units import seconds


@dataclass(frozen=True, slots=True)
class BusyLink:
    """A link, and the share of a step that it needs at full rate for what it carries."""

    link: int
    src: str
    dst: str
    busy: float


def busiest(shares: F64, topology: Topology, most: int = 3) -> tuple[BusyLink, ...]:
    """The links of the largest shares [L], of equal ones the first; none that carries nothing."""
    order = np.lexsort((np.arange(len(shares)), -shares.round(9)))[:most]  # a share is a sum: its last digits are chance
    ends = [(topology.call(int(topology.links.src[i])), topology.call(int(topology.links.dst[i]))) for i in order]
    return tuple(BusyLink(int(i), *names, float(shares[i])) for i, names in zip(order, ends, strict=True) if shares[i] > 0)


def busy_shares(replayed: Replayed, timeline: Timeline, began_fs: int, ended_fs: int) -> F64:
    """[L] the share of a time that each link would need, at full rate, for what it carries in it.

    A message that is under way at the beginning or the end counts by the part of its own time that lies within.
    """
    graph = replayed.graph
    task = np.repeat(np.arange(graph.n_tasks), np.diff(graph.hop_start))
    start, left = timeline.start_fs, timeline.left_fs
    inside = np.clip(left, began_fs, ended_fs) - np.clip(start, began_fs, ended_fs)
    part = inside / np.maximum(left - start, 1)
    carried = np.bincount(graph.hop_link, (graph.size_bytes * part)[task] * graph.hop_weight, graph.n_links)
    lasts_s = seconds(ended_fs - began_fs)
    shares = carried / graph.capacity_Bps / lasts_s if lasts_s else np.zeros(graph.n_links)
    return np.asarray(shares[replayed.link])
