"""Messages that take the way with the least on it when they start, held to a reference that looks at all ways."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.arrays import column
from emu.collective.algorithm import algorithm
from emu.errors import InputError
from emu.fabric.build import Builder
from emu.fabric.engine.packets.packet_run import run_packets, ways_of
from emu.fabric.engine.solver.state import State
from emu.fabric.engine.state_layout import FLOWING
from emu.fabric.graph import CandidateWays, Graph
from emu.fabric.lower import FabricJob, lower
from emu.fabric.lowering.message_routes import routes_of_pairs
from emu.fabric.packet_fabric import packet_fabric
from emu.fabric.run import run_graph, time_alone
from emu.topology.catalogue import build_topology
from emu.topology.removal import remove_parts
from tests.fabric.packets.packet_cases import BARE, PACKET_FS

KB, GB = 1000, 10**9
US = 10**9  # ticks
TREE = build_topology("fat-tree:radix=8,route=least-loaded")  # 8 leaves of 4 hosts, 4 spines
CHOOSING = (
    "fat-tree:radix=4,route=least-loaded",
    "fat-tree:radix=6,tiers=3,taper=2,route=least-loaded",
    "rail-only:dims=3x4,route=least-loaded",
    "ub-mesh:board:route=least-loaded-detour",
    "hpn:dcn-plus:dims=2x2x2x2,aggs=2,parallel=1,up=2,route=least-loaded",
    "ub-mesh:superpod:dims=2x2x2x2x2,planes=2,route=least-loaded-borrow",
)


def two_ways(*messages, alpha=(0, 0)):
    """Messages, each a start in ticks and a size, that choose between links 0, 1 and links 2, 3, of 1 GB/s each."""
    n = len(messages)
    start, size = (np.array(each, np.int64) for each in zip(*messages, strict=True))
    nobody = np.full(n, -1, np.int32)
    ways = CandidateWays(
        np.zeros(n, np.int32), np.array([0, 2]), np.array([0, 2, 4]), np.arange(4, dtype=np.int32), np.array(alpha, np.int64)
    )
    hops = {"hop_start": 2 * np.arange(n + 1), "hop_link": np.tile(np.int32([0, 1]), n), "hop_weight": np.ones(2 * n, np.int32)}
    free = Graph.free(np.full(4, 1.0 * GB), np.full(n, alpha[0]), nobody, nobody)
    return replace(free, size_bytes=size, ready_fs=start, ways=ways, **hops)


def chosen(graph):
    return run_graph(graph).way.tolist()


def test_the_second_message_takes_the_other_way():
    graph = two_ways((0, KB), (0, KB))
    timeline = run_graph(graph)
    assert timeline.way.tolist() == [0, 1]
    assert timeline.end_fs.tolist() == [US, US]  # each alone
    assert timeline.how == "solver"


def test_of_equal_ways_the_first_is_taken():
    assert chosen(two_ways((0, KB), (2 * US, KB), (4 * US, KB))) == [0, 0, 0]
    assert chosen(two_ways((0, KB), (0, KB), (0, KB), (0, KB))) == [0, 1, 0, 1]


def test_a_third_message_takes_the_way_that_is_free_again():
    """The first has sent all its bytes when the third starts; the second has not."""
    assert chosen(two_ways((0, KB), (0, 10 * KB), (US, KB))) == [0, 1, 0]


def test_bytes_that_are_still_to_be_sent_count_and_not_the_sizes_or_the_messages():
    """After 9 us the message of 10 KB has 1 KB left, the one of 6 KB, which came later, 5 KB."""
    assert chosen(two_ways((0, 10 * KB), (8 * US, 6 * KB), (9 * US, KB))) == [0, 1, 0]
    few = two_ways((0, 10 * KB), (0, 3 * KB), (0, 4 * KB), (6 * US, KB))  # 4 KB left, and 1 KB of two messages
    assert chosen(few) == [0, 1, 1, 1]


def test_a_message_takes_the_latency_of_its_way():
    timeline = run_graph(two_ways((0, KB), (0, KB), alpha=(5, 7 * US)))
    assert timeline.end_fs.tolist() == [US + 5, 8 * US]


def test_messages_choose_in_the_order_of_their_numbers_whatever_wakes_them():
    sizes = [(0, (i + 1) * KB) for i in range(6)]
    ways, on = chosen(two_ways(*sizes)), [0, 0]
    for way, (_, size) in zip(ways, sizes, strict=True):
        assert way == (1 if on[1] < on[0] else 0)
        on[way] += size


def among(topology, src, dst, size, ready):
    """Messages between nodes that choose among the ways of a topology."""
    src, dst, size, ready = (np.asarray(each, np.int64) for each in (src, dst, size, ready))
    routes = routes_of_pairs(topology, (src, dst, np.zeros_like(src)))
    nobody = np.full(len(src), -1, np.int32)
    free = Graph.free(routes.capacity_Bps, routes.head_fs, nobody, nobody)
    ways = routes.ways and CandidateWays(routes.ways.set_of, *routes.ways[1:])
    hops = {"hop_start": routes.start, "hop_link": routes.link, "hop_weight": routes.weight}
    return replace(free, size_bytes=size, ready_fs=ready, ways=ways, **hops)


def ways_listed(topology, src, dst):
    """The ways of a pair as the topology lists them."""
    counts, found = topology.spray.ways(np.array([src]), np.array([dst]))
    return [tuple(found.of(way).tolist()) for way in range(int(counts[0]))]


def left_to_send(state, now):
    """[L] the bytes that flows still have to send over each link, by the fixed ways of a state that never chooses."""
    state.advance(now)
    graph, tasks, total = state.graph, state._tasks, np.zeros(state.graph.n_links)
    for v in np.flatnonzero(tasks["state"] == FLOWING).tolist():
        left = tasks["remaining"][v] - tasks["rate"][v] * (now - tasks["since"][v])
        total[graph.hop_link[graph.hop_start[v] : graph.hop_start[v + 1]]] += max(0.0, left)
    return total


def check_choices(topology, graph, src, dst):
    """Hold each choice to the loads of a run in which all messages keep to the ways that they chose."""
    timeline = run_graph(graph)
    fixed = graph.on_ways(timeline.way)
    again = run_graph(fixed)
    assert (again.end_fs == timeline.end_fs).all()
    assert again.carried_bytes == pytest.approx(timeline.carried_bytes)
    state = State(graph.capacity_Bps)
    state.add(fixed)
    for now in sorted(set(graph.ready_fs.tolist())):
        on = left_to_send(state, now)
        for v in np.flatnonzero(graph.ready_fs == now).tolist():
            path = tuple(fixed.hop_link[fixed.hop_start[v] : fixed.hop_start[v + 1]].tolist())
            every = ways_listed(topology, src[v], dst[v])
            assert path in every
            cost = [sum(on[link] / graph.capacity_Bps[link] for link in way) for way in every]
            assert cost[every.index(path)] <= min(cost) * (1 + 1e-5) + 1e-15
            assert all(other > cost[every.index(path)] * (1 - 1e-5) for other in cost[: every.index(path)])
            on[list(path)] += graph.size_bytes[v]
    sent = np.zeros(graph.n_links)
    np.add.at(sent, fixed.hop_link, graph.size_bytes[fixed.hop_task])
    assert timeline.carried_bytes == pytest.approx(sent)


def draw_messages(draw, topology):
    n = draw(st.integers(1, 24))
    nodes, sizes = st.integers(0, topology.n_npus - 1), st.sampled_from((1, 4096, 10**6, 3 * 10**6))
    src = draw(st.lists(nodes, min_size=n, max_size=n))
    away = draw(st.lists(st.integers(1, topology.n_npus - 1), min_size=n, max_size=n))
    dst = [(a + b) % topology.n_npus for a, b in zip(src, away, strict=True)]
    ready = [US * t for t in draw(st.lists(st.integers(0, 60), min_size=n, max_size=n))]
    return src, dst, draw(st.lists(sizes, min_size=n, max_size=n)), ready


@pytest.mark.parametrize("word", CHOOSING)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_every_choice_is_a_way_of_the_pair_with_the_least_on_it(word, data):
    topology = build_topology(word)
    src, dst, size, ready = draw_messages(data.draw, topology)
    graph = among(topology, src, dst, size, ready)
    if graph.ways is not None:
        check_choices(topology, graph, src, dst)


def test_an_exchange_at_once_has_every_choice_checked():
    src, dst = (each.ravel() for each in np.meshgrid(np.arange(16), np.arange(16)))
    src, dst = src[src != dst], dst[src != dst]
    ready = np.arange(len(src)) % 7 * 20 * US
    check_choices(TREE, among(TREE, src, dst, np.full(len(src), 10**6), ready), src, dst)


@pytest.mark.parametrize("name", ["pairwise", "at-once"])
def test_where_pairs_have_one_way_all_is_as_by_a_hash_to_the_bit(name):
    words = ("fat-tree:radix=5,tiers=1", "fat-tree:radix=5,tiers=1,route=least-loaded")
    plan = algorithm("all_to_all", name).compact_schedule(5)
    jobs = [FabricJob(plan, np.full(plan.n_slots, 10**6), build_topology(word), np.arange(5)) for word in words]
    one, other = (lower(job).graph for job in jobs)
    assert other.ways is None
    assert one.digest() == other.digest()
    assert time_alone(jobs[0]).end_fs.max() == time_alone(jobs[1]).end_fs.max()


def exchange(topology, n=16, size=10**5):
    plan = algorithm("all_to_all", "at-once").compact_schedule(n)
    return FabricJob(plan, np.full(plan.n_slots, size), topology, np.arange(n))


def test_it_beats_a_hash_and_comes_near_a_spray():
    words = ("hash", "least-loaded", "spray")
    by_hash, least, spray = (time_alone(exchange(build_topology(f"fat-tree:radix=8,route={word}"))).end_s for word in words)
    assert spray <= least * (1 + 1e-9)
    assert least < 1.1 * spray
    assert least < 0.9 * by_hash


def test_equal_inputs_give_equal_bits_and_ways_join_in_a_builder():
    graph = lower(exchange(TREE)).graph
    one, other = run_graph(graph), run_graph(graph)
    assert (one.end_fs == other.end_fs).all()
    builder = Builder(graph.capacity_Bps)
    builder.add(graph)
    builder.tasks(np.zeros(1, np.int64))
    builder.add(graph)
    joined = builder.graph()
    assert (joined.ways.set_of[: graph.n_tasks] == graph.ways.set_of).all()
    later = joined.ways.set_of[graph.n_tasks + 1 :]
    sets = len(graph.ways.set_start) - 1
    assert (later == np.where(graph.ways.set_of >= 0, graph.ways.set_of + sets, -1)).all()
    alone = replace(joined, ready_fs=np.where(np.arange(joined.n_tasks) > graph.n_tasks, 2 * one.end_fs.max(), 0))
    ends = run_graph(alone).end_fs
    assert (ends[: graph.n_tasks] == one.end_fs).all()
    assert (ends[graph.n_tasks + 1 :] - 2 * one.end_fs.max() == one.end_fs).all()


def test_a_way_with_a_failed_part_is_no_candidate():
    spine = TREE.n_nodes - 1
    left = remove_parts(TREE, nodes=[spine])
    graph = among(left, [0, 1, 2, 3], [4, 5, 6, 7], [10**6] * 4, [0] * 4)
    assert left.chooses
    assert spine not in left.links.dst[graph.ways.link]
    used = graph.on_ways(run_graph(graph).way)
    assert len(set(left.links.dst[used.hop_link].tolist()) - set(range(left.n_npus)) - set(range(32, 40))) == 3


def test_packets_without_contention_take_as_long_and_other_ways_than_one_another():
    src, dst = np.arange(4), np.arange(4) + 4
    graph = among(TREE, src, dst, [10**6] * 4, [0] * 4)
    fluid = run_graph(graph)
    run = run_packets(graph, TREE, replace(BARE, route="least-loaded", forwarding="cut-through"))
    assert abs(run.timeline.end_fs - fluid.end_fs).max() <= 2 * PACKET_FS
    assert (run.timeline.carried_bytes == fluid.carried_bytes).all()  # the same spines


@pytest.mark.parametrize("word", [*CHOOSING[:3], "ub-mesh:rack:route=least-loaded"])
def test_packets_choose_among_the_same_ways(word):
    topology = build_topology(word)
    graph = among(topology, [0, 1, 0], [topology.n_npus - 1, 0, 1], [4096] * 3, [0] * 3)
    fabric = packet_fabric("packets", "roce").on(topology)
    assert fabric.network.route == "least-loaded"
    assert len(ways_of(graph, topology, fabric.network).choice_state) == 3


@pytest.mark.parametrize("word", ["ub-mesh:rack:route=least-loaded-detour", CHOOSING[4]])
def test_packets_refuse_ways_that_are_not_all_the_shortest_paths(word):
    """In a host of HPN, messages keep to NVLink, and a path over the switch of its NICs is as short."""
    topology = build_topology(word)
    graph = among(topology, [0, 0], [1, topology.n_npus - 1], [4096] * 2, [0] * 2)
    with pytest.raises(InputError, match="has other ways from node 0 to node 1 than the shortest paths"):
        ways_of(graph, topology, packet_fabric("packets", "roce").on(topology).network)
    with pytest.raises(InputError, match="choose their way, and take none of a hash; take a network with route=least-loaded"):
        ways_of(graph, topology, BARE)


def test_the_digest_tells_choices_from_sprays_and_hashes():
    words = ("hash", "disjoint", "spray", "least-loaded")
    trees = [build_topology(f"fat-tree:radix=4,route={word}") for word in words]
    assert len({replace(tree, name="tree", routing=()).digest() for tree in (trees[0], *trees[2:])}) == 3
    assert len({tree.digest() for tree in trees}) == 4


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"set_of": np.full(1, 1, np.int32)}, "the sets of ways must be one of 1 for each task, or -1"),
        ({"set_start": np.array([0, 0])}, "the ways of a set must be one or more, of one link or more"),
        ({"link": np.int32([0, 1, 2, 9])}, "the links of ways must be 0 to 3"),
        ({"link": np.int32([0, 1, 2, 2])}, "a way crosses a link twice"),
    ],
)
def test_impossible_ways_are_refused(changed, line):
    graph = two_ways((0, KB))
    with pytest.raises(InputError, match=line):
        run_graph(replace(graph, ways=replace(graph.ways, **changed)))


def test_weights_symmetries_and_later_tasks_are_refused():
    graph = two_ways((0, KB))
    with pytest.raises(InputError, match="hop_weight of messages that choose their way must be 1"):
        run_graph(replace(graph, hop_weight=column(2 * graph.hop_weight, np.int32)))
    with pytest.raises(InputError, match="symmetry must be none where messages choose their way"):
        replace(TREE, symmetry=list)
    state = State(graph.capacity_Bps)
    state.add(graph)
    for change in (lambda: state.add(graph), state.forget, lambda: state.moved(graph)):
        with pytest.raises(InputError, match="must be added at one time, and stay until the end"):
            change()
