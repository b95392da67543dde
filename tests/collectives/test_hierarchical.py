"""Collectives level by level: what crosses each level, and in which order."""

import numpy as np
import pytest

from emu.collective.algorithm import algorithm

NAMES = ("hierarchical-ring", "hierarchical-direct", "hierarchical-direct-ring")
SHAPES = [(4,), (2, 4), (3, 4), (3, 2, 4), (2, 3, 2, 2)]


def levels(built, dims):
    """Return for each row the level that it crosses: the one digit in which its ends differ."""
    src, dst = (np.stack(np.unravel_index(c, dims), axis=-1) for c in (built.src, built.dst))
    assert ((src != dst).sum(axis=1) == 1).all()
    return np.argmax(src != dst, axis=1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dims", SHAPES)
def test_a_rank_sends_through_a_level_what_those_inside_it_have_left(name, dims):
    """(d - 1)/d of V over the product of the inner dims, each way."""
    built = algorithm("all_reduce", name).schedule(dims)
    crossed, n = levels(built, dims), int(np.prod(dims))
    for level, d in enumerate(dims):
        per_rank = np.bincount(built.src[crossed == level], minlength=n)
        assert set(per_rank.tolist()) == {2 * (d - 1) * int(np.prod(dims[:level], dtype=int))}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dims", SHAPES)
def test_it_adds_from_the_inside_out_and_copies_from_the_outside_in(name, dims):
    built = algorithm("all_reduce", name).schedule(dims)
    crossed = levels(built, dims)
    adds = built.reduce.astype(bool)
    assert (np.diff(crossed[adds]) <= 0).all()
    assert (np.diff(crossed[~adds]) >= 0).all()
    assert (np.diff(adds.astype(int)) <= 0).all()


@pytest.mark.parametrize(("name", "n_rounds"), [(NAMES[0], 2 * (2 + 1 + 3)), (NAMES[1], 6), (NAMES[2], 2 * (2 + 1 + 1))])
def test_rings_take_a_round_a_peer_and_direct_levels_one(name, n_rounds):
    assert algorithm("all_reduce", name).schedule((3, 2, 4)).n_rounds == n_rounds


def test_one_level_is_the_flat_ring_or_the_flat_direct_one():
    for nested, flat in (("hierarchical-ring", "ring"), ("hierarchical-direct", "direct")):
        a, b = (algorithm("all_reduce", name).schedule(s) for name, s in ((nested, (8,)), (flat, 8)))
        assert a.digest() == b.digest()
