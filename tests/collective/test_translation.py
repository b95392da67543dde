from math import prod

import numpy as np
import pytest

from emu.collective.schedule import Translations

GRIDS = [(5,), (2, 3), (4, 1, 3), (2, 2, 2)]


@pytest.mark.parametrize("dims", GRIDS)
def test_a_rank_moves_digit_by_digit(dims):
    moves, places = Translations(dims, 1, 0), list(np.ndindex(*dims))
    for by in range(prod(dims)):
        moved = [tuple((a + b) % d for a, b, d in zip(place, places[by], dims, strict=True)) for place in places]
        assert [places[r] for r in moves.rank(np.arange(len(places)), by)] == moved


@pytest.mark.parametrize("dims", GRIDS)
def test_the_opposite_brings_each_rank_to_0_and_0_stays_by_none(dims):
    ranks = np.arange(prod(dims))
    moves = Translations(dims, 1, 0)
    assert not moves.rank(ranks, moves.opposite(ranks)).any()
    assert moves.rank(ranks, 0).tolist() == ranks.tolist()


@pytest.mark.parametrize("digits", [1, 2])
def test_the_leading_digits_of_a_slot_move_as_ranks_and_the_rest_stays(digits):
    dims, n, rest = (2, 3), 6, 4
    moves = Translations(dims, n**digits * rest, digits)
    by = np.arange(n)[:, None]
    moved = moves.slot(np.arange(n**digits * rest), by)
    assert (moved % rest == np.arange(n**digits * rest) % rest).all()
    for place in (rest * n**i for i in range(digits)):
        digit = np.arange(n**digits * rest) // place % n
        assert (moved // place % n == moves.rank(digit, by)).all()
    assert (np.sort(moved, axis=1) == np.arange(n**digits * rest)).all()


def test_a_slot_without_ranks_in_its_name_stays():
    assert Translations((2, 3), 5, 0).slot(np.arange(5), 4).tolist() == list(range(5))
