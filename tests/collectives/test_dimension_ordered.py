"""One round a dimension, each item at most once along each."""

import numpy as np
import pytest

from collectives import exchange, relayed

DIMS = [(7,), (2, 2), (3, 4), (4, 3), (2, 3, 4), (2, 2, 2, 2)]


def digits(ranks, dims) -> np.ndarray:
    return np.stack(np.unravel_index(ranks, dims), axis=-1)


@pytest.mark.parametrize("dims", DIMS)
def test_round_i_brings_digit_i_of_every_item_to_its_sinks(dims):
    built, n = relayed.by_dimension(dims).expand(), int(np.prod(dims))
    assert built.n_rounds == len(dims)
    for i, rows in enumerate(built.rounds()):
        source, sink = (digits(r, dims) for r in np.divmod(built.slot[rows], n))
        before, after = (digits(r[rows], dims) for r in (built.src, built.dst))
        assert np.array_equal(before, np.where(np.arange(len(dims)) < i, sink, source))
        assert np.array_equal(after, np.where(np.arange(len(dims)) <= i, sink, source))
        assert np.bincount(built.src[rows]).tolist() == [n - n // dims[i]] * n  # (1 - 1/d) of the buffer


def test_on_one_dimension_it_is_all_at_once():
    one, at_once = relayed.by_dimension((7,)).expand(), exchange.at_once(7).expand()
    assert one.digest() == at_once.digest()


def test_thousands_of_ranks_are_stored_as_the_rows_of_one():
    """By translation: 2 * 63 * 64 rows, where 4,096 ranks send 33 million."""
    assert relayed.by_dimension((64, 64)).n_rows == 2 * 63 * 64
