"""The bound by prices on links, against the linear program that it stands for, and against closed forms of large systems."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from emu.bound import linear_programs as prices
from emu.bound.linear_programs import by_prices, exchange, kinds_of_arcs
from emu.bound.network import network, network_kinds
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology

LINK = "bandwidth=50GB/s,latency=500ns"
# Links that look alike are equally scarce.
REGULAR = [f"switch:n=8,{LINK}", f"torus:dims=4x6,{LINK}", "dragonfly:p=2,a=4,h=2", "fat-tree:radix=4,tiers=3"]
REGULAR += ["hpn:pod:dims=2x3x4,aggs=4,backup=1", "railx:torus:m=3,n=1,nodes=3x4,k=2", "hammingmesh:boards=2x3,side=3"]
REGULAR += ["ub-mesh:superpod:dims=2x2x2x2x4", "servers:nodes=4,gpus=4,taper=2"]
OTHERS = [
    "sip-ocs:n=20,ports=5,bandwidth=100GB/s",
    "railx:split:m=2,n=3,rails=K3@4+C2@2/C3@6",
    "sip-ring:size=5,rings=2,dcn=25GB/s",
]


def _of(topology: Topology):
    net = network(topology, np.arange(topology.n_npus))
    return net, network_kinds(net, topology)


@pytest.mark.parametrize("line", REGULAR)
def test_where_links_that_look_alike_are_it_says_what_the_linear_program_says(line) -> None:
    net, alike = _of(build_topology(line))
    assert by_prices(net, alike) == pytest.approx(exchange(net, alike), rel=2 * prices.NEAR)


@pytest.mark.parametrize("seed", range(10))
def test_it_never_says_more_than_the_linear_program(random_topology, seed) -> None:
    net, alike = _of(random_topology(seed))
    assert 0 < by_prices(net, alike) <= exchange(net, alike) * (1 + 1e-9)


@pytest.mark.parametrize("line", OTHERS)
def test_nor_where_links_that_look_alike_are_not(line) -> None:
    net, alike = _of(build_topology(line))
    assert 0 < by_prices(net, alike) <= exchange(net, alike) * (1 + 1e-9)


@pytest.mark.parametrize("line", [*REGULAR, *OTHERS])
def test_at_one_price_it_is_what_all_shortest_paths_put_on_all_links(line, monkeypatch) -> None:
    topology = build_topology(line)
    net, alike = _of(topology)
    monkeypatch.setattr(prices, "_LISTS", 1)
    graph = nx.DiGraph(list(zip(net.src.tolist(), net.dst.tolist(), strict=True)))
    hops = sum(
        nx.single_source_shortest_path_length(graph, s)[d] for s in range(topology.n_npus) for d in range(topology.n_npus)
    )
    assert by_prices(net, alike) == pytest.approx(hops / net.capacity.sum(), rel=1e-12)


@pytest.mark.parametrize(
    ("line", "blocks_a_link"),
    [
        (f"torus:dims=128x64,{LINK}", 8192 * 128 / 4 / 2),  # a quarter of the longer ring on average, over two links
        ("hpn:pod", 15360 - 8),  # a GPU's NIC is what leads out of its host
        (f"fat-tree:radix=32,tiers=3,{LINK}", 8191),  # as one switch
    ],
)
def test_a_large_exchange_takes_its_closed_form(line, blocks_a_link) -> None:
    net, alike = _of(build_topology(line))
    assert net.seconds(by_prices(net, alike)) * 50e9 == pytest.approx(blocks_a_link, rel=2 * prices.NEAR)


@pytest.mark.parametrize("line", [*REGULAR, *OTHERS, "ub-mesh:pod:dims=2x2x4x4", f"hypercube:d=3,{LINK}"])
def test_arcs_that_are_alike_look_alike_whatever_their_dimensions_are_called(line) -> None:
    topology = build_topology(line)
    called = np.random.default_rng(0).permutation(topology.links.dimension)
    net, alike = _of(replace(topology, links=replace(topology.links, dimension=called)))
    kind = kinds_of_arcs(net, alike)
    assert len(np.unique(np.stack((alike.arc_kind, kind)), axis=1).T) == alike.arc_kind.max() + 1


def test_arcs_of_more_kinds_than_are_told_apart_have_one_price(made) -> None:
    rings = [[(i, (i + step) % n, 1e9 * (1 + i), 0) for i in range(n) for step in (1, n - 1)] for n in (64, 65)]
    kinds = [kinds_of_arcs(*_of(made(len(ring) // 2, len(ring) // 2, ring))) for ring in rings]
    assert [len(np.unique(kind)) for kind in kinds] == [64, 1]


@pytest.mark.parametrize("turned", [False, True])
def test_arcs_to_where_another_goes_on_or_from_where_another_comes_are_told_from_others(made, turned) -> None:
    ends = [(0, 2), (1, 3), (2, 4)]
    net, alike = _of(made(5, 5, [(*(pair[::-1] if turned else pair), 1e9, 0) for pair in ends]))
    assert len(np.unique(kinds_of_arcs(net, alike))) == 3


def test_a_corner_of_a_mesh_is_told_from_its_middle(made) -> None:
    # 3 x 3: links at a corner, and those into and out of the middle.
    edges = nx.grid_2d_graph(3, 3).to_directed().edges
    net, alike = _of(made(9, 9, [(3 * a + b, 3 * c + d, 1e9, 0) for (a, b), (c, d) in edges]))
    kind = {(int(s), int(d)): k for s, d, k in zip(net.src, net.dst, kinds_of_arcs(net, alike), strict=True)}
    assert kind[0, 1] == kind[8, 5] != kind[1, 4] == kind[3, 4] != kind[4, 1]
    assert len(set(kind.values())) == 4
