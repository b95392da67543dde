"""Lanes of a timeline: the spans of each rank and stream, and of each busy link, in ticks.

They are written as a file for ui.perfetto.dev and chrome://tracing, with a track for each lane. Source of its format: "Trace
Event Format", Google.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.fabric.graph import Timeline
from emu.files import write_file
from emu.study.training.step.step import TimedTrace
from emu.topology.topology import Topology
from emu.trace.replay.delay import Delay
from emu.trace.replay.replay_graph import ReplayGraph
from emu.trace.report.report import stages_of
from emu.trace.report.request_times import Arrivals, talking
from emu.trace.report.spans import merged
from emu.trace.trace import Kind, Trace
from launch.shell import output_text
from launch.show.limits import MOST_LINKS, MOST_RANKS


class Lane(NamedTuple):
    """A row of a timeline: the time spans (ticks) of one stream of a rank, or of one link."""

    owner: str  # "rank 3" or "links"
    stream: str  # "compute", "compute on stream 1", the axis of a group, or the link
    names: tuple[str, ...]  # the name of each span
    start: I64
    end: I64

    def within(self, low: int, high: int) -> "Lane":
        """Return the spans of the lane between two ticks, with times counted from the first tick."""
        start, end = np.clip(self.start, low, high) - low, np.clip(self.end, low, high) - low
        kept = np.flatnonzero(end > start)
        return self._replace(names=tuple(self.names[i] for i in kept), start=start[kept], end=end[kept])


def lanes(trace: Trace, replayed: ReplayGraph, timeline: Timeline, topology: Topology) -> Iterator[Lane]:
    """Yield the lanes of every rank, then those of each link that carried a message."""
    coming = Arrivals.of(replayed, timeline)
    for rank in range(trace.n_ranks):
        yield from lanes_of(trace, replayed, timeline, coming, rank)
    carried = np.flatnonzero(np.isin(replayed.link, replayed.graph.hop_link))
    yield from _link_lanes(replayed, timeline, topology, carried.tolist())


class RepresentativeRank(NamedTuple):
    """A rank that is shown for all ranks of its stage with equal events; `alike` is their number.

    `row` is its number in the trace, `rank` that in the job.
    """

    row: int  # rank of the trace
    rank: int  # rank of the run
    stage: int | None  # None: there is no pipeline
    alike: int  # ranks that it stands for, itself included

    @property
    def name(self) -> str:
        """The rank as text, with the number of equal ranks for which it stands, such as `rank 8, stage 1 (8 alike)`."""
        stage = "" if self.stage is None else f", stage {self.stage}"
        return f"rank {self.rank}{stage}" + (f" ({self.alike} alike)" if self.alike > 1 else "")


def representatives(timed: TimedTrace) -> list[RepresentativeRank]:
    """Return one rank for each role of each stage, stage after stage.

    The rank of the step's report is taken where the role has it, else the first rank.
    """
    trace, each = timed.trace, timed.ranks // timed.trace.n_ranks
    stages, found = stages_of(trace), dict[tuple[int, int], list[int]]()
    ranks = sorted(range(trace.n_ranks), key=lambda rank: (stages.get(rank, 0), rank))
    for rank in ranks:
        found.setdefault((stages.get(rank, 0), int(trace.role_of_rank[rank])), []).append(rank)
    told = timed.report.rank
    firsts = [(told if told in alike else alike[0], len(alike)) for alike in found.values()]
    return [RepresentativeRank(row, row * each, stages.get(row), number * each) for row, number in firsts]


def few_lanes(timed: TimedTrace) -> Iterator[Lane]:
    """Yield few enough lanes to read: all ranks if they are at most 32, else one rank for each role and stage.

    The lanes of the busiest links follow, one for links that are equal by symmetry. There are no links where the messages of
    collectives were not timed one by one.
    """
    trace, replayed, timeline = timed.trace, timed.replayed, timed.timeline
    named = [(rank, f"rank {rank}") for rank in range(trace.n_ranks)]
    if timed.ranks > MOST_RANKS:
        named = [(each.row, each.name) for each in representatives(timed)]
    coming = Arrivals.of(replayed, timeline)
    for row, name in named:
        yield from (lane._replace(owner=name) for lane in lanes_of(trace, replayed, timeline, coming, row))
    if not any(isinstance(piece, Delay) for piece in replayed.pieces):
        carried = np.isin(replayed.link, replayed.graph.hop_link)
        first = np.unique(replayed.link, return_index=True)[1]
        first = first[carried[first]]
        most = first[np.argsort(-timed.link_busy[first], kind="stable")][:MOST_LINKS]
        yield from _link_lanes(replayed, timeline, timed.topology, sorted(most.tolist()))


def lanes_of(trace: Trace, replayed: ReplayGraph, timeline: Timeline, coming: Arrivals, rank: int) -> Iterator[Lane]:
    """Yield the lanes of one rank: its computation streams, then one for each axis of communication.

    A span of communication begins when all members of the group have come to the request.
    """
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
        spans = talking(replayed, timeline, coming, of_axis + first)
        yield Lane(f"rank {rank}", str(axis), tuple(events.name[i] for i in of_axis), spans.start, spans.end)


def _link_lanes(replayed: ReplayGraph, timeline: Timeline, topology: Topology, numbers: Sequence[int]) -> Iterator[Lane]:
    """Yield a lane for each of these links that carried a byte, with the spans in which the link was busy."""
    graph = replayed.graph
    task = np.repeat(np.arange(graph.n_tasks), np.diff(graph.hop_start))
    moved = graph.size_bytes[task] > 0
    task, link = task[moved], graph.hop_link[moved]
    order = np.lexsort((timeline.left_fs[task], timeline.start_fs[task], link))
    task, link = task[order], link[order]
    for number in numbers:
        low, high = np.searchsorted(link, (replayed.link[number], replayed.link[number] + 1))
        start, end = merged(timeline.start_fs[task[low:high]], timeline.left_fs[task[low:high]])
        ends = " to ".join(topology.node_name(int(end[number])) for end in (topology.links.src, topology.links.dst))
        if not len(start):  # its messages have no bytes
            continue
        yield Lane("links", f"link {number}: {ends}", ("busy",) * len(start), start, end)


_TICKS_PER_US = 10**9


def write_perfetto(lanes: Iterable[Lane], path: Path) -> None:
    """Write the lanes as trace events, with times in microseconds.

    Raises:
        WriteError: the file cannot be written.
    """
    told = json.dumps({"displayTimeUnit": "ns", "traceEvents": list(_events(lanes))}, separators=(",", ":"))
    write_file(output_text("--timeline"), path, told.encode())


def _events(lanes: Iterable[Lane]) -> Iterator[dict[str, object]]:
    """Yield the trace events of all lanes: the names of tracks, and the spans on them."""
    process: dict[str, int] = {}
    for thread, lane in enumerate(lanes):
        if lane.owner not in process:
            process[lane.owner] = len(process)
            yield _name_event("process", process[lane.owner], thread, lane.owner)
        pid = process[lane.owner]
        yield _name_event("thread", pid, thread, lane.stream)
        for name, start, end in zip(lane.names, lane.start.tolist(), lane.end.tolist(), strict=True):
            ts, dur = start / _TICKS_PER_US, (end - start) / _TICKS_PER_US
            yield {"ph": "X", "name": name, "pid": pid, "tid": thread, "ts": ts, "dur": dur}


def _name_event(what: str, pid: int, tid: int, name: str) -> dict[str, object]:
    """Return the trace event that names a process or a thread."""
    return {"ph": "M", "name": f"{what}_name", "pid": pid, "tid": tid, "args": {"name": name}}
