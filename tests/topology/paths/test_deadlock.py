"""Cycles of the channel-dependency graph: the textbook's cases, and networkx on routes drawn at random."""

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.arrays import column
from emu.topology.builders.grid import Dimension, grid
from emu.topology.builders.route_parts import join
from emu.topology.paths.path_check import cycle
from emu.topology.topology import Routes


def _all_pairs(topology, key=0):
    pairs = np.array(list(itertools.permutations(range(topology.n_npus), 2)))
    return pairs, topology.routes(*pairs.T, np.full(len(pairs), key))


def _waits(routes, virtual):
    """The channel-dependency graph, edge by edge."""
    graph = nx.DiGraph()
    for pair in range(len(routes.hops)):
        hops = range(routes.start[pair], routes.start[pair + 1])
        graph.add_edges_from(
            ((int(routes.link[h]), int(virtual[h])), (int(routes.link[h + 1]), int(virtual[h + 1]))) for h in hops[:-1]
        )
    return graph


def test_a_cycle_of_links_with_one_channel_can_deadlock():
    ring = grid("r", [Dimension(5, "cycle", 1e9, 0)])
    _, routes = _all_pairs(ring)
    found = cycle(routes)
    assert sorted({ring.links.src[link] for link, _ in found}) == [0, 1, 2, 3, 4]
    assert {lane for _, lane in found} == {0}


def test_a_second_channel_past_the_dateline_breaks_it():
    """Dally and Seitz: a message that has crossed from the last NPU to the first, or back, goes on in channel 1."""
    ring = grid("r", [Dimension(6, "cycle", 1e9, 0)])
    _, routes = _all_pairs(ring)
    src, dst = ring.links.src[routes.link], ring.links.dst[routes.link]
    crosses = (np.abs(src - dst) > 1).astype(np.int64)
    before = np.cumsum(crosses) - crosses
    virtual = before - np.repeat(before[routes.start[:-1]], routes.hops)
    assert cycle(routes, virtual) == []
    assert cycle(routes) != []


@pytest.mark.parametrize("sizes", [(4,), (3, 4), (2, 3, 2)])
def test_complete_dimensions_walked_in_order_cannot_deadlock(sizes):
    _, routes = _all_pairs(grid("h", [Dimension(size, "complete", 1e9, 0) for size in sizes]))
    assert cycle(routes) == []


def _mesh_hop(here, there):
    return 64 * here + there


def _mesh_route(src, dst, order):
    """Nodes of a 4 x 4 mesh without wrap, digit after digit; a link is named by its ends."""
    at, goal, links = list(divmod(src, 4)), divmod(dst, 4), []
    for axis in order:
        while at[axis] != goal[axis]:
            here = 4 * at[0] + at[1]
            at[axis] += 1 if goal[axis] > at[axis] else -1
            links.append(_mesh_hop(here, 4 * at[0] + at[1]))
    return links


def _csr(rows):
    start = np.cumsum([0, *map(len, rows)])
    return Routes(column(start, np.int64), column(list(itertools.chain(*rows)), np.int32))


def test_a_mesh_walked_in_one_order_cannot_deadlock_in_both_it_can():
    pairs = list(itertools.permutations(range(16), 2))
    first = [_mesh_route(*pair, (1, 0)) for pair in pairs]
    other = [_mesh_route(*pair, (0, 1)) for pair in pairs]
    assert cycle(_csr(first)) == []
    assert cycle(_csr(other)) == []
    assert cycle(_csr(first + other)) != []


routes_drawn = st.lists(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1)), max_size=5), max_size=12)


@given(routes_drawn)
def test_networkx_agrees_on_whether_there_is_a_cycle_and_that_what_is_found_is_one(rows):
    routes = _csr([[link for link, _ in row] for row in rows])
    virtual = np.array([lane for row in rows for _, lane in row], np.int64)
    graph = _waits(routes, virtual)
    found = cycle(routes, virtual)
    assert bool(found) == (not nx.is_directed_acyclic_graph(graph))
    assert all(graph.has_edge(a, b) for a, b in zip(found, found[1:] + found[:1], strict=True))


def test_no_routes_wait_for_nothing():
    assert cycle(join([np.empty(0, np.int64)])) == []
    assert cycle(join([[3, 1, 2]])) == []
