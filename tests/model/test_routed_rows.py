"""Rows that travel to experts: what each rank gives and takes, and the largest buffer among the ranks of its experts."""

import numpy as np
import pytest

from emu.model.model import MODELS
from emu.model.plan.plan_text import parse_plan
from emu.model.routed_rows import fullest, own_rows, recorded

MIXTRAL = MODELS.find("mixtral-8x7b")


def test_a_rank_that_gives_more_than_any_takes_sets_the_largest_buffer() -> None:
    """Rank 0 gives 5 rows to each of both ranks of ep, rank 1 none: each takes 5, and 10 are given at most."""
    first, second = recorded(parse_plan("dp=2,ep=2"), np.array([[5, 5], [0, 0]]))
    assert (first.given, first.taken, first.share) == ((5, 5), (5, 0), (5, 10))
    assert (second.given, second.taken, second.share) == ((0, 0), (5, 0), (5, 0))
    assert (first.most, second.most) == (10, 10)


def test_a_rank_that_takes_more_than_any_gives_sets_the_largest_buffer_of_its_own_experts_alone() -> None:
    """Ranks 0 and 1 share experts, 2 and 3 the others; only in the first pair do all rows go to one rank."""
    found = recorded(parse_plan("dp=4,ep=2"), np.array([[6, 0], [6, 0], [3, 3], [3, 3]]))
    assert [each.here for each in found] == [12, 0, 6, 6]
    assert [each.most for each in found] == [12, 12, 6, 6]


@pytest.mark.parametrize("ep", [2, 4, 8])
@pytest.mark.parametrize("imbalance", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("seq", [1, 3, 5, 7, 13])
def test_the_largest_buffer_holds_what_a_rank_gives_and_what_the_fullest_takes(ep: int, imbalance: float, seq: int) -> None:
    plan = parse_plan(f"dp=8,ep={ep},imbalance={imbalance},microbatch=1", global_batch=8, seq=seq)
    kind = MIXTRAL.kinds[0]
    rows = fullest(plan, MIXTRAL, kind)
    assert rows is not None
    assert sum(rows.given) == own_rows(plan, MIXTRAL, kind) == 2 * seq  # two experts a token
    assert max(rows.given[1:]) - min(rows.given[1:]) <= 1
    assert rows.taken == (rows.given[0],) * ep
    assert rows.most == max(sum(rows.given), sum(rows.taken))
