"""Steps of 1, 2, 4, ... around the ranks, and the length of the chain of messages that wait for one another."""

import numpy as np
import pytest

from collectives import bruck, ring
from tests.collectives.follow import longest_chain, sent_by

NS = (1, 2, 3, 5, 6, 7, 8, 11, 16)


def test_five_ranks_step_by_step():
    assert sent_by(bruck.all_gather(5), 0) == [(4, [0]), (3, [0, 1]), (1, [0])]
    assert sent_by(bruck.reduce_scatter(5), 0) == [(4, [4]), (2, [2, 3]), (1, [1])]
    # Slot s * 5 + d: its items for ranks 1 and 3; for 2, and 3's on its way from rank 4 to 2; for 4.
    assert sent_by(bruck.all_to_all(5), 0) == [(1, [1, 3]), (2, [2, 22]), (4, [4])]


@pytest.mark.parametrize("n", NS)
def test_all_take_the_logarithm_of_the_ranks_in_rounds(n):
    q = (n - 1).bit_length()
    halves = bruck.all_gather(n), bruck.reduce_scatter(n), bruck.all_to_all(n)
    assert [built.n_rounds for built in (*halves, bruck.all_reduce(n))] == [q, q, q, 2 * q]


@pytest.mark.parametrize("n", NS)
def test_every_slot_comes_to_every_other_rank_once(n):
    built = bruck.all_gather(n).expand()
    assert np.array_equal(np.bincount(built.dst * n + built.slot, minlength=n * n).reshape(n, n), 1 - np.eye(n))


@pytest.mark.parametrize("n", NS)
def test_an_item_travels_once_for_each_one_in_its_ways_binary_digits(n):
    built = bruck.all_to_all(n).expand()
    sources, sinks = np.divmod(np.arange(n * n), n)
    assert np.bincount(built.slot, minlength=n * n).tolist() == [w.bit_count() for w in ((sinks - sources) % n).tolist()]


@pytest.mark.parametrize("n", [*range(1, 35), 47, 48, 63, 64])
def test_its_chain_is_that_long(n):
    assert longest_chain(bruck.all_gather(n).expand()) == longest_chain(bruck.all_to_all(n).expand()) == bruck.chain(n)


@pytest.mark.parametrize("n", NS)
def test_it_sends_as_much_as_a_ring(n):
    for circulant, around in ((bruck.all_reduce(n), ring.all_reduce(n)), (bruck.all_gather(n), ring.all_gather(n))):
        assert np.array_equal(np.bincount(circulant.expand().src), np.bincount(around.expand().src))
