"""Where nodes are drawn: apart, and as one would draw them by hand."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from emu.arrays import column
from emu.topology.catalogue import TOPOLOGIES, build_topology
from emu.topology.paths.shortest_paths import shortest
from emu.topology.topology import Links, Topology
from launch.show.picture.groups import layers
from launch.show.picture.layout import layout

LINK = "bandwidth=50GB/s,latency=500ns"
LINES = [":".join(filter(None, (name, example))) for name, blueprint in TOPOLOGIES for example in blueprint.examples]


def _of(graph, n_npus):
    ends = np.array([*graph.edges, *(edge[::-1] for edge in graph.edges)]).reshape(-1, 2)
    ones = np.ones(len(ends))
    links = Links(
        column(ends[:, 0], np.int32),
        column(ends[:, 1], np.int32),
        column(ones, np.float64),
        column(ones, np.int64),
        column(0 * ones, np.int16),
    )
    return Topology("own", n_npus, len(graph), links, shortest(links, len(graph)))


@pytest.mark.parametrize(
    "line", [*LINES, f"torus:dims=8x8x4,{LINK}", *(f"torus:dims={'x'.join('2' * d)},{LINK}" for d in (5, 7))]
)
def test_no_two_nodes_are_drawn_in_one_place(line):
    topology = build_topology(line)
    for each in (topology, replace(topology, draw=None)):
        at = layout(each).at
        assert at.shape == (topology.n_nodes, 2)
        assert np.isfinite(at).all()
        assert pdist(at).min(initial=1.0) > 0.2


@pytest.mark.parametrize("line", [f"full-mesh:n=9,{LINK}", f"ring:n=7,{LINK}", f"switch:n=6,{LINK}"])
def test_a_full_mesh_a_ring_and_a_star_are_circles(line):
    topology = build_topology(line)
    at = layout(topology).at
    radius = np.hypot(*at[: topology.n_npus].T)
    assert np.allclose(radius, radius[0])
    assert np.allclose(at[topology.n_npus :], 0)


def test_a_torus_is_rows_and_columns():
    at = layout(build_topology(f"torus:dims=3x5,{LINK}")).at.reshape(3, 5, 2)
    assert (np.ptp(at[..., 1], axis=1) == 0).all()
    assert (np.ptp(at[..., 0], axis=0) == 0).all()


@pytest.mark.parametrize("d", range(2, 7))
def test_a_hypercube_is_as_wide_as_it_is_high_or_so(d):
    wide, high = np.ptp(layout(build_topology(f"hypercube:d={d},{LINK}")).at, axis=0)
    assert 0.3 < high / wide < 2


@pytest.mark.parametrize("line", ["fat-tree:radix=4,tiers=3", "hpn:pod:dims=2x2x4,aggs=2"])
def test_switches_are_over_the_npus_the_farther_from_them_the_higher(line):
    topology = replace(build_topology(line), draw=None)
    height, layer = layout(topology).at[:, 1], layers(topology)
    assert (height[layer == 0] == 0).all()
    for far in range(1, layer.max() + 1):
        assert height[layer == far].min() > height[layer < far].max()


def test_switches_that_lead_no_farther_are_below_those_that_do():
    tiers = ("GPU to X", "NIC to ToR", "ToR to Agg")  # by name alone X would be the highest
    topology = replace(build_topology("hpn:pod:dims=2x2x4,aggs=2"), draw=None, tiers=tiers)
    height = layout(topology).at[16:, 1]
    assert height[:4].max() < height[4:].min()  # 4 NVSwitches, then ToRs and Aggs


@pytest.mark.parametrize("seed", range(5))
def test_a_tree_of_switches_is_drawn_without_a_crossing_however_they_are_numbered(seed):
    leaves, inner = 27, 13
    tree = nx.balanced_tree(3, 3)
    order = np.random.default_rng(seed).permutation(inner)
    graph = nx.relabel_nodes(tree, {node: node - inner if node >= inner else leaves + int(order[node]) for node in tree})
    graph = nx.relabel_nodes(graph, {node: node for node in range(leaves + inner)})
    topology = _of(graph, leaves)
    at = layout(topology).at
    cables = [(a, b) if at[a, 1] < at[b, 1] else (b, a) for a, b in graph.edges]
    for low, high in cables:
        for other, over in cables:
            if at[low, 1] == at[other, 1] and at[low, 0] < at[other, 0]:
                assert at[high, 0] <= at[over, 0]


def test_an_irregular_graph_is_drawn_by_distance():
    order = [3, 0, 6, 1, 7, 5, 2, 4]
    at = layout(_of(nx.relabel_nodes(nx.path_graph(8), dict(enumerate(order))), 8)).at
    apart = squareform(pdist(at[order]))
    steps = np.abs(np.subtract.outer(np.arange(8), np.arange(8)))
    assert np.allclose(apart, apart[0, 1] * steps, rtol=1e-2)  # a path lies straight


def test_what_is_nearer_in_links_is_nearer_in_the_picture():
    graph = nx.random_regular_graph(3, 30, seed=1)
    far = np.array(nx.floyd_warshall_numpy(graph, nodelist=range(30)))[np.triu_indices(30, 1)]
    drawn = pdist(layout(_of(graph, 30)).at)
    assert np.corrcoef(far, drawn)[0, 1] > 0.8


def test_parts_that_nothing_joins_are_drawn_apart():
    at = layout(_of(nx.disjoint_union(nx.star_graph(3), nx.star_graph(3)), 8)).at
    assert np.isfinite(at).all()
    assert pdist(at).min() > 0.5


def test_switches_joined_to_one_another_in_no_tiers_are_drawn_by_distance():
    ring = nx.cycle_graph(10)
    graph = nx.relabel_nodes(ring, {node: node + 10 for node in ring})
    graph.add_edges_from((npu, npu + 10) for npu in range(10))
    at = layout(_of(nx.relabel_nodes(graph, {node: node for node in range(20)}), 10)).at
    npus, switches = (np.hypot(*(some - at.mean(axis=0)).T) for some in (at[:10], at[10:]))
    assert npus.min() > switches.max()
