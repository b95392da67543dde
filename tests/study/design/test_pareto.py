"""The front and the least lines, beside loops that compare every two points, and what must hold of any front."""

from random import Random

import numpy as np
import pytest

from emu.study.design.pareto import is_beaten, least_lines, pareto_front

SEEDS = range(40)


def drawn(seed: int) -> np.ndarray:
    """Return points of few different values, so that many are equal in some measures or in all."""
    numbers = Random(seed)
    n, measures = numbers.randint(1, 60), numbers.randint(1, 4)
    return np.array([[float(numbers.randint(0, 7)) for _ in range(measures)] for _ in range(n)])


def beats(one, other) -> bool:
    return all(a >= b for a, b in zip(one, other, strict=True)) and any(a > b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_front_is_what_comparing_every_two_points_leaves(seed):
    values = drawn(seed)
    plain = values.tolist()
    left = [number for number, own in enumerate(plain) if not any(beats(other, own) for other in plain)]
    assert pareto_front(values).tolist() == left


@pytest.mark.parametrize("seed", SEEDS)
def test_a_point_that_is_beaten_is_never_on_the_front(seed):
    values = drawn(seed)
    front = pareto_front(values)
    assert len(front)
    for number in front:
        assert not is_beaten(values[number], values[front]).any()
    others = np.setdiff1d(np.arange(len(values)), front)
    assert all(any(is_beaten(values[each], values[[other]])[0] for each in front) for other in others)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lower_price_removes_no_point_from_the_front(seed):
    values, numbers = drawn(seed), Random(seed + 1000)
    for number in pareto_front(values):
        cheaper = values.copy()
        cheaper[number, numbers.randrange(values.shape[1])] += 1.5  # larger is better: negative dollars that are nearer to 0
        assert number in pareto_front(cheaper)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_least_line_is_least_everywhere(seed):
    numbers = Random(seed)
    lines = [(float(numbers.randint(0, 20)), float(numbers.randint(0, 9))) for _ in range(numbers.randint(1, 12))]
    at_zero, slope = (np.array(each) for each in zip(*lines, strict=True))
    spans = least_lines(at_zero, slope, 0.5, 8.0)
    assert (spans[0].low, spans[-1].high) == (0.5, 8.0)
    assert [span.high for span in spans[:-1]] == [span.low for span in spans[1:]]
    assert all(span.low < span.high for span in spans)
    for span in spans:
        for share in (0.0, 0.3, 1.0):
            x = span.low + share * (span.high - span.low)
            assert at_zero[span.point] + slope[span.point] * x == pytest.approx(min(a + b * x for a, b in lines))


def test_lines_that_cross_divide_the_range_where_they_meet():
    spans = least_lines(np.array([0.0, 6.0, 100.0]), np.array([2.0, 1.0, 0.0]), 1.0, 10.0)
    assert [tuple(span) for span in spans] == [(0, 1.0, 6.0), (1, 6.0, 10.0)]
