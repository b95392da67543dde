"""One graph of several jobs: what a step waits for, and how weights count."""

from dataclasses import replace

import numpy as np

from emu.arrays import column
from emu.fabric.build import Builder
from emu.fabric.graph import Graph
from emu.fabric.run import run_graph
from emu.study.jobs.job import loop_work
from emu.study.jobs.step_graphs.placed_job import StepTasks
from emu.study.jobs.step_graphs.shared_graph import LinkShare, RepeatedJob, shared_graph
from emu.trace.report.spans import Spans, common
from emu.trace.trace import Kind


def message_and_more(bytes_: int, alpha_fs: int) -> Graph:
    """A message over the only link, of 1 GB/s, and a task that begins when it has left and takes no time."""
    builder = Builder(column([1e9], np.float64))
    one = column([0], np.int64), column([alpha_fs], np.int64), column([0, 1], np.int64)
    builder.messages(column([bytes_], np.int64), *one[1:], column([0], np.int32), column([1], np.int32))
    builder.tasks(np.zeros(1, np.int64))
    builder.wait(np.array([1]), np.array([0]))
    graph = builder.graph()
    return replace(graph, pred_left=np.array([True]))


def test_the_next_step_waits_until_every_message_has_arrived():
    """The second task ends when the message has left; the step ends its latency later."""
    shared = shared_graph([RepeatedJob(StepTasks(message_and_more(1000, 5_000_000), None), 3, 7)])
    (steps,) = shared.steps(run_graph(shared.graph))
    assert steps.begin_fs.tolist() == [7 + i * (10**9 + 5_000_000) for i in range(3)]
    assert steps.end_fs.tolist() == [7 + (i + 1) * (10**9 + 5_000_000) for i in range(3)]


def test_messages_share_a_link_by_their_weights():
    """A message of weight 2 gets two thirds of 1 GB/s; the other has all once it has left."""
    tasks = StepTasks(message_and_more(3_000, 0), None)
    shared = shared_graph([RepeatedJob(tasks, 1, 0, LinkShare(2)), RepeatedJob(tasks, 1, 0, LinkShare(1))])
    ends = [of.end_fs.tolist() for of in shared.steps(run_graph(shared.graph))]
    assert ends == [[4_500 * 10**6], [6_000 * 10**6]]


def test_the_owner_of_a_task_is_the_number_of_its_job():
    tasks = StepTasks(message_and_more(10, 0), None)
    shared = shared_graph([RepeatedJob(tasks, 2), RepeatedJob(tasks, 1)])
    assert shared.graph.owner.tolist() == [-1, 0, 0, -1, 0, 0, -1, -1, 1, 1, -1]


def test_spans_that_are_in_both_of_two_sets():
    one, other = Spans(np.array([0, 10]), np.array([5, 20])), Spans(np.array([3, 15, 30]), np.array([12, 16, 40]))
    both = common(one, other)
    assert list(zip(*map(np.ndarray.tolist, both), strict=True)) == [(3, 5), (10, 12), (15, 16)]
    nothing = Spans(np.empty(0, np.int64), np.empty(0, np.int64))
    assert len(common(one, nothing).start) == len(common(nothing, other).start) == 0


def test_of_a_loop_only_the_collective_is_a_request_of_its_group():
    trace = loop_work("all_reduce", 4096, 4, ("all_reduce=ring",), 1000).trace
    events = trace.events_of(0)
    assert events.kind.tolist() == [Kind.COMPUTE, Kind.COLLECTIVE]
    assert [trace.groups[trace.group_of[0][group]].ranks if group >= 0 else () for group in events.group] == [(), (0, 1, 2, 3)]
