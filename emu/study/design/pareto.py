"""Points that no other point beats: the Pareto front of several measures, and the least of several lines over a range.

P points, A measures. A measure is larger where it is better.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, Bool


def is_beaten(point: F64, others: F64) -> Bool:
    """Return [P] whether a point beats each of the others [P, A]: nowhere worse, and better in at least one measure."""
    return np.asarray((others <= point).all(axis=1) & (others < point).any(axis=1))


def pareto_front(values: F64) -> I64:
    """Return the numbers of the points [P, A] that no other point beats, in rising order; equal points are all there."""
    order = np.lexsort(-values.T[::-1])  # the best of the first measure first, so that few others beat a point that is kept
    left, at = order, 0
    while at < len(left):
        kept = ~is_beaten(values[left[at]], values[left])
        left, at = left[kept], int(kept[: at + 1].sum())
    return np.sort(left)


class Span(NamedTuple):
    """A range of a price in which one point has the least value: the point, and the ends of the range."""

    point: int
    low: float
    high: float


def least_lines(at_zero: F64, slope: F64, low: float, high: float) -> list[Span]:
    """Return which of the lines `at_zero + slope * x` [P] is the least at each x from `low` to `high`, from low to high.

    Of lines that are equal over a range, it is the first.
    """
    found, x = list[Span](), low
    now = _least(at_zero + slope * x, slope)
    while True:
        after, below = high, now
        flatter = np.flatnonzero(slope < slope[now])
        meets = (at_zero[flatter] - at_zero[now]) / (slope[now] - slope[flatter])
        if len(meets) and meets.min() < high:
            after = max(x, float(meets.min()))
            first = flatter[meets == meets.min()]
            below = int(first[_least(at_zero[first] + slope[first] * after, slope[first])])
        if after > x or (after == high and not found):
            found.append(Span(now, x, after))
        if below == now:
            return found
        now, x = below, after


def _least(values: F64, slope: F64) -> int:
    """Return the number of the least value; of equal ones the one whose line falls most, then the first."""
    return int(np.lexsort((slope, values))[0])
