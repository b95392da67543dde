import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.errors import InputError
from emu.topology.builders.grid import Dimension, grid
from emu.topology.paths.path_check import cycle

shapes = st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["cycle", "complete"])), min_size=1, max_size=3)


def _grid(shape):
    return grid("g", [Dimension(size, wiring, 1e9, 7) for size, wiring in shape])


def _walk(shape, src, dst, key):
    """The nodes of a route by the plain rule: last dimension first, the nearer way round, ties by the key's parity."""
    dims = [size for size, _ in shape]
    at, goal = (list(np.unravel_index(node, dims)) for node in (src, dst))
    nodes, ports = [src], []
    for axis in reversed(range(len(dims))):
        size, wiring = shape[axis]
        while at[axis] != goal[axis]:
            away = (goal[axis] - at[axis]) % size
            if wiring == "complete":
                step, port = away, away - 1
            else:
                tie = 2 * ((goal[axis] - np.unravel_index(src, dims)[axis]) % size) == size
                down = key % 2 == 1 if tie else 2 * away > size
                step, port = (-1, 1) if down else (1, 0)
            at[axis] = (at[axis] + step) % size
            nodes.append(int(np.ravel_multi_index(at, dims)))
            ports.append((axis, int(port)))
    return nodes, ports


def _pairs(n):
    return np.array([p for p in itertools.product(range(n), repeat=2) if p[0] != p[1]], dtype=np.int64).reshape(-1, 2)


@settings(max_examples=60)
@given(shapes, st.integers(-3, 3))
def test_every_route_is_the_plain_walk(shape, key):
    topology = _grid(shape)
    pairs = _pairs(topology.n_npus)[:: max(1, topology.n_npus // 8)]
    routes = topology.routes(pairs[:, 0], pairs[:, 1], np.full(len(pairs), key))
    for pair, (src, dst) in enumerate(pairs.tolist()):
        links = routes.of(pair)
        nodes, ports = _walk(shape, src, dst, key)
        assert [src, *topology.links.dst[links].tolist()] == nodes
        assert topology.links.src[links].tolist() == nodes[:-1]
        assert topology.links.dimension[links].tolist() == [axis for axis, _ in ports]
        first = np.searchsorted(topology.links.dimension, [axis for axis, _ in ports])
        per_npu = np.bincount(topology.links.dimension, minlength=len(shape)) // topology.n_npus
        out = (links - first) % per_npu[[axis for axis, _ in ports]]
        assert out.tolist() == [port for _, port in ports]


@settings(max_examples=40)
@given(shapes, st.data())
def test_a_translation_of_both_ends_translates_the_route(shape, data):
    topology = _grid(shape)
    dims = [size for size, _ in shape]
    shift = [data.draw(st.integers(0, size - 1)) for size in dims]
    pairs = _pairs(topology.n_npus)
    key = np.arange(len(pairs)) % 2

    def move(nodes):
        digits = np.unravel_index(nodes, dims)
        moved = [(d + s) % size for d, s, size in zip(digits, shift, dims, strict=True)]
        return np.ravel_multi_index(moved, dims)

    here = topology.routes(pairs[:, 0], pairs[:, 1], key)
    there = topology.routes(move(pairs[:, 0]), move(pairs[:, 1]), key)
    assert np.array_equal(here.start, there.start)
    links = topology.links
    assert np.array_equal(move(links.src[here.link]), links.src[there.link])
    assert np.array_equal(move(links.dst[here.link]), links.dst[there.link])


def test_the_two_parallel_links_of_a_pair_are_taken_by_the_parity_of_the_key():
    topology = _grid([(2, "cycle")])
    routes = topology.routes(np.array([0, 0, 0, 1]), np.array([1, 1, 1, 0]), np.array([0, 1, 2, 1]))
    assert routes.link.tolist() == [0, 1, 0, 3]


def test_a_tie_goes_up_with_an_even_key_and_down_with_an_odd_one():
    topology = _grid([(4, "cycle")])
    routes = topology.routes(np.array([3, 3]), np.array([1, 1]), np.array([0, 1]))
    assert topology.links.dst[routes.of(0)].tolist() == [0, 1]
    assert topology.links.dst[routes.of(1)].tolist() == [2, 1]


def test_links_carry_the_rate_of_their_dimension():
    topology = grid("g", [Dimension(3, "cycle", 1e9, 10), Dimension(4, "complete", 2e9, 20)])
    links = topology.links
    assert len(links) == 12 * (2 + 3)
    assert set(zip(links.dimension.tolist(), links.bandwidth_Bps, links.latency_fs.tolist(), strict=True)) == {
        (0, 1e9, 10),
        (1, 2e9, 20),
    }


def test_a_large_grid_costs_its_links_and_no_table_of_pairs():
    topology = grid("g", [Dimension(size, "cycle", 1e9, 0) for size in (64, 32, 32)])
    assert len(topology.links) == 6 * 65_536
    routes = topology.routes(np.array([0, 65_535]), np.array([32 * 1024 + 16 * 32 + 16, 0]), np.array([0, 1]))
    assert routes.hops.tolist() == [64, 3]


def test_a_grid_without_dimensions_is_refused():
    with pytest.raises(InputError, match=r"^g: dims must be one size or more, each 1 or more, got \(\)$"):
        grid("g", [])
    with pytest.raises(InputError, match=r"^g: dims must be one size or more, each 1 or more, got \(3, 0\)$"):
        _grid([(3, "cycle"), (0, "cycle")])


def test_a_grid_of_too_many_links_is_refused():
    with pytest.raises(InputError, match=r"^g: links must be at most 2\*\*24, got 24995000; take fewer NPUs$"):
        _grid([(5000, "complete")])


@pytest.mark.parametrize("dims", [(6,), (4, 4), (5, 3), (4, 2, 5)])
def test_the_second_channel_past_the_end_of_a_cycle_keeps_routes_from_a_deadlock(dims):
    topology = _grid([(size, "cycle") for size in dims])
    pairs = np.repeat(_pairs(topology.n_npus), 2, axis=0)
    routes = topology.routes(pairs[:, 0], pairs[:, 1], np.arange(len(pairs)) % 2)
    digits = np.array(np.unravel_index(np.arange(topology.n_npus), dims))
    for pair in range(0, len(pairs), 7):
        links, past, named = routes.of(pair), set(), []
        for link in links.tolist():
            axis, src, dst = (int(of[link]) for of in (topology.links.dimension, topology.links.src, topology.links.dst))
            named.append(int(axis in past))
            if abs(digits[axis, src] - digits[axis, dst]) > 1:
                past.add(axis)
        assert routes.virtual[routes.start[pair] : routes.start[pair + 1]].tolist() == named
    assert cycle(routes, routes.virtual) == []
    assert cycle(routes) != []


@pytest.mark.parametrize("shape", [[(3, "cycle"), (2, "cycle")], [(6, "complete")]])
def test_a_grid_whose_routes_cannot_deadlock_names_no_channels(shape):
    topology = _grid(shape)
    pairs = _pairs(topology.n_npus)
    routes = topology.routes(pairs[:, 0], pairs[:, 1], np.arange(len(pairs)))
    assert routes.virtual is None
    assert cycle(routes) == []
