"""Operations on time spans, held against sets of single ticks."""

import random

import numpy as np
import pytest

from emu.trace.report.spans import Spans, common, covered, joined, merged

NONE = Spans(np.zeros(0, np.int64), np.zeros(0, np.int64))


def drawn(random_: random.Random, most: int) -> Spans:
    """So many spans of one to six ticks, in any order, which may overlap and touch."""
    starts = [random_.randrange(60) for _ in range(random_.randrange(most))]
    return Spans(np.array(starts, np.int64), np.array([start + random_.randrange(1, 7) for start in starts], np.int64))


def ticks_of(spans: Spans) -> set[int]:
    return {tick for start, end in zip(*(c.tolist() for c in spans), strict=True) for tick in range(start, end)}


def runs_of(ticks: set[int]) -> list[tuple[int, int]]:
    """The spans without a tick between them, from first to last."""
    starts, ends = (sorted(t + late for t in ticks if t + step not in ticks) for step, late in ((-1, 0), (1, 1)))
    return list(zip(starts, ends, strict=True))


@pytest.mark.parametrize("gap", [0, 1, 2, 5])
@pytest.mark.parametrize("seed", range(10))
def test_spans_that_are_no_further_apart_than_the_gap_become_one(seed: int, gap: int) -> None:
    random_ = random.Random(seed)
    several = [drawn(random_, most) for most in (9, 4, 2)]
    filled = set[int]().union(*map(ticks_of, several))
    for (_, end), (start, _) in zip(runs := runs_of(filled), runs[1:], strict=False):
        filled |= set(range(end, start)) if start - end <= gap else set()
    found = covered(*several, gap=gap)
    assert list(zip(found.start.tolist(), found.end.tolist(), strict=True)) == runs_of(filled)
    assert found.ticks == len(filled)
    in_order = joined(*several).take(np.argsort(joined(*several).start, kind="stable"))
    assert merged(*in_order, gap).end.tolist() == found.end.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_what_is_in_both_is_told_once(seed: int) -> None:
    random_ = random.Random(seed)
    one, other = (covered(drawn(random_, most)) for most in (12, 9))
    both = common(one, other)
    assert ticks_of(both) == ticks_of(one) & ticks_of(other)
    assert both.ticks == len(ticks_of(both))
    assert both.start.tolist() == sorted(both.start.tolist())
    assert ticks_of(common(one, NONE)) == ticks_of(common(NONE, one)) == set()


@pytest.mark.parametrize("seed", range(20))
def test_a_moment_is_in_the_span_that_has_begun_and_has_not_ended(seed: int) -> None:
    spans = covered(drawn(random.Random(seed), 12))
    runs = list(zip(*(c.tolist() for c in spans), strict=True))
    moments = np.arange(-2, 70)
    numbers = [next((i for i, (start, end) in enumerate(runs) if start <= at < end), -1) for at in moments.tolist()]
    assert spans.holding(moments).tolist() == numbers


@pytest.mark.parametrize(("low", "high"), [(0, 99), (10, 11), (23, 40), (70, 80)])
def test_spans_within_a_window_have_the_ticks_that_they_share_with_it(low: int, high: int) -> None:
    spans = drawn(random.Random(3), 30)
    shared = [len(range(max(low, start), min(high, end))) for start, end in zip(*(c.tolist() for c in spans), strict=True)]
    found = spans.within(low, high)
    assert (found.end - found.start).tolist() == shared
    assert found.ticks == sum(shared)


def test_of_no_spans_nothing_is_covered() -> None:
    assert covered(NONE).ticks == covered(NONE, NONE, gap=3).ticks == 0
    assert NONE.holding(np.arange(3)).tolist() == [-1] * 3
