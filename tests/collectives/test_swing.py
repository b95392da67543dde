"""Swinging left and right: partners, distances, and what is not sent twice."""

import numpy as np
import pytest

from collectives import recursive
from emu.collective.algorithm import algorithm
from emu.errors import InputError
from tests.collectives.follow import longest_chain, received_by

NS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 24, 30)


def test_the_partners_of_eight_ranks():
    assert [recursive.partners(8, s).tolist() for s in range(3)] == [
        [1, 0, 3, 2, 5, 4, 7, 6],
        [7, 2, 1, 4, 3, 6, 5, 0],
        [3, 6, 5, 0, 7, 2, 1, 4],
    ]


def test_the_distances_alternate_in_direction_and_stay_below_powers_of_two():
    assert [int(recursive.partners(64, s)[0]) for s in range(6)] == [1, 64 - 1, 3, 64 - 5, 11, 64 - 21]


@pytest.mark.parametrize("n", NS)
def test_partners_have_each_other(n):
    for s in range(5 * (n > 1)):
        assert np.array_equal(recursive.partners(n, s)[recursive.partners(n, s)], np.arange(n))


def test_eight_and_six_ranks_step_by_step():
    """Rank 1 of six holds slots 1, 4, 2 and 5 at last; rank 0 has had 2 and 5 from rank 5 by then."""
    assert received_by(recursive.swing_all_gather(8), 0) == [(3, [3]), (7, [4, 7]), (1, [1, 2, 5, 6])]
    assert received_by(recursive.swing_all_gather(6), 0) == [(3, [3]), (5, [2, 5]), (1, [1, 4])]


@pytest.mark.parametrize("n", NS)
def test_no_slot_comes_twice_and_all_ranks_send_the_same_number_in_a_round(n):
    built = recursive.swing_all_gather(n)
    assert np.array_equal(np.bincount(built.dst * n + built.slot, minlength=n * n).reshape(n, n), 1 - np.eye(n))
    assert all(len(set(np.bincount(c[rows]).tolist())) == 1 for rows in built.rounds() for c in (built.src, built.dst))
    assert recursive.swing_all_reduce(n).n_rounds == 2 * (n - 1).bit_length()


@pytest.mark.parametrize("n", [1, *range(2, 66, 2), 96, 130])
def test_its_chain_is_that_long(n):
    assert longest_chain(recursive.swing_all_gather(n)) == recursive.chain(n)


@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter", "all_gather"])
def test_odd_numbers_of_ranks_are_refused(operation):
    with pytest.raises(InputError, match=f"{operation} swing: cannot run on 7 ranks; nearest that work: 6, 8"):
        algorithm(operation, "swing").schedule(7)
