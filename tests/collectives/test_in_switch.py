"""Each wire to the switch carries one block each way, and nothing goes from rank to rank."""

from math import prod

import numpy as np
import pytest

from collectives.in_switch import PIECES, TREE_PIECES, all_gather, all_reduce, all_reduce_by_tiers, reduce_scatter

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


@pytest.mark.parametrize(("dims", "tiers"), [((2, 3), [2, 1]), ((4, 2, 2), [8, 4, 1]), ((2, 2, 2, 3), [8, 4, 2, 1])])
def test_each_switch_of_a_tree_adds_what_the_tier_below_has_added(dims, tiers):
    built, n = all_reduce_by_tiers(dims), prod(dims)
    assert built.helpers == sum(tiers)
    assert built.n_rounds == TREE_PIECES + 2 * len(dims) - 1
    up, down = built.reduce, ~built.reduce
    top = built.n_participants - 1
    # Every wire of the tree, between a participant and the switch above it, carries the block once each way.
    assert np.bincount(built.src[up]).tolist() == np.bincount(built.dst[down]).tolist() == [TREE_PIECES] * top
    for helper, own in enumerate(built.helped):
        below = built.src[up & (built.dst == n + helper)]
        assert sorted(set(below.tolist())) == own.tolist()
    sizes = [len(own) for own in built.helped]
    assert sizes == [d for d, count in zip(reversed(dims), tiers, strict=True) for _ in range(count)]
