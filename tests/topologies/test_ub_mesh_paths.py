"""UB-Mesh's all-path routing: which paths two nodes have, and the virtual lanes on which they cannot deadlock."""

import itertools
from functools import cache

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.arrays import column
from emu.errors import InputError
from emu.topology.paths.path_check import cycle
from emu.topology.topology import Routes
from tests.topologies.ub_mesh_cases import ROWS
from topologies.ub_mesh.mesh_routes import apr

MESHES = [(3, 3), (4, 4), (3, 3, 3), (2, 2, 2, 2)]


@cache
def _paths(dims, detours=1):
    nodes = list(np.ndindex(*dims))
    return {(a, b): apr.paths(dims, a, b, detours) for a, b in itertools.permutations(nodes, 2)}


def _all(dims, detours=1):
    return list(itertools.chain.from_iterable(_paths(dims, detours).values()))


def _routes(paths):
    """Paths of a mesh as routes, a link for each ordered pair of nodes, and the virtual lane of each hop."""
    number = {}
    hops = [[number.setdefault(hop, len(number)) for hop in itertools.pairwise(path)] for path in paths]
    start = np.cumsum([0, *map(len, hops)])
    routes = Routes(column(start, np.int64), column(list(itertools.chain(*hops)), np.int32))
    return routes, np.array(list(itertools.chain(*map(apr.lanes, paths))))


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_two_nodes_of_a_full_mesh_have_a_direct_path_and_a_detour_over_each_other_node(n):
    assert len(apr.paths((n,), (0,), (n - 1,), 0)) == 1
    found = apr.paths((n,), (0,), (n - 1,), 1)
    assert [len(path) - 1 for path in found] == [1] + [2] * (n - 2)


@pytest.mark.parametrize("dims", MESHES[:3])
@pytest.mark.parametrize("detours", [0, 1, 2])
def test_paths_are_the_simple_paths_that_networkx_finds(dims, detours):
    mesh = nx.complete_graph(dims[0])
    for size in dims[1:]:
        mesh = nx.cartesian_product(mesh, nx.complete_graph(size))
    flat = {node: tuple(np.ravel(_digits(node))) for node in mesh}
    mesh = nx.relabel_nodes(mesh, flat)
    src = (0,) * len(dims)
    for dst in [tuple(size - 1 for size in dims), (*src[:-1], 1)]:
        limit = nx.shortest_path_length(mesh, src, dst) + detours
        found = apr.paths(dims, src, dst, detours)
        assert sorted(found) == sorted(map(tuple, nx.all_simple_paths(mesh, src, dst, limit)))
        assert [len(path) for path in found] == sorted(len(path) for path in found)


def _digits(node):
    """Digits of a node of a product of products."""
    return [digit for part in node for digit in _digits(part)] if isinstance(node, tuple) else [node]


def _with_lanes(paths, virtual=apr.LANES):
    return [path for path in paths if apr.lanes(path).max(initial=0) < virtual]


@pytest.mark.parametrize(
    ("dims", "usable", "of", "one_lane"),
    [((3, 3), 336, 360, 144), ((4, 4), 2112, 2304, 752), ((3, 3, 3), 8100, 11988, 1674), ((2, 2, 2, 2), 768, 1024, 240)],
)
def test_two_virtual_lanes_serve_every_pair_with_most_paths_and_cannot_deadlock(dims, usable, of, one_lane):
    paths = _all(dims)
    kept = _with_lanes(paths)
    assert (len(kept), len(paths), len(_with_lanes(paths, 1))) == (usable, of, one_lane)
    routes, lanes = _routes(kept)
    assert lanes.max() + 1 == ROWS["ub-vl"] == apr.LANES
    assert cycle(routes, lanes) == []
    assert cycle(routes) != []
    assert all(_with_lanes(between) for between in _paths(dims).values())


@pytest.mark.parametrize(
    ("path", "lanes"),
    [
        ([(0, 0), (0, 2), (1, 2)], [0, 0]),
        ([(0, 0), (1, 0), (1, 2)], [0, 1]),
        ([(0,), (2,), (1,)], [0, 0]),
        ([(1,), (0,), (2,)], [0, 1]),
        ([(0, 1), (0, 0), (1, 0), (1, 2)], [0, 0, 1]),
    ],
)
def test_a_path_takes_the_next_lane_where_it_breaks_the_order_of_dimensions_or_goes_up_again(path, lanes):
    assert apr.lanes(path).tolist() == lanes


@given(st.sampled_from([(3, 3), (4, 4), (2, 2, 2, 2)]), st.randoms(use_true_random=False))
def test_any_paths_on_as_many_lanes_as_they_ask_for_cannot_deadlock(dims, random):
    paths = random.sample(_all(dims), 60)
    assert cycle(*_routes(paths)) == []


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (((3, 3), (0, 0), (0, 3), 1), "ub-mesh paths: a node must be digits below 3x3, got (0, 3)"),
        (((3, 3), (0,), (0, 1), 1), "ub-mesh paths: a node must be digits below 3x3, got (0,)"),
        (((3, 3), (0, 0), (0, 1), -1), "ub-mesh paths: detours must be 0 or more, got -1"),
    ],
)
def test_paths_that_cannot_be_are_refused(ask, message):
    with pytest.raises(InputError) as refused:
        apr.paths(*ask)
    assert str(refused.value) == message
