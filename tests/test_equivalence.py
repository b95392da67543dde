import networkx as nx
import numpy as np
import pytest

from emu.equivalence import components, orbits


def _swaps(n: int, seed: int) -> np.ndarray:
    """A few numbers exchanged two by two, the others where they are."""
    chosen = np.random.default_rng(seed).permutation(n)[: n // 3 * 2].reshape(2, -1)
    permutation = np.arange(n)
    permutation[chosen] = chosen[::-1]
    return permutation


@pytest.mark.parametrize(("n", "count"), [(1, 1), (7, 1), (30, 1), (30, 2), (30, 3)])
def test_orbits_are_the_components_of_what_permutations_join_numbered_by_their_least(n, count):
    permutations = [_swaps(n, seed) for seed in range(count)]
    graph = nx.Graph([(i, int(p[i])) for p in permutations for i in range(n)])
    expected = sorted(map(sorted, nx.connected_components(graph)))
    found = orbits(n, permutations)
    assert [np.flatnonzero(found == k).tolist() for k in range(found.max() + 1)] == expected


def test_without_a_permutation_each_number_is_an_orbit():
    assert orbits(4, []).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(20))
def test_components_are_those_of_networkx(seed):
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 60))
    ends = random.integers(0, n, (int(random.integers(0, 70)), 2))
    graph = nx.Graph(ends.tolist())
    graph.add_nodes_from(range(n))
    found = components(n, *ends.T)
    expected = sorted(map(sorted, nx.connected_components(graph)))
    assert [np.flatnonzero(found == k).tolist() for k in range(found.max() + 1)] == expected


def test_a_long_path_numbered_backwards_and_forwards_is_one_component():
    there = np.arange(5000)
    order = np.concatenate((there[::2], there[1::2][::-1]))
    assert components(5000, order[:-1], order[1:]).max() == 0
