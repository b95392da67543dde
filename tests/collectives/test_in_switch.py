"""Each wire to the switch carries one block each way, and nothing goes from rank to rank."""

import numpy as np
import pytest

from collectives.in_switch import PIECES, all_gather, all_reduce, reduce_scatter

NS = (2, 3, 8, 17)
BUILDS = (all_reduce, all_gather, reduce_scatter)


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("n", NS)
def test_every_message_is_to_or_from_the_switch(build, n):
    built = build(n)
    assert (built.n_rounds, built.helpers) == (PIECES + 1, 1)
    assert np.array_equal((built.src == n) ^ (built.dst == n), np.ones(built.n_rows, np.bool_))


@pytest.mark.parametrize("n", NS)
def test_each_wire_carries_one_block_each_way(n):
    built = all_reduce(n)
    assert np.bincount(built.src).tolist() == [PIECES] * n + [n * PIECES]
    assert np.bincount(built.dst).tolist() == [PIECES] * n + [n * PIECES]
    assert np.array_equal(built.reduce, built.dst == n)


@pytest.mark.parametrize("n", NS)
def test_a_half_carries_a_ranks_own_part_one_way_and_the_others_parts_the_other(n):
    one, other = [PIECES] * n, [(n - 1) * PIECES] * n
    gathered, scattered = all_gather(n), reduce_scatter(n)
    assert np.bincount(gathered.src)[:n].tolist() == np.bincount(scattered.dst)[:n].tolist() == one
    assert np.bincount(gathered.dst)[:n].tolist() == np.bincount(scattered.src)[:n].tolist() == other


@pytest.mark.parametrize("build", BUILDS)
def test_one_rank_needs_no_switch(build):
    assert (build(1).n_rows, build(1).helpers) == (0, 0)
