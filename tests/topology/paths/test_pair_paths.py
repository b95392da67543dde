"""The ways of a pair: those that the router takes, channel by channel, and all others that networkx finds as short."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

import emu
from emu.topology.builders.route_parts import join
from emu.topology.catalogue import build_topology
from emu.topology.paths.shortest_paths import CHANNELS_ASKED, paths_between


def _all_shortest(topology, src, dst, *, relays=()):
    graph = nx.MultiDiGraph()
    for link, (a, b) in enumerate(zip(topology.links.src.tolist(), topology.links.dst.tolist(), strict=True)):
        if b >= topology.n_npus or b == dst or b in relays:
            graph.add_edge(a, b, key=link)
    hops = nx.shortest_path_length(graph, src, dst)
    return {tuple(link for *_, link in way) for way in nx.all_simple_edge_paths(graph, src, dst, cutoff=hops)}


LINES = ["fat-tree:radix=4", "hpn:pod:dims=2x2x2,aggs=2", "dragonfly:p=1,a=2,h=1", "ub-mesh:board"]
LINES += ["torus:dims=3x3,bandwidth=50GB/s,latency=500ns"]


@pytest.mark.parametrize("line", LINES)
def test_each_channel_takes_the_way_that_the_router_gives_it_and_the_rest_are_as_short(line):
    topology = build_topology(line)
    relays = range(topology.n_npus) if topology.n_nodes == topology.n_npus else ()
    dst = topology.n_npus - 1
    found = paths_between(topology, 0, dst)
    by_channel = {channel: way for way in found for channel in way.channels}
    assert sorted(by_channel) == list(range(CHANNELS_ASKED))
    for channel, way in by_channel.items():
        assert topology.routes([0], [dst], [channel]).link.tolist() == list(way.links)
    for way in found:
        assert [*topology.links.src[list(way.links)].tolist(), dst] == list(way.nodes)
    assert [min(way.channels) for way in found if way.channels] == sorted(min(way.channels) for way in found if way.channels)
    shortest = _all_shortest(topology, 0, dst, relays=relays)
    untaken = {way.links for way in found if not way.channels}
    assert untaken == shortest - {way.links for way in found if way.channels} or (len(untaken) == 8 and untaken < shortest)


def _on_a_fast_and_a_slow_switch(**of_slow):
    graph = nx.Graph(latency="1us")
    graph.add_edges_from(((npu, "fast") for npu in range(3)), bandwidth="450GB/s")
    graph.add_edges_from(((npu, "slow") for npu in range(3)), bandwidth="50GB/s", **of_slow)
    return emu.topology_of(graph)


def test_a_slower_way_as_short_is_told_and_a_dearer_one_is_not():
    topology = _on_a_fast_and_a_slow_switch()
    fast, slow = paths_between(topology, 0, 2)
    assert ([topology.node_name(n) for n in fast.nodes], len(fast.channels)) == (["0", "fast", "2"], CHANNELS_ASKED)
    assert ([topology.node_name(n) for n in slow.nodes], slow.channels) == (["0", "slow", "2"], ())
    assert len(paths_between(_on_a_fast_and_a_slow_switch(cost=2), 0, 2)) == 1


def test_npus_that_relay_are_on_ways_that_are_as_short():
    graph = nx.Graph([(0, 1), (1, 3), (0, "s"), ("s", 3), (2, "s"), (1, "s")], bandwidth="1GB/s", latency="1us")
    topology = emu.topology_of(graph, npus_relay=True)
    assert {way.nodes for way in paths_between(topology, 0, 3)} == {(0, 1, 3), (0, 4, 3)}
    assert {way.nodes for way in paths_between(emu.topology_of(graph), 0, 3)} == {(0, 4, 3)}


def test_a_router_that_takes_a_longer_way_still_has_the_short_one_told():
    ring = build_topology("ring:n=5,bandwidth=1GB/s,latency=1us")
    back = ring.routes([0, 4, 3, 2], [4, 3, 2, 1], [0] * 4).link

    def router(src, dst, key):
        return join([np.tile(back, (len(src), 1))])

    long, short = paths_between(replace(ring, router=router), 0, 1)
    assert (long.nodes, len(long.channels)) == ((0, 4, 3, 2, 1), CHANNELS_ASKED)
    assert (short.nodes, short.channels) == ((0, 1), ())
