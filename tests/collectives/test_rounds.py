"""How many rounds and rows each has, and who talks to whom: closed forms from the papers."""

from math import ceil, log2

import numpy as np
import pytest

from collectives import binomial, exchange, ring

NS = (1, 2, 3, 7, 8, 16)


def rounds_and_rows(schedule) -> tuple[int, int]:
    return schedule.n_rounds, schedule.n_rows


@pytest.mark.parametrize("n", NS)
def test_a_ring_takes_a_round_for_each_other_rank_and_each_rank_sends_in_each(n):
    assert rounds_and_rows(ring.reduce_scatter(n).expand()) == (n - 1, n * (n - 1))
    assert rounds_and_rows(ring.all_gather(n).expand()) == (n - 1, n * (n - 1))
    both = ring.all_reduce(n).expand()
    assert rounds_and_rows(both) == (2 * (n - 1), 2 * n * (n - 1))
    assert np.array_equal((both.src + 1) % n, both.dst)


@pytest.mark.parametrize("n", NS)
def test_a_rank_of_a_ring_ends_the_first_half_with_its_own_slot(n):
    half = ring.reduce_scatter(n).expand()
    if n > 1:
        last = half.rounds()[-1]
        assert half.slot[last].tolist() == half.dst[last].tolist()


def test_four_ranks_in_a_ring_send_what_the_paper_draws_one_slot_later():
    """Rank r's first slot is r - 1, so that it ends with slot r and not r + 1."""
    half = ring.reduce_scatter(4).expand()
    assert half.slot[half.rounds()[0]].tolist() == [3, 0, 1, 2]


@pytest.mark.parametrize("n", NS[1:])
def test_direct_takes_one_round_each_way(n):
    assert rounds_and_rows(exchange.reduce_scatter(n).expand()) == (1, n * (n - 1))
    assert rounds_and_rows(exchange.all_gather(n).expand()) == (1, n * (n - 1))
    assert rounds_and_rows(exchange.all_reduce(n).expand()) == (2, 2 * n * (n - 1))


@pytest.mark.parametrize("n", NS[1:])
def test_an_exchange_sends_each_item_once_from_its_source_to_its_sink(n):
    for built, n_rounds in ((exchange.pairwise(n).expand(), n - 1), (exchange.at_once(n).expand(), 1)):
        assert rounds_and_rows(built) == (n_rounds, n * (n - 1))
        assert np.array_equal(built.slot, built.src * n + built.dst)


@pytest.mark.parametrize("n", NS)
def test_pairwise_gives_each_rank_one_partner_a_round(n):
    built = exchange.pairwise(n).expand()
    for rows in built.rounds():
        assert sorted(built.src[rows].tolist()) == sorted(built.dst[rows].tolist()) == list(range(n))


@pytest.mark.parametrize("n", NS)
def test_a_binomial_tree_reaches_each_rank_once_in_the_logarithm_of_their_number(n):
    for built in (binomial.broadcast(n), binomial.reduce(n)):
        assert rounds_and_rows(built) == (ceil(log2(n)), n - 1)
    assert sorted(binomial.broadcast(n).dst.tolist()) == list(range(1, n))
    assert sorted(binomial.reduce(n).src.tolist()) == list(range(1, n))


@pytest.mark.parametrize("n", NS)
def test_a_binomial_scatter_moves_each_slot_once_for_each_one_in_its_ranks_binary_digits(n):
    for built in (binomial.scatter(n), binomial.gather(n)):
        assert built.n_rounds == ceil(log2(n))
        assert np.bincount(built.slot, minlength=n).tolist() == [rank.bit_count() for rank in range(n)]
