"""The least time of an exchange of all pairs, against closed forms and a program of one flow a pair."""

from itertools import permutations

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import linprog

from emu.bound.linear_programs import exchange
from emu.bound.network import network, network_kinds
from emu.errors import RunError
from emu.topology.catalogue import build_topology

LINK = "bandwidth=50GB/s,latency=500ns"


def _exchange(topology):
    net = network(topology, np.arange(topology.n_npus))
    return net.seconds(exchange(net, network_kinds(net, topology)))


@pytest.mark.parametrize(
    ("line", "blocks_a_link"),
    [
        (f"switch:n=8,{LINK}", 7),  # all leave by one link
        (f"full-mesh:n=8,{LINK}", 1),
        (f"ring:n=8,{LINK}", 8),  # n / 4 hops on average, n(n - 1) pairs with the mean n^2 / 4(n - 1), 2 n links
        (f"ring:n=9,{LINK}", 10),  # (n^2 - 1) / 8
        (f"torus:dims=4x4,{LINK}", 8),  # 16 pairs a source, 2 hops on average, 4 links
        ("ub-mesh:rack", 8 * 50 / 56),  # side s: s blocks a link
    ],
)
def test_an_exchange_takes_its_closed_form(line, blocks_a_link) -> None:
    assert _exchange(build_topology(line)) * 50e9 == pytest.approx(blocks_a_link, rel=1e-9)


def _by_paths(topology):
    """Return the least time by another program, with a variable for each simple path of each pair."""
    net = network(topology, np.arange(topology.n_npus))
    graph = nx.DiGraph()
    arcs = list(zip(net.src.tolist(), net.dst.tolist(), strict=True))
    graph.add_edges_from(arcs)
    paths = [(pair, p) for pair in permutations(range(topology.n_npus), 2) for p in nx.all_simple_edge_paths(graph, *pair)]
    pairs, uses = sorted({pair for pair, _ in paths}), np.zeros((len(arcs), len(paths) + 1))
    given = np.zeros((len(pairs), len(paths) + 1))
    for number, (pair, path) in enumerate(paths):
        given[pairs.index(pair), number] = 1
        uses[[arcs.index(arc) for arc in path], number] = 1
    uses[:, -1] = -net.capacity
    cost = np.zeros(len(paths) + 1)
    cost[-1] = 1
    found = linprog(cost, A_ub=uses, b_ub=np.zeros(len(arcs)), A_eq=given, b_eq=np.ones(len(pairs)))
    return net.seconds(found.fun)


@pytest.mark.parametrize("seed", range(10))
def test_flows_of_one_source_together_are_as_quick_as_paths_of_each_pair(random_topology, seed) -> None:
    topology = random_topology(seed)
    assert _exchange(topology) == pytest.approx(_by_paths(topology), rel=1e-7, abs=0)


def test_a_program_without_a_solution_is_an_error(made) -> None:
    with pytest.raises(RunError, match="bound: the linear program was not solved"):
        _exchange(made(3, 3, [(0, 1, 1e9, 0), (1, 0, 1e9, 0), (0, 2, 1e9, 0)]))
