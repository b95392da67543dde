"""Dimension order over any links: against the arithmetic router where there is one, else against networkx by dimension."""

import itertools

import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.builders.grid import Dimension, grid
from emu.topology.builders.wiring import Cables, wire
from emu.topology.paths.dimension_order import by_dimension
from emu.topology.paths.path_check import cycle
from emu.topology.topology import Links


def _pairs(n):
    return np.array(list(itertools.permutations(range(n), 2)))


def _links(pairs):
    a, b = np.array(pairs).T
    return wire("w", [Cables("cable", a, b, 1e9, 0)])[0]


def _line(dims):
    """A grid without wrap, as networkx makes it."""
    graph = nx.convert_node_labels_to_integers(nx.grid_graph(dims[::-1]), ordering="sorted")
    return _links(list(graph.edges))


@pytest.mark.parametrize("shape", [[(3, "complete"), (4, "complete")], [(3, "cycle"), (5, "cycle")], [(3, "cycle")] * 3])
def test_where_no_way_ties_routes_are_those_of_arithmetic(shape):
    known = grid("g", [Dimension(size, wiring, 1e9, 0) for size, wiring in shape])
    router = by_dimension("g", known.links, known.dims, known.n_nodes)
    src, dst = _pairs(known.n_npus).T
    key = np.arange(len(src))
    found, wanted = router(src, dst, key), known.routes(src, dst, key)
    assert np.array_equal(found.start, wanted.start)
    assert np.array_equal(found.link, wanted.link)


@pytest.mark.parametrize("dims", [(4, 4), (2, 3, 4), (6,)])
def test_a_grid_without_wrap_is_walked_straight_and_cannot_deadlock(dims):
    links = _line(dims)
    src, dst = _pairs(int(np.prod(dims))).T
    routes = by_dimension("m", links, dims, int(np.prod(dims)))(src, dst, np.zeros_like(src))
    digits = [np.stack(np.unravel_index(nodes, dims)) for nodes in (src, dst)]
    assert np.array_equal(routes.hops, np.abs(digits[0] - digits[1]).sum(axis=0))
    assert cycle(routes) == []
    for pair in range(len(src)):
        ends = [np.unravel_index(end[routes.of(pair)], dims) for end in (links.src, links.dst)]
        axes = np.argmax(np.array(ends[0]) != np.array(ends[1]), axis=0)
        assert (np.diff(axes) <= 0).all()


def test_switches_carry_the_dimension_of_the_npus_around_them():
    """Rows of a 2 x 3 grid on a switch each, columns on two switches that are linked."""
    rows = [(npu, 6 + npu // 3) for npu in range(6)]
    columns = [(npu, 9 + 2 * (npu % 3) - npu // 3) for npu in range(6)]
    links = _links(rows + columns + [(8 + 2 * c, 9 + 2 * c) for c in range(3)])
    router = by_dimension("s", links, (2, 3), 14)
    routes = router(np.array([0, 0, 0]), np.array([2, 3, 5]), np.zeros(3, np.int64))
    assert [links.dst[routes.of(p)].tolist() for p in range(3)] == [[6, 2], [9, 8, 3], [6, 2, 13, 12, 5]]


def test_to_and_from_a_switch_a_route_is_a_shortest_one():
    links = _links([(0, 2), (1, 2)])
    routes = by_dimension("s", links, (2,), 3)(np.array([0, 2, 1]), np.array([2, 1, 0]), np.zeros(3, np.int64))
    assert [links.dst[routes.of(p)].tolist() for p in range(3)] == [[2], [1], [2, 0]]


def test_a_link_of_no_one_dimension_is_refused():
    with pytest.raises(InputError) as refused:
        by_dimension("s", _links([(0, 1), (2, 3), (0, 3)]), (2, 2), 4, lambda node: f"gpu.{node}")
    assert str(refused.value) == (
        "s: routes by dimension need links that join NPUs which differ in one digit of dims 2x2, "
        "got gpu.0 to gpu.3 with 2; take shortest routes or other dims"
    )


def test_a_dimension_that_is_joined_one_way_only_is_refused():
    links = _links([(0, 1), (2, 3), (0, 2), (1, 3)])
    one_way = Links(*(getattr(links, name)[[0, 2, 3, 4, 5, 6, 7]] for name in Links.__slots__))  # no way back from 1 to 0
    with pytest.raises(InputError, match=r"no way in dimension 1 leads from NPU 0 to NPU 1"):
        by_dimension("s", one_way, (2, 2), 4)
    assert len(by_dimension("s", links, (2, 2), 4).walks) == 2


def test_a_dimension_that_is_not_joined_is_refused():
    with pytest.raises(InputError) as refused:
        by_dimension("s", _links([(0, 1), (2, 3), (0, 2)]), (2, 2), 4)
    assert str(refused.value) == (
        "s: no way in dimension 0 leads from NPU 1 to NPU 3; join them there, or take shortest routes"
    )
