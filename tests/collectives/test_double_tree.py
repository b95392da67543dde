"""The two trees: who is inside which, how deep they are, and what each edge carries."""

import numpy as np
import pytest

from collectives.double_tree import PIECES, all_reduce

NS = (2, 3, 4, 7, 8, 13, 16, 33, 1000)


def edges(schedule, tree: int) -> dict[int, int]:
    """Parents by child, from the rows that go up."""
    up = schedule.channel == 2 * tree
    return dict(zip(schedule.src[up].tolist(), schedule.dst[up].tolist(), strict=True))


def depth(parents: dict[int, int], rank: int) -> int:
    return 1 + depth(parents, parents[rank]) if rank in parents else 0


def test_seven_ranks_have_these_two_trees():
    built = all_reduce(7)
    assert edges(built, 0) == {1: 2, 2: 4, 3: 2, 4: 0, 5: 6, 6: 4}
    assert edges(built, 1) == {2: 3, 3: 5, 4: 3, 5: 1, 6: 0, 0: 5}


def test_eight_ranks_have_a_tree_and_its_mirror_image():
    built = all_reduce(8)
    assert edges(built, 0) == {1: 2, 2: 4, 3: 2, 4: 0, 5: 6, 6: 4, 7: 6}
    assert edges(built, 1) == {7 - child: 7 - parent for child, parent in edges(built, 0).items()}


@pytest.mark.parametrize("n", NS)
def test_every_rank_but_one_for_odd_n_is_a_leaf_of_exactly_one_tree(n):
    inside = [set(edges(all_reduce(n), tree).values()) for tree in (0, 1)]
    assert inside[0] | inside[1] == set(range(n))
    assert inside[0] & inside[1] == ({0} if n % 2 else set())


@pytest.mark.parametrize("n", NS)
def test_a_tree_reaches_every_rank_with_two_children_a_parent_and_logarithmic_height(n):
    for tree in (0, 1):
        parents = edges(all_reduce(n), tree)
        assert len(parents) == n - 1
        assert max(np.bincount(list(parents.values()))) <= 2
        assert max(depth(parents, rank) for rank in range(n)) == (n - 1).bit_length()


@pytest.mark.parametrize("n", NS)
def test_each_edge_carries_each_piece_of_its_half_once_up_and_once_down(n):
    built = all_reduce(n)
    assert built.n_rows == 2 * 2 * (n - 1) * PIECES
    assert built.n_rounds == 2 * (n - 1).bit_length() + PIECES - 1
    assert np.array_equal(built.slot // PIECES, built.channel // 2)
    assert np.array_equal(built.reduce, built.channel % 2 == 0)
    _, sent = np.unique(np.stack((built.src, built.dst, built.channel)), axis=1, return_counts=True)
    assert set(sent.tolist()) == {PIECES}


@pytest.mark.parametrize("n", NS)
def test_no_rank_sends_or_receives_more_than_two_blocks(n):
    built = all_reduce(n)
    for column in (built.src, built.dst):
        assert np.bincount(column).max() <= 2 * built.n_slots
