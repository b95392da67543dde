"""How busy the links are in a step.

L links of the topology, H hops of the graph's messages.
"""

import numpy as np

from emu.arrays import F64
from emu.fabric.timeline import Timeline
from emu.trace.replay import Replayed
from emu.units import seconds


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
