"""Jobs side by side on one fabric: the step of each alone and beside the others, who slows whom, and over which links.

J jobs, L links.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, repeat
from math import ceil
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.collective.schedule import MAX_ROWS
from emu.errors import InputError, at_place, must_be
from emu.memo import kept_by
from emu.study.jobs.job import Job
from emu.study.jobs.job_placement import place_jobs
from emu.study.jobs.jobs_request import AUTO, CIRCLE, COMPOSED, INTENSITY, WEIGHTS, JobsRequest, JobsSetting
from emu.study.jobs.jobs_row import JobBeside, JobsRow
from emu.study.jobs.shifts import StepProfile, shifts_of
from emu.study.jobs.step_graphs.composed_tasks import MOST_MESSAGES, ComposedSteps, composed_steps
from emu.study.jobs.step_graphs.contention import (
    JobTimes,
    LinkUse,
    SharedLink,
    busy_by_job,
    links_in_common,
    share_links,
    times_of_jobs,
)
from emu.study.jobs.step_graphs.placed_job import PlacedJob, StepTasks, busy_links_s, intensity_weights, place_job
from emu.study.jobs.step_graphs.shared_graph import RepeatedJob, shared_graph
from emu.study.jobs.step_graphs.steady import Fabric, SteadyRun, jain_index, run_steady
from emu.study.training.composed.bodies import Sharing
from emu.topology.topology import Topology
from emu.trace.replay.replay import SizeError
from emu.units import seconds

SLOWED = 1e-3  # a job that is slowed down by less is not slowed down
_FEW_TASKS = 2**22  # of all steps of all jobs, up to which their whole graph is timed if nothing else is asked for


_COMPOSED_ASSUMED = (
    "steps are composed: a request is one body; the step of a job is its estimate times how far its bodies are slowed down"
)
_MEETING = "requests that meet those of another job on a link are no bodies, but have every message"
_COARSE = (
    "requests that meet those of another job on a link are bodies, too, as they have too many messages: this may be wrong by a "
    "quarter and more. With every message a step would take a time in the range that is told: least as alone; most, where each "
    "request needs all links that it crosses all the time. The matrix has no such range"
)


class RunSideBySide(NamedTuple):
    """Jobs side by side as a row of figures, with the times of each job from which a timeline is drawn."""

    row: JobsRow
    times: tuple[JobTimes, ...]


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Jobs on the NPUs of one topology, with the tasks of their steps, from which every run is made.

    Args:
        request: The jobs.
        topology: The topology.
        placed: The jobs on their NPUs.
        is_composed: Whether bodies stand for messages.
        most_messages: The most messages of requests that meet in composed steps; with more, they are bodies, too.
    """

    request: JobsRequest
    topology: Topology
    placed: tuple[PlacedJob, ...]
    is_composed: bool
    most_messages: int = MOST_MESSAGES

    @cached_property
    def fabric(self) -> Fabric:
        """The fabric that the jobs share."""
        return Fabric(self.placed[0].topology, self.request.packets)

    @cached_property
    def tasks(self) -> list[StepTasks]:
        """The tasks of one step of each job."""
        if not self.is_composed:
            return [job.messages for job in self.placed]
        return self._composed(Sharing.FLOWS).tasks

    @property
    def is_coarse(self) -> bool:
        """True if bodies stand for requests of several jobs that meet on links, as these have too many messages."""
        return self.is_composed and self._composed(Sharing.FLOWS).is_coarse

    @kept_by(lambda _, sharing: sharing)
    def _composed(self, sharing: Sharing) -> ComposedSteps:
        """Return the composed steps of all jobs, for an assumption on the share of links that bodies need."""
        return composed_steps(self.placed, steps_of(self.request, self.placed), self.most_messages, sharing)

    @cached_property
    def profiles(self) -> list[StepProfile]:
        """One step of each job alone, by the tasks that are run side by side."""
        shared = [shared_graph([RepeatedJob(tasks, 1)]) for tasks in self.tasks]
        timelines = [self.fabric.run(each) for each in shared]
        return [StepProfile(int(t.end_fs.max(initial=0)), each.graph, t) for each, t in zip(shared, timelines, strict=True)]

    @cached_property
    def alone_s(self) -> list[float]:
        """The seconds of one step of each job alone; a composed step as its estimate has it."""
        if self.is_composed:
            return [job.alone.report.step_time_s for job in self.placed]
        return [seconds(each.step_fs) for each in self.profiles]

    @cached_property
    def common_links(self) -> I64:
        """The links that two jobs or more use, the busiest first, if each job runs as fast as alone."""
        return links_in_common(busy_by_job(self.link_s, self.alone_s))

    @cached_property
    def link_s(self) -> list[F64]:
        """The seconds for which one step of each job keeps each link busy at its full rate, each [L]."""
        return [job.link_s(is_composed=self.is_composed) for job in self.placed]

    def begins_fs(self, shift: str) -> list[int]:
        """Return the ticks at which each job begins, with the shifts of a setting."""
        starts = [placed.job.start_fs for placed in self.placed]
        if shift != CIRCLE:
            return starts
        return [start + later for start, later in zip(starts, shifts_of(self.profiles, self._links_of_tasks()), strict=True)]

    def _links_of_tasks(self) -> I64:
        """Return the links of tasks that two jobs or more use, the busiest first; bodies have other links than the topology."""
        if not self.is_composed:
            return self.common_links
        return links_in_common(np.array([busy_links_s(tasks.graph) for tasks in self.tasks]))

    def repeated(self, setting: JobsSetting) -> list[RepeatedJob]:
        """Return each job as it is repeated in a setting: when it begins, and its weight."""
        begins, weights = self.begins_fs(setting.shift), [placed.job.weight for placed in self.placed]
        if setting.share != WEIGHTS:
            weights = intensity_weights(self.placed, self.link_s) if setting.share == INTENSITY else [1] * len(weights)
        return [RepeatedJob(*of) for of in zip(self.tasks, repeat(1), begins, weights)]

    def run(self, jobs: Sequence[int], every: Sequence[RepeatedJob], slower: Sequence[float]) -> SteadyRun:
        """Return the run of some of the jobs.

        Args:
            jobs: The numbers of the jobs.
            every: Each of all jobs as it is repeated.
            slower: Of each of all jobs, how far it is expected to be slowed down.
        """
        repeated = [every[i] for i in jobs]
        expected = [self.profiles[i].step_fs * slower[i] for i in jobs]
        return run_steady(repeated, expected, self.request.steps, self.fabric, MAX_ROWS)

    def pairs(self, every: Sequence[RepeatedJob]) -> F64:
        """Return [J, J] how far each job is slowed down by each other one, if just these two run; 1 for itself.

        Jobs that share no link are not run: they cannot slow one another down.
        """
        found = np.ones((len(self.placed), len(self.placed)))
        for one, other in combinations(range(len(self.placed)), 2):
            if share_links(self.tasks[one], self.tasks[other]):
                run = self.run((one, other), every, np.ones(len(found)).tolist())
                found[one, other], found[other, one] = (
                    run.step_s(at) / seconds(self.profiles[job].step_fs) for at, job in enumerate((one, other))
                )
        return found

    def in_setting(self, setting: JobsSetting) -> RunSideBySide:
        """Return all jobs side by side in a setting; errors as in `run_steady`."""
        began, every = time.perf_counter(), self.repeated(setting)
        pairs = self.pairs(every)
        run = self.run(range(len(every)), every, (1 + (pairs - 1).sum(axis=1)).tolist())
        use = LinkUse(run, self._links_of_tasks())
        row = self._row(setting, run, self._jobs(use, pairs, every, self._most_s(every)), pairs)
        times = times_of_jobs(use, [job.name for job in row.jobs])
        return RunSideBySide(replace(row, wall_s=time.perf_counter() - began), times)

    def _most_s(self, every: Sequence[RepeatedJob]) -> list[float]:
        """Return the longest step of each job that is estimated, if bodies stand for requests that meet; else an empty list.

        Each body needs all links that it crosses all the time. `every` is each job as it is repeated.
        """
        if not self.is_coarse:
            return []
        tasks = self._composed(Sharing.ALL).tasks
        greedy = [job._replace(tasks=own) for job, own in zip(every, tasks, strict=True)]
        run = self.run(range(len(greedy)), greedy, np.ones(len(greedy)).tolist())
        return [run.step_s(i) * self._factor(i) for i in range(len(greedy))]

    def _row(self, setting: JobsSetting, run: SteadyRun, jobs: tuple[JobBeside, ...], pairs: F64) -> JobsRow:
        """Return the figures of a setting; `jobs` are those of each job, `pairs` is the result of `pairs`."""
        busy = busy_by_job(self.link_s, [job.step_s for job in jobs]).sum(axis=0)
        slower, most = np.array([job.slow_down for job in jobs]), int(busy.argmax())
        return JobsRow(
            topology=self.topology.name,
            placement=setting.placement,
            shift=setting.shift,
            share=setting.share,
            engine=COMPOSED if self.is_composed else run.timeline.how,
            jobs=jobs,
            slow_down=float(slower.mean()),
            worst=float(slower.max()),
            computing=computing_share(jobs),
            fairness=jain_index(1 / slower),
            pairs=tuple(tuple(row) for row in pairs.tolist()),
            busiest_link=" to ".join(self._ends(most)),
            busiest=float(busy[most]),
            tasks=run.shared.graph.n_tasks,
            wall_s=0.0,
            assumptions=self._assumptions(setting),
        )

    def _jobs(self, use: LinkUse, pairs: F64, every: Sequence[RepeatedJob], most_s: Sequence[float]) -> tuple[JobBeside, ...]:
        """Return the figures of each job in a run.

        Args:
            use: The use of links in the run.
            pairs: The result of `pairs`.
            every: The result of `repeated`.
            most_s: The result of `_most_s`.
        """
        run = use.run
        steps_s = [run.step_s(i) * self._factor(i) for i in range(len(self.placed))]
        busy = busy_by_job(self.link_s, steps_s)
        known = None if self.is_composed else use
        found = [self._job(i, run, pairs[i], self._links(i, busy, known), every[i]) for i in range(len(self.placed))]
        if not most_s:
            return tuple(found)
        between = [(min(job.alone_s, job.step_s), max(job.step_s, most)) for job, most in zip(found, most_s, strict=True)]
        return tuple(replace(job, between_s=each) for job, each in zip(found, between, strict=True))

    def _factor(self, i: int) -> float:
        """Return the factor from the steps of a job's tasks to its steps: 1, but where the step is composed."""
        return self.alone_s[i] / seconds(self.profiles[i].step_fs)

    def _job(self, i: int, run: SteadyRun, pairs: F64, links: tuple[SharedLink, ...], repeated: RepeatedJob) -> JobBeside:
        """Return the figures of one job."""
        placed, times = self.placed[i], run.step_times_fs(i)
        by, factor = int(pairs.argmax()), self._factor(i)
        return JobBeside(
            name=placed.job.name,
            work=placed.job.work.told,
            ranks=len(placed.npus),
            npus=npu_ranges(placed.npus),
            weight=repeated.weight,
            begin_s=seconds(repeated.begin_fs),
            compute_s=placed.compute_s,
            alone_s=self.alone_s[i],
            step_s=run.step_s(i) * factor,
            least_s=seconds(times.min()) * factor,
            most_s=seconds(times.max()) * factor,
            steps=len(times),
            slow_down=run.step_s(i) / seconds(self.profiles[i].step_fs),
            waits_for=self.placed[by].job.name if pairs[by] > 1 + SLOWED else None,
            links=links,
        )

    def _links(self, i: int, busy: F64, use: LinkUse | None) -> tuple[SharedLink, ...]:
        """Return, for each other job with common links, the link on which both are together longest; the longest first.

        Args:
            i: The number of the job.
            busy: [J, L] the share of the time for which each job keeps each link busy.
            use: The spans in which jobs use links; None: they are not known.
        """
        total, found = busy.sum(axis=0), list[SharedLink]()
        for other in (number for number in range(len(busy)) if number != i):
            common = np.flatnonzero((busy[i] > 0) & (busy[other] > 0))
            if not len(common):
                continue
            timed = np.intersect1d(common, use.links).tolist() if use else []
            together = {link: use.together_s(link, i, other) for link in timed} if use else {}
            most = min(timed or common.tolist(), key=lambda link: (-round(together.get(link, 0.0), 12), -round(total[link], 9)))
            name, ends = self.placed[other].job.name, self._ends(most)
            found.append(SharedLink(name, len(common), most, *ends, together.get(most), float(total[most])))
        return tuple(sorted(found, key=lambda each: -(each.together_s or 0.0)))

    def _ends(self, link: int) -> tuple[str, str]:
        """Return the names of the nodes that a link joins."""
        links = self.topology.links
        return self.topology.node_name(int(links.src[link])), self.topology.node_name(int(links.dst[link]))

    def _assumptions(self, setting: JobsSetting) -> tuple[str, ...]:
        """Return a sentence for each assumption."""
        told = [
            "a step of a job begins when all its ranks have ended the step before; a job repeats its step",
            "algorithms are those that are chosen for each job as if no other ran",
            "a cell of the matrix is a run of two jobs alone: the job of the row beside that of the column",
        ]
        if self.is_composed:
            told += _COMPOSED_ASSUMED, _COARSE if self.is_coarse else _MEETING
        if setting.share == INTENSITY:
            told.append("weights follow from computation for each second of the busiest link: 64 for the most intense job")
        if setting.share == INTENSITY or any(placed.job.weight != 1 for placed in self.placed):
            told.append("a message of weight w gets w shares of a full link, as weighted fair queues give them")
        if setting.shift == CIRCLE:
            told.append("jobs begin later by the turn of their steps on a common circle; nothing holds them there afterwards")
        if self.request.packets is not None:
            told += self.request.packets.assumptions
        return (*self.topology.assumptions, *told)


def place_side_by_side(request: JobsRequest, topology: Topology, policy: str) -> SideBySide:
    """Return jobs on the NPUs of a topology, with the way in which their steps are timed.

    Args:
        request: The jobs.
        topology: The topology.
        policy: The placement of jobs that name no NPUs.

    Raises:
        InputError: There is too little room, a job cannot be timed, the software of jobs changes links in different ways, or
            packets or a whole graph are asked for where jobs are too large.
    """
    if topology.circuits is not None:
        mend = "take a topology whose circuits stay"
        raise InputError(f"jobs: the optical switches of {topology.name} turn between messages; {mend}")
    npus = place_jobs(request.jobs, topology, policy)
    placed = tuple(_placed(job, topology, own) for job, own in zip(request.jobs, npus, strict=True))
    for job in placed[1:]:
        if not np.array_equal(job.topology.capacity_Bps, placed[0].topology.capacity_Bps):
            mend = "give all jobs one `bandwidth` in their stacks"
            raise must_be(
                "jobs", f"stack of {job.job.name}", "one that leaves links as the others do", "another bandwidth", mend
            )
    return SideBySide(request, topology, placed, _is_composed(request, placed))


def _placed(job: Job, topology: Topology, npus: I64) -> PlacedJob:
    """Return a job on its NPUs; an error names the job."""
    try:
        return place_job(job, topology, npus)
    except InputError as error:
        raise at_place(f"jobs: {job.name}", error) from None


def _is_composed(request: JobsRequest, placed: Sequence[PlacedJob]) -> bool:
    """Return whether the steps of jobs are composed.

    Raises:
        InputError: Every message is needed, and a job has too many.
    """
    large = next((job for job in placed if not job.is_whole), None)
    if large is not None and (request.time not in (AUTO, COMPOSED) or request.packets is not None):
        what = "few enough events for a whole graph"
        raise must_be("jobs", f"the step of {large.job.name}", what, "too many", "take fewer ranks, or time = 'composed'")
    if large is not None or request.time == COMPOSED:
        return True
    if request.time != AUTO or request.packets is not None:
        return False
    try:
        steps = steps_of(request, placed)
        return sum(n * job.messages.graph.n_tasks for n, job in zip(steps, placed, strict=True)) > _FEW_TASKS
    except SizeError:  # a symmetry made the step of one job small
        return True


def steps_of(request: JobsRequest, placed: Sequence[PlacedJob]) -> list[int]:
    """Return how many steps of each job run, if each takes as long as alone."""
    alone = [job.alone.report.step_time_fs for job in placed]
    return [ceil((request.steps + 3) * max(alone) / max(own, 1)) for own in alone]


def computing_share(jobs: Sequence[JobBeside]) -> float:
    """Return the share of the time for which the NPUs of all jobs compute."""
    return sum(job.ranks * job.compute_s / job.step_s for job in jobs if job.step_s) / sum(job.ranks for job in jobs)


def npu_ranges(npus: I64) -> str:
    """Return NPUs in their order as text, with runs of neighbours as ranges, such as `0-7,16-23`."""
    starts = np.flatnonzero(np.diff(npus, prepend=npus[0] - 2) != 1)
    ends = np.append(starts[1:], len(npus)) - 1
    spans = zip(npus[starts].tolist(), npus[ends].tolist(), strict=True)
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
