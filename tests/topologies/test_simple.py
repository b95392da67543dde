from collections import Counter

import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology

LINK = "bandwidth=50GB/s,latency=500ns"


def _edges(topology):
    return Counter(zip(topology.links.src.tolist(), topology.links.dst.tolist(), strict=True))


@pytest.mark.parametrize("dims", [(4, 4), (5, 3), (3, 4, 5), (7,), (3, 3, 3, 3)])
def test_a_torus_is_the_grid_graph_that_networkx_closes(dims):
    oracle = nx.grid_graph(dims[::-1], periodic=True)  # networkx takes dims last first
    number = {node: i for i, node in enumerate(sorted(oracle))}
    expected = Counter((number[a], number[b]) for a, b in oracle.to_directed().edges)
    text = "x".join(map(str, dims))
    assert _edges(build_topology(f"torus:dims={text},{LINK}")) == expected


@pytest.mark.parametrize("dims", [(2,), (2, 2), (2, 5), (2, 2, 3), (1, 2, 4)])
def test_a_dimension_of_two_has_two_parallel_links_each_way_and_one_of_one_has_none(dims):
    oracle = nx.MultiDiGraph()
    oracle.add_node(())
    for size in dims:
        cycle = nx.MultiDiGraph()
        cycle.add_node(0)
        if size > 1:
            cycle.add_edges_from((i, (i + step) % size) for i in range(size) for step in (1, -1))
        oracle = nx.MultiDiGraph(nx.cartesian_product(oracle, cycle))
        oracle = nx.relabel_nodes(oracle, {node: (*node[0], node[1]) for node in oracle})
    number = {node: i for i, node in enumerate(sorted(oracle))}
    expected = Counter((number[a], number[b]) for a, b, _ in oracle.edges)
    text = "x".join(map(str, dims))
    assert _edges(build_topology(f"torus:dims={text},{LINK}")) == expected


@pytest.mark.parametrize("n", [1, 2, 3, 8, 13])
def test_a_ring_is_a_torus_of_one_dimension(n):
    assert _edges(build_topology(f"ring:n={n},{LINK}")) == _edges(build_topology(f"torus:dims={n},{LINK}"))


@pytest.mark.parametrize("n", [1, 2, 3, 8, 13])
def test_a_full_mesh_is_the_complete_graph(n):
    assert _edges(build_topology(f"full-mesh:n={n},{LINK}")) == Counter(iter(nx.complete_graph(n).to_directed().edges))


@pytest.mark.parametrize("n", [1, 2, 9])
def test_a_switch_is_the_star_graph_with_its_hub_last(n):
    star = nx.relabel_nodes(nx.star_graph(n), {i: (i - 1) % (n + 1) for i in range(n + 1)})
    assert _edges(build_topology(f"switch:n={n},{LINK}")) == Counter(iter(star.to_directed().edges))


def test_latency_is_that_of_a_link_so_a_switch_costs_two():
    topology = build_topology(f"switch:n=4,{LINK}")
    assert set(topology.links.latency_fs.tolist()) == {500_000_000}
    assert set(topology.links.latency_s.tolist()) == {500e-9}


@pytest.mark.parametrize("d", [2, 3, 5])
def test_a_hypercube_is_the_one_of_networkx_with_single_links(d):
    oracle = nx.hypercube_graph(d)
    number = {node: int("".join(map(str, node)), 2) for node in oracle}
    expected = Counter((number[a], number[b]) for a, b in oracle.to_directed().edges)
    assert _edges(build_topology(f"hypercube:d={d},{LINK}")) == expected


@pytest.mark.parametrize("d", [20, 10**12])
def test_a_hypercube_of_too_many_bits_is_refused_before_it_is_made(d):
    with pytest.raises(InputError, match=f"hypercube: d must be at most 19, got {d}"):
        build_topology(f"hypercube:d={d},{LINK}")


def test_a_torus_of_4096_chips_needs_no_switch():
    """rx-t6-Tor-sw: each chip is a link from six chips, and there is nothing else."""
    torus = build_topology(f"torus:dims=16x16x16,{LINK}")
    assert np.bincount(torus.links.dst[torus.links.src < 4096], minlength=torus.n_nodes).tolist() == [6] * 4096
