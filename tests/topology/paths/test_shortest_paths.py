"""The best ways against networkx on graphs drawn at random."""

import itertools
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import emu
from emu.arrays import column
from emu.topology.builders.wiring import Cables, wire
from emu.topology.paths import shortest_paths
from emu.topology.paths.path_check import find_uneven, find_unjoined
from emu.topology.paths.shortest_paths import UNREACHED, least_weights, shortest


def _links(pairs, rate=None):
    a, b = np.array(pairs, np.int64).reshape(-1, 2).T
    links = wire("w", [Cables("cable", a, b, 1e9, 0)])[0]
    return links if rate is None else replace(links, bandwidth_Bps=column(np.resize(rate, len(links)), np.float64))


def _one_way(links, passes=None, dst=None):
    """The graph of links, without those into a node that passes nothing on, but for the destination."""
    into = zip(links.src.tolist(), links.dst.tolist(), strict=True)
    return nx.MultiDiGraph([(s, d) for s, d in into if passes is None or passes[d] or d == dst])


cabled = st.integers(2, 9).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda p: p[0] != p[1]), max_size=2 * n),
        st.lists(st.booleans(), min_size=n, max_size=n),
        st.integers(0, 2**40),
    )
)


@settings(max_examples=60)
@given(cabled)
def test_routes_are_shortest_paths_of_networkx_through_nodes_that_relay(drawn):
    n, pairs, passes, key = drawn
    links = _links(pairs)
    asked = np.array(list(itertools.permutations(range(n), 2)))
    routes = shortest(links, n, passes)(asked[:, 0], asked[:, 1], np.full(len(asked), key))
    for pair, (src, dst) in enumerate(asked.tolist()):
        graph = _one_way(links, passes, dst)
        walked = routes.of(pair)
        if not (graph.has_node(src) and graph.has_node(dst) and nx.has_path(graph, src, dst)):
            assert len(walked) == 0
            continue
        nodes = [src, *links.dst[walked].tolist()]
        assert links.src[walked].tolist() == nodes[:-1]
        assert nodes[-1] == dst
        assert len(walked) == nx.shortest_path_length(graph, src, dst)
        assert all(passes[node] for node in nodes[1:-1])


@settings(max_examples=40)
@given(cabled)
def test_distances_are_those_of_networkx(drawn):
    n, pairs, passes, _ = drawn
    links = _links(pairs)
    ways = shortest(links, n, np.array(passes))
    found = ways.grades(np.arange(n)) // ways.rates
    for dst in range(n):
        graph = _one_way(links, passes, dst).reverse()
        graph.add_nodes_from(range(n))
        known = nx.single_source_shortest_path_length(graph, dst)
        assert found[dst].tolist() == [known.get(src, int(UNREACHED)) for src in range(n)]


def test_keys_spread_over_all_shortest_paths_evenly():
    """Two NPUs, four switches between them, three parallel cables on each side of each: 36 paths."""
    links = _links([(end, switch) for end in (0, 1) for switch in (2, 3, 4, 5) for _ in range(3)])
    keys = np.arange(36 * 200)
    routes = shortest(links, 6)(np.zeros_like(keys), np.ones_like(keys), keys)
    assert set(routes.hops.tolist()) == {2}
    _, used = np.unique(routes.link.reshape(-1, 2), axis=0, return_counts=True)
    assert len(used) == 36 == sum(1 for _ in nx.all_simple_edge_paths(_one_way(links), 0, 1, cutoff=2))
    assert chisquare(used).pvalue > 1e-3


def test_a_pair_takes_the_same_path_with_the_same_key_whatever_else_is_asked():
    links = _links([(a, b) for a in range(4) for b in range(4, 8)])
    router = shortest(links, 8)
    src, dst, key = np.random.default_rng(1).integers(0, 4, (3, 60))
    src, dst, key = (column[src != dst] for column in (src, dst, key))
    together = router(src, dst, key)
    for pair in range(len(src)):
        alone = router(src[pair : pair + 1], dst[pair : pair + 1], key[pair : pair + 1])
        assert np.array_equal(alone.link, together.of(pair))


def test_no_pairs_have_no_routes():
    none = np.empty(0, np.int64)
    assert shortest(_links([(0, 1)]), 2)(none, none, none).start.tolist() == [0]


@settings(max_examples=40)
@given(cabled, st.integers(0, 2**32 - 1))
def test_the_quickest_ways_from_some_nodes_are_those_of_networkx(drawn, seed):
    n, pairs, _, _ = drawn
    links, random = _links(pairs), np.random.default_rng(seed)
    weight = random.integers(0, 5, len(links))
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(range(n))
    graph.add_weighted_edges_from(zip(links.src.tolist(), links.dst.tolist(), weight.tolist(), strict=True))
    sources = [random.choice(n, int(random.integers(1, n + 1)), replace=False) for _ in range(3)]
    found = least_weights((links.src, links.dst), weight, n, sources)
    for row, of in zip(found, sources, strict=True):
        known = nx.multi_source_dijkstra_path_length(graph, set(of.tolist()))
        assert row.tolist() == [known.get(node, np.inf) for node in range(n)]


def _cheapest(links, cost, src, dst, passes):
    """All cheapest ways by networkx, as (links, narrowest rate)."""
    graph = nx.MultiDiGraph()
    graph.add_nodes_from((src, dst))
    for link, (a, b) in enumerate(zip(links.src.tolist(), links.dst.tolist(), strict=True)):
        if passes[b] or b == dst:
            graph.add_edge(a, b, key=link, cost=int(cost[link]))
    if not nx.has_path(graph, src, dst):
        return {}
    least = nx.shortest_path_length(graph, src, dst, weight="cost")
    ways = [tuple(link for _, _, link in way) for way in nx.all_simple_edge_paths(graph, src, dst, cutoff=least)]
    return {way: links.bandwidth_Bps[list(way)].min() for way in ways if cost[list(way)].sum() == least}


@settings(max_examples=60)
@given(cabled, st.integers(0, 2**32 - 1))
def test_of_the_shortest_ways_the_fastest_by_their_narrowest_link_are_taken_and_all_of_them(drawn, seed):
    n, pairs, passes, _ = drawn
    links = _links(pairs[:12], np.random.default_rng(seed).integers(1, 4, 24) * 1e9)
    _check_taken(links, n, passes, np.ones(len(links)), None, lambda ways: {w for w in ways if ways[w] == max(ways.values())})


@settings(max_examples=60)
@given(cabled, st.integers(0, 2**32 - 1))
def test_with_costs_the_cheapest_ways_are_taken_whatever_their_rates(drawn, seed):
    n, pairs, passes, _ = drawn
    random = np.random.default_rng(seed)
    links = _links(pairs[:12], random.integers(1, 4, 24) * 1e9)
    cost = random.integers(1, 5, len(links))
    _check_taken(links, n, passes, cost, cost, set)


def _check_taken(links, n, passes, counted, cost, wanted):
    asked = np.array(list(itertools.permutations(range(n), 2)))
    keys = np.arange(300)
    router = shortest(links, n, passes, cost)
    for src, dst in asked.tolist():
        ways = wanted(_cheapest(links, counted, src, dst, passes))
        routes = router(np.full(300, src), np.full(300, dst), keys)
        taken = {tuple(routes.of(key).tolist()) for key in keys}
        assert taken <= (ways or {()})
        assert len(taken) == len(ways or {()}) or len(ways) > 4  # so many keys reach each of a few ways


@settings(max_examples=60)
@given(cabled, st.integers(0, 2**32 - 1), st.booleans())
def test_uneven_pairs_are_those_whose_cheapest_ways_differ_in_rate(drawn, seed, with_cost):
    n, pairs, passes, _ = drawn
    random = np.random.default_rng(seed)
    links = _links(pairs[:12], random.integers(1, 4, 24) * 1e9)
    cost = random.integers(1, 3, len(links)) if with_cost else None
    found = find_uneven(shortest(links, n, passes, cost), n)
    wanted = {}
    for src, dst in itertools.permutations(range(n), 2):
        rates = _cheapest(links, np.ones(len(links)) if cost is None else cost, src, dst, passes).values()
        if len(set(rates)) > 1:
            wanted[src, dst] = min(rates), max(rates)
    assert (found.pairs if found else 0) == len(wanted)
    if found is not None:
        assert found.rates_Bps == wanted[found.src, found.dst]
        assert found.of == n * (n - 1)


@settings(max_examples=60)
@given(cabled)
def test_two_npus_are_unjoined_where_networkx_finds_no_way(drawn):
    n, pairs, passes, _ = drawn
    links = _links(pairs)
    found = find_unjoined(shortest(links, n, passes), n)
    lost = {pair for pair in itertools.permutations(range(n), 2) if not _cheapest(links, np.ones(len(links)), *pair, passes)}
    assert found in lost if lost else found is None


def _leaves(spines, seed):
    """Return a router over leaves and spines whose links are of random rates, and the number of its NPUs."""
    random = np.random.default_rng(seed)
    up = [(f"leaf{i}", f"spine{j}") for i in range(4) for j in range(spines)]
    graph = nx.Graph([*((npu, f"leaf{npu // 3}") for npu in range(12)), *up], latency="1us")
    for pair in graph.edges:
        graph.edges[pair]["bandwidth"] = f"{random.choice((25, 50))}GB/s"
    return emu.topology_of(graph).router


@pytest.mark.parametrize("seed", range(6))
def test_what_a_router_keeps_changes_no_route(monkeypatch, seed):
    asked = np.random.default_rng(seed).integers(0, 12, (2, 40, 3))
    src, dst = (column[asked[0] != asked[1]] for column in asked)
    keeping = _leaves(3, seed)
    parts = [keeping(src[some], dst[some], src[some] % 5) for some in np.array_split(np.arange(len(src)), 7)]
    assert len(keeping.kept) == len(np.unique(dst))
    monkeypatch.setattr(shortest_paths, "_KEPT", 0)
    fresh = _leaves(3, seed)
    found = fresh(src, dst, src % 5)
    assert fresh.kept == {}
    assert np.array_equal(np.concatenate([part.link for part in parts]), found.link)
    for pair in range(len(src)):  # pair by pair, none shares a choice with another
        one = slice(pair, pair + 1)
        assert np.array_equal(fresh(src[one], dst[one], src[one] % 5).link, found.of(pair))


def test_a_target_is_searched_once(monkeypatch):
    router, searched = _leaves(3, 0), []
    grades = shortest_paths.ShortestPaths.grades
    monkeypatch.setattr(shortest_paths.ShortestPaths, "grades", lambda self, of: searched.extend(of) or grades(self, of))
    for key in range(3):
        router(np.array([0, 5, 7]), np.array([9, 9, 2]), np.full(3, key))
    assert sorted(searched) == [2, 9]


@pytest.mark.parametrize("seed", range(4))
def test_pairs_that_are_asked_for_again_are_not_walked_again(monkeypatch, seed):
    router, walked, walk = _leaves(3, seed), [], shortest_paths._walk
    monkeypatch.setattr(shortest_paths, "_walk", lambda *asked: walked.append(1) or walk(*asked))
    src, dst, keys = np.array([0, 5, 7]), np.array([9, 9, 2]), range(8)
    first = [router(src, dst, np.full(3, key)) for key in keys]
    again = [router(src.copy(), dst.copy(), np.full(3, key)) for key in keys]
    assert len(walked) == len(keys)
    assert [one is other for one, other in zip(first, again, strict=True)] == [True] * len(keys)
    router(dst, src, np.zeros(3, np.int64))
    assert len(walked) == len(keys) + 1  # the way back is another one
    for key, found in zip(keys, first, strict=True):
        fresh = _leaves(3, seed)(src, dst, np.full(3, key))
        assert np.array_equal(found.link, fresh.link)
        assert np.array_equal(found.start, fresh.start)


def test_a_router_that_is_turned_round_keeps_nothing_of_the_other():
    router = _leaves(3, 1)
    router(np.array([0]), np.array([9]), np.array([0]))
    assert router.back().kept == {}
    assert len(router.walked) == 1
    assert len(router.back().walked) == 0
