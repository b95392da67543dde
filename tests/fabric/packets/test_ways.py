"""Ways of messages: chains of states for paths, shared states for all the shortest ones, and links back."""

from dataclasses import replace

import numpy as np
import pytest

from emu.errors import InputError
from emu.fabric.engine.packets.packet_network import NETWORKS
from emu.fabric.engine.packets.packet_run import run_packets
from emu.fabric.engine.packets.ways import NO_STATE, Ways, path_ways, reverse_links, shortest_ways
from emu.topology.topology import Links, Routes, Topology
from tests.fabric.packets.packet_cases import FABRICS, STAR, TORUS, TREE, messages

NETWORK = NETWORKS["roce"]


def all_paths(ways: Ways, state: int) -> set[tuple[int, ...]]:
    """The links of all the ways from a state on."""
    if state == NO_STATE:
        return {()}
    step, found = int(ways.step[state]), set()
    if step >= 0:
        return {(step >> 1, *rest) for rest in all_paths(ways, NO_STATE if step & 1 else state + 1)}
    group = ~step
    for i, queue in enumerate(ways.group_queue[ways.group_start[group] : ways.group_start[group + 1]].tolist()):
        after = int(ways.next_state[ways.following[state] + i])
        found |= {(queue, *rest) for rest in all_paths(ways, after)}
    return found


def test_a_path_is_a_chain_of_its_hops() -> None:
    graph = messages(TREE, [(0, 5, 1), (3, 2, 1)])
    ways = path_ways(graph, TREE.links)
    for v in range(2):
        assert all_paths(ways, int(ways.first_state[v])) == {tuple(graph.hop_link[graph.hop_start[v] : graph.hop_start[v + 1]])}
    assert (ways.back_state == NO_STATE).all()


# from, to, steps, ways: orders of the steps, times both directions along a side of 4 that is half gone round
@pytest.mark.parametrize(("src", "dst", "steps", "count"), [(0, 5, 2, 2), (0, 1, 1, 1), (0, 10, 4, 24), (0, 2, 2, 2)])
def test_the_shortest_ways_of_a_torus_are_all_orders_of_its_steps(src: int, dst: int, steps: int, count: int) -> None:
    ways = shortest_ways(messages(TORUS, [(src, dst, 1)]), TORUS.links, TORUS.passes)
    found = all_paths(ways, int(ways.first_state[0]))
    assert {len(path) for path in found} == {steps}
    assert len(found) == count
    for path in found:
        leaves, enters = TORUS.links.src[list(path)], TORUS.links.dst[list(path)]
        assert (leaves[0], enters[-1]) == (src, dst)
        assert (leaves[1:] == enters[:-1]).all()


def test_messages_that_meet_at_a_switch_share_its_turns() -> None:
    ways = shortest_ways(messages(TREE, [(0, 5, 1), (1, 9, 1)]), TREE.links, TREE.passes)
    groups = []
    for v in range(2):
        first = int(ways.first_state[v])
        groups.append(~int(ways.step[ways.next_state[ways.following[first]]]))
    assert groups[0] == groups[1]
    assert ways.group_start[groups[0] + 1] - ways.group_start[groups[0]] == 2


@pytest.mark.parametrize("topology", FABRICS, ids=lambda t: t.name)
def test_the_link_back_of_each_link_is_its_own_and_goes_back(topology: Topology) -> None:
    back = reverse_links(topology.links)
    assert (topology.links.src[back] == topology.links.dst).all()
    assert (topology.links.dst[back] == topology.links.src).all()
    assert (back[back] == np.arange(len(back))).all()


def next_node(src: np.ndarray, dst: np.ndarray, key: np.ndarray) -> Routes:
    return Routes.laid(np.ones(len(src), np.int64), src)


def one_way() -> Topology:
    links = Links.of(np.array([0, 1, 2], np.int32), [1, 2, 0], 1e9, 0, 0)
    return Topology(name="circle of one way", n_npus=3, n_nodes=3, links=links, router=next_node)


def test_links_of_one_way_carry_no_acknowledgements() -> None:
    topology = one_way()
    graph = messages(topology, [(0, 1, 5000)])
    with pytest.raises(InputError, match="network: link 0 from node 0 to node 1 has no link back for acknowledgements"):
        run_packets(graph, topology, NETWORK)
    assert run_packets(graph, topology, replace(NETWORK, acks="none")).n_lost == 0


def test_a_quotient_and_a_graph_of_other_links_are_refused() -> None:
    graph = messages(STAR, [(0, 1, 5000)])
    with pytest.raises(InputError, match="packets: the graph is a quotient"):
        run_packets(replace(graph, hop_weight=graph.hop_weight * 2), STAR, NETWORK)
    with pytest.raises(InputError, match="packets: links of the graph must be the "):
        run_packets(graph, TREE, NETWORK)
    with pytest.raises(InputError, match="packets: task 0 takes less than the latencies of its links"):
        run_packets(replace(graph, alpha_fs=graph.alpha_fs - 1), STAR, NETWORK)
