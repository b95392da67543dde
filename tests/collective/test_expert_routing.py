"""Who a token's experts are: the standard routing loads all ranks alike, and what is no routing is refused."""

import numpy as np
import pytest

from emu.collective.expert_routing import TOKENS, check_routing, standard_offsets, standard_routing
from emu.errors import InputError

NS = (1, 2, 3, 5, 8, 17, 64, 100)


@pytest.mark.parametrize("n", NS)
def test_a_token_of_the_standard_routing_goes_to_as_many_different_ranks_as_a_power_of_two_of_up_to_8(n):
    experts = standard_routing(n)
    assert experts.shape == (n, TOKENS, {1: 1, 2: 2, 3: 2, 5: 4}.get(n, 8))
    assert (experts >= 0).all()
    assert (experts < n).all()
    assert (np.diff(np.sort(experts, axis=2), axis=2) > 0).all()


@pytest.mark.parametrize("n", NS)
def test_every_rank_has_experts_of_as_many_tokens(n):
    experts = standard_routing(n)
    assert (np.bincount(experts.ravel()) == TOKENS * experts.shape[2]).all()
    assert all(np.array_equal((experts[rank] - rank) % n, standard_offsets(n)) for rank in range(n))


def test_tokens_of_the_standard_routing_differ_in_their_experts():
    assert len({frozenset(token) for token in standard_offsets(64).tolist()}) == TOKENS


@pytest.mark.parametrize(
    ("experts", "says"),
    [
        ([[0], [1]], r"dispatch: experts must be whole numbers \[ranks, tokens, experts of a token\], got 'int64 \(2, 1\)'"),
        (np.zeros((2, 0, 1), int), r"experts must be whole numbers .*, got 'int64 \(2, 0, 1\)'"),
        ([[[0.5]]], r"experts must be whole numbers .*, got 'float64 \(1, 1, 1\)'"),
        ([[[0], [1]], [[1], [2]]], r"dispatch: a rank of token 1 of rank 1 must be a rank of 0\.\.1, got 2"),
        ([[[0], [-1]], [[1], [0]]], r"dispatch: a rank of token 1 of rank 0 must be a rank of 0\.\.1, got -1"),
        ([[[0, 1]], [[1, 1]]], r"dispatch: every rank of token 0 of rank 1 must be one that the token goes to once, got 1"),
    ],
)
def test_what_is_no_routing_is_refused(experts, says):
    with pytest.raises(InputError, match=says):
        check_routing("dispatch", experts)
