"""One graph of several jobs that repeat their steps on one fabric, and the times of these steps.

A step of a job begins when all its ranks have ended the step before. V tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, column
from emu.errors import must_be
from emu.fabric.build import Builder
from emu.fabric.graph import Graph, Timeline
from emu.study.jobs.step_graphs.placed_job import StepTasks

_MOST_BYTES, _MOST_WEIGHT = 2**62, 2**31 - 1  # of a message and of a hop, that the graph has room for


class LinkShare(NamedTuple):
    """The part of links that a job gets beside other jobs."""

    weight: int = 1  # shares of a full link that each of its messages gets
    is_sliced: bool = False  # whether it has a slice of each link, by its weight, that no other job gets
    lane: int = 0  # number of its set of lanes at each port, where packets of jobs have lanes of their own
    is_strict: bool = False  # whether jobs go before others by their priority, which weights or the order of lanes stand for


EVEN = LinkShare()


class RepeatedJob(NamedTuple):
    """A job in a shared graph: the tasks of one step, how often it is repeated, when it begins, and its share of links."""

    tasks: StepTasks
    times: int
    begin_fs: int = 0  # ticks at which the first step begins
    share: LinkShare = EVEN


class StepTimes(NamedTuple):
    """The ticks at which each step of a job begins and ends."""

    begin_fs: I64
    end_fs: I64


@dataclass(frozen=True, eq=False, slots=True)
class SharedGraph:
    """The graph of several jobs, with the tasks between their steps.

    The owner of a task is the number of its job. Where jobs have slices, link l of job j is number j * n_links + l.
    """

    graph: Graph
    n_links: int
    shares: tuple[LinkShare, ...]  # of each job
    keys: I64 | None  # [V] the key of the route of each message; None: bodies stand for messages
    between: tuple[I64, ...]  # for each job, the task before its first step and the one after each of its steps
    step_tasks: tuple[tuple[int, ...], ...]  # for each job, the first task of each of its steps

    def steps(self, timeline: Timeline) -> list[StepTimes]:
        """Return the times of the steps of each job."""
        ends = [timeline.end_fs[tasks] for tasks in self.between]
        return [StepTimes(of[:-1], of[1:]) for of in ends]


def shared_graph(jobs: Sequence[RepeatedJob]) -> SharedGraph:
    """Return the graph of several jobs that repeat their steps on the links of one fabric.

    A message of weight w becomes w messages of a w-th of its bytes, which share links max-min fairly as all messages do: a task
    of these bytes whose hops weigh w times as much. Bytes and bandwidths are multiplied so that these parts are whole.
    """
    capacity, graphs = _sliced(jobs) if jobs[0].share.is_sliced else _weighted(jobs)
    builder = Builder(capacity)
    keys, between, firsts = [np.empty(0, np.int64)], [], []
    for number, job in enumerate(jobs):
        step = _owned(graphs[number], number)
        roots, ends = np.flatnonzero(np.diff(step.pred_start) == 0), _last_tasks(step)
        joins, own = [builder.tasks(column([job.begin_fs], np.int64))[0]], []
        keys.append(np.zeros(1, np.int64))
        for _ in range(job.times):
            first = int(builder.add(step)[0])
            [join] = builder.tasks(np.zeros(1, np.int64))
            builder.wait(first + roots, np.full(len(roots), joins[-1]))
            builder.wait(np.full(len(ends), join), first + ends)
            joins.append(join)
            own.append(first)
            keys += [np.zeros(step.n_tasks, np.int64) if job.tasks.keys is None else job.tasks.keys, np.zeros(1, np.int64)]
        between.append(np.array(joins))
        firsts.append(tuple(own))
    has_keys = all(job.tasks.keys is not None for job in jobs)
    every = builder.graph(), jobs[0].tasks.graph.n_links, tuple(job.share for job in jobs)
    return SharedGraph(*every, np.concatenate(keys) if has_keys else None, tuple(between), tuple(firsts))


def _owned(graph: Graph, number: int) -> Graph:
    """Return the graph with a job as the owner of each task."""
    return replace(graph, owner=column(np.full(graph.n_tasks, number), np.int32))


def _weighted(jobs: Sequence[RepeatedJob]) -> tuple[F64, list[Graph]]:
    """Return the bandwidths of links, and the steps of jobs whose messages have the weights of their jobs."""
    parts, graphs = lcm(*(job.share.weight for job in jobs)), [job.tasks.graph for job in jobs]
    capacity = column(graphs[0].capacity_Bps * parts, np.float64)
    if parts == 1:
        return capacity, graphs
    _check_room(jobs, parts)
    heavier = []
    for graph, job in zip(graphs, jobs, strict=True):
        size = column(graph.size_bytes * (parts // job.share.weight), np.int64)
        weight = column(graph.hop_weight * job.share.weight, np.int32)
        heavier.append(replace(graph, capacity_Bps=capacity, size_bytes=size, hop_weight=weight))
    return capacity, heavier


def _check_room(jobs: Sequence[RepeatedJob], parts: int) -> None:
    """Check that the bytes and the weights of all messages have room in a graph.

    Raises:
        InputError: They have not.
    """
    for job in jobs:
        graph, weight = job.tasks.graph, job.share.weight
        largest, heaviest = int(graph.size_bytes.max(initial=0)), int(graph.hop_weight.max(initial=1))
        if largest * (parts // weight) > _MOST_BYTES or heaviest * weight > _MOST_WEIGHT:
            what = f"so small that a message of {largest} bytes has room"
            raise must_be("jobs", "weights and priorities", what, f"{parts} parts", "take fewer different ones")


def _sliced(jobs: Sequence[RepeatedJob]) -> tuple[F64, list[Graph]]:
    """Return the bandwidths of the slices of all links, job after job, and the steps of the jobs on their slices."""
    whole, weight = jobs[0].tasks.graph.capacity_Bps, np.array([job.share.weight for job in jobs], float)
    uses = np.zeros((len(jobs), len(whole)))
    for number, job in enumerate(jobs):
        uses[number, job.tasks.graph.hop_link] = weight[number]
    total = uses.sum(axis=0)
    capacity = column((whole * np.where(uses > 0, uses / np.where(total, total, 1), 1)).ravel(), np.float64)
    graphs = [job.tasks.graph for job in jobs]
    return capacity, [
        replace(graph, capacity_Bps=capacity, hop_link=column(graph.hop_link + number * len(whole), np.int32))
        for number, graph in enumerate(graphs)
    ]


def _last_tasks(graph: Graph) -> I64:
    """Return the tasks for whose end no other task of the graph waits."""
    waited = np.zeros(graph.n_tasks, np.bool_)
    waited[graph.pred[~graph.pred_left]] = True
    return np.flatnonzero(~waited)
