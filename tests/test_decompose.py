import numpy as np
import pytest

from emu.decompose import both_ways, directed_cycles
from emu.errors import InputError


@pytest.mark.parametrize("n", [2, 3, 5, 7, 8, 9, 10, 12, 16, 37, 64, 131])
def test_every_directed_edge_is_on_one_of_n_less_one_cycles_through_all(n):
    cycles = directed_cycles(n)
    assert cycles.shape == (n - 1, n)
    assert np.array_equal(np.sort(cycles, axis=1), np.broadcast_to(np.arange(n), cycles.shape))
    edges = np.stack((cycles, np.roll(cycles, -1, axis=1)), axis=-1).reshape(-1, 2)
    assert len(np.unique(edges, axis=0)) == n * (n - 1)


def test_one_vertex_is_a_cycle_of_its_own():
    assert directed_cycles(1).tolist() == [[0]]


def test_undirected_cycles_are_gone_round_both_ways():
    assert both_ways(np.array([[0, 1, 2]])).tolist() == [[0, 1, 2], [2, 1, 0]]


def test_what_is_remembered_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        directed_cycles(5)[0, 0] = 1


@pytest.mark.parametrize("n", [4, 6, 0, 130])
def test_a_graph_that_has_no_decomposition_or_a_far_search_is_refused(n):
    with pytest.raises(InputError, match=f"^decomposition: vertices must be odd, or even and at most 128 but not 4 or 6.*{n}$"):
        directed_cycles(n)
