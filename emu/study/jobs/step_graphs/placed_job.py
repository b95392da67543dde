"""A job on its NPUs: the algorithms that serve it, its step without other jobs, and the tasks of that step.

The tasks are all messages of all ranks, or one body for each request where the step is composed. L links, V tasks, Q requests.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, column
from emu.fabric.graph import Graph
from emu.study.jobs.job import Job, TrainingWork
from emu.study.training.composed.bodies import busy_s
from emu.study.training.composed.requests_by_place import requests_by_place
from emu.study.training.composed.software_costs import costed_device, costed_topology
from emu.study.training.composed.step_on_fabric import StepOnFabric
from emu.study.training.estimate import DEFAULT_EFFORT, prepare
from emu.study.training.step.step import TimedTrace
from emu.study.training.step_choice.algorithm_search import TimingEffort
from emu.study.training.timed_step import by_roles, events_of, time_replay
from emu.topology.topology import Topology
from emu.trace.replay.packet_replay import route_keys
from emu.trace.replay.replay import TraceLayout


class StepTasks(NamedTuple):
    """The tasks of one step of a job, with the key of the route of each message; no keys where bodies stand for messages."""

    graph: Graph
    keys: I64 | None  # [V]


@dataclass(frozen=True, eq=False)
class PlacedJob:
    """A job on its NPUs, with its step as it is timed if no other job runs."""

    job: Job
    npus: I64  # [ranks] the NPU of each rank
    alone: TimedTrace
    step: StepOnFabric  # with the algorithms that serve it

    @property
    def topology(self) -> Topology:
        """The topology with the costs of the job's software."""
        return self.step.topology

    @property
    def is_whole(self) -> bool:
        """True if the tasks of all ranks are few enough for a whole graph."""
        return self.step.whole is not None and not self.alone.is_composed

    @cached_property
    def messages(self) -> StepTasks:
        """The step with the messages of every rank.

        Raises:
            SizeError: There are more than 2**24 messages and computations.
        """
        assert self.step.whole is not None
        replayed = replace(self.step.whole, choice=self.step.choice, device=self.step.device).build_graph(None)
        return StepTasks(replayed.graph, route_keys(replayed))

    def rerouted(self, topology: Topology) -> "PlacedJob":
        """Return the job with the same algorithms on a topology of other routes; all messages must be few enough."""
        assert self.step.whole is not None
        whole = replace(self.step.whole, topology=topology)
        return replace(self, step=replace(self.step, topology=topology, whole=whole))

    @cached_property
    def compute_s(self) -> float:
        """The seconds of a step for which a rank computes, in the mean of all ranks."""
        return self.alone.mean_over_ranks().compute_s

    def link_s(self, *, is_composed: bool) -> F64:
        """Return [L] the seconds for which one step keeps each link busy at its full rate.

        Args:
            is_composed: Whether they follow from the requests of the composed step; else from all messages.
        """
        if is_composed:
            return busy_s(self.step.isolated, self.step.asked.counts, len(self.topology.links))
        return busy_links_s(self.messages.graph)


def busy_links_s(graph: Graph) -> F64:
    """Return [L] the seconds for which the messages of a graph keep each link busy at its full rate."""
    carried = np.bincount(graph.hop_link, graph.size_bytes[graph.hop_task] * graph.hop_weight, graph.n_links)
    return np.asarray(carried / graph.capacity_Bps, np.float64)


def placed_on(topology: Topology, npus: I64) -> Topology:
    """Return a topology whose first ranks are on the given NPUs, in their order; its links stay as they are."""
    order = np.concatenate((npus, np.setdiff1d(np.arange(topology.n_npus), npus)))
    return replace(topology, placer=lambda ranks, faulty: column(order[~np.isin(order, faulty)][:ranks], np.int64))


def place_job(job: Job, topology: Topology, npus: I64, effort: TimingEffort = DEFAULT_EFFORT) -> PlacedJob:
    """Return a job on NPUs of a topology, by the algorithms that are chosen for it as if no other job ran.

    Args:
        job: The job.
        topology: The topology that the jobs share.
        npus: [ranks] the NPU of each rank.
        effort: How much work is put into the choice; a step of more events than it allows is composed.

    Raises:
        InputError: The job cannot be timed on this topology.
    """
    own, work = placed_on(topology, npus), job.work
    if isinstance(work, TrainingWork):
        ready, device = prepare(work.request, own, work.device, effort), costed_device(work.request.stack, work.device)
        ready.generated.check_words(work.request.algorithms, ready.npus, ready.topology)
        timed = ready.timed(device)
        return PlacedJob(job, ready.npus, timed, ready.on_fabric(device).by(timed.choice))
    own = costed_topology(work.stack, own)
    timed = time_replay(work.trace, work.words, own, work.device, work.dtype)
    whole = TraceLayout(work.trace, timed.choice, own, timed.device, work.dtype)
    fits = events_of(work.trace) <= effort.most_events
    on = timed.choice, own, npus, work.device
    step = StepOnFabric.of(lambda: requests_by_place(by_roles(work.trace, work.dtype)), *on, whole=whole if fits else None)
    return PlacedJob(job, npus, timed, step)
