"""Shortest paths against networkx on graphs drawn at random; the hash against what chance would give."""

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from emu.topology.routing import UNREACHED, distances, join, mix, shortest
from emu.topology.wiring import Cables, wire


def _links(pairs):
    a, b = np.array(pairs, np.int64).reshape(-1, 2).T
    return wire("w", [Cables("cable", a, b, 1e9, 0)])[0]


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


@settings(max_examples=60, deadline=None)
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


@settings(max_examples=40, deadline=None)
@given(cabled)
def test_distances_are_those_of_networkx(drawn):
    n, pairs, passes, _ = drawn
    links = _links(pairs)
    found = distances(links, n, np.arange(n), np.array(passes))
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


def test_join_leaves_out_what_a_pair_does_not_take():
    routes = join([[3, -1, 5], [[1, 2], [-1, 7], [-1, -1]], np.array([-1, 4, -1])])
    assert routes.start.tolist() == [0, 3, 5, 6]
    assert [routes.of(pair).tolist() for pair in range(3)] == [[3, 1, 2], [7, 4], [5]]


@pytest.mark.parametrize("buckets", [2, 3, 8, 60, 120])
@pytest.mark.parametrize("step", [1, 2, 8, 4096])
def test_a_hash_of_regular_words_is_even(buckets, step):
    words = np.arange(200 * buckets) * step
    assert chisquare(np.bincount(mix(words, 3, words // 7) % buckets, minlength=buckets)).pvalue > 1e-4


def test_a_hash_is_the_same_for_the_same_words_in_the_same_order():
    assert np.array_equal(mix([1, 2, 3], 5), mix([1, 2, 3], [5, 5, 5]))
    assert (mix([1, 2], [2, 1])[0]) != mix([1, 2], [2, 1])[1]
    values = mix(np.arange(-500, 100_000))
    assert len(np.unique(values)) == len(values)
    assert values.min() >= 0
    assert values.max() < 2**62
