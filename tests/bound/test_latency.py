"""Latency that cannot be avoided, against networkx's shortest paths."""

from itertools import permutations

import networkx as nx
import numpy as np
import pytest

from emu.bound import limit
from emu.bound.limit import crossing_fs, least_latency_fs, message_fs
from emu.bound.network import network, network_kinds
from emu.collective.operation import OPERATIONS, ROOTED, operation
from emu.topology.catalogue import build_topology

SEEDS = range(12)


def _away(net):
    """From each node to each, by networkx."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(net.n_nodes))
    for src, dst, time in zip(net.src, net.dst, net.latency_fs, strict=True):
        graph.add_edge(int(src), int(dst), weight=int(time))
    return dict(nx.all_pairs_dijkstra_path_length(graph))


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_least_latency_is_the_longest_of_the_quickest_paths_that_blocks_take(random_topology, name, seed) -> None:
    topology = random_topology(seed)
    n = topology.n_npus
    places = np.random.default_rng(seed).permutation(n)
    net, op = network(topology, places), operation(name, n, n - 1 if name in ROOTED else 0)
    away = _away(net)
    pairs = [(h, w) for h, a in op.have.tolist() for w, b in op.want.tolist() if a == b]
    assert least_latency_fs(net, network_kinds(net, topology), op) == max(away[places[h]][places[w]] for h, w in pairs)


def test_a_sample_of_ranks_never_says_more_than_all(random_topology, monkeypatch: pytest.MonkeyPatch) -> None:
    topologies = list(map(random_topology, SEEDS))
    nets = [network(t, np.arange(t.n_npus)) for t in topologies]
    what = [(net, network_kinds(net, t), operation("all_gather", t.n_npus)) for net, t in zip(nets, topologies, strict=True)]
    every = [least_latency_fs(*each) for each in what]
    monkeypatch.setattr(limit, "_WORK", 1)
    one = [least_latency_fs(*each) for each in what]
    assert all(a <= b for a, b in zip(one, every, strict=True))
    assert one != every


@pytest.mark.parametrize("seed", SEEDS)
def test_what_crosses_a_cut_takes_the_quickest_path_from_any_that_may_send(random_topology, seed) -> None:
    topology = random_topology(seed)
    n = topology.n_npus
    net = network(topology, np.arange(n))
    away = _away(net)
    for inside in np.random.default_rng(seed).random((8, net.n_nodes)) < 0.5:
        inside[0], inside[n - 1] = True, False
        sinks = [d for d in range(n) if not inside[d]]
        for helpers, last in ((False, n), (True, net.n_nodes)):
            senders = [s for s in range(last) if inside[s]]
            assert crossing_fs(net, inside, helpers=helpers) == min(away[s][d] for s in senders for d in sinks)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_message_is_quicker_than_the_least_latency_of_messages(random_topology, seed) -> None:
    topology = random_topology(seed)
    net = network(topology, np.arange(topology.n_npus))
    away = _away(net)
    ranks = range(topology.n_npus)
    assert message_fs(net, helpers=False) <= min(away[a][b] for a, b in permutations(ranks, 2))
    anyone = [away[a][b] for a in range(net.n_nodes) for b in ranks if a != b]
    assert message_fs(net, helpers=True) <= min(anyone)


def test_over_a_switch_a_rank_sends_over_two_links_and_the_switch_itself_over_one() -> None:
    topology = build_topology("switch:n=4,bandwidth=50GB/s,latency=500ns")
    net = network(topology, np.arange(4))
    assert (message_fs(net, helpers=False), message_fs(net, helpers=True)) == (10**9, 5 * 10**8)
