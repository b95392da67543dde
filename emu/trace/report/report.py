"""The time of a training step and its parts, on the rank that ended last.

An instant of a step is computation, else exposed communication, else idle. Communication is exposed where the rank stands still
for a request to which all members have come. Where one has not, it is idle: it waits for a rank of another stage of its
pipeline (bubble), or of its own (straggling). The report also has the stage of the rank and the time of its optimizer. N ranks
of the trace.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from emu.arrays import I64
from emu.errors import InputError
from emu.fabric.graph import Timeline
from emu.trace.replay.replay_graph import ReplayGraph
from emu.trace.report.activity import Activity, time_division
from emu.trace.report.request_times import Arrivals, RequestTimes, requests_of
from emu.trace.report.spans import Spans, covered
from emu.trace.steps import count_steps, equal_steps
from emu.trace.trace import UPDATE, Kind, Trace
from emu.units import seconds

_PARTS = ("step_time", "compute", "early_compute", "other_compute", "exposed_comm", "total_comm", "bubble", "idle")
STAGES = "pp"  # the axis whose groups have a rank of each stage of a pipeline, in their order


def stages_of(trace: Trace) -> dict[int, int]:
    """Return the stage of each rank of a pipeline."""
    return {rank: stage for group in trace.groups if group.axis == STAGES for stage, rank in enumerate(group.ranks)}


def optimizer_fs(trace: Trace, replayed: ReplayGraph, timeline: Timeline, rank: int, step: int) -> int | None:
    """Return the ticks of a rank's computation after the optimizer's mark in a step; None if there is no such mark."""
    events, first = trace.events_of(rank), replayed.first_event[rank]
    marks = np.flatnonzero((events.kind == Kind.MARK) & (events.step == step))
    begun = [row for row in marks.tolist() if events.name[row] == UPDATE]
    if not begun:
        return None
    rows = np.flatnonzero((events.kind == Kind.COMPUTE) & (events.step == step))
    task = replayed.begins[first + rows[rows > begun[0]]]
    return int((timeline.end_fs[task] - timeline.start_fs[task]).sum())


@dataclass(frozen=True, eq=False, slots=True)
class StepReport:
    """The parts of a step in ticks, for one step and one rank; seconds are derived.

    A step begins when the last rank has ended the one before. Work of another rank on it until then is in no part, so the
    computation in the step differs between fabrics; the computation of the step does not, unless streams run side by side for
    longer.
    """

    step_times_fs: tuple[int, ...]  # of every step but the set-up, from the end of the step before on all ranks
    groups: tuple[tuple[int, ...], ...]  # numbers of steps of equal work, as `equal_steps`: the first is what the run is about
    step: int  # the step of the first group with the median time (of two, the shorter)
    began_fs: int
    ended_fs: int
    rank: int  # the rank that ended the step last; the lowest if several did
    compute_fs: int  # ticks in which something is computed, on any stream
    early_compute_fs: int  # computation of the step before it began
    other_compute_fs: int  # computation within compute_fs that is of other steps alone
    computes_fs: I64  # [N] how long each rank computes of the step, on any stream, whenever
    exposed_comm_by_axis_fs: Mapping[str, int]  # the rank stands still for requests to which all members have come
    total_comm_fs: int  # of all its requests, each from when all members have come until the rank may leave; hidden or not
    bubble_fs: int  # of the idle time, what the rank waits for ranks of other stages of its pipeline
    straggling_by_rank_fs: Mapping[int, int]  # of the idle time, what it waits for each rank of its own stage; none that is 0
    optimizer_fs: int | None  # computation after the mark of an optimizer; None: there is no mark

    @property
    def step_times_s(self) -> tuple[float, ...]:
        """The seconds of every step but the set-up."""
        return tuple(seconds(t) for t in self.step_times_fs)

    @property
    def step_time_s(self) -> float:
        """Seconds of the step."""
        return seconds(self.step_time_fs)

    @property
    def step_time_fs(self) -> int:
        """Ticks of the step."""
        return self.ended_fs - self.began_fs

    @property
    def exposed_comm_fs(self) -> int:
        """Ticks of exposed communication."""
        return sum(self.exposed_comm_by_axis_fs.values())

    @property
    def exposed_comm_by_axis_s(self) -> dict[str, float]:
        """The seconds of exposed communication, by the axis of the group."""
        return {axis: seconds(t) for axis, t in self.exposed_comm_by_axis_fs.items()}

    @property
    def idle_fs(self) -> int:
        """Ticks in which the rank neither computes nor has exposed communication: it waits for other ranks."""
        return self.step_time_fs - self.compute_fs - self.exposed_comm_fs

    def figures(self) -> dict[str, Any]:
        """Return the step, the rank and all parts in seconds, by the field names of a `Step`."""
        parts = {f"{name}_s": seconds(getattr(self, f"{name}_fs")) for name in _PARTS}
        return {
            **parts,
            "step": self.step,
            "rank": self.rank,
            "step_groups": self.groups,
            "step_times_s": self.step_times_s,
            "compute_least_s": seconds(int(self.computes_fs.min())),
            "compute_most_s": seconds(int(self.computes_fs.max())),
            "exposed_comm_by_axis_s": self.exposed_comm_by_axis_s,
            "straggling_by_rank_s": {rank: seconds(t) for rank, t in self.straggling_by_rank_fs.items()},
            "optimizer_s": None if self.optimizer_fs is None else seconds(self.optimizer_fs),
        }


def report(trace: Trace, replayed: ReplayGraph, timeline: Timeline) -> StepReport:
    """Return the parts of the step that represents the run.

    Args:
        trace: The trace.
        replayed: The graph of the trace on a fabric.
        timeline: The times of its tasks.

    Raises:
        InputError: The trace holds no step but set-up.
    """
    ends = step_ends(trace, replayed, timeline.end_fs)
    whole = np.maximum.accumulate(ends.max(axis=0))
    times, groups = np.diff(whole, prepend=0).tolist(), equal_steps(trace)
    step = sorted(groups[0], key=lambda s: times[s - 1])[(len(groups[0]) - 1) // 2]
    rank, low, high = int(np.argmax(ends[:, step - 1])), int(whole[step - 1]) - times[step - 1], int(whole[step - 1])
    found = _division(trace, replayed, timeline)(rank, low, high)
    own = computing(trace, replayed, timeline, rank, step)
    return StepReport(
        tuple(times),
        groups,
        step,
        low,
        high,
        rank,
        found.compute_fs,
        own.within(0, low).ticks,
        found.compute_fs - own.within(low, high).ticks,
        np.array([computing(trace, replayed, timeline, each, step).ticks for each in range(trace.n_ranks)], np.int64),
        found.exposed_fs,
        found.spoken_fs,
        found.bubble_fs,
        found.straggling_fs,
        optimizer_fs(trace, replayed, timeline, rank, step),
    )


class RankTimes(NamedTuple):
    """The ticks that a rank spends in a window of time on computation and on exposed communication; the rest is idle."""

    compute_fs: int
    exposed_fs: dict[str, int]  # it stands still for requests to which all members have come, by axis
    bubble_fs: int  # it stands still for a rank of another stage that has not come to a request
    straggling_fs: dict[int, int]  # likewise for a rank of its own stage, or where neither has a stage, by that rank
    spoken_fs: int  # of all its requests, each from when all members had come until the rank may leave


def rank_times(
    trace: Trace, replayed: ReplayGraph, timeline: Timeline, step_report: StepReport, ranks: Iterable[int]
) -> list[RankTimes]:
    """Return the division of the time of these ranks in the reported step.

    Args:
        trace: The trace.
        replayed: Its tasks.
        timeline: The times of the tasks.
        step_report: The report of the step, as `report` returns it.
        ranks: The ranks.
    """
    of_rank = _division(trace, replayed, timeline)
    return [of_rank(rank, step_report.began_fs, step_report.ended_fs) for rank in ranks]


def _division(trace: Trace, replayed: ReplayGraph, timeline: Timeline) -> Callable[[int, int, int], RankTimes]:
    """Return a function that divides a rank's time between two moments."""
    coming, stages = Arrivals.of(replayed, timeline), stages_of(trace)

    @cache
    def known(rank: int) -> tuple[Activity, RequestTimes]:
        asked = requests_of(trace, replayed, timeline, coming, rank)
        return Activity.of(computing(trace, replayed, timeline, rank), asked), asked

    def divided(rank: int, low: int, high: int) -> RankTimes:
        window, asked = Spans(np.array([low]), np.array([high])), known(rank)[1]
        compute_fs, by_axis, bubble_fs, straggling = time_division(lambda other: known(other)[0], stages, rank, window)
        exposed = {axis: by_axis[axis] for axis in sorted({*asked.axes.tolist(), *by_axis})}
        return RankTimes(compute_fs, exposed, bubble_fs, dict(straggling), asked.spoken.within(low, high).ticks)

    return divided


def step_ends(trace: Trace, replayed: ReplayGraph, end_fs: I64) -> I64:
    """Return [N, steps] the tick at which each rank's last event of each step ended; 0: the rank has no event in it.

    Args:
        trace: The trace.
        replayed: The graph of the trace on a fabric.
        end_fs: [V] the tick at which each task ended.

    Raises:
        InputError: The trace holds no step but set-up.
    """
    steps = count_steps(trace)
    if steps == 0:
        raise InputError("report: the trace must hold a step after set-up; run a training step")
    ends = np.zeros((trace.n_ranks, steps + 1), np.int64)
    for rank in range(trace.n_ranks):
        task = replayed.ends[replayed.first_event[rank] : replayed.first_event[rank + 1]]
        timed = np.flatnonzero(task >= 0)
        np.maximum.at(ends[rank], trace.events_of(rank).step[timed], end_fs[task[timed]])
    return ends[:, 1:]


def computing(trace: Trace, replayed: ReplayGraph, timeline: Timeline, rank: int, step: int | None = None) -> Spans:
    """Return the time spans in which a rank computes, in all steps or in one; parallel streams are merged."""
    task = replayed.begins[replayed.first_event[rank] : replayed.first_event[rank + 1]]
    events = trace.events_of(rank)
    rows = np.flatnonzero((events.kind == Kind.COMPUTE) & (task >= 0) & ((events.step == step) if step else True))
    spans = Spans(timeline.start_fs[task[rows]], timeline.end_fs[task[rows]])
    return spans if (events.stream[rows] == events.stream[rows[:1]]).all() else covered(spans)
