"""Stages joined to routes; the hash against what chance would give."""

import numpy as np
import pytest
from scipy.stats import chisquare

from emu.topology.builders.route_parts import join, mix


def test_join_leaves_out_what_a_pair_does_not_take():
    routes = join([[3, -1, 5], [[1, 2], [-1, 7], [-1, -1]], np.array([-1, 4, -1])])
    assert routes.start.tolist() == [0, 3, 5, 6]
    assert [routes.of(pair).tolist() for pair in range(3)] == [[3, 1, 2], [7, 4], [5]]


@pytest.mark.parametrize("buckets", [2, 3, 8, 60, 120])
@pytest.mark.parametrize("step", [1, 2, 8, 4096])
def test_a_hash_of_regular_words_is_even(buckets, step):
    words = np.arange(200 * buckets) * step
    assert chisquare(np.bincount(mix(words, 3, words // 7) % buckets, minlength=buckets)).pvalue > 1e-4


def test_a_hash_is_the_same_for_the_same_words_in_the_same_order():
    assert np.array_equal(mix([1, 2, 3], 5), mix([1, 2, 3], [5, 5, 5]))
    assert (mix([1, 2], [2, 1])[0]) != mix([1, 2], [2, 1])[1]
    values = mix(np.arange(-500, 100_000))
    assert len(np.unique(values)) == len(values)
    assert values.min() >= 0
    assert values.max() < 2**62
