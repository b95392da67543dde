"""Jobs side by side on one fabric: the step of each alone and beside the others, who slows whom, and over which links.

J jobs, L links.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, repeat
from math import ceil

import numpy as np

from emu.arrays import F64, I64
from emu.collective.schedule import MAX_ROWS
from emu.errors import InputError, at_place, must_be
from emu.memo import kept_by
from emu.study.jobs.job import Job
from emu.study.jobs.job_placement import place_jobs
from emu.study.jobs.jobs_request import AUTO, CIRCLE, COMPOSED, LEAST_LOADED, PLANES, JobsRequest, JobsSetting
from emu.study.jobs.shifts import StepProfile, shifts_of
from emu.study.jobs.step_graphs.composed_tasks import MOST_MESSAGES, ComposedSteps, composed_steps
from emu.study.jobs.step_graphs.contention import (
    busy_by_job,
    links_in_common,
    share_links,
)
from emu.study.jobs.step_graphs.least_loaded import on_least_loaded_routes
from emu.study.jobs.step_graphs.link_shares import link_shares
from emu.study.jobs.step_graphs.placed_job import PlacedJob, StepTasks, busy_links_s, place_job
from emu.study.jobs.step_graphs.shared_graph import RepeatedJob, shared_graph
from emu.study.jobs.step_graphs.steady import Fabric, SteadyRun, run_steady
from emu.study.training.composed.bodies import Sharing
from emu.topology.paths.planes import NO_PLANE, planes_of, within_planes
from emu.topology.topology import Topology
from emu.trace.replay.replay import SizeError
from emu.units import seconds

_FEW_TASKS = 2**22  # of all steps of all jobs, up to which their whole graph is timed if nothing else is asked for


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
        return self.composed(Sharing.FLOWS).tasks

    @property
    def is_coarse(self) -> bool:
        """True if bodies stand for requests of several jobs that meet on links, as these have too many messages."""
        return self.is_composed and self.composed(Sharing.FLOWS).is_coarse

    @kept_by(lambda _, sharing: sharing)
    def composed(self, sharing: Sharing) -> ComposedSteps:
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

    def factor(self, i: int) -> float:
        """Return the factor from the steps of a job's tasks to its steps: 1, but where the step is composed."""
        return self.alone_s[i] / seconds(self.profiles[i].step_fs)

    @cached_property
    def common_links(self) -> I64:
        """The links that two jobs or more use, the busiest first, if each job runs as fast as alone."""
        return links_in_common(busy_by_job(self.link_s, self.alone_s))

    @cached_property
    def link_s(self) -> list[F64]:
        """The seconds for which one step of each job keeps each link busy at its full rate, each [L]."""
        return [job.link_s(is_composed=self.is_composed) for job in self.placed]

    def begins_fs(self, shift: str) -> list[int]:
        """Return the ticks at which each job begins, with the shifts of a setting.

        A job that is shifted begins at the first tick from its own start on at which its steps lie as they should beside those
        of the first job.
        """
        starts = [placed.job.start_fs for placed in self.placed]
        if shift != CIRCLE:
            return starts
        later_fs = shifts_of(self.profiles, self.links_of_tasks())
        steps_fs = (max(1, each.step_fs) for each in self.profiles)
        return [
            start + (starts[0] + later - start) % step for start, later, step in zip(starts, later_fs, steps_fs, strict=True)
        ]

    def links_of_tasks(self) -> I64:
        """Return the links of tasks that two jobs or more use, the busiest first; bodies have other links than the topology."""
        if not self.is_composed:
            return self.common_links
        return links_in_common(np.array([busy_links_s(tasks.graph) for tasks in self.tasks]))

    def repeated(self, setting: JobsSetting) -> list[RepeatedJob]:
        """Return each job as it is repeated in a setting: when it begins, and its share of links."""
        shares = link_shares(setting.share, self.placed, self.link_s, has_packets=self.request.packets is not None)
        return [RepeatedJob(*of) for of in zip(self.tasks, repeat(1), self.begins_fs(setting.shift), shares)]

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


def place_side_by_side(request: JobsRequest, topology: Topology, setting: JobsSetting) -> SideBySide:
    """Return jobs on the NPUs of a topology, with the way in which their steps are timed.

    Args:
        request: The jobs.
        topology: The topology.
        setting: The placement of jobs that name no NPUs, their planes, and their routes.

    Raises:
        InputError: There is too little room, a job cannot be timed, the software of jobs changes links in different ways,
            packets or a whole graph are asked for where jobs are too large, or there are no planes or routes to choose.
    """
    if topology.circuits is not None:
        mend = "take a topology whose circuits stay"
        raise InputError(f"jobs: the optical switches of {topology.name} turn between messages; {mend}")
    if topology.chooses:
        mend = "take another route=, and routes = 'least-loaded' in the file or --routes least-loaded"
        raise InputError(f"jobs: messages of {topology.name} choose their way, which shares of links do not show; {mend}")
    request = replace(request, packets=None if request.packets is None else request.packets.on(topology))
    npus, planes = place_jobs(request.jobs, topology, setting.placement), planes_of_jobs(request.jobs, topology, setting)
    if request.packets is not None and (any(planes) or setting.routes == LEAST_LOADED):
        _check_lanes(topology, npus[0])
    placed = tuple(_placed(*of) for of in zip(request.jobs, repeat(topology), npus, planes))
    _check_links(placed)
    is_composed = _is_composed(request, placed)
    if setting.routes == LEAST_LOADED and is_composed:
        mend = "take time = 'whole', fewer ranks or fewer steps, or own routes"
        raise must_be("jobs", "routes", "own where steps are composed", setting.routes, mend)
    if setting.routes == LEAST_LOADED:
        placed = on_least_loaded_routes(placed)
    return SideBySide(request, topology, placed, is_composed)


def _check_links(placed: Sequence[PlacedJob]) -> None:
    """Check that the software of all jobs leaves links with the same bandwidth.

    Raises:
        InputError: It does not.
    """
    for job in placed[1:]:
        if not np.array_equal(job.topology.capacity_Bps, placed[0].topology.capacity_Bps):
            mend = "give all jobs one `bandwidth` in their stacks"
            what = "one that leaves links as the others do"
            raise must_be("jobs", f"stack of {job.job.name}", what, "another bandwidth", mend)


def _check_lanes(topology: Topology, npus: I64) -> None:
    """Refuse planes and chosen routes for packets where the topology's own routes name lanes, which other paths do not have.

    Raises:
        InputError: They do.
    """
    if len(npus) > 1 and topology.routes(npus[:1], npus[1:2], np.zeros(1, np.int64)).virtual is not None:
        what = "all of them and own where packets keep to lanes that the topology's routes name"
        raise must_be("jobs", "planes and routes", what, topology.name, "take the fluid fabric")


def planes_of_jobs(jobs: Sequence[Job], topology: Topology, setting: JobsSetting) -> list[tuple[int, ...]]:
    """Return the planes that each job keeps to: those that it names, else those that a setting deals to the jobs in turn.

    Without planes of its own a job may send over all.
    """
    named = [job.planes for job in jobs]
    if setting.share != PLANES:
        return named
    count = int(planes_of(topology).max(initial=NO_PLANE)) + 1
    dealt = [tuple(range(number % max(1, count), max(1, count), len(jobs))) for number in range(len(jobs))]
    return [own or turn for own, turn in zip(named, dealt, strict=True)]


def _placed(job: Job, topology: Topology, npus: I64, planes: Sequence[int]) -> PlacedJob:
    """Return a job on its NPUs and planes; an error names the job."""
    own = within_planes(topology, planes) if planes else topology
    try:
        return place_job(job, own, npus)
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
