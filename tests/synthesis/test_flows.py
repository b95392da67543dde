"""Maximum flows, the best throughput and whole capacities, against networkx and against the bound that other code works out."""

from fractions import Fraction

import networkx as nx
import numpy as np
import pytest

from emu.bound.trees import tree_optimum
from emu.collective.operation import operation
from emu.synthesis.both_ways import divide
from emu.synthesis.capacities import CapacityNetwork, best_time, capacity_network, suffices, whole_capacities
from emu.synthesis.hops import hop_network
from emu.synthesis.max_flow import ENDLESS, first_short, max_flow, source_side
from emu.topology.catalogue import build_topology
from tests.synthesis.graphs import drawn

SEEDS = range(20)


def never() -> None:
    """Let no time end."""


def capacities(seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 12))
    found = random.integers(0, 9, (n, n)) * (random.random((n, n)) < 0.5)
    np.fill_diagonal(found, 0)
    return found.astype(np.int64)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_flow_and_its_cut_are_those_of_networkx(seed):
    capacity = capacities(seed)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(capacity)))
    graph.add_edges_from((a, b, {"capacity": int(capacity[a, b])}) for a, b in zip(*np.nonzero(capacity), strict=True))
    for sink in range(1, len(capacity)):
        wanted = nx.maximum_flow_value(graph, 0, sink)
        assert max_flow(capacity, 0, sink) == wanted
        assert max_flow(capacity, 0, sink, most=3) == min(3, wanted)
        inside = source_side(capacity, 0, sink, wanted + 1)
        assert (inside[0], inside[sink]) == (True, False)
        assert capacity[inside][:, ~inside].sum() == wanted
        assert source_side(capacity, 0, sink, wanted) is None


def test_the_first_sink_that_gets_too_little_is_found():
    capacity = np.array([[0, 5, 2], [0, 0, 1], [0, 0, 0]], np.int64)
    sinks = np.array([1, 2])
    assert [first_short(capacity, sinks, 0, need) for need in (3, 4, 6)] == [-1, 1, 0]
    assert max_flow(np.array([[0, ENDLESS], [0, 0]]), 0, 1, most=7) == 7


@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_time_is_the_optimum_that_the_bound_finds(seed):
    topology = drawn(seed)
    n = topology.n_npus
    net = capacity_network(hop_network(topology, tuple(range(n))))
    for name, way, shares in (
        ("all_gather", net, np.ones(n, np.int64)),
        ("reduce_scatter", net.back(), np.ones(n, np.int64)),
        ("broadcast", net, np.eye(n, dtype=np.int64)[0]),
    ):
        wanted = tree_optimum(topology, operation(name, n), tuple(range(n)))
        assert float(best_time(way, shares)) == pytest.approx(wanted.s_per_byte, rel=1e-12)


def test_the_best_time_of_wide_links_without_a_common_unit_is_exact():
    n = 96
    capacity = np.random.default_rng(0).integers(400_000_000_000, 400_100_000_000, (n, n))
    np.fill_diagonal(capacity, 0)
    net = CapacityNetwork(n, capacity, np.arange(n), 1)
    assert best_time(net, np.ones(n, np.int64)) == Fraction(n - 1, int(capacity.sum(axis=0).min()))


@pytest.mark.parametrize("seed", SEEDS)
def test_whole_capacities_let_all_trees_through_in_no_more_than_their_time(seed):
    topology = drawn(seed)
    n = topology.n_npus
    net, shares = capacity_network(hop_network(topology, tuple(range(n)))), np.ones(n, np.int64)
    for most in (1, 4, 32):
        found = whole_capacities(net, shares, most)
        assert found.trees <= most
        assert suffices(found.capacity, shares * found.trees)
        exact = [Fraction(int(c)) * found.time * found.trees for c in net.capacity.ravel()]
        assert all(whole <= c for whole, c in zip(found.capacity.ravel().tolist(), exact, strict=True))
        assert found.time >= best_time(net, shares)
    assert float(found.time / best_time(net, shares)) < 1.04


@pytest.mark.parametrize("seed", SEEDS)
def test_links_divided_for_both_ways_reach_the_optimum_of_the_other_program(seed):
    topology = drawn(seed)
    n = topology.n_npus
    net = capacity_network(hop_network(topology, tuple(range(n))))
    found = divide(net, 128, 1.0, never)
    assert found is not None
    wanted = tree_optimum(topology, operation("all_reduce", n), tuple(range(n))).s_per_byte
    assert wanted * (1 - 1e-6) <= found.slowness <= wanted * 1.02
    assert (found.inward + found.outward <= net.capacity * found.slowness * found.given.sum() * (1 + 1e-9)).all()


def test_halves_that_are_as_fast_in_a_row_are_not_divided():
    net = capacity_network(hop_network(build_topology("torus:dims=3x3,bandwidth=50GB/s,latency=500ns"), tuple(range(9))))
    every = np.ones(9, np.int64)
    assert divide(net, 16, float(best_time(net, every) + best_time(net.back(), every)) / 9, never) is None
