"""The choice among a few points: their order, the best of families, and prices that change it, by hand."""

from collections.abc import Sequence
from math import log
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.study.cost.price_book import Price
from emu.study.design.price_list import PricedThing, PriceList
from emu.study.design.sensitivity import challengers, family_bests, needed_changes, price_ranges, ranked, winners_at


def thing(name: str, low: float, high: float | None = None) -> PricedThing:
    return PricedThing(name, Price(low, 1.0), Price(low if high is None else high, 1.0))


def known(
    tokens: Sequence[float], amounts: Sequence[Sequence[float]], things: Sequence[PricedThing], families: str = ""
) -> Any:  # a search all of whose points are timed
    prices, rate = PriceList(tuple(things), np.array(amounts, float)), np.array(tokens, float)
    points = [SimpleNamespace(family=each) for each in families or "a" * len(tokens)]
    return SimpleNamespace(
        alive=np.arange(len(tokens)), prices=prices, dollars=prices.dollars("middle"), points=points, name_of=str,
        tokens_per_s=lambda numbers: rate[numbers], least_s=1 / rate,
    )  # fmt: skip


def test_of_points_that_do_as_much_for_the_money_the_first_goes_first_and_stands_for_its_family() -> None:
    search = known([10, 20, 10, 40, 30], [[1], [2], [1], [8], [2]], [thing("NPU", 5)], "babba")
    assert ranked(search).tolist() == [4, 0, 1, 2, 3]
    assert family_bests(search).tolist() == [4, 0]


@pytest.mark.parametrize(
    ("families", "found"),
    [
        ("abac", [(1, "second"), (3, "best of its family")]),
        ("aabc", [(1, "second"), (2, "best of its family"), (3, "best of its family")]),
        ("aaaa", [(1, "second")]),
        ("a", []),
    ],
)
def test_the_second_and_the_best_of_each_other_family_are_compared_with_the_first_once(families: str, found: list[Any]) -> None:
    count = len(families)
    search = known(range(count + 1, 1, -1), [[1]] * count, [thing("NPU", 5)], families)
    assert challengers(search, ranked(search).tolist(), family_bests(search).tolist()) == found


def test_a_price_of_sources_has_their_range_and_one_price_is_halved_and_doubled() -> None:
    """Point 0 has two switches and a cable, point 1 three cables; both do as much, so the price of two decides."""
    things = [thing("switch", 20, 60), thing("cable", 30), thing("label", 0), thing("lid", 8)]
    search = known([10, 10], [[2, 1, 5, 0], [0, 3, 5, 0]], things)
    switch, cable = price_ranges(search)
    assert (switch.thing, switch.dollars, switch.of_sources) == ("switch", 40, True)
    assert [(each.low, each.high, each.point) for each in switch.winners] == [(20, 30, "0"), (30, 60, "1")]
    assert (cable.thing, cable.dollars, cable.of_sources) == ("cable", 30, False)
    assert [(each.low, each.high, each.point) for each in cable.winners] == [(15, 40, "1"), (40, 60, "0")]
    assert [winners_at(search, free) for free in (2, 3)] == [[], []]  # what costs nothing, and what nobody buys


def test_of_the_prices_that_would_make_a_point_as_good_those_that_change_least_are_told() -> None:
    """Point 1 costs 12 $ more; it has 1, 2, 3, 4 and 8 fewer of five things of 10 $, but 30 more of a sixth of 6.4 $."""
    things = [*[thing(f"thing {fewer}", 10) for fewer in (1, 2, 3, 4, 8)], thing("sixth", 6.4)]
    search = known([10, 10], [[8] * 5 + [0], [7, 6, 5, 4, 0, 30]], things)
    assert search.dollars.tolist() == pytest.approx([400, 412])
    step, dollars, *prices = needed_changes(search, 0, 1, "second")
    assert (step.now, dollars.now) == (0.1, pytest.approx(412))
    assert step.factor == dollars.factor == pytest.approx(400 / 412)
    assert [each.what for each in prices] == [f"the price of {name} ($)" for name in ("sixth", "thing 8", "thing 4")]
    assert [each.needed for each in prices] == pytest.approx([6.0, 11.5, 13.0])
    moved = [abs(log(each.factor)) for each in prices]
    assert moved == sorted(moved)
