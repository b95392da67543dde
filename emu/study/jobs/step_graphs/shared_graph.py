"""One graph of several jobs that repeat their steps on one fabric, and the times of these steps.

A step of a job begins when all its ranks have ended the step before. V tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, column
from emu.fabric.build import Builder
from emu.fabric.graph import Graph, Timeline
from emu.study.jobs.step_graphs.placed_job import StepTasks


class RepeatedJob(NamedTuple):
    """A job in a shared graph: the tasks of one step, how often it is repeated, when it begins, and its weight."""

    tasks: StepTasks
    times: int
    begin_fs: int = 0  # ticks at which the first step begins
    weight: int = 1  # shares of a full link that each of its messages gets


class StepTimes(NamedTuple):
    """The ticks at which each step of a job begins and ends."""

    begin_fs: I64
    end_fs: I64


@dataclass(frozen=True, eq=False, slots=True)
class SharedGraph:
    """The graph of several jobs, with the tasks between their steps.

    The owner of a task is the number of its job.
    """

    graph: Graph
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
    parts = lcm(*(job.weight for job in jobs))
    builder = Builder(column(jobs[0].tasks.graph.capacity_Bps * parts, np.float64))
    keys, between, firsts = [np.empty(0, np.int64)], [], []
    for number, job in enumerate(jobs):
        step = _owned(_weighted(job.tasks.graph, job.weight, parts), number)
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
    return SharedGraph(builder.graph(), np.concatenate(keys) if has_keys else None, tuple(between), tuple(firsts))


def _owned(graph: Graph, number: int) -> Graph:
    """Return the graph with a job as the owner of each task."""
    return replace(graph, owner=column(np.full(graph.n_tasks, number), np.int32))


def _weighted(graph: Graph, weight: int, parts: int) -> Graph:
    """Return the graph of a job whose messages have a weight, with all bytes and bandwidths times `parts`."""
    if parts == 1:
        return graph
    return replace(
        graph,
        capacity_Bps=column(graph.capacity_Bps * parts, np.float64),
        size_bytes=column(graph.size_bytes * (parts // weight), np.int64),
        hop_weight=column(graph.hop_weight * weight, np.int32),
    )


def _last_tasks(graph: Graph) -> I64:
    """Return the tasks for whose end no other task of the graph waits."""
    waited = np.zeros(graph.n_tasks, np.bool_)
    waited[graph.pred[~graph.pred_left]] = True
    return np.flatnonzero(~waited)
