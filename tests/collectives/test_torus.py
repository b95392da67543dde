"""Buckets on a torus: which way each goes, that no two meet at equal dims, and the time on one link each way."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from collectives import torus
from emu.collective.algorithm import algorithm
from emu.errors import InputError
from emu.study.prove.verify import verify

OPERATIONS = ("reduce_scatter", "all_gather", "all_reduce")


@pytest.mark.parametrize("dims", [(5,), (3, 3), (4, 3), (3, 3, 3)])
def test_each_row_goes_one_place_up_on_an_even_channel_and_down_on_an_odd_one(dims):
    built = torus.all_reduce(dims).expand()
    ends = (np.stack(np.unravel_index(c, dims), axis=-1) for c in (built.src, built.dst))
    moved = (np.subtract(*reversed(list(ends)))) % dims
    up, down = (moved == 1).sum(axis=1), (moved == np.array(dims) - 1).sum(axis=1)
    assert ((moved != 0).sum(axis=1) == 1).all()
    assert np.array_equal(up == 1, built.channel % 2 == 0)
    assert np.array_equal(down == 1, built.channel % 2 == 1)


@pytest.mark.parametrize("dims", [(3, 3), (3, 3, 3)])
def test_at_equal_dims_a_link_serves_one_bucket_a_round_and_all_links_carry_the_same(dims):
    built, n = torus.all_reduce(dims).expand(), 3 ** len(dims)
    meets = np.unique(np.stack([built.round_column(), built.src, built.dst, built.channel]), axis=1)
    assert np.unique(meets[:3], axis=1).shape == meets[:3].shape
    links, rows = np.unique(built.src * n + built.dst, return_counts=True)
    assert len(links) == n * 2 * len(dims)
    assert set(rows / built.n_slots) == {float(Fraction(n - 1, n * len(dims)))}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_at_equal_dims_one_link_a_pair_is_as_fast_as_a_port_a_bucket(operation):
    found = algorithm(operation, "torus-buckets")
    on_pairs = replace(found, claim=replace(found.claim, fabric="pair"))
    assert [v.claim for v in verify((on_pairs, dims) for dims in [(4,), (3, 3), (3, 3, 3)])] == ["equal"] * 3


def test_in_step_is_the_same_rows_in_a_queue_for_each_direction_on_equal_dims_only():
    free, in_step = torus.all_reduce((3, 3)), torus.all_reduce_in_step((3, 3))
    assert np.array_equal(in_step.channel, free.channel % 2)
    assert replace(in_step, channel=free.channel).digest() == free.digest()
    assert algorithm("all_reduce", "torus-in-step").fit(64) == (8, 8)
    with pytest.raises(InputError, match="does not take shape 2x8; 4x4 works"):
        algorithm("all_reduce", "torus-in-step").schedule((2, 8))


def test_a_grid_with_a_dim_of_one_is_refused():
    with pytest.raises(InputError, match="all_reduce torus-buckets: does not take shape 3x1; 3 works"):
        algorithm("all_reduce", "torus-buckets").schedule((3, 1))


def test_a_large_torus_is_stored_as_rank_0s_rows():
    assert torus.all_gather((16, 16, 16)).n_rows == 4095 * 6
