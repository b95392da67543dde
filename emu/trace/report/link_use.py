"""The share of a step in which links are busy.

L links of the topology, V tasks.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from emu.arrays import F64, I64
from emu.fabric.graph import Graph
from emu.fabric.timeline import Timeline
from emu.topology.topology import Topology
from emu.trace.replay.delay import Delay
from emu.trace.replay.replay import ReplayGraph
from emu.units import seconds


@dataclass(frozen=True, slots=True)
class BusyLink:
    """A link, and the share of a step that it needs at full rate for what it carries."""

    link: int
    src: str
    dst: str
    busy: float


def busiest(shares: F64, topology: Topology, most: int = 3) -> tuple[BusyLink, ...]:
    """Return the links of the largest shares [L], of equal ones the first; links that carry nothing are left out."""
    order = np.lexsort((np.arange(len(shares)), -shares.round(9)))[:most]  # a share is a sum: its last digits are chance
    ends = [(topology.call(int(topology.links.src[i])), topology.call(int(topology.links.dst[i]))) for i in order]
    return tuple(BusyLink(int(i), *names, float(shares[i])) for i, names in zip(order, ends, strict=True) if shares[i] > 0)


def busy_shares(replayed: ReplayGraph, timeline: Timeline, began_fs: int, ended_fs: int) -> F64:
    """Return [L] the share of a time window that each link would need, at full rate, for the bytes that it carries in it.

    A message that is under way at the beginning or the end counts by the part of its own time that lies within.
    """
    graph, window = replayed.graph, (began_fs, ended_fs)
    carried = _carried(graph, _parts(timeline.start_fs, timeline.left_fs, *window))
    firsts: defaultdict[Delay, list[int]] = defaultdict(list)
    for piece, first in zip(replayed.pieces, replayed.firsts.tolist(), strict=True):
        if isinstance(piece, Delay):
            firsts[piece].append(first)
    for delay, at in firsts.items():
        began = timeline.start_fs[np.add.outer(at, np.arange(len(delay.length_fs)))] - delay.head_fs
        carried += _carried(delay.piece.graph, _parts_of(delay, began, *window))
    lasts_s = seconds(ended_fs - began_fs)
    shares = carried / graph.capacity_Bps / lasts_s if lasts_s else np.zeros(graph.n_links)
    return np.asarray(shares[replayed.link])


def _carried(graph: Graph, part: F64) -> F64:
    """Return [links of the graph] the bytes, where a part of each task's body [V] counts."""
    task = np.repeat(np.arange(graph.n_tasks), np.diff(graph.hop_start))
    crossing = (graph.size_bytes * part)[task] * graph.hop_weight
    return np.bincount(graph.hop_link, crossing, graph.n_links).astype(np.float64)


def _parts(start: I64, left: I64, low: int, high: int) -> F64:
    """Return [V] the part of each body's own time that lies between two ticks."""
    inside = np.clip(left, low, high) - np.clip(start, low, high)
    return np.asarray(inside / np.maximum(left - start, 1))


def _parts_of(delay: Delay, began: I64, low: int, high: int) -> F64:
    """Return [V] the part of each task of a delay between two ticks, over all the times [times, O] that the delay began."""
    ended, alone, number = began + delay.length_fs, delay.alone, delay.message_number
    whole = (began >= low) & (ended <= high)
    some = (began < high) & (ended > low) & ~whole
    parts = whole.sum(axis=0)[number].astype(np.float64)
    for i in np.flatnonzero(some.any(axis=1)).tolist():
        shift = began[i][number]
        parts += np.where(some[i][number], _parts(alone.start_fs + shift, alone.left_fs + shift, low, high), 0.0)
    return np.asarray(parts)
