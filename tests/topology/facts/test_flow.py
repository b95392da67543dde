"""The least cut against networkx, by hand and by scipy; how few classes there are where there is symmetry."""

import networkx as nx
import numpy as np
import pytest

from emu.arrays import column
from emu.topology.catalogue import build_topology
from emu.topology.facts import flow
from emu.topology.facts.flow import Arcs, classes, least_cut

LINK = "bandwidth=50GB/s,latency=500ns"


def _random(seed):
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 30))
    ends = random.integers(0, n, (int(random.integers(0, 5 * n)), 2))
    src, dst = ends[ends[:, 0] != ends[:, 1]].T
    high = [3, 1000, 2**40][seed % 3]
    arcs = Arcs(*(column(c, np.int64) for c in (src, dst, random.integers(1, high, len(src)))))
    side = random.permutation(n)
    cut = int(random.integers(1, n))
    source = np.isin(np.arange(n), side[: int(random.integers(1, cut + 1))])
    sink = np.isin(np.arange(n), side[cut : cut + 1 + int(random.integers(0, n - cut))])
    return arcs, source, sink


def _by_networkx(arcs, source, sink):
    graph = nx.DiGraph()
    graph.add_nodes_from(("source", "sink"))
    for a, b, capacity in zip(*(c.tolist() for c in arcs), strict=True):
        before = graph.get_edge_data(a, b, {"capacity": 0})["capacity"]
        graph.add_edge(a, b, capacity=before + capacity)
    graph.add_edges_from(("source", int(node)) for node in np.flatnonzero(source))
    graph.add_edges_from((int(node), "sink") for node in np.flatnonzero(sink))
    return nx.minimum_cut_value(graph, "source", "sink")


IN_32_BITS = [seed for seed in range(60) if seed % 3 < 2 and len(_random(seed)[0].src)]


@pytest.mark.parametrize(("by_hand", "seed"), [*((True, s) for s in range(60)), *((False, s) for s in IN_32_BITS)])
def test_the_cut_is_the_least_that_networkx_finds(seed, by_hand, monkeypatch):
    arcs, source, sink = _random(seed)
    if not by_hand:
        monkeypatch.setattr(flow, "_MOST_BY_HAND", -1)
    inside = least_cut(arcs, source, sink)
    assert (inside >= source).all()
    assert not (inside & sink).any()
    assert arcs.leaving(inside) == _by_networkx(arcs, source, sink)


@pytest.mark.parametrize(
    ("line", "count"),
    [
        (f"switch:n=1024,{LINK}", 4),  # one NPU, another, the rest, the switch
        (f"ring:n=64,{LINK}", 33),  # as far from the one by either way
        (f"full-mesh:n=64,{LINK}", 3),
        ("fat-tree:radix=16", 9),  # the two, the rest of their leaves, all others, their leaves, the other leaves, the spines
    ],
)
def test_where_there_is_symmetry_classes_are_few(line, count):
    topology = build_topology(line)
    links = topology.links
    whole = (links.src, links.dst, np.rint(links.bandwidth_Bps))
    arcs = Arcs(*(column(c, np.int64) for c in whole))
    node = np.arange(topology.n_nodes)
    ends = node == 0, node == topology.n_npus // 2
    assert classes(arcs, *ends).max() + 1 == count
    assert arcs.leaving(least_cut(arcs, *ends)) == _by_networkx(arcs, *ends)


@pytest.mark.parametrize("seed", range(40))
def test_all_nodes_of_a_class_have_as_much_to_and_from_every_class(seed):
    arcs, source, sink = _random(seed)
    of = classes(arcs, source, sink)
    between = np.zeros((2, len(of), of.max() + 1), np.int64)
    np.add.at(between[0], (arcs.src, of[arcs.dst]), arcs.capacity)
    np.add.at(between[1], (arcs.dst, of[arcs.src]), arcs.capacity)
    for one in range(of.max() + 1):
        alike = np.flatnonzero((of == one) & ~source & ~sink)
        assert (between[:, alike] == between[:, alike[:1]]).all()
    assert len(np.unique(of[source])) == len(np.unique(of[sink])) == 1
