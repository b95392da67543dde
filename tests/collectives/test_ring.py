"""A ring both ways at once: two rings that share nothing, each with half of the bytes."""

import numpy as np
import pytest

from collectives import ring

NS = (2, 3, 4, 7, 8)


def triples(schedule, rows) -> list[tuple[int, int, int]]:
    return list(zip(*(c[rows].tolist() for c in (schedule.src, schedule.dst, schedule.slot)), strict=True))


def test_four_ranks_start_with_the_slots_of_their_neighbours_on_the_other_side():
    """Slot 2b is the half of block b that goes right, slot 2b + 1 the one that goes left."""
    built = ring.reduce_scatter_each_way(4).expand()
    assert sorted(triples(built, built.rounds()[0])) == [
        (0, 1, 6), (0, 3, 3), (1, 0, 5), (1, 2, 0), (2, 1, 7), (2, 3, 2), (3, 0, 4), (3, 2, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("n", NS)
def test_each_link_of_each_direction_carries_one_half_slot_a_round(n):
    built = ring.all_reduce_each_way(n).expand()
    assert built.n_rounds == 2 * (n - 1)
    for rows in built.rounds():
        links = list(zip(built.src[rows].tolist(), built.channel[rows].tolist(), strict=True))
        assert sorted(links) == [(r, c) for r in range(n) for c in (0, 1)]
    assert np.array_equal((built.src + np.where(built.channel, -1, 1)) % n, built.dst)


@pytest.mark.parametrize("n", NS)
def test_the_halves_never_meet(n):
    built = ring.all_reduce_each_way(n).expand()
    assert np.array_equal(built.slot % 2, built.channel)


@pytest.mark.parametrize("n", NS)
def test_going_right_it_is_the_ring_and_going_left_its_mirror_image(n):
    built, one_way = ring.all_reduce_each_way(n).expand(), ring.all_reduce(n).expand()
    for rows, expected in zip(built.rounds(), one_way.rounds(), strict=True):
        src, dst, slot, channel = (c[rows].astype(int) for c in (built.src, built.dst, built.slot // 2, built.channel))
        for way, sign in ((0, 1), (1, -1)):
            of = channel == way
            moved = zip(*((sign * c[of] % n).tolist() for c in (src, dst, slot)), strict=True)
            assert sorted(moved) == sorted(triples(one_way, expected))


@pytest.mark.parametrize("built", [ring.reduce_scatter_each_way(5).expand(), ring.reduce_scatter(5).expand()])
def test_a_rank_ends_the_first_half_with_its_own_slots(built):
    last = built.rounds()[-1]
    assert (built.slot[last] * 5 // built.n_slots).tolist() == built.dst[last].tolist()
