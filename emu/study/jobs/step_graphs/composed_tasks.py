"""The composed steps of several jobs: a body for each request, and every message where requests of several jobs meet.

A request that crosses a link of another job is modelled message by message, with a task for each rank; so is one that shares a
link with such a request of its own job. All others are bodies. So what jobs cost one another is as exact as in a whole graph.
L links, Q requests of a job, X events of its representatives.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from emu.arrays import F64, I64, Bool, column
from emu.fabric.graph import Graph
from emu.study.jobs.step_graphs.placed_job import PlacedJob, StepTasks
from emu.study.training.composed.bodies import Bodies, bodies_of
from emu.study.training.composed.composed_graph import compose

MOST_MESSAGES = 2**20  # of one step of all jobs; with more, all requests are bodies


def composed_tasks(jobs: Sequence[PlacedJob], most_messages: int = MOST_MESSAGES) -> list[StepTasks]:
    """Return the composed step of each job, all on the same links.

    Args:
        jobs: The jobs.
        most_messages: The most messages of one step of all jobs that are modelled; with more, all requests are bodies.

    Raises:
        InputError: The ranks of a job do not make matching requests, or a request cannot be timed.
    """
    isolated = [each for job in jobs for each in job.step.isolated]
    kinds = [(number, each.kind) for number, job in enumerate(jobs) for each in job.step.asked.requests]
    counts = np.concatenate([job.step.asked.counts for job in jobs])
    every = bodies_of(isolated, kinds, counts, jobs[0].topology.links.bandwidth_Bps)
    ends = np.cumsum([0, *(len(job.step.isolated) for job in jobs)]).tolist()
    meeting = requests_that_meet(jobs, most_messages)
    real = jobs[0].topology.capacity_Bps if any(of.any() for of in meeting) else every.capacity_Bps[:0]
    return [
        StepTasks(_on_links(_composed(job, _bodies_between(every, *ends[i : i + 2]), meeting[i]), real), None)
        for i, job in enumerate(jobs)
    ]


def requests_that_meet(jobs: Sequence[PlacedJob], most_messages: int = MOST_MESSAGES) -> list[Bool]:
    """Return, for each job, [Q] which of its requests meet those of another job on a link, directly or over others.

    None of them do if they have more messages than may be modelled.
    """
    crossed = [_crossed(job) for job in jobs]
    users = np.sum([of.any(axis=0) for of in crossed], axis=0)
    found = [_joined(of, users > 1) for of in crossed]
    messages = sum(
        int(job.step.asked.counts[q]) * job.step.isolated[q].messages
        for job, of in zip(jobs, found, strict=True)
        for q in np.flatnonzero(of).tolist()
    )
    return found if messages <= most_messages else [of & False for of in found]


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
