"""Symmetries that are found in a topology map links onto links and routes onto routes, and change no time."""

import itertools
import random
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emu
from emu.equivalence import orbits
from emu.study.measure.bench import bench
from emu.study.measure.request import BenchRequest
from emu.topology.symmetry_search import LinkImages
from emu.topology.topology import CHANNELS

SLOW, FAST = {"bandwidth": "50GB/s"}, {"bandwidth": "400GB/s"}


def joined(n, *cables):
    """Return the topology of n NPUs and some switches, whose names are words."""
    graph = nx.Graph(latency="500ns")
    graph.add_nodes_from(range(n), kind="npu")
    for rate, pairs in cables:
        graph.add_nodes_from((end for pair in pairs for end in pair if isinstance(end, str)), kind="switch")
        graph.add_edges_from(pairs, **rate)
    return emu.topology_of(graph)


def servers(nodes, gpus, spine=True):
    """Return servers with a switch each and a switch for each rail, of which each NPU has a cable to both."""
    n = nodes * gpus
    inside = [(i, f"server{i // gpus}") for i in range(n)]
    rails = [(i, f"rail{i % gpus}") for i in range(n)]
    above = [(f"rail{i}", "spine") for i in range(gpus)] if spine else []
    return joined(n, (FAST, inside), (SLOW, rails), (FAST, above))


def leaves(count, size, spines=1):
    """Return leaves of NPUs below spines."""
    up = [(f"leaf{i}", f"spine{j}") for i in range(count) for j in range(spines)]
    return joined(count * size, (SLOW, [(i, f"leaf{i // size}") for i in range(count * size)]), (FAST, up))


def mesh(n):
    return joined(n, (SLOW, list(itertools.combinations(range(n), 2))))


ALIKE = {
    "star": joined(6, (SLOW, [(i, "hub") for i in range(6)])),
    "full mesh": mesh(7),
    "odd ring": joined(9, (SLOW, [(i, (i + 1) % 9) for i in range(9)])),
    "servers": servers(3, 4),
    "leaves": leaves(6, 2),
    "one leaf of each size": leaves(2, 8),
    "three tiers": joined(
        12,
        (SLOW, [(i, f"leaf{i // 2}") for i in range(12)]),
        (FAST, [(f"leaf{i}", f"pod{i // 3}") for i in range(6)]),
        ({"bandwidth": "1TB/s"}, [(f"pod{i}", "core") for i in range(2)]),
    ),
}
UNLIKE = {
    "several spines": leaves(4, 2, spines=3),
    "a line": joined(6, (SLOW, [(i, i + 1) for i in range(5)])),
    "even ring": joined(8, (SLOW, [(i, (i + 1) % 8) for i in range(8)])),
}


def check(topology):
    """Check that each symmetry maps links onto links and the routes of all pairs onto routes."""
    n, links = topology.n_npus, topology.links
    src, dst = np.array(list(itertools.permutations(range(n), 2)), np.int64).T
    for node in topology.symmetry():
        assert sorted(node.tolist()) == list(range(topology.n_nodes))
        assert sorted(node[:n].tolist()) == list(range(n))
        link = LinkImages.of(links, topology.n_nodes).links_by(node)
        assert np.array_equal(node[links.src], links.src[link])
        assert np.array_equal(node[links.dst], links.dst[link])
        assert np.array_equal(links.bandwidth_Bps, links.bandwidth_Bps[link])
        assert np.array_equal(links.latency_fs, links.latency_fs[link])
        for key in (0, 5 * CHANNELS + 2):
            keys = np.full(len(src), key)
            here, there = topology.routes(src, dst, keys), topology.routes(node[src], node[dst], keys)
            assert np.array_equal(link[here.link], there.link)


def times(topology):
    """Return the algorithms that are chosen, and their times."""
    rows = []
    for operation in ("all_reduce", "all_to_all"):
        rows += [(row.algorithm, row.time_s) for row in bench(topology, BenchRequest(operation, "auto", (2**12, 2**24)))]
    return rows


@pytest.mark.parametrize("name", ALIKE)
def test_all_npus_of_an_even_machine_are_one_orbit_and_times_stay(name):
    topology = ALIKE[name]
    check(topology)
    assert len(np.unique(orbits(topology.n_npus, [node[: topology.n_npus] for node in topology.symmetry()]))) == 1
    assert times(topology) == times(replace(topology, symmetry=None))


@pytest.mark.parametrize("name", UNLIKE)
def test_none_is_found_where_a_hash_takes_a_path_or_nothing_is_alike(name):
    assert UNLIKE[name].symmetry() == ()


def test_costs_and_latencies_tell_links_apart():
    for more in ({"cost": 2}, {"latency": "2us"}):
        graph = nx.Graph()
        graph.add_edges_from(itertools.combinations(range(6), 2), latency="500ns", cost=1, **SLOW)
        assert len(emu.topology_of(graph).symmetry()) == 1
        graph.edges[0, 2].update(more)
        assert emu.topology_of(graph).symmetry() == ()


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_symmetries_of_a_drawn_tree_keep_links_routes_and_times(seed):
    r = random.Random(seed)
    sizes = [r.choice((1, 2, 3)) for _ in range(r.choice((2, 3)))]
    n, kinds = int(np.prod(sizes)) * 2, r.choice((1, 2))
    block, cables, below = 2, [], [(i, i) for i in range(n)]
    for tier, size in enumerate(sizes):
        names = [(f"t{tier}.{first // block}", first) for _, first in below if first % block == 0]
        rates = [f"{r.choice((25, 100)[:kinds])}GB/s" for _ in range(block)]
        cables += [({"bandwidth": rates[first % block]}, [(end, f"t{tier}.{first // block}")]) for end, first in below]
        below, block = names, block * size
    cables.append((FAST, [(end, "top") for end, _ in below]))
    topology = joined(n, *cables)
    check(topology)
    request = BenchRequest("all_to_all", "at-once", (2**20,))
    alone = replace(topology, symmetry=None)
    assert [row.time_s for row in bench(topology, request)] == [row.time_s for row in bench(alone, request)]
