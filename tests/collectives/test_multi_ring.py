"""The rings themselves, and what each directed link of the full mesh carries."""

import numpy as np
import pytest

from collectives import multi_ring
from emu.collective.algorithm import algorithm
from emu.collective.schedule import Schedule
from emu.errors import InputError

NS = (*range(3, 18), 20, 24, 31, 37, 48, 64)


def on_each_link(src: np.ndarray, dst: np.ndarray, n: int) -> set[int]:
    """How often the directed links of the full mesh are named; none from a rank to itself."""
    named = np.bincount(src.ravel() * n + dst.ravel(), minlength=n * n).reshape(n, n)
    assert not named.diagonal().any()
    return set(named[~np.eye(n, dtype=np.bool_)].tolist())


@pytest.mark.parametrize("n", NS)
def test_each_ring_goes_through_all_ranks_and_each_directed_link_is_on_one_ring(n):
    """On two for n = 4 and 6, where there are no such rings."""
    order = multi_ring.rings(n)
    shared = 2 if n in (4, 6) else 1
    assert order.shape == (shared * (n - 1), n)
    assert (np.sort(order) == np.arange(n)).all()
    assert on_each_link(order, np.roll(order, -1, axis=1), n) == {shared}


def test_five_ranks_have_walecki_s_two_cycles_both_ways():
    z = 4
    assert multi_ring.rings(5).tolist() == [[z, 0, 3, 1, 2], [z, 1, 0, 2, 3], [2, 1, 3, 0, z], [3, 2, 0, 1, z]]


@pytest.mark.parametrize("n", [4, 6])
def test_the_cycles_of_the_doubled_mesh_use_each_undirected_link_twice(n):
    order = multi_ring.rings(n)[: n - 1]
    ends = np.sort(np.stack((order, np.roll(order, -1, axis=1))), axis=0)
    assert set(np.bincount(ends[0].ravel() * n + ends[1].ravel())) == {0, 2}


def bytes_on_each_link(built: Schedule) -> set[float]:
    """As shares of the operation's size."""
    n = built.n_ranks
    return {rows / built.n_slots for rows in on_each_link(built.src.astype(np.int64), built.dst.astype(np.int64), n)}


@pytest.mark.parametrize("n", [2, 4, 5, 6, 8, 9, 16])
def test_each_directed_link_carries_two_nth_parts_of_the_block_and_each_half_one(n):
    assert bytes_on_each_link(multi_ring.reduce_scatter(n)) == {1 / n}
    assert bytes_on_each_link(multi_ring.all_gather(n)) == {1 / n}
    assert bytes_on_each_link(multi_ring.all_reduce(n)) == {2 / n}
    assert multi_ring.all_reduce(n).n_rounds == 2 * (n - 1)


@pytest.mark.parametrize("n", [8, 9])
def test_no_link_has_two_rings_at_a_time_where_each_is_on_one(n):
    for rows in (built := multi_ring.all_reduce(n)).rounds():
        pair = built.src[rows].astype(np.int64) * n + built.dst[rows]
        assert len(np.unique(pair)) == len(pair) == n * (n - 1)


def test_more_ranks_than_it_takes_are_told_how_many_work():
    with pytest.raises(InputError, match=r"multi-ring: takes no 130 ranks; nearest that work: 127, 128"):
        algorithm("all_reduce", "multi-ring").fit(130)
