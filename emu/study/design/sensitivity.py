"""The effect of prices on the choice: who does most for the money in each range of a price, and what the others lack.

All is exact for the points that have been timed; a search settles first which these have to be. P points.
"""

from collections.abc import Iterator, Sequence
from math import isfinite, log

import numpy as np

from emu.arrays import F64, I64
from emu.study.design.design_search import DesignSearch
from emu.study.design.design_table import NeededChange, PriceRange, Winner
from emu.study.design.pareto import Span, least_lines
from emu.study.design.price_list import PricedThing

_AROUND = 2.0  # a price that sources agree on is looked at from its half to its double
_MOST = 3  # prices that are told of each point: those that need to change least


def price_span(thing: PricedThing) -> tuple[float, float]:
    """Return the range of a price that is looked at."""
    if thing.low.dollars < thing.high.dollars:
        return thing.low.dollars, thing.high.dollars
    return thing.middle.dollars / _AROUND, thing.middle.dollars * _AROUND


def winners_at(search: DesignSearch, thing: int) -> list[Span]:
    """Return which points take the least money for a token per second, over the range of the price of a thing.

    The numbers are those of the points; an open point counts with its bound.
    """
    alive, prices = search.alive, search.prices
    amount = prices.amounts[alive, thing]
    if not amount.any() or prices.things[thing].high.dollars <= 0:
        return []
    tokens, paid = search.tokens_per_s(alive), amount * prices.things[thing].middle.dollars
    spans = least_lines((search.dollars[alive] - paid) / tokens, amount / tokens, *price_span(prices.things[thing]))
    return [span._replace(point=int(alive[span.point])) for span in spans]


def price_winners(search: DesignSearch) -> I64:
    """Return the points that win at any price of any thing."""
    every = [span.point for thing in range(len(search.prices.things)) for span in winners_at(search, thing)]
    return np.unique(np.array(every, dtype=np.int64))


def price_ranges(search: DesignSearch) -> Iterator[PriceRange]:
    """Yield the ranges of all prices, with the point that wins in each part of them."""
    for number, thing in enumerate(search.prices.things):
        spans = winners_at(search, number)
        if spans:
            winners = tuple(Winner(span.low, span.high, search.name_of(span.point)) for span in spans)
            yield PriceRange(thing.name, thing.middle.dollars, thing.low.dollars < thing.high.dollars, winners)


def ranked(search: DesignSearch) -> I64:
    """Return the points, the most tokens per second a dollar first, as far as is known."""
    alive = search.alive
    value = search.tokens_per_s(alive) / search.dollars[alive]
    return alive[np.lexsort((alive, -value))]


def family_bests(search: DesignSearch) -> I64:
    """Return the best point of each family for the money, as far as is known; the best family first."""
    first: dict[str, int] = {}
    for number in ranked(search).tolist():
        first.setdefault(search.points[number].family, number)
    return np.array([*first.values()], dtype=np.int64)


def needed_changes(search: DesignSearch, first: int, other: int, role: str) -> Iterator[NeededChange]:
    """Yield the changes by which another point would do as much for the money as the first one."""
    name, lacks = search.name_of(other), _value(search, other) / _value(search, first)
    yield NeededChange(name, role, "its step (s)", float(search.least_s[other]), float(search.least_s[other]) * lacks)
    yield NeededChange(name, role, "its dollars", float(search.dollars[other]), float(search.dollars[other]) * lacks)
    found = [(thing, price) for thing, price in _equal_prices(search, first, other) if price > 0]
    found.sort(key=lambda each: abs(log(each[1] / each[0].middle.dollars)))
    yield from (NeededChange(name, role, f"the price of {t.name} ($)", t.middle.dollars, price) for t, price in found[:_MOST])


def _value(search: DesignSearch, number: int) -> float:
    """Return the tokens per second a dollar of a point."""
    return float(search.tokens_per_s(np.array([number]))[0] / search.dollars[number])


def _equal_prices(search: DesignSearch, first: int, other: int) -> Iterator[tuple[PricedThing, float]]:
    """Yield the things at one price of which two points do as much for the money, with this price."""
    both = np.array([first, other])
    tokens, dollars, amounts = search.tokens_per_s(both), search.dollars[both], search.prices.amounts[both]
    for number, thing in enumerate(search.prices.things):
        price = thing.middle.dollars
        each: F64 = amounts[:, number] / tokens
        rest: F64 = dollars / tokens - each * price
        if price > 0 and each[0] != each[1]:
            equal = float((rest[1] - rest[0]) / (each[0] - each[1]))
            if isfinite(equal):
                yield thing, equal


def challengers(search: DesignSearch, order: Sequence[int], bests: Sequence[int]) -> list[tuple[int, str]]:
    """Return the points that are compared with the first: the second, and the best of each other family."""
    second = [(number, "second") for number in order[1:2]]
    family = search.points[order[0]].family
    others = [(number, "best of its family") for number in bests if search.points[number].family != family]
    return second + [each for each in others if each[0] not in {number for number, _ in second}]
