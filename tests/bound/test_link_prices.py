"""The cost of exchanges at prices of links, against closed forms, networkx's distances and the linear program."""

import networkx as nx
import numpy as np
import pytest

from emu.bound.linear_programs import exchange
from emu.bound.network import best_simple_price, network, network_kinds, price_bound
from emu.topology.catalogue import build_topology

LINK = "bandwidth=50GB/s,latency=500ns"


def _of(topology):
    net = network(topology, np.arange(topology.n_npus))
    return net, network_kinds(net, topology)


@pytest.mark.parametrize(
    ("line", "blocks_a_link"),
    [
        (f"ring:n=9,{LINK}", (9**2 - 1) / 8),
        (f"torus:dims=3x9,{LINK}", 27 * (9**2 - 1) / (8 * 9)),  # the longer cycles are full first, the others half empty
        (f"torus:dims=3x9x3,{LINK}", 81 * (9**2 - 1) / (8 * 9)),
        (f"torus:dims=5x5,{LINK}", 25 * (5**2 - 1) / (8 * 5)),
        (f"full-mesh:n=7,{LINK}", 1),
        (f"switch:n=7,{LINK}", 6),
    ],
)
def test_links_crossed_limit_an_exchange_to_its_closed_form(line, blocks_a_link) -> None:
    topology = build_topology(line)
    assert _of(topology)[0].seconds(best_simple_price(*_of(topology))) * 50e9 == pytest.approx(blocks_a_link, rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_any_prices_cost_what_networkx_sums_up_and_no_more_than_the_linear_program_says(random_topology, seed) -> None:
    net, alike = _of(random_topology(seed))
    price = np.random.default_rng(seed).random(alike.arc_kind.max() + 1)[alike.arc_kind]
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(zip(net.src.tolist(), net.dst.tolist(), price.tolist(), strict=True))
    away = dict(nx.all_pairs_dijkstra_path_length(graph))
    paid = sum(away[a][b] for a in net.ranks.tolist() for b in net.ranks.tolist())
    found = price_bound(net, alike, price)
    assert found == pytest.approx(paid / (price @ net.capacity), rel=1e-9)
    assert max(found, best_simple_price(net, alike)) <= exchange(net, alike) * (1 + 1e-12)
