"""Direct collectives on a HyperX: a step a dimension each way, each link one part at a time."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from collectives import hyperx
from emu.collective.algorithm import algorithm
from emu.study.prove.verify import verify


@pytest.mark.parametrize("dims", [(2, 2), (3, 5), (4, 4), (3, 3, 3)])
def test_it_takes_a_round_a_dimension_each_way_and_stays_in_lines(dims):
    built = hyperx.all_reduce(dims).expand()
    assert built.n_rounds == 2 * len(dims)
    src, dst = (np.stack(np.unravel_index(c, dims)) for c in (built.src, built.dst))
    assert ((src != dst).sum(axis=0) == 1).all()


@pytest.mark.parametrize(("d", "n_dims"), [(2, 2), (4, 2), (3, 3), (2, 4)])
def test_at_equal_dims_every_link_carries_the_same_one_part_a_round(d, n_dims):
    built, n = hyperx.all_reduce((d,) * n_dims).expand(), d**n_dims
    links, rows = np.unique(built.src * n + built.dst, return_counts=True)
    assert len(links) == n * n_dims * (d - 1)
    assert len(set(rows)) == 1
    parts = np.unique(np.stack([built.round_column(), built.src, built.dst, built.channel]), axis=1)
    assert np.unique(parts[:3], axis=1).shape == parts[:3].shape
    share = Fraction(2 * (n - 1), n * n_dims * (d - 1))
    assert Fraction(int(rows[0]), built.n_slots) == share == algorithm("all_reduce", "hyperx-direct").claim.beta((d,) * n_dims)


def test_two_halves_are_railx_equation_13_between_nodes():
    """(1 - 1/p^2) V / (p - 1) a link and 4 steps."""
    claim = algorithm("all_reduce", "hyperx-direct").claim
    assert all(claim.beta((p, p)) == Fraction(p * p - 1, p * p * (p - 1)) for p in (2, 3, 8, 64))
    assert claim.alpha((8, 8)) == 4


def test_at_equal_dims_one_link_a_pair_is_enough():
    found = algorithm("all_reduce", "hyperx-direct")
    on_pairs = replace(found, claim=replace(found.claim, fabric="pair"))
    assert [v.claim for v in verify((on_pairs, dims) for dims in [(4,), (4, 4), (3, 3, 3)])] == ["equal"] * 3


def test_at_other_dims_the_part_that_reduces_along_the_smallest_first_takes_longest():
    assert algorithm("all_reduce", "hyperx-direct").claim.beta((2, 4)) == Fraction(1, 2) + Fraction(1, 8)


def test_direct_on_a_line_is_two_steps_of_one_block_a_link():
    built = hyperx.all_reduce((5,)).expand()
    assert (built.n_rounds, built.n_rows) == (2, 2 * 5 * 4)
