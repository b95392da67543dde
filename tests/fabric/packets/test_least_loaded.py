"""Messages that take the path with the least on it when they start."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.fabric.engine.packets import packet_run
from emu.fabric.engine.packets.packet_arrays import lay_out
from emu.fabric.engine.packets.packet_layout import PacketEngine
from emu.fabric.engine.packets.packet_network import NETWORKS, PacketNetwork
from emu.fabric.engine.packets.packet_run import PacketRun, run_packets, ways_of
from emu.fabric.engine.packets.packet_tasks import choose_path
from emu.fabric.graph import Graph
from emu.fabric.run import run_graph
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from tests.fabric.packets.packet_cases import BARE, RING, TORUS, TREE, messages
from tests.fabric.packets.test_ways import all_paths

LEAVES = build_topology("fat-tree:radix=8")  # 8 leaves of 4 hosts, 4 spines
MIB = 2**20


def network(route: str, kind: str = "roce", **settings: Any) -> PacketNetwork:
    return replace(NETWORKS[kind], route=route, **settings)


def shift(hosts: int, by: int, size: int = MIB) -> Graph:
    return messages(LEAVES, [(i, (i + by) % hosts, size) for i in range(hosts)])


def chosen_path(engine: PacketEngine, v: int) -> tuple[int, ...]:
    """The links that message v wrote into its own states."""
    at, found = int(engine.tasks["first_state"][v]), []
    while True:
        step = int(engine.ways.step[at])
        found.append((step >> 1) // engine.rules.n_lanes)
        if step & 1:
            return tuple(found)
        at += 1


@pytest.mark.parametrize("topology", [LEAVES, TORUS, RING, TREE, build_topology("dragonfly:p=2,a=4,h=2")], ids=lambda t: t.name)
def test_the_path_is_the_one_of_all_the_shortest_whose_links_need_least_time(topology: Topology) -> None:
    """Loads are drawn at random; bandwidths differ, too. The reference looks at every path."""
    rng = np.random.default_rng(1)
    n = topology.n_npus
    pairs = [(int(a), int(b)) for a, b in rng.integers(0, n, (20, 2)) if a != b]
    graph = messages(topology, [(a, b, 4096) for a, b in pairs])
    graph = replace(graph, capacity_Bps=graph.capacity_Bps * rng.integers(1, 4, graph.n_links))
    least, every = (ways_of(graph, topology, network(route)) for route in ("least-loaded", "random"))
    engine = lay_out(graph, topology, network("least-loaded"), 0, least)
    for v in range(len(pairs)):
        engine.to_carry[:] = rng.integers(0, 5, graph.n_links) * 2**20
        need_fs = engine.to_carry * engine.ports["fs_per_byte"]
        before = engine.to_carry.copy()
        choose_path(engine, v)
        path = chosen_path(engine, v)
        paths = sorted(all_paths(every, int(every.first_state[v])))
        costs = [sum(need_fs[link] for link in other) for other in paths]
        assert path in paths
        assert sum(need_fs[link] for link in path) == pytest.approx(min(costs), rel=1e-12)
        assert (engine.to_carry - before).nonzero()[0].tolist() == sorted(path)


def test_equal_paths_are_taken_by_position_and_then_in_turns() -> None:
    """Four hosts of a leaf send to another leaf: each takes a spine of its own, in the order of the links."""
    graph = messages(LEAVES, [(i, 4 + i, MIB) for i in range(4)])
    engine = lay_out(graph, LEAVES, network("least-loaded"), 0, ways_of(graph, LEAVES, network("least-loaded")))
    spines = []
    for v in range(4):
        choose_path(engine, v)
        spines.append(int(LEAVES.links.dst[chosen_path(engine, v)[1]]))
    assert spines == sorted(set(spines))


def colliding() -> Graph:
    """Messages between leaves of which the hash puts several on one link up."""
    return shift(32, 4)


def end_fs(graph: Graph, net: PacketNetwork, seed: int = 0) -> int:
    return int(run_packets(graph, LEAVES, net, seed).timeline.end_fs.max())


def test_it_beats_the_hash_where_its_paths_collide() -> None:
    graph = colliding()
    most = np.bincount(graph.hop_link).max()
    assert most >= 2  # the hash collides
    by_hash, least = end_fs(graph, network("hash")), end_fs(graph, network("least-loaded"))
    alone = end_fs(messages(LEAVES, [(0, 4, MIB)]), network("hash"))
    assert by_hash > 0.9 * most * alone
    assert least < 1.05 * alone  # each has a path of its own, shared with acknowledgements


@pytest.mark.parametrize("by", [4, 8, 12])
def test_it_takes_as_long_as_spraying_in_turn_where_all_is_symmetric(by: int) -> None:
    graph = shift(32, by)
    assert end_fs(graph, network("least-loaded")) == pytest.approx(end_fs(graph, network("in-turn")), rel=0.03)


def test_an_all_to_all_at_once_takes_no_longer_than_in_turn() -> None:
    graph = messages(LEAVES, [(i, j, 2**17) for i in range(32) for j in range(32) if i != j])
    least, in_turn, by_hash = (end_fs(graph, network(route)) for route in ("least-loaded", "in-turn", "hash"))
    assert least == pytest.approx(in_turn, rel=0.03)
    assert least < 0.95 * by_hash


def test_alone_a_message_takes_the_fluid_time() -> None:
    graph = messages(TORUS, [(0, 5, 4096)])
    run = run_packets(graph, TORUS, replace(BARE, route="least-loaded", forwarding="cut-through"))
    assert run.timeline.end_fs[0] == run_graph(graph).end_fs[0]


@pytest.mark.parametrize("kind", ["roce", "infiniband", "ultra-ethernet", "tcp"])
def test_every_byte_that_links_had_to_carry_is_carried_at_the_end(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues are so small that packets are trimmed and sent again where the network does so."""
    left, before = [], packet_run._result

    def keep(engine: PacketEngine, *of: Any) -> PacketRun:
        left.append((engine.to_carry.copy(), engine.ports["carried"].copy()))
        return before(engine, *of)

    monkeypatch.setattr(packet_run, "_result", keep)
    small = {"queue_bytes": 8 * 4160, "queue_round_trips": 0.0} if kind in ("ultra-ethernet", "tcp") else {}
    sent = [(i, 0, 2**18) for i in range(4, 20)] + [(i, i + 4, 2**18) for i in range(4, 20)]
    run = run_packets(messages(LEAVES, sent), LEAVES, network("least-loaded", kind, **small))
    [(to_carry, carried)] = left
    assert carried.any()
    assert (to_carry == 0).all()
    assert (run.n_trimmed > 0) == bool(small)
    assert run.n_lost == 0


def test_packets_of_a_message_come_in_order_and_runs_are_equal_to_the_bit() -> None:
    graph = colliding()
    runs = [run_packets(graph, LEAVES, network("least-loaded"), seed) for seed in (0, 0, 5)]
    assert [run.n_disordered for run in runs] == [0, 0, 0]
    for run in runs[1:]:  # nothing is random here
        assert (run.timeline.end_fs == runs[0].timeline.end_fs).all()
        assert (run.queue_bytes == runs[0].queue_bytes).all()


def test_ways_are_not_changed_by_a_run() -> None:
    graph, net = colliding(), network("least-loaded")
    ways = ways_of(graph, LEAVES, net)
    before = ways.step.copy()
    first = run_packets(graph, LEAVES, net, 0, ways)
    assert (ways.step == before).all()
    assert (run_packets(graph, LEAVES, net, 0, ways).timeline.end_fs == first.timeline.end_fs).all()
