"""The 2D ring: its example on 2 x 2 in full, and RailX's equation 7."""

from fractions import Fraction

import numpy as np
import pytest

from collectives import ring, torus
from emu.collective.algorithm import algorithm
from emu.errors import InputError

# Rank (x, y) is 2 x + y; src, dst, blocks of the half that reduces along x first, of V/8 each.
X_FIRST = [
    [(0, 2, (2, 3)), (1, 3, (2, 3)), (2, 0, (0, 1)), (3, 1, (0, 1))],  # add, along x
    [(0, 1, (1,)), (1, 0, (0,)), (2, 3, (3,)), (3, 2, (2,))],  # add, along y
    [(0, 1, (0,)), (1, 0, (1,)), (2, 3, (2,)), (3, 2, (3,))],  # copy, along y
    [(0, 2, (0, 1)), (1, 3, (0, 1)), (2, 0, (2, 3)), (3, 1, (2, 3))],  # copy, along x
]


def test_four_ranks_reduce_along_x_then_y_and_gather_along_y_then_x():
    built = ring.all_reduce_2d((2, 2)).expand()
    assert built.n_slots == 8
    for rows, expected in zip(built.rounds(), X_FIRST, strict=True):
        half = built.channel[rows] == 0
        got = zip(*(c[rows][half].tolist() for c in (built.src, built.dst, built.slot)), strict=True)
        assert sorted(got) == sorted((src, dst, 2 * b) for src, dst, blocks in expected for b in blocks)
        assert np.array_equal(built.slot[rows] % 2, built.channel[rows])
    assert built.reduce[built.rounds()[1]].all()
    assert not built.reduce[built.rounds()[2]].any()


@pytest.mark.parametrize("dims", [(2, 2), (3, 5), (4, 3), (2, 5)])
def test_it_takes_a_round_for_each_step_of_its_rings_both_ways(dims):
    assert ring.all_reduce_2d(dims).n_rounds == 2 * (dims[0] - 1) + 2 * (dims[1] - 1)


@pytest.mark.parametrize("side", [2, 3, 4, 8])
def test_both_ways_it_is_railx_equation_7(side):
    """V/(2 B) (1 - 1/(m p)^2) and 4 (m p - 1) steps on one port each way: n = 1, side = m p."""
    claim = algorithm("all_reduce", "2d-ring").claim
    assert claim.beta((side, side)) / 2 == Fraction(1, 2) * (1 - Fraction(1, side**2))
    assert claim.alpha((side, side)) == 4 * (side - 1)
    both_ways = algorithm("all_reduce", "torus-buckets").claim
    assert both_ways.beta((side, side)) == claim.beta((side, side)) / 2


def test_every_ring_goes_upwards_in_both_halves():
    built, up = ring.all_reduce_2d((3, 4)).expand(), torus.all_reduce((3, 4)).expand()
    links = {(s, d) for s, d in zip(up.src[up.channel % 2 == 0], up.dst[up.channel % 2 == 0], strict=True)}
    assert set(zip(built.src, built.dst, strict=True)) == links


def test_what_is_no_plane_is_refused_with_what_works():
    with pytest.raises(InputError, match="all_reduce 2d-ring: cannot run on 7 ranks; nearest that work: 6, 8"):
        algorithm("all_reduce", "2d-ring").fit(7)
    with pytest.raises(InputError, match="does not take shape 2x2x2; 2x4 works"):
        algorithm("all_reduce", "2d-ring").schedule((2, 2, 2))
