"""One machine, written in any order of its switches, links, ends and tiers, is one topology with one time."""

import itertools
import random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emu
from emu.study.measure.bench import bench
from emu.study.measure.request import BenchRequest
from emu.topology.catalogue import build_topology
from emu.topology.description import canonical_order

FABRICS = (
    "fat-tree:radix=8",
    "fat-tree:radix=4,tiers=3,planes=2",
    "fat-tree:pgft:down=4x2x3,up=1x2x2",
    "rail-optimised:radix=8,gpus=4,spines=4",
    "hpn:pod:dims=2x2x2,aggs=2",
    "dragonfly:p=2,a=4,h=2,bandwidth=50GB/s",
)


def catalogued(name):
    """Return the cables of a topology of the catalogue: ends, bandwidth, latency, tier; switches are words."""
    built = build_topology(name)
    links, called = built.links, lambda node: int(node) if node < built.n_npus else f"s{node}"
    rows = zip(links.src, links.dst, links.bandwidth_Bps, links.latency_fs, links.dimension, strict=True)
    return built.n_npus, [(called(a), called(b), f"{bw}B/s", f"{fs}fs", f"t{t}") for a, b, bw, fs, t in rows if a < b]


def drawn(seed):
    """Return a machine whose switches are joined at random, with few kinds of cables, so that many look alike."""
    r = random.Random(seed)
    n, switches = r.randint(2, 6), r.randint(2, 9)
    pairs = [(i, f"s{j}") for i in range(n) for j in r.sample(range(switches), r.choice((1, 1, switches)))]
    pairs += [(f"s{i}", f"s{j}") for i, j in itertools.combinations(range(switches), 2) if r.random() < 0.6]
    pairs += [(f"s{i}", f"s{(i + 1) % switches}") for i in range(switches - (switches == 2))]
    rates = [f"{r.choice((25, 50))}GB/s" for _ in pairs]
    return n, [(a, b, rate, "500ns", "t0") for (a, b), rate in dict(zip(pairs, rates, strict=True)).items()]


def written(n, cables, seed, one_way=False):
    """Return the topology of cables in a random order, of switches that come in a random order with other names."""
    r = random.Random(seed)
    names = [*{end for cable in cables for end in cable[:2] if isinstance(end, str)}]
    called = dict(zip(names, r.sample(range(10**6), len(names)), strict=True))
    graph = nx.MultiDiGraph() if one_way else nx.MultiGraph()
    nodes = [*((npu, "npu") for npu in range(n)), *((f"x{called[name]}", "switch") for name in sorted(names))]
    for node, kind in r.sample(nodes, len(nodes)):
        graph.add_node(node, kind=kind)
    for a, b, bandwidth, latency, tier in r.sample(cables, len(cables)):
        ends = [end if isinstance(end, int) else f"x{called[end]}" for end in (a, b)]
        for way in [ends, ends[::-1]] if one_way else [r.sample(ends, 2)]:
            graph.add_edge(*way, bandwidth=bandwidth, latency=latency, tier=tier)
    return emu.topology_of(graph)


def columns(topology):
    """Return all that a topology's times come from."""
    return topology.digest(), *(getattr(topology.links, name).tolist() for name in topology.links.__slots__), topology.tiers


@pytest.mark.parametrize("one_way", [False, True])
@pytest.mark.parametrize("name", FABRICS)
def test_order_and_names_do_not_matter(name, one_way):
    machine = catalogued(name)
    built = [written(*machine, seed, one_way) for seed in range(4)]
    assert all(columns(other) == columns(built[0]) for other in built[1:])
    assert not any("look alike" in told for told in built[0].assumptions)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.booleans())
def test_order_does_not_matter_where_many_switches_look_alike(seed, one_way):
    machine = drawn(seed)
    one, other = (written(*machine, order, one_way) for order in (1, 2))
    assert columns(one) == columns(other)


@pytest.mark.parametrize(("operation", "algorithm"), [("all_to_all", "at-once"), ("all_reduce", "ring")])
def test_every_order_takes_equally_long(operation, algorithm):
    request = BenchRequest(operation, algorithm, (2**12, 2**22))
    built = [written(*catalogued("fat-tree:radix=8"), seed) for seed in range(3)]
    first, *others = ([row.time_s for row in bench(topology, request)] for topology in built)
    assert others == [first, first]


GROUPS = ("leaf = 4", "spine = 3")
ENTRIES = (
    '[[links]]\nbetween = ["gpu", "leaf"]\nwiring = "blocks"\nbandwidth = "50GB/s"\n',
    '[[links]]\nbetween = ["leaf", "spine"]\nbandwidth = "100GB/s"\n',
    '[[links]]\nbetween = ["spine", "leaf.0"]\nbandwidth = "100GB/s"\ntier = "more"\n',
)


def test_toml_in_any_order_is_one_machine_with_its_own_names(tmp_path):
    found = []
    for groups, entries in itertools.product(itertools.permutations(GROUPS), itertools.permutations(ENTRIES[:2])):
        path = tmp_path / "own.toml"
        path.write_text('latency = "1us"\n[npus]\ngpu = 8\n[switches]\n' + "\n".join((*groups, *entries)))
        found.append(build_topology(str(path)))
    assert all(columns(other) == columns(found[0]) for other in found)
    names = [*(f"gpu.{i}" for i in range(8)), *(f"leaf.{i}" for i in range(4)), *(f"spine.{i}" for i in range(3))]
    assert [found[0].node_name(node) for node in range(15)] == names
    assert all([other.node_name(node) for node in range(15)] == names for other in found)
    assert found[0].tiers == ("gpu to leaf", "leaf to spine")


def test_npus_that_are_called_by_numbers_have_these_numbers():
    graph = nx.Graph(bandwidth="1GB/s", latency="1us")
    graph.add_nodes_from([2, 0, "hub", 1], kind="npu")
    graph.nodes["hub"]["kind"] = "switch"
    graph.add_edges_from(("hub", npu) for npu in range(3))
    assert [emu.topology_of(graph).node_name(node) for node in range(4)] == ["0", "1", "2", "hub"]


def test_what_is_left_in_the_order_of_the_file_is_said(monkeypatch):
    monkeypatch.setattr(canonical_order, "_WORK", 0)
    machine = catalogued("fat-tree:radix=4,tiers=3")
    assert "look alike" in written(*machine, 0).assumptions[-1]
    assert np.array_equal(written(*machine, 0).routes([0], [5], [0]).hops, [6])
