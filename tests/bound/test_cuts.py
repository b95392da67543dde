"""The least cut and the densest set, against networkx and against all sets of nodes."""

from fractions import Fraction
from itertools import product

import networkx as nx
import numpy as np
import pytest

from emu.bound import cuts
from emu.bound.cuts import densest_cut, least_cut, separating_cut
from emu.bound.network import network

SEEDS = range(25)


def _graph(net):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(net.n_nodes))
    for src, dst, capacity in zip(net.src, net.dst, net.capacity, strict=True):
        graph.add_edge(int(src), int(dst), capacity=int(capacity))
    return graph


def _sets(net):
    """Every set of nodes with a rank, without another."""
    for bits in product((False, True), repeat=net.n_nodes):
        inside = np.array(bits)
        if 0 < inside[net.ranks].sum() < len(net.ranks):
            yield inside


@pytest.mark.parametrize("seed", SEEDS)
def test_the_least_cut_is_that_of_networkx(random_topology, seed) -> None:
    topology = random_topology(seed)
    net = network(topology, np.arange(topology.n_npus))
    for sink in range(1, topology.n_npus):
        found = least_cut(net, *(np.arange(net.n_nodes) == end for end in (0, sink)))
        assert 1 / found.ratio == nx.minimum_cut_value(_graph(net), 0, sink) == net.out_of(found.inside)
        assert found.inside[0]
        assert not found.inside[sink]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_densest_set_is_the_best_of_all_sets(random_topology, seed) -> None:
    topology = random_topology(seed)
    net = network(topology, np.arange(topology.n_npus))
    found = densest_cut(net, net.ranks)
    assert found.ratio == max(Fraction(int(s[net.ranks].sum()), net.out_of(s)) for s in _sets(net))
    assert found.ratio == Fraction(int(found.inside[net.ranks].sum()), net.out_of(found.inside))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_set_of_ranks_is_parted_from_the_others_by_the_least_cut(random_topology, seed) -> None:
    topology = random_topology(seed)
    net = network(topology, np.arange(topology.n_npus))
    for chosen in range(1, 2**topology.n_npus - 1):
        ranks = np.array([chosen >> node & 1 for node in range(net.n_nodes)], np.bool_)
        ranks[topology.n_npus :] = False
        found = separating_cut(net, ranks)
        assert np.array_equal(found.inside[net.ranks], ranks[net.ranks])
        least = min(net.out_of(s) for s in _sets(net) if np.array_equal(s[net.ranks], ranks[net.ranks]))
        assert 1 / found.ratio == least


def test_capacities_beyond_what_scipy_counts_to_give_a_cut_that_is_counted_exactly(made) -> None:
    rate = 2.0**40 + 1  # bytes per second, and of no unit in common with the next
    topology = made(3, 3, [(0, 1, rate, 0), (1, 2, rate - 2, 0), (2, 0, rate, 0)])
    net = network(topology, np.arange(3))
    assert net.unit_Bps == 1
    assert least_cut(net, *(np.arange(net.n_nodes) == end for end in (0, 2))).ratio == Fraction(1, 2**40 - 1)
    assert densest_cut(net, net.ranks).ratio == Fraction(2, 2**40 - 1)


def test_a_search_that_starts_from_a_worse_set_ends_at_the_same(random_topology, monkeypatch: pytest.MonkeyPatch) -> None:
    nets = [network(t, np.arange(t.n_npus)) for t in map(random_topology, SEEDS)]
    wanted = [densest_cut(net, net.ranks).ratio for net in nets]
    worst = [min((cuts.cut_of_nodes(net, s) for s in _sets(net)), key=lambda cut: cut.ratio) for net in nets]
    for net, start, ratio in zip(nets, worst, wanted, strict=True):
        monkeypatch.setattr(cuts, "largest_cut", lambda _, start=start: start)
        assert densest_cut(net, net.ranks).ratio == ratio
