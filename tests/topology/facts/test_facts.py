import itertools
import subprocess
import sys
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from emu.arrays import column
from emu.topology.builders.grid import Dimension, grid
from emu.topology.builders.wiring import star
from emu.topology.facts import facts
from emu.topology.facts.facts import bisection, cut, diameter, paths, summary
from emu.topology.topology import Links, Routes, Topology


def _nowhere(src, dst, key):
    return Routes(column(np.zeros(len(src) + 1), np.int64), column([], np.int32))


def _random(seed, switches):
    """NPUs and switches joined at random, each link of its own rate; parallel links too."""
    random = np.random.default_rng(seed)
    n_npus, n_links = int(random.integers(2, 90)), int(random.integers(1, 400))
    ends = random.integers(0, n_npus + switches, (n_links, 2))
    src, dst = ends[ends[:, 0] != ends[:, 1]].T
    rate = random.integers(1, 9, len(src)) * 12.5e9
    zeros = np.zeros(len(src))
    links = Links(
        column(src, np.int32),
        column(dst, np.int32),
        column(rate, np.float64),
        column(zeros, np.int64),
        column(zeros, np.int16),
    )
    return Topology("random", n_npus, n_npus + switches, links, _nowhere)


def _graph(topology):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(topology.n_nodes))
    for src, dst, rate in zip(
        topology.links.src.tolist(), topology.links.dst.tolist(), topology.links.bandwidth_Bps, strict=True
    ):
        before = graph.get_edge_data(src, dst, {"capacity": 0.0})["capacity"]
        graph.add_edge(src, dst, capacity=before + float(rate))
    return graph


@pytest.mark.parametrize("switches", [0, 7])
@pytest.mark.parametrize("seed", range(12))
def test_diameter_is_what_networkx_finds(seed, switches, monkeypatch):
    topology = _random(seed, switches)
    monkeypatch.setattr(facts, "_CHUNK_WORK", 1)  # 64 targets at a time
    lengths = dict(nx.all_pairs_shortest_path_length(_graph(topology)))
    npus = range(topology.n_npus)
    joined = all(dst in lengths[src] for src in npus for dst in npus)
    expected = max(lengths[src][dst] for src in npus for dst in npus) if joined else None
    assert diameter(topology) == (expected, True)


def test_the_random_graphs_hold_joined_and_unjoined_ones():
    found = {diameter(_random(seed, 0))[0] is None for seed in range(12)}
    assert found == {True, False}


def test_the_diameter_of_a_large_topology_is_a_lower_bound_and_says_so():
    large = grid("g", [Dimension(32, "cycle", 1e9, 0)] * 3)
    assert diameter(large) == (48, False)


@pytest.mark.parametrize("seed", range(30))
def test_paths_are_as_many_as_networkx_counts_between_all_pairs_and_between_the_farthest(seed):
    random = np.random.default_rng(seed)
    n, switches = int(random.integers(3, 9)), int(random.integers(0, 4))
    order = random.permutation(n + switches)
    ends = [*zip(order, np.roll(order, 1), strict=True), *random.integers(0, n + switches, (2 * n, 2)).tolist()]
    src, dst = np.array([(a, b) for a, b in ends if a != b]).T
    zeros = np.zeros(len(src))
    links = Links(*(column(c, t) for c, t in zip((src, dst, zeros + 1, zeros, zeros), _DTYPES, strict=True)))
    graph = nx.MultiDiGraph(zip(src.tolist(), dst.tolist(), strict=True))
    counts = {}
    for a, b in itertools.permutations(range(n), 2):
        hops = nx.shortest_path_length(graph, a, b)
        counts[a, b] = hops, sum(1 for _ in nx.all_simple_edge_paths(graph, a, b, cutoff=hops))
    farthest = max(hops for hops, _ in counts.values())
    fewest = min(count for hops, count in counts.values() if hops == farthest)
    found = paths(Topology("random", n, n + switches, links, _nowhere))
    assert found == (fewest, max(count for _, count in counts.values()))


_DTYPES = (np.int32, np.int32, np.float64, np.int64, np.int16)


@pytest.mark.parametrize("switches", [0, 1, 5])
@pytest.mark.parametrize("seed", range(8))
def test_a_cut_is_the_least_that_networkx_finds(seed, switches):
    topology = _random(seed, switches)
    low = np.random.default_rng(seed).random(topology.n_npus) < 0.5
    graph = _graph(topology)
    for npu, is_low in enumerate(low.tolist()):
        graph.add_edge(*(("low", npu) if is_low else (npu, "high")))  # no capacity: unlimited
        graph.add_edge(*((npu, "low") if is_low else ("high", npu)))
    graph.add_nodes_from(("low", "high"))
    expected = min(nx.minimum_cut_value(graph, "low", "high"), nx.minimum_cut_value(graph, "high", "low"))
    assert cut(topology, low) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "topology",
    [
        grid("ring", [Dimension(8, "cycle", 1e9, 0)]),
        grid("odd", [Dimension(7, "cycle", 1e9, 0)]),
        grid("mesh", [Dimension(8, "complete", 1e9, 0)]),
        grid("torus", [Dimension(4, "cycle", 1e9, 0), Dimension(3, "cycle", 1e9, 0)]),
        grid("cube", [Dimension(2, "cycle", 1e9, 0)] * 3),
        grid("both", [Dimension(2, "cycle", 1e9, 0), Dimension(4, "complete", 1e9, 0)]),
        star("star", 6, 1e9, 0),
    ],
    ids=lambda t: t.name,
)
def test_bisection_is_the_least_over_all_halvings(topology):
    n = topology.n_npus
    halves = (np.isin(np.arange(n), low) for low in itertools.combinations(range(n), n // 2))
    assert bisection(topology)[0] == min(cut(topology, low) for low in halves)


def test_bisection_of_uneven_rates_too_large_for_a_flow_of_integers_is_close():
    base = star("star", 64, 1e9, 0)
    rates = 1e12 + np.arange(128) * 7.0
    topology = replace(base, links=replace(base.links, bandwidth_Bps=column(rates, np.float64)))
    expected = min(rates[:32].sum(), rates[96:].sum(), rates[32:64].sum(), rates[64:96].sum())
    assert bisection(topology)[0] == pytest.approx(expected, rel=1e-6)


def test_one_npu_has_no_halves_and_no_distance():
    alone = summary(star("star", 1, 1e9, 0))
    assert (alone.diameter, alone.bisection_Bps, alone.halves) == (0, 0.0, "one NPU has no halves")


def test_summary_counts_what_leaves_npus_only():
    base = star("star", 3, 2e9, 0)
    rates = np.where(np.arange(6) == 0, 1e9, 2e9)
    topology = replace(base, links=replace(base.links, bandwidth_Bps=column(rates, np.float64)))
    found = summary(topology)
    assert (found.npus, found.switches, found.links) == (3, 1, 6)
    assert found.degree == (1, 1)
    assert found.injection_Bps == (1e9, 2e9)


def test_every_topology_of_the_catalogue_is_built_and_summed_up_without_what_is_slow_to_load():
    script = """if True:
        import sys
        from emu.topology.catalogue import TOPOLOGIES, build_topology
        from emu.topology.facts.facts import summary
        for _, blueprint in TOPOLOGIES:
            summary(build_topology(blueprint.example))
        print({"scipy", "networkx", "numba", "matplotlib", "torch", "ray"} & set(sys.modules))
    """
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "set()\n"
