"""The critical path of a step: the chain of tasks, each of which released the next, that decides the step's time.

The path is walked from the end of the step back to its beginning: from a task to the one that released it, and so on. V tasks.
"""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.fabric.graph import Timeline
from emu.trace.matching.role_requests import MESSAGE
from emu.trace.replay.replay_graph import ReplayGraph
from emu.trace.report.report import StepReport, stages_of
from emu.trace.trace import Kind, Trace
from emu.units import seconds

COMPUTATION, HOST, NOTHING = "computation", "host", "nothing"


class PathKind(NamedTuple):
    """The kind of activity on a part of the critical path: what is done, on which axis, and in which stage.

    A collective can also name the rank that entered it late.
    """

    what: str  # an operation, a message, computation, what the host does, or nothing: no task was to be waited for
    axis: str | None  # axis of the group; None: no communication
    stage: int | None  # stage of the pipeline; None: there is no pipeline
    waits_for: int | None  # the rank that entered a collective after the one that the path leaves it by; None: none did


@dataclass(frozen=True, slots=True)
class PathPart:
    """The seconds that the critical path spends in one kind of activity, such as an operation of an axis in a stage."""

    what: str
    axis: str | None
    stage: int | None
    waits_for_rank: int | None
    time_s: float


def critical_path(trace: Trace, replayed: ReplayGraph, timeline: Timeline, step_report: StepReport) -> tuple[PathPart, ...]:
    """Return the parts of the critical path of the reported step, longest first; they add up to the step's time."""
    spent = critical_path_fs(trace, replayed, timeline, step_report)
    longest = sorted(spent.items(), key=lambda part: (-part[1], *map(str, part[0])))
    return tuple(PathPart(*what, seconds(ticks)) for what, ticks in longest)


def critical_path_fs(trace: Trace, replayed: ReplayGraph, timeline: Timeline, step_report: StepReport) -> dict[PathKind, int]:
    """Return the ticks that the critical path spends in each kind of activity.

    If several tasks released one at the same time, the path takes one of the same rank, else the first of the graph.
    """
    if step_report.began_fs == step_report.ended_fs:
        return {}
    first, end = replayed.first_event[step_report.rank : step_report.rank + 2].tolist()
    ends = replayed.ends[first:end]
    in_step = (trace.events_of(step_report.rank).step == step_report.step) & (ends >= 0)
    last = np.flatnonzero(in_step & (timeline.end_fs[ends] == step_report.ended_fs))[-1]
    walk = _Walk(trace, replayed, timeline, step_report.began_fs, _ranks(replayed))
    walk.back(int(ends[last]), step_report.rank, step_report.ended_fs)
    return {what: ticks for what, ticks in walk.spent.items() if ticks}


def _ranks(replayed: ReplayGraph) -> I64:
    """Return [V] the first rank that each task belongs to; -1 if it belongs to none."""
    rank_of = np.repeat(np.arange(len(replayed.first_event) - 1), np.diff(replayed.first_event))
    ranks = replayed.graph.owner.astype(np.int64)
    for tasks in (replayed.begins, replayed.ends):
        known = np.flatnonzero(tasks >= 0)[::-1]  # of several ranks the first is written last
        ranks[tasks[known]] = rank_of[known]
    return ranks


@dataclass(slots=True)
class _Walk:
    """The walk along the critical path, from the end of a step back to its beginning."""

    trace: Trace
    replayed: ReplayGraph
    timeline: Timeline
    began_fs: int
    ranks: I64  # [V] the first rank that each task belongs to; -1: none
    spent: defaultdict[PathKind, int] = field(default_factory=lambda: defaultdict(int))
    firsts: list[int] = field(init=False)
    asked: I64 = field(init=False)  # the first event of each instance
    stages: dict[int, int] = field(init=False)
    columns: tuple[memoryview, ...] = field(init=False)  # tasks and what they wait for, read one by one: numpy is slow
    computing: dict[int, PathKind] = field(init=False)  # by rank, made once: most tasks of a long path compute

    def __post_init__(self) -> None:
        self.firsts = self.replayed.firsts.tolist()
        graph, line = self.replayed.graph, self.timeline
        moments = line.start_fs, line.left_fs, line.end_fs
        self.columns = tuple(c.data for c in (*moments, graph.pred_start, graph.pred, graph.pred_left, self.ranks))
        number, first = np.unique(self.replayed.instance, return_index=True)
        self.asked = first[number >= 0]
        self.stages, self.computing = stages_of(self.trace), {}

    def back(self, task: int, rank: int, until: int) -> None:
        """Walk from a task of a rank, which ends at `until`, to the beginning of the step."""
        at: tuple[int, int] | None = (task, rank)
        while at is not None and until > self.began_fs:
            at, until = self._through(*at, until)
        self.spent[PathKind(NOTHING, None, None, None)] += until - self.began_fs

    def _through(self, task: int, rank: int, until: int) -> tuple[tuple[int, int] | None, int]:
        """Walk back through one computation or one call, and add its time to that of its kind.

        Args:
            task: The last task of this part of the path.
            rank: The rank on which the path is.
            until: The tick at which the task ends.

        Returns:
            The task that released this part of the path with its rank (None: nothing did), and the tick at which the part
            began.
        """
        instance, left_by, ended = self._instance(task), rank, until
        while True:
            until, before = max(self.columns[0][task], self.began_fs), self._released_by(task, rank)
            if before is None or until == self.began_fs or instance < 0 or self._instance(before) != instance:
                self.spent[self._kind_of_part(task, instance, left_by)] += ended - until
                return (None if before is None else (before, self._rank(before, rank))), until
            task, rank = before, self._rank(before, rank)

    def _rank(self, task: int, otherwise: int) -> int:
        found: int = self.columns[-1][task]
        return found if found >= 0 else otherwise

    def _instance(self, task: int) -> int:
        return bisect_right(self.firsts, task) - 1

    def _released_by(self, task: int, rank: int) -> int | None:
        """Return the task that released another task: of the same rank if possible, else the first of several."""
        start, left, ended, pred_start, pred, pred_left, ranks = self.columns
        found: tuple[bool, int] | None = None
        for at in range(pred_start[task], pred_start[task + 1]):
            before = pred[at]
            if (left if pred_left[at] else ended)[before] == start[task]:
                other = (ranks[before] != rank, before)
                found = other if found is None else min(found, other)
        return None if found is None else found[1]

    def _kind_of_part(self, task: int, instance: int, left_by: int) -> PathKind:
        """Return the kind of activity of a part of the path."""
        if instance < 0:
            return self._kind_of_task(task, self.columns[-1][task])
        event = int(self.asked[instance])
        rank = int(np.searchsorted(self.replayed.first_event, event, side="right")) - 1
        events, row = self.trace.events_of(rank), event - int(self.replayed.first_event[rank])
        axis = self.trace.groups[self.trace.group_of[rank][events.group[row]]].axis
        if events.kind[row] != Kind.COLLECTIVE:
            return PathKind(MESSAGE, axis, self.stages.get(left_by), None)
        return PathKind(events.name[row], axis, self.stages.get(left_by), self._late(task, instance, left_by))

    def _kind_of_task(self, task: int, rank: int) -> PathKind:
        """Return the kind of activity of a task that is not communication.

        It is computation, or work of the host that a mark of a profile names.
        """
        if rank not in self.computing:
            self.computing[rank] = PathKind(COMPUTATION, None, self.stages.get(rank), None)
        marked = self.trace.events_of(rank).kind[self.replayed.graph.origin[task]] == Kind.MARK
        return self.computing[rank]._replace(what=HOST) if marked else self.computing[rank]

    def _late(self, entry: int, instance: int, left_by: int) -> int | None:
        """Return the rank that entered a collective last, with task `entry`; None if it is the rank of the path itself.

        Args:
            entry: The task.
            instance: The number of the collective in the graph.
            left_by: The rank by which the path leaves it.
        """
        rank = int(self.ranks[entry])
        if rank in (-1, left_by) or self._entry(rank, instance) != entry:  # the step begins amid the collective
            return None
        entered = self.timeline.end_fs
        return rank if entered[self._entry(left_by, instance)] < entered[entry] else None

    def _entry(self, rank: int, instance: int) -> int:
        """Return the task with which a rank enters a collective; -1: the rank is not in it."""
        first, end = self.replayed.first_event[rank : rank + 2]
        own = np.flatnonzero(self.replayed.instance[first:end] == instance)
        return int(self.replayed.begins[first + own[0]]) if len(own) else -1
