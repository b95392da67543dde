"""What was going on when, as spans: a lane a rank and stream, and a lane a busy link."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.fabric.timeline import Timeline
from emu.topology.topology import Topology
from emu.trace.replay import Replayed
from emu.trace.report import talking
from emu.trace.spans import merged
from emu.trace.trace import Kind, Trace


class Lane(NamedTuple):
    """One row of a timeline; times in ticks."""

    owner: str  # "rank 3" or "links"
    stream: str  # "compute", or "compute on stream 1" if not on the default one, the axis of a group, or the link
    names: tuple[str, ...]
    start: I64
    end: I64

    def within(self, low: int, high: int) -> "Lane":
        """What of it lies between two ticks, counted from the first."""
        start, end = np.clip(self.start, low, high) - low, np.clip(self.end, low, high) - low
        kept = np.flatnonzero(end > start)
        return self._replace(names=tuple(self.names[i] for i in kept), start=start[kept], end=end[kept])


def lanes(trace: Trace, replayed: Replayed, timeline: Timeline, topology: Topology) -> Iterator[Lane]:
    """The lanes of every rank, then those of the links that carried anything."""
    for rank in range(trace.n_ranks):
        yield from _of_rank(trace, replayed, timeline, rank)
    yield from _of_links(replayed, timeline, topology)


def _of_rank(trace: Trace, replayed: Replayed, timeline: Timeline, rank: int) -> Iterator[Lane]:
    events, first = trace.events_of(rank), replayed.first_event[rank]
    begins = replayed.begins[first : first + len(events)]
    computed = (events.kind == Kind.COMPUTE) & (begins >= 0)
    for stream in np.unique(np.append(0, events.stream[computed])).tolist():
        row = np.flatnonzero(computed & (events.stream == stream))
        start, end = timeline.start_fs[begins[row]], timeline.end_fs[begins[row]]
        what = f"compute on stream {stream}" if stream else "compute"
        yield Lane(f"rank {rank}", what, tuple(events.name[i] for i in row), start, end)
    asked = np.flatnonzero(replayed.instance[first : first + len(events)] >= 0)
    axes = np.array([trace.groups[trace.group_of[rank][g]].axis or "other" for g in events.group[asked].tolist()], dtype=str)
    for axis in np.unique(axes):
        of_axis = asked[axes == axis]
        spans = talking(replayed, timeline, of_axis + first)
        yield Lane(f"rank {rank}", str(axis), tuple(events.name[i] for i in of_axis), spans.start, spans.end)


def _of_links(replayed: Replayed, timeline: Timeline, topology: Topology) -> Iterator[Lane]:
    graph = replayed.graph
    task = np.repeat(np.arange(graph.n_tasks), np.diff(graph.hop_start))
    moved = graph.size_bytes[task] > 0
    task, link = task[moved], graph.hop_link[moved]
    order = np.lexsort((timeline.left_fs[task], timeline.start_fs[task], link))
    task, link = task[order], link[order]
    for number in np.flatnonzero(np.isin(replayed.link, link)).tolist():
        low, high = np.searchsorted(link, (replayed.link[number], replayed.link[number] + 1))
        start, end = merged(timeline.start_fs[task[low:high]], timeline.left_fs[task[low:high]])
        ends = " to ".join(topology.call(int(end[number])) for end in (topology.links.src, topology.links.dst))
        yield Lane("links", f"link {number}: {ends}", ("busy",) * len(start), start, end)
