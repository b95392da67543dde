"""Runs by packets: one message and fair cases as the fluid engine has them, bytes that arrive once, tasks that wait."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.errors import InputError, RunError
from emu.fabric.engine.packets.packet_arrays import grow, lay_out
from emu.fabric.engine.packets.packet_delivery import EARLY, NEXT, place_number
from emu.fabric.engine.packets.packet_layout import N_DISORDERED, N_DONE, NOW
from emu.fabric.engine.packets.packet_loop import DONE, FULL, advance_packets
from emu.fabric.engine.packets.packet_network import NETWORKS, PacketNetwork
from emu.fabric.engine.packets.packet_run import PacketRun, run_packets, ways_of
from emu.fabric.engine.packets.packet_tasks import begin_tasks
from emu.fabric.engine.packets.ways import path_ways
from emu.fabric.graph import Graph
from emu.fabric.run import run_graph
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from tests.fabric.packets.packet_cases import (
    BARE,
    FABRICS,
    PACKET_FS,
    RING,
    STAR,
    TREE,
    Sent,
    messages,
    rounds_of_ring,
    wire_bytes,
)
from tests.fabric.reference import Task, graph_of

MIB = 2**20
ROUTES = ("hash", "in-turn", "random", "adaptive", "entropy", "entropy-avoid")


@pytest.mark.parametrize("forwarding", ["store", "cut-through"])
@pytest.mark.parametrize("topology", FABRICS, ids=lambda t: t.name)
def test_one_message_takes_its_latency_its_bytes_and_a_packet_for_each_further_hop(topology: Topology, forwarding) -> None:
    graph = messages(topology, [(0, 3, MIB)])
    hops = len(graph.hop_link)
    run = run_packets(graph, topology, replace(BARE, forwarding=forwarding, header_bytes=64))
    body_fs = wire_bytes(replace(BARE, header_bytes=64), MIB) * 20_000
    again = (hops - 1) * 4160 * 20_000 if forwarding == "store" else 0
    assert run.timeline.left_fs[0] == body_fs
    assert run.timeline.end_fs[0] == hops * 500 * 10**6 + body_fs + again


@pytest.mark.parametrize("sent", [[(1, 0, MIB), (2, 0, MIB), (3, 0, MIB)], [(i, (i + 3) % 8, MIB) for i in range(8)]])
def test_fair_cases_end_as_the_fluid_engine_says_within_a_packet_of_each_message(sent: list[Sent]) -> None:
    graph = messages(STAR, sent)
    fluid, packets = run_graph(graph), run_packets(graph, STAR, BARE).timeline
    late = packets.end_fs - fluid.end_fs
    assert (abs(late) <= len(sent) * PACKET_FS).all()
    assert packets.end_s == pytest.approx(fluid.end_s, abs=2 * PACKET_FS / 1e15)


def test_rounds_of_a_ring_end_as_the_fluid_engine_says_but_for_a_packet_each_round() -> None:
    graph = rounds_of_ring(STAR, 8, 2**18)
    fluid, packets = run_graph(graph), run_packets(graph, STAR, BARE).timeline
    assert packets.end_fs.max() == fluid.end_fs.max() + 14 * PACKET_FS
    assert (packets.start_fs >= fluid.start_fs).all()


def test_computations_and_delays_take_what_the_fluid_engine_gives_them() -> None:
    tasks = [Task(alpha=5), Task(alpha=7, ready=3), Task(preds=((0, False), (1, False))), Task(alpha=2, preds=((2, True),))]
    graph = graph_of(STAR.links.bandwidth_Bps.tolist(), tasks)
    fluid, packets = run_graph(graph), run_packets(graph, STAR, BARE).timeline
    for name in ("start_fs", "left_fs", "end_fs"):
        assert (getattr(fluid, name) == getattr(packets, name)).all()


def test_a_task_that_waits_until_another_has_left_starts_before_its_end() -> None:
    one = messages(STAR, [(0, 1, MIB), (0, 2, MIB)], [[], [0]])
    early = replace(one, pred_left=np.array([True]))
    assert run_packets(one, STAR, BARE).timeline.start_fs[1] == run_packets(one, STAR, BARE).timeline.end_fs[0]
    timeline = run_packets(early, STAR, BARE).timeline
    assert timeline.start_fs[1] == timeline.left_fs[0] < timeline.end_fs[0]


def test_the_time_of_software_comes_on_top_of_the_links() -> None:
    graph = messages(STAR, [(0, 1, MIB)])
    slow = replace(graph, alpha_fs=graph.alpha_fs + 12345)
    assert run_packets(slow, STAR, BARE).timeline.end_fs[0] == run_packets(graph, STAR, BARE).timeline.end_fs[0] + 12345


def test_acknowledgements_take_their_share_of_the_way_back() -> None:
    graph = messages(STAR, [(0, 1, 64 * MIB), (1, 0, 64 * MIB)])
    network = NETWORKS["roce"]
    alone = run_packets(messages(STAR, [(0, 1, 64 * MIB)]), STAR, network).timeline.end_s
    both = run_packets(graph, STAR, network).timeline.end_s
    assert both / alone == pytest.approx(1 + 64 / 4160, rel=1e-3)
    fewer = run_packets(graph, STAR, replace(network, packets_per_ack=8)).timeline.end_s
    assert fewer / alone == pytest.approx(1 + 8 / 4160, rel=1e-3)


def test_pauses_keep_queues_below_the_thresholds_and_what_is_under_way() -> None:
    graph = messages(STAR, [(src, 0, 4 * MIB) for src in range(1, 8)])
    network = replace(NETWORKS["roce"], queue_bytes=2**31)
    run = run_packets(graph, STAR, network)
    under_way = 2 * 500e-9 * 50e9 + 2 * 4160
    assert network.pause_above_bytes < run.queue_bytes.max() / 7 < network.pause_above_bytes + under_way
    assert run.n_over == 0
    assert run.n_pauses > 7
    assert run_packets(graph, STAR, replace(network, queue_bytes=2**19)).n_over > 0


def test_a_pause_at_one_port_holds_up_a_message_that_does_not_need_it() -> None:
    incast = [(src, 0, 4 * MIB) for src in range(1, 7)]
    graph = messages(STAR, [*incast, (1, 7, MIB)])
    fluid, run = run_graph(graph), run_packets(graph, STAR, NETWORKS["roce"])
    assert run.timeline.end_fs[6] > 2 * fluid.end_fs[6]
    into_0 = int(messages(STAR, [(1, 0, 1)]).hop_link[-1])
    assert run.fullest(1)[0] == into_0
    assert set(run.pauses[:, 3].tolist()) >= {into_0}
    assert (run.pauses[:, 2] > run.pauses[:, 1]).all()


def test_cells_end_as_packets_do_within_a_cell_for_each_hop() -> None:
    graph = messages(TREE, [(i, (i + 5) % 16, MIB) for i in range(16)])
    network = NETWORKS["roce"]
    packets = run_packets(graph, TREE, network)
    cells = run_packets(graph, TREE, replace(network, cell_bytes=16384))
    assert cells.timeline.end_s == pytest.approx(packets.timeline.end_s, rel=0.05)
    assert cells.n_packet_hops * 4 == packets.n_packet_hops
    assert cells.timeline.carried_bytes.sum() == pytest.approx(packets.timeline.carried_bytes.sum(), rel=0.02)


sizes = st.integers(1, 60_000)
pairs = st.tuples(st.integers(0, 5), st.integers(0, 5), sizes).filter(lambda s: s[0] != s[1])
traffic = st.lists(pairs, min_size=1, max_size=24)
networks = st.builds(
    lambda lossless, route, forwarding, acks, per_ack, cell: replace(
        NETWORKS["roce"],
        lossless=lossless,
        route=route,
        forwarding=forwarding,
        acks=acks,
        packets_per_ack=per_ack,
        credit_bytes=2**20,
        pause_above_bytes=4 * 4096,
        resume_below_bytes=2 * 4096,
        adaptive_steps_bytes=(4096, 8192, 16384),
        payload_bytes=cell,
        queue_bytes=2**16 if lossless == "trim" else 2**31,
        congestion="nscc" if lossless == "trim" else "none",
    ),
    st.sampled_from(["none", "pause", "credits"]),
    st.sampled_from(ROUTES),
    st.sampled_from(["store", "cut-through"]),
    st.sampled_from(["none", "in-order", "any"]),
    st.integers(1, 3),
    st.sampled_from([1000, 4096]),
)


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sent=traffic, network=networks, fabric=st.sampled_from([STAR, TREE]), chain=st.booleans())
def test_every_byte_that_is_sent_arrives_once(sent: list[Sent], network, fabric: Topology, chain: bool) -> None:
    waits = [[v - 1] if chain and v else [] for v in range(len(sent))]
    run = run_packets(messages(fabric, sent, waits), fabric, network, len(sent))
    assert run.n_lost == 0
    assert run.n_beyond == 0
    assert network.route != "hash" or run.n_disordered == 0
    timeline = run.timeline
    assert (timeline.start_fs < timeline.left_fs).all()
    assert (timeline.left_fs < timeline.end_fs).all()
    if chain:
        assert (timeline.start_fs[1:] == timeline.end_fs[:-1]).all()
    if network.acks == "none":
        came = [timeline.carried_bytes[fabric.links.dst == npu].sum() for npu in range(6)]
        assert came == [sum(wire_bytes(network, size) for _, dst, size in sent if dst == npu) for npu in range(6)]


controls = st.sampled_from(["none", "nscc", "dctcp", "window"])


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sent=traffic, route=st.sampled_from(ROUTES), room=st.integers(3, 12), control=controls)
def test_trimmed_packets_are_sent_again_until_all_bytes_are_there(sent: list[Sent], route, room: int, control) -> None:
    kind = NETWORKS["ultra-ethernet"]
    small = {"queue_round_trips": 0.0, "queue_bytes": room * 4160}
    network = replace(kind, route=route, congestion=control, **small)
    into_one = [(src if src != 5 else 0, 5, 10 * size) for src, _, size in sent]
    run = run_packets(messages(STAR, into_one), STAR, network, len(sent))
    assert run.n_lost == 0
    came = run.timeline.carried_bytes[STAR.links.dst == 5].sum()
    whole = sum(wire_bytes(network, size) for _, _, size in into_one)
    assert came >= whole
    assert came <= whole + run.n_trimmed * 3 * 64


@pytest.mark.parametrize("route", ROUTES)
def test_the_seed_decides_all_that_is_random(route: str) -> None:
    graph = messages(TREE, [(i, (i + 5) % 16, MIB) for i in range(16)])
    network = replace(NETWORKS["roce"], route=route)
    runs = [run_packets(graph, TREE, network, seed).timeline.end_fs.tolist() for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert (runs[0] == runs[2]) == (route == "hash")


def test_sprayed_packets_use_all_the_ways_and_overtake_one_another() -> None:
    graph = messages(TREE, [(0, 4, MIB), (1, 8, MIB), (2, 12, MIB), (5, 9, MIB), (6, 13, MIB), (9, 5, MIB), (10, 14, MIB)])
    up = np.flatnonzero((TREE.links.src == 16) & (TREE.links.dst >= 20))
    one_way = run_packets(graph, TREE, BARE)
    assert one_way.n_disordered == 0
    for route in ROUTES[1:]:
        run = run_packets(graph, TREE, replace(BARE, route=route, adaptive_steps_bytes=(8192, 16384, 32768)))
        shares = run.timeline.carried_bytes[up] / (3 * MIB)
        assert shares == pytest.approx(0.5, abs=0.05)
        assert run.n_disordered > 0


def test_a_relay_sends_its_own_packets_and_those_of_others_in_turn() -> None:
    graph = messages(RING, [(0, 2, MIB), (1, 2, MIB)])
    through, own = run_packets(graph, RING, BARE).timeline.end_fs.tolist()
    assert through == pytest.approx(run_graph(graph).end_fs[0], rel=0.02)  # its start is 500 ns behind
    assert own == pytest.approx(run_graph(graph).end_fs[1], rel=0.02)


def test_a_packet_is_in_order_when_all_before_it_are_there() -> None:
    network = replace(BARE, route="random")
    graph = messages(TREE, [(0, 4, 6 * 4096)])
    engine = lay_out(graph, TREE, network, 0, ways_of(graph, TREE, network))
    came = [2, 0, 1, 5, 4, 3]
    places = [EARLY, NEXT, NEXT, EARLY, EARLY, NEXT]
    assert [place_number(engine, 0, number) for number in came] == places
    assert engine.tasks["n_come"][0] == 6
    assert engine.scalars[N_DISORDERED] == 3
    assert not engine.came.any()


def deadlock() -> tuple[list[Sent], PacketNetwork]:
    """Each NPU of a ring sends two hops on, which is half way round, and buffers are a few packets each."""
    return [(i, (i + 2) % 6, 4 * MIB) for i in range(6)], replace(NETWORKS["infiniband"], acks="none", credit_bytes=3 * 4122)


def run_on_one_lane(graph: Graph, topology: Topology, network: PacketNetwork) -> PacketRun:
    """The run in which all packets take the first lane, whatever the topology's routes name."""
    return run_packets(graph, topology, network, ways=path_ways(graph, topology.links))


def test_a_ring_of_credits_without_lanes_deadlocks_and_the_circle_is_named() -> None:
    sent, network = deadlock()
    with pytest.raises(RunError) as caught:
        run_on_one_lane(messages(RING, sent), RING, replace(network, forwarding="store"))
    said = str(caught.value)
    assert "deadlock after" in said
    assert "0 of 6 tasks over" in said
    for i in range(6):
        assert f"NPU {i} to NPU {(i + 1) % 6}" in said


def run_with_lanes(sent: list[Sent], network: PacketNetwork) -> PacketRun:
    """Messages change to the second lane when they pass NPU 0, which cuts the circle (Dally and Seitz 1987)."""
    graph = messages(RING, sent)
    lane, hop_start = np.zeros(len(graph.hop_link), np.int16), graph.hop_start
    for v in range(graph.n_tasks):
        src = RING.links.src[graph.hop_link[hop_start[v] : hop_start[v + 1]]]
        lane[hop_start[v] : hop_start[v + 1]] = src < src[0]
    ways = path_ways(graph, RING.links, 2, lane=lane)
    return run_packets(graph, RING, replace(network, lanes=2), ways=ways)


def test_two_lanes_free_the_ring_of_its_deadlock() -> None:
    sent, network = deadlock()
    run = run_with_lanes(sent, replace(network, forwarding="store"))
    assert run.n_lost == 0
    assert (run.timeline.carried_bytes > 0).sum() == 6


def test_a_tree_has_no_deadlock_with_the_smallest_buffers() -> None:
    sent = [(i, j, 64 * 1024) for i in range(16) for j in range(16) if i != j]
    network = replace(NETWORKS["infiniband"], acks="none", credit_bytes=4122)
    assert run_packets(messages(TREE, sent), TREE, network).n_lost == 0


LANED = {
    "torus:dims=4x4,bandwidth=50GB/s,latency=500ns": 2,
    "torus:dims=5x4,bandwidth=50GB/s,latency=500ns": 2,
    "dragonfly:p=2,a=4,h=2": 2,
    "railx:hyperx:m=2,n=2": 3,
}
NARROW = {
    "credits": replace(NETWORKS["infiniband"], credit_bytes=4122),
    "pauses": replace(NETWORKS["roce"], pause_above_bytes=4096, resume_below_bytes=4096),
}


def everyone_to_everyone(topology: Topology, n: int, size: int) -> Graph:
    """An all-to-all at once among the first NPUs."""
    return messages(topology, [(i, j, size) for i in range(n) for j in range(n) if i != j])


@pytest.mark.parametrize("lossless", NARROW)
@pytest.mark.parametrize("name", LANED)
def test_an_all_to_all_ends_on_the_lanes_that_routes_name_with_the_smallest_buffers(name: str, lossless: str) -> None:
    topology = build_topology(name)
    run = run_packets(everyone_to_everyone(topology, min(topology.n_npus, 72), 2**15), topology, NARROW[lossless])
    assert run.lanes == LANED[name]
    assert run.n_lost == 0
    assert run.n_over == 0


@pytest.mark.parametrize("lossless", NARROW)
def test_lanes_follow_the_keys_of_routes(lossless: str) -> None:
    topology = build_topology("ub-mesh:rack:route=detour")
    sent = [(i, j, 2**15) for i in range(0, 64, 3) for j in range(0, 64, 5) if i != j]
    key = np.arange(len(sent)) % 8
    graph = messages(topology, sent, key=key)
    named = topology.routes(*(np.array(ends) for ends in list(zip(*sent, strict=True))[:2]), key)
    assert named.virtual is not None
    assert named.virtual.max() == 1
    ways = ways_of(graph, topology, NARROW[lossless], key)
    first = np.array([step for v in range(len(sent)) for step in ways.step[ways.first_state[v] :][: named.hops[v]]])
    assert (first >> 1 == 2 * named.link + named.virtual).all()
    assert run_packets(graph, topology, NARROW[lossless], ways=ways).n_lost == 0
    with pytest.raises(InputError, match="a message does not take the route of its key on ub-mesh:rack"):
        run_packets(graph, topology, NARROW[lossless])


@pytest.mark.parametrize("lossless", NARROW)
@pytest.mark.parametrize("name", ["torus:dims=4x4,bandwidth=50GB/s,latency=500ns", "dragonfly:p=2,a=4,h=2"])
def test_on_one_lane_the_same_all_to_all_deadlocks_and_the_circle_is_named(name: str, lossless: str) -> None:
    topology = build_topology(name)
    graph = everyone_to_everyone(topology, topology.n_npus, 2**18)
    with pytest.raises(RunError, match=r"deadlock after .*wait for one another in a circle: .* to .*, then .* to "):
        run_on_one_lane(graph, topology, NARROW[lossless])


@pytest.mark.parametrize("kind", ["roce", "infiniband"])
def test_the_clock_never_goes_back(kind: str) -> None:
    ring, network = build_topology("ring:n=8,bandwidth=50GB/s,latency=500ns"), replace(NETWORKS[kind], switch_fs=300_000_000)
    graph, last = everyone_to_everyone(ring, 8, 2**18), 0
    engine = lay_out(graph, ring, network, 0, ways_of(graph, ring, network))
    begin_tasks(engine)
    while (why := advance_packets(engine, 1)) != DONE:
        engine = grow(engine) if why == FULL else engine
        assert engine.scalars[NOW] >= last
        last = int(engine.scalars[NOW])
    assert engine.scalars[N_DONE] == graph.n_tasks


@pytest.mark.parametrize("forwarding", ["store", "cut-through"])
def test_each_node_on_the_way_takes_its_time_once(forwarding: str) -> None:
    graph, switch_fs = messages(RING, [(0, 3, MIB)]), 300_000_000
    quick, slow = (
        run_packets(graph, RING, replace(NETWORKS["roce"], forwarding=forwarding, switch_fs=fs)).timeline.end_fs[0]
        for fs in (0, switch_fs)
    )
    assert slow - quick == 2 * switch_fs


def test_a_message_that_ends_beyond_the_clock_is_named() -> None:
    slow = build_topology("switch:n=4,bandwidth=1B/s,latency=500ns")
    with pytest.raises(InputError, match="ends beyond 9223 s"):
        run_packets(messages(slow, [(0, 1, 2**15)]), slow, NETWORKS["roce"])


def test_a_cell_that_is_larger_than_the_largest_window_is_sent() -> None:
    network = replace(NETWORKS["ultra-ethernet"], cell_bytes=2**18, queue_round_trips=0.0, window_round_trips=0.1)
    run = run_packets(messages(STAR, [(i, 7, MIB) for i in range(4)]), STAR, network)
    assert run.n_lost == 0


def test_the_most_bytes_of_the_last_interval_are_kept() -> None:
    network = replace(BARE, acks="none")
    run = run_packets(messages(STAR, [(0, 7, 2**13), (1, 7, 2**13)]), STAR, network)
    assert run.timeline.end_fs.max() < run.sample_fs * len(run.queue_bytes)
    assert run.queue_bytes.max() >= 4096


def test_a_bundle_of_links_has_the_credits_of_each_of_them() -> None:
    wide = build_topology("switch:n=8,bandwidth=450GB/s,latency=500ns")
    graph = messages(wide, [(0, 1, 16 * MIB)])
    bundle = run_packets(graph, wide, NETWORKS["nvlink"]).timeline.end_s
    one = run_packets(graph, wide, replace(NETWORKS["nvlink"], credit_link_Bps=0.0)).timeline.end_s
    fluid = run_graph(graph).end_s * wire_bytes(NETWORKS["nvlink"], MIB) / MIB
    assert bundle == pytest.approx(fluid, rel=0.01)
    assert one > 3 * bundle  # 68 KiB in a round trip of 1 us


def test_numbers_that_the_records_cannot_hold_are_refused() -> None:
    tiny = replace(BARE, payload_bytes=1)
    with pytest.raises(InputError, match=r"the largest message must be at most 2147483647 packets or cells"):
        run_packets(messages(STAR, [(0, 7, 2**31)]), STAR, tiny)
    with pytest.raises(
        InputError, match="bytes of a packet or cell with its headers must be at most 2147483647, got 2147483648"
    ):
        replace(BARE, payload_bytes=2**31)


def test_a_message_whose_software_ends_beyond_the_clock_is_named() -> None:
    late = replace(messages(STAR, [(0, 7, MIB)]), alpha_fs=np.array([2**63 - 1]))
    with pytest.raises(InputError, match="ends beyond 9223 s"):
        run_packets(late, STAR, BARE)
