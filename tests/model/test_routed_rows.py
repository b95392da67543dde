"""Rows that travel to experts: what each rank gives and takes, and the largest buffer among the ranks of its experts."""

from types import SimpleNamespace

import numpy as np
import pytest

from emu.errors import InputError
from emu.model.model import MODELS
from emu.model.operator import Tokens
from emu.model.plan.plan_text import parse_plan
from emu.model.routed_rows import RoutedRows, about_even, classes, even, fullest, own_rows, recorded

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


def test_rows_that_do_not_divide_are_one_more_at_the_first_ranks() -> None:
    """Two experts a token: 10 rows of 5 tokens."""
    plan = parse_plan("dp=4,ep=4,microbatch=1", global_batch=4, seq=5)
    assert about_even(plan, MIXTRAL, MIXTRAL.kinds[0]) == RoutedRows((3, 3, 2, 2), (3, 3, 2, 2), (10,), 10)
    with pytest.raises(InputError, match="ep must be a divisor of the 10 rows that a rank gives in a pass, got 4"):
        even(plan, MIXTRAL, MIXTRAL.kinds[0])
    shared = parse_plan("dp=2,tp=2,ep=2,microbatch=1", global_batch=2, seq=6)
    assert even(shared, MIXTRAL, MIXTRAL.kinds[0]) == RoutedRows((3, 3), (3, 3), (6, 6), 6)


def test_ranks_that_share_experts_know_what_each_of_them_took() -> None:
    """Ranks 0 and 1 share experts, and 2 and 3; rows go between 0 and 2, and between 1 and 3."""
    given = np.array([[1, 2], [3, 4], [5, 6], [7, 8]])
    assert recorded(parse_plan("tp=2,dp=2,ep=2"), given) == [
        RoutedRows((1, 2), (1, 5), (6, 10), 11),
        RoutedRows((3, 4), (3, 7), (6, 10), 15),
        RoutedRows((5, 6), (2, 6), (8, 12), 11),
        RoutedRows((7, 8), (4, 8), (8, 12), 15),
    ]


def of_four_layers() -> SimpleNamespace:
    """A model whose first layer has no experts; the other three have four each, of which a token sees one."""

    def part(kind: str, tokens: Tokens) -> list[SimpleNamespace]:
        shapes = [(tokens.n, 3, 5)] * (kind == "sparse")
        return [SimpleNamespace(experts=0, shape=None), *(SimpleNamespace(experts=4, shape=shape) for shape in shapes)]

    return SimpleNamespace(name="mine", kinds=("dense", "sparse", "sparse", "sparse"), layers=4, experts=4, part=part)


def test_ranks_of_a_place_are_told_apart_by_the_rows_of_its_own_layers_alone() -> None:
    """The ranks of the first stage, with the first layer of experts, exchange equal rows; those of the second do not."""
    plan, model = parse_plan("pp=2,dp=2,ep=2", global_batch=4, seq=6), of_four_layers()
    splits = np.full((3, 2, 2, 2), 3)
    splits[1, 1] = [[1, 5], [2, 4]]
    [(ranks, rows)] = classes(plan, model, 0, splits)
    assert ranks.tolist() == [0, 1]
    assert [rows(layer, 0) is None for layer in range(4)] == [True, False, True, True]
    assert rows(1, 1) == RoutedRows((3, 3), (3, 3), (6,), 6)
    (first, of_first), (second, of_second) = classes(plan, model, 1, splits)
    assert (first.tolist(), second.tolist()) == ([0], [1])
    assert of_first(2, 0) == of_second(3, 1) == rows(1, 1)
    assert of_first(2, 1) == RoutedRows((1, 5), (1, 2), (3,), 9)
    assert of_second(2, 1) == RoutedRows((2, 4), (5, 4), (9,), 9)
    with pytest.raises(InputError, match=r"splits of the shape \(3, 2, 2, 2\): layers, passes, ranks, ep"):
        classes(plan, model, 0, splits[:2])


def test_without_splits_all_ranks_of_a_place_exchange_as_many_rows() -> None:
    plan, model = parse_plan("pp=2,dp=2,ep=2", global_batch=4, seq=6), of_four_layers()
    [(ranks, rows)] = classes(plan, model, 1, None)
    assert ranks.tolist() == [0, 1]
    assert [rows(layer, 1) for layer in range(2)] == [None, RoutedRows((3, 3), (3, 3), (6,), 6)]
    alone = parse_plan("pp=2,dp=2", global_batch=4, seq=6)
    [(ranks, rows)] = classes(alone, model, 1, np.zeros((1, 1, 1, 1)))
    assert (ranks.tolist(), rows(1, 0)) == ([0, 1], None)
