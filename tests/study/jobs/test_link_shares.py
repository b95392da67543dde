"""The share of links that jobs get: strict priorities, slices and lanes by hand, and what cannot be."""

from dataclasses import replace

import numpy as np
import pytest

from emu.arrays import column
from emu.errors import InputError
from emu.fabric.engine.packets.ways import in_lanes, path_ways
from emu.fabric.packet_fabric import packet_fabric
from emu.study.jobs.job import Job, loop_work
from emu.study.jobs.jobs_request import JobsSetting
from emu.study.jobs.step_graphs.link_shares import level_ratio, priority_weights
from emu.study.jobs.step_graphs.placed_job import StepTasks
from emu.study.jobs.step_graphs.shared_graph import LinkShare, RepeatedJob, shared_graph
from emu.topology.catalogue import build_topology
from emu.units import TICKS_PER_S
from tests.study.jobs.test_shared_graph import message_and_more
from tests.study.jobs.test_side_by_side import BETWEEN, loop, run, training

STRICT, SLICED = JobsSetting(share="priority"), JobsSetting(share="slices")
CRUX = (("first", 2, (0, 2)), ("second", 1, (1, 3)))  # seconds of computation, and of messages over the link between 1 and 2


@pytest.mark.parametrize(("first", "computing"), [("first", 3 / 8), ("second", 5 / 12)])
def test_the_order_of_two_jobs_on_one_link_gives_the_use_that_crux_prints(first, computing):
    """Crux (SIGCOMM 2024), 4.2, example 1: 37.5 % if the longer job goes first, 41.7 % if the shorter does."""
    jobs = []
    for name, seconds, npus in CRUX:
        work = loop_work("all_reduce", seconds * 10**9, 2, ("all_reduce=ring",), seconds * TICKS_PER_S)
        jobs.append(Job(name, work, npus, priority=int(name == first)))
    row = run(jobs, "ring:n=100,bandwidth=1GB/s,latency=0ns", setting=STRICT).row
    assert row.computing == pytest.approx(computing, rel=1e-5)
    assert {job.name: job.slow_down for job in row.jobs}[first] == pytest.approx(1, rel=1e-5)


def test_a_job_of_low_priority_sends_while_the_other_computes():
    """The first sends for 6 of every 12 ms; the other needs 6 ms of messages and gets them in the rest."""
    jobs = [loop("high", BETWEEN[0], 6, priority=7), loop("low", BETWEEN[1], 0, priority=3)]
    row = run(jobs, setting=STRICT).row
    assert [job.step_s for job in row.jobs] == pytest.approx([0.012, 0.012], rel=1e-5)
    assert [(job.priority, job.weight) for job in row.jobs] == [(7, 1), (3, 1)]


def test_jobs_of_one_priority_share_evenly():
    jobs = [loop("a", BETWEEN[0], weight=4), loop("b", BETWEEN[1])]
    assert [job.step_s for job in run(jobs, setting=STRICT).row.jobs] == [0.014, 0.014]


def test_levels_are_far_apart():
    assert priority_weights((3, 0, 3)) == [2**20, 1, 2**20]
    assert priority_weights((9, 4, 0)) == [2**30, 2**15, 1]
    assert [level_ratio(levels) for levels in range(1, 7)] == [2**20, 2**20, 2**15, 2**10, 2**7, 2**6]
    with pytest.raises(InputError, match="jobs: priorities must be at most 6 different ones where --fabric is fluid, got 7"):
        level_ratio(7)


def test_messages_without_room_for_weights_are_refused():
    tasks = StepTasks(message_and_more(2**43, 0), None)
    jobs = [RepeatedJob(tasks, 1, share=LinkShare(2**20)), RepeatedJob(tasks, 1)]
    with pytest.raises(InputError, match="jobs: weights and priorities must be so small that a message of 8796093022208 bytes"):
        shared_graph(jobs)


@pytest.mark.parametrize("pause_ms", [0, 2, 50])
def test_a_slice_is_there_whatever_the_other_job_does(pause_ms):
    """Half of each link: 12 ms of messages, even while the other job leaves its half idle."""
    jobs = [loop("a", BETWEEN[0], 2), loop("b", BETWEEN[1], pause_ms)]
    row = run(jobs, setting=SLICED).row
    assert [job.step_s for job in row.jobs] == [0.014, pause_ms / 1000 + 0.012]
    assert row.jobs[0].links[0].together_s > 0


def test_slices_have_the_weights_of_the_jobs_that_use_a_link():
    jobs = [loop("a", BETWEEN[0], 0, weight=3), loop("b", BETWEEN[1], 0)]
    assert [job.step_s for job in run(jobs, setting=SLICED).row.jobs] == pytest.approx([0.006 * 4 / 3, 0.006 * 4], rel=1e-9)


def test_a_link_that_one_job_uses_is_not_cut():
    work = loop_work("all_reduce", 4_000_000, 2, ("all_reduce=ring",))
    jobs = [Job("a", work, (0, 1)), Job("b", work, (4, 5))]
    assert [job.slow_down for job in run(jobs, setting=SLICED).row.jobs] == [1, 1]


@pytest.mark.parametrize("share", ["priority", "slices"])
def test_composed_steps_get_the_shares_that_whole_ones_get(share):
    """Three jobs over a spine with one port up for sixteen down, two NPUs of a server each in turn."""
    plans = [("tp=4,sp,dp=2,microbatch=1", 4, 1), ("tp=2,sp,dp=4,microbatch=1", 8, 0), ("tp=4,sp,dp=2,microbatch=1", 4, 0)]
    jobs = [
        Job(f"j{number}", training(plan, batch, seq=512), priority=priority)
        for number, (plan, batch, priority) in enumerate(plans)
    ]
    where, setting = "servers:nodes=6,gpus=4,taper=16", JobsSetting("spread:unit=2", share=share)
    whole, composed = (run(jobs, where, 3, setting, time=time).row for time in ("whole", "composed"))
    assert composed.engine == "composed" != whole.engine
    slowed = [[job.slow_down for job in row.jobs] for row in (whole, composed)]
    assert slowed[1] == pytest.approx(slowed[0], rel=0.03)
    assert max(slowed[0]) > 1.1
    assert (slowed[1][0] == pytest.approx(1, rel=0.01)) == (share == "priority")  # the first job goes first


def packets(share: str, **more: int):
    jobs = [loop("a", BETWEEN[0], 0.2, 400_000, **more), loop("b", BETWEEN[1], 0.2, 400_000)]
    return run(jobs, steps=2, packets=packet_fabric("packets:cell=4KiB"), setting=JobsSetting(share=share)).row


def test_packets_of_a_higher_priority_go_first():
    row = packets("priority", priority=1)
    assert row.jobs[0].slow_down < 1.04  # a port first sends the packet that it has begun
    assert row.jobs[1].slow_down > 1.5


def test_lanes_of_equal_jobs_take_turns():
    row = packets("lanes")
    assert [job.slow_down for job in row.jobs] == pytest.approx([1.7, 1.7], rel=0.06)


def test_each_set_of_lanes_has_queues_of_its_own():
    topology = build_topology("ring:n=4,bandwidth=1GB/s,latency=0ns")
    graph = message_and_more(100, 0)
    graph = replace(graph, capacity_Bps=column(topology.links.bandwidth_Bps, np.float64))
    ways = path_ways(graph, topology.links, 2)
    apart = in_lanes(ways, np.array([2, 0]), 3)
    assert (ways.step.tolist(), apart.n_lanes, apart.step.tolist()) == ([1], 6, [2 * (2 * 2) + 1])
    with pytest.raises(InputError, match="packets: lanes of a port must be at most 64, got 66; take fewer jobs or priorities"):
        in_lanes(ways, np.array([2, 0]), 33)
