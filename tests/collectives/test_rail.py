"""Two phases, inside the nodes and along the rails; every rail carries the same."""

import numpy as np
import pytest

from collectives import rail
from emu.collective.algorithm import schedule
from emu.errors import InputError

DIMS = [(2, 2), (2, 3), (3, 2), (4, 3), (5, 8)]


@pytest.mark.parametrize(("m", "g"), DIMS)
def test_phase_0_stays_inside_the_nodes_and_phase_1_on_the_rails_of_the_sinks(m, g):
    built, n = rail.all_to_all((m, g)).expand(), m * g
    inside, between = built.rounds()
    assert np.array_equal(built.src[inside] // g, built.dst[inside] // g)
    assert np.array_equal(built.src[between] % g, built.dst[between] % g)
    assert np.array_equal(built.slot % n % g, built.dst % g)  # from phase 0 on, an item is on its sink's rail
    assert np.array_equal(built.slot[between] % n, built.dst[between])


@pytest.mark.parametrize(("m", "g"), DIMS)
def test_every_rank_and_so_every_rail_carries_the_same_whether_or_not_g_divides_m(m, g):
    built, n = rail.all_to_all((m, g)).expand(), m * g
    for rows, items in zip(built.rounds(), ((g - 1) * m, (m - 1) * g), strict=True):
        assert np.bincount(built.src[rows], minlength=n).tolist() == [items] * n
        assert np.bincount(built.dst[rows], minlength=n).tolist() == [items] * n


def test_a_node_gets_one_message_a_rail_from_each_other_node():
    """Not g: what its ranks have for it has been gathered on the rail first."""
    built = rail.all_to_all((4, 3)).expand()
    rows = built.rounds()[1]
    pairs = np.unique(np.stack((built.src[rows], built.dst[rows])), axis=1)
    assert pairs.shape[1] == 4 * 3 * 3


def test_a_prime_number_of_ranks_has_no_nodes():
    with pytest.raises(InputError, match="all_to_all rail: cannot run on 7 ranks; nearest that work: 6, 8"):
        schedule("all_to_all", "rail", 7)
