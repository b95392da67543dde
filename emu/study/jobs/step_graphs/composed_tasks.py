"""The composed steps of several jobs: a body for each request, and every message where requests of several jobs meet.

A request that crosses a link of another job is modelled message by message, with a task for each rank; so is one that shares a
link with such a request of its own job. All others are bodies. So what jobs cost one another is as exact as in a whole graph.
L links, Q requests of a job, X events of its representatives.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, Bool, column
from emu.collective.schedule import MAX_ROWS
from emu.fabric.graph import Graph
from emu.study.jobs.step_graphs.placed_job import PlacedJob, StepTasks
from emu.study.training.composed.bodies import Bodies, Sharing, bodies_of
from emu.study.training.composed.composed_graph import compose

MOST_MESSAGES = 2**20  # of one step of all jobs; with more, all requests are bodies


class ComposedSteps(NamedTuple):
    """The composed step of each job, all on the same links."""

    tasks: list[StepTasks]
    is_coarse: bool  # True if requests of jobs meet on links, but have too many messages, so that all of them are bodies


def composed_steps(
    jobs: Sequence[PlacedJob], times: Sequence[int], most_messages: int = MOST_MESSAGES, sharing: Sharing = Sharing.FLOWS
) -> ComposedSteps:
    """Return the composed step of each job.

    Args:
        jobs: The jobs.
        times: How often each repeats its step.
        most_messages: The most messages of one step of all jobs that are modelled; with more, or with more than half of
            `MAX_ROWS` of all steps, all requests are bodies.
        sharing: How much of its links a body needs.

    Raises:
        InputError: The ranks of a job do not make matching requests, or a request cannot be timed.
    """
    meeting = requests_that_meet(jobs)
    messages = [_messages_of(job, of) for job, of in zip(jobs, meeting, strict=True)]
    is_coarse = sum(messages) > most_messages or sum(np.multiply(messages, times).tolist()) > MAX_ROWS // 2
    if is_coarse:
        meeting = [of & False for of in meeting]
    every = _bodies_of_all(jobs, sharing)
    ends = np.cumsum([0, *(len(job.step.isolated) for job in jobs)]).tolist()
    real = jobs[0].topology.capacity_Bps if any(of.any() for of in meeting) else every.capacity_Bps[:0]
    graphs = [_composed(job, _bodies_between(every, *ends[i : i + 2]), meeting[i]) for i, job in enumerate(jobs)]
    return ComposedSteps([StepTasks(_on_links(graph, real), None) for graph in graphs], is_coarse)


def requests_that_meet(jobs: Sequence[PlacedJob]) -> list[Bool]:
    """Return, for each job, [Q] which of its requests meet those of another job on a link, directly or over others."""
    crossed = [_crossed(job) for job in jobs]
    users = np.sum([of.any(axis=0) for of in crossed], axis=0)
    return [_joined(of, users > 1) for of in crossed]


def _messages_of(job: PlacedJob, chosen: Bool) -> int:
    """Return the messages of some requests of one step."""
    return sum(int(job.step.asked.counts[q]) * job.step.isolated[q].messages for q in np.flatnonzero(chosen).tolist())


def _bodies_of_all(jobs: Sequence[PlacedJob], sharing: Sharing) -> Bodies:
    """Return the bodies of all requests of all jobs, one job after another."""
    isolated = [each for job in jobs for each in job.step.isolated]
    kinds = [(number, each.kind) for number, job in enumerate(jobs) for each in job.step.asked.requests]
    counts = np.concatenate([job.step.asked.counts for job in jobs])
    return bodies_of(isolated, kinds, counts, jobs[0].topology.links.bandwidth_Bps, sharing)


def _crossed(job: PlacedJob) -> Bool:
    """Return [Q, L] the links that each request of a job crosses."""
    found = np.zeros((len(job.step.isolated), len(job.topology.links)), np.bool_)
    for number, each in enumerate(job.step.isolated):
        found[number, each.link] = True
    return found


def _joined(crossed: Bool, links: Bool) -> Bool:
    """Return [Q] the requests that cross one of the links, or a link of such a request, and so on."""
    found = (crossed & links).any(axis=1)
    while True:
        more = (crossed & crossed[found].any(axis=0)).any(axis=1)
        if (more == found).all():
            return np.asarray(found)
        found = more


def _composed(job: PlacedJob, bodies: Bodies, meets: Bool) -> Graph:
    """Return the graph of a composed step, with a task for each rank in the events of the requests that meet others."""
    asked = job.step.asked
    by_rank = np.zeros(asked.first_event[-1], np.bool_)
    by_rank[asked.event[meets[asked.request_of_call[asked.call]]]] = True
    return compose(job.step.frame(), bodies, by_rank, job.step.sending).graph


def _on_links(graph: Graph, real: F64) -> Graph:
    """Return a graph on the links of the topology and, after these, those of bodies, if it has only the latter yet."""
    if not len(real) or np.array_equal(graph.capacity_Bps[: len(real)], real):
        return graph
    capacity = column(np.concatenate((real, graph.capacity_Bps)), np.float64)
    return replace(graph, capacity_Bps=capacity, hop_link=column(graph.hop_link + len(real), np.int32))


def _bodies_between(every: Bodies, low: int, high: int) -> Bodies:
    """Return the bodies of the requests from number `low` to below `high`, on the same links."""
    half = len(every.alpha_fs) // 2
    chosen: I64 = np.concatenate((np.arange(low, high), half + np.arange(low, high)))
    return Bodies(every.capacity_Bps, *every.of(chosen))
