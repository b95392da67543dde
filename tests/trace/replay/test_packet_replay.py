"""A trace by packets: the graph of all ranks, on the routes of the fluid engine, with computations between the messages."""

from dataclasses import replace

import numpy as np
import pytest

from emu.collective.choice import Choice
from emu.errors import InputError
from emu.fabric.engine.packets.ways import message_ends
from emu.fabric.packet_fabric import packet_fabric
from emu.model.generate.generate import generate
from emu.model.model import find_model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import Stack
from emu.study.training.step.packet_step import by_packets, checked
from emu.study.training.step.step import time_trace
from emu.topology.catalogue import build_topology
from emu.trace.replay.packet_replay import PacketReplay, route_keys, schedules_in
from emu.trace.replay.replay import TraceLayout
from tests.trace.laid import DEVICE, MS_OF_FLOATS, trace_of

TREE = build_topology("fat-tree:radix=4")
SWITCH = build_topology("switch:n=2,bandwidth=1GB/s,latency=0s")
RING = Choice.parse(("all_reduce=ring",))
BARE = packet_fabric("packets", "roce:header=0B,acks=none,pause_above=1GiB,resume_below=1GiB,queue=2GiB")


def step_of(topology, choice=RING):
    """A step of eight ranks with two axes."""
    trace = generate(find_model("llama-tiny"), Plan(dp=4, tp=2, global_batch=4, seq=64), Stack())
    return TraceLayout(trace, choice, topology, DEVICE, "float32")


def test_messages_of_a_replay_have_the_keys_by_which_the_topology_routes_them() -> None:
    replayed = step_of(TREE, Choice.parse(("all_reduce=ring@2",))).build_graph(None)
    graph, keys = replayed.graph, route_keys(replayed)
    src, dst = message_ends(graph, TREE.links)
    sent = src >= 0
    found = TREE.routes(src[sent], dst[sent], keys[sent])
    assert np.array_equal(found.link, graph.hop_link)
    assert len(np.unique(keys[sent])) > 1
    assert not np.array_equal(TREE.routes(src[sent], dst[sent], 0 * keys[sent]).link, graph.hop_link)


def test_each_message_between_ranks_is_of_one_of_the_schedules() -> None:
    replayed = step_of(TREE, Choice.parse(("all_reduce=ring@2",))).build_graph(None)
    src, _ = message_ends(replayed.graph, TREE.links)
    owners, keys, numbers = np.zeros(replayed.graph.n_tasks, int), route_keys(replayed), list[int]()
    for number, tasks, schedule in schedules_in(replayed):
        assert replayed.pieces[number] is schedule
        assert np.array_equal(keys[tasks], schedule.route_keys)
        numbers.append(len(np.unique(schedule.route_keys)))
        owners[tasks] += 1
    assert max(numbers) > 1
    assert set(owners[src >= 0].tolist()) == {1}
    assert set(owners.tolist()) == {0, 1}


def test_a_step_by_packets_computes_as_long_and_communicates_a_packet_a_hop_longer(words) -> None:
    rows = words.compute(3), words.collective(4 * MS_OF_FLOATS), words.compute(5), words.compute(2, waits=[1]), words.mark()
    layout = TraceLayout(trace_of(words.events(*rows)), RING, SWITCH, DEVICE, "float32")
    fluid = time_trace(layout)
    found = by_packets(fluid, BARE)
    one = 4096 / 1e9
    assert found.step().compute_s == fluid.step().compute_s == pytest.approx(10e-3)
    assert found.packets.fluid_s == fluid.report.step_time_s
    later = found.step().total_comm_s - fluid.step().total_comm_s
    assert later == pytest.approx(2 * one, rel=1e-6)  # it goes twice through the switch, which stores each packet
    assert fluid.packets is None
    assert (found.timeline.how, found.spread, fluid.step().packets) == ("packets", None, None)


def test_a_check_is_of_the_busiest_request_of_the_step() -> None:
    found = checked(time_trace(step_of(TREE)), packet_fabric("packets")).fabric_check
    assert found.request.startswith("dp all_reduce of ")
    assert found.request.endswith(" in 2 groups of 4")
    assert 0.3 < found.share < 1


def test_the_same_seed_gives_the_same_step_and_perturbed_starts_their_spread() -> None:
    fluid = time_trace(step_of(TREE))
    by = packet_fabric("packets:seed=5", "roce:route=random")
    one, two = (by_packets(fluid, by, perturb=2) for _ in range(2))
    assert np.array_equal(one.timeline.end_fs, two.timeline.end_fs)
    assert one.spread == two.spread
    assert one.spread.seeds == 2
    assert one.spread.least_s <= one.spread.most_s
    assert one.packets.fluid_s == fluid.report.step_time_s
    other = by_packets(fluid, replace(by, seed=6))
    assert not np.array_equal(one.timeline.end_fs, other.timeline.end_fs)


def test_a_replay_beyond_its_budget_is_refused_before_it_begins() -> None:
    replay = PacketReplay(step_of(TREE), packet_fabric("packets:events=1000"))
    with pytest.raises(
        InputError,
        match=r"packets: events must be \d+ or more, got 1000; a run has about \d+ events, which takes about .*: allow \d+",
    ):
        replay.run()


def test_one_perturbed_start_is_no_spread() -> None:
    with pytest.raises(InputError, match="perturb: the number of runs must be 0, or 2 or more, got 1"):
        by_packets(time_trace(step_of(TREE)), BARE, perturb=1)
