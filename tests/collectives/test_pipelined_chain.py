"""The links of a chain, followed by hand: what each carries, and when."""

import numpy as np
import pytest

from collectives.pipelined_chain import PIECES, broadcast, gather, reduce, scatter
from emu.collective.transform import rotate

NS = (2, 3, 7, 16)


@pytest.mark.parametrize("n", NS)
def test_each_link_carries_each_piece_once_as_soon_as_it_has_arrived(n):
    built = broadcast(n)
    assert (built.n_rounds, built.n_rows) == (n - 1 + PIECES - 1, (n - 1) * PIECES)
    assert np.array_equal(built.dst, built.src + 1)
    assert np.array_equal(built.round_column(), built.src + built.slot)


@pytest.mark.parametrize("n", NS)
def test_a_reduce_goes_back_along_the_same_links(n):
    built = reduce(n)
    assert (built.n_rounds, built.n_rows) == (n - 1 + PIECES - 1, (n - 1) * PIECES)
    assert np.array_equal(built.dst, built.src - 1)
    assert built.reduce.all()


@pytest.mark.parametrize("n", NS)
def test_a_link_carries_the_slots_of_all_ranks_behind_it_one_a_round(n):
    for built in (scatter(n), gather(n)):
        assert (built.n_rounds, built.n_rows) == (n - 1, n * (n - 1) // 2)
        near = np.minimum(built.src, built.dst)
        assert np.bincount(near).tolist() == list(range(n - 1, 0, -1))
        assert (built.slot > near).all()
        assert len(np.unique(built.round_column() * n + near)) == built.n_rows


def test_four_ranks_scatter_what_goes_furthest_first():
    built = scatter(4)
    sent = [list(zip(built.src[rows].tolist(), built.slot[rows].tolist(), strict=True)) for rows in built.rounds()]
    assert sent == [[(0, 3)], [(0, 2), (1, 3)], [(0, 1), (1, 2), (2, 3)]]


def test_with_another_root_the_chain_begins_there_and_goes_round():
    built = rotate(broadcast(4), 2, slots_are_ranks=False)
    assert sorted(set(zip(built.src.tolist(), built.dst.tolist(), strict=True))) == [(0, 1), (2, 3), (3, 0)]
