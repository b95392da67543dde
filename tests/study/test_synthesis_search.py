"""The search of a synthesis: how far it climbs each family, when it ends, and what it keeps, with times that are given."""

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from emu.collective.operation import operation
from emu.collective.schedule import MAX_ROWS
from emu.errors import InputError
from emu.study import synthesize as study
from emu.study.choice.site import Site
from emu.study.synthesize import SynthesisResult, TimeUpError, WorkUpError, _Search
from emu.synthesis.splitting import UnpairedError
from emu.synthesis.variants import GRID, GRID_AXES, MATCHED, Variant
from emu.topology.catalogue import build_topology

INF = float("inf")
TOPOLOGY = build_topology("switch:n=4,bandwidth=50GB/s,latency=500ns")
ONE = "one after another"  # an order of which one miss is enough


class Timed(_Search):
    """A search whose schedules carry their own time; the best trees take `least_s`."""

    least_s: float = 0.0

    def _try(self, schedule: Any, variant: Variant) -> float:
        self.tried += 1
        if self.best is None or schedule.time_s < self.best[0]:
            self.best = schedule.time_s, schedule, variant
        return schedule.time_s

    def _least(self) -> tuple[float, str]:
        return self.least_s, "trees"


def search(kind: type[_Search] = Timed, limit_s: float | None = None, began: float = 0.0) -> Any:
    return kind(operation("broadcast", 4, 0), Site.first(TOPOLOGY, None), 1024, 4, limit_s, began)


def family(how: str, times: list[float | None], rows: int = 10) -> Iterator[tuple[Variant, Any]]:
    for number, time_s in enumerate(times):
        schedule = None if time_s is None else SimpleNamespace(time_s=time_s, n_rows_of_all=rows)
        yield Variant(how, number, 1, 1, 0), (lambda made=schedule: made)


@pytest.mark.parametrize(
    ("how", "times", "tried"),
    [
        (ONE, [10, 9, 8, 7], 4),
        (ONE, [10, 9, 8.96, 1], 3),  # 0.4 % less is no gain
        (ONE, [10, 9, 8.95, 8], 4),  # 0.6 % less is one
        (ONE, [10, INF, 1], 2),
        (ONE, [INF, 9, 1], 1),
        (GRID, [10, 11, 9, 9.5, 1], 4),  # two misses in all, one after the other or not
        (GRID, [10, 11, 10.5, 1], 3),
        (GRID, [10, 11, 9.97, 1], 3),  # beside the least so far, not beside the last
        (GRID_AXES, [10, 10, 9, 9, 1], 4),
        (MATCHED, [10, INF, 9, INF, 1], 4),
        (GRID, [10, None, 1], 1),
    ],
)
def test_a_family_is_climbed_until_more_does_not_help(how: str, times: list[float | None], tried: int) -> None:
    found = search()
    found._climb(family(how, times))
    assert found.tried == tried
    assert found.best is None or found.best[0] == min(each for each in times[:tried] if each is not None)


@pytest.mark.parametrize(("rows", "tried"), [(MAX_ROWS, 2), (MAX_ROWS + 1, 0)])
def test_a_schedule_of_more_rows_than_are_timed_ends_its_family(rows: int, tried: int) -> None:
    found = search()
    found._climb(family(ONE, [10, 9], rows))
    assert found.tried == tried


@pytest.mark.parametrize(("least_s", "tried"), [(8.9, 5), (8.956, 2), (9.0, 2)])
def test_nothing_more_is_tried_within_half_a_percent_of_the_best_trees(least_s: float, tried: int) -> None:
    found = search()
    found.least_s = least_s
    assert not found._is_near()  # without a schedule nothing is near
    found._climb_all(SimpleNamespace(all=lambda: iter([family(GRID, [10, 9, 9.5]), family(ONE, [9.2, 9.4])])))
    assert found.tried == tried
    assert found._is_near() == (tried == 2)


def test_a_family_without_pairs_is_left_out_and_is_the_reason_where_there_is_no_other() -> None:
    def unpaired() -> Iterator[Any]:
        raise UnpairedError
        yield

    found = search()
    found._climb_all(SimpleNamespace(all=lambda: iter([unpaired(), family(ONE, [3.0])])))
    assert found.best[0] == 3.0
    assert "the capacities into a switch do not suffice for those out of it" in str(found._error())


def test_work_is_counted_up_to_its_bound_and_time_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "_MOST_WORK", 3)
    monkeypatch.setattr(time, "perf_counter", lambda: 107.0)
    found = search()
    assert [found.tick() for _ in range(3)] == [None] * 3
    with pytest.raises(WorkUpError):
        found.tick()
    timed = search(limit_s=10.0, began=100.0)
    assert timed.tick() == timed.left_s() == 3.0
    for limit_s in (7.0, 6.0):
        with pytest.raises(TimeUpError):
            search(limit_s=limit_s, began=100.0).tick()


class Ended(Timed):
    """A search whose families are given, and end by an error."""

    error: type[Exception] = WorkUpError
    times: tuple[float, ...] = ()

    def _families(self) -> Any:
        def every() -> Iterator[Any]:
            yield family(ONE, [*self.times])
            raise self.error

        return SimpleNamespace(all=every)


@pytest.mark.parametrize(("error", "cut_short"), [(WorkUpError, False), (TimeUpError, True)])
def test_what_was_found_before_the_work_or_the_time_was_over_is_the_result(error: type[Exception], cut_short: bool) -> None:
    found = search(Ended, limit_s=1e12)
    found.error, found.times, found.least_s = error, (6.0, 4.0), 3.0
    result = found.find()
    assert (result.time_s, result.tried, result.cut_short, result.variant.trees) == (4.0, 2, cut_short, 1)
    assert (result.trees_s, result.trees_by, result.of_trees) == (3.0, "trees", 0.75)
    assert (result.item_bytes, result.site, result.operation) == (4, found.site, found.op)


@pytest.mark.parametrize(
    ("error", "limit_s", "said"),
    [
        (WorkUpError, None, "no schedule can be timed on switch:.*; it takes more work than a synthesis does"),
        (WorkUpError, 5.0, "no schedule can be timed on switch:.*; it takes more work than a synthesis does"),
        (TimeUpError, 5.0, "--time must be enough for a first schedule, got '5 s'; give more time, or take fewer ranks"),
    ],
)
def test_where_nothing_was_found_the_work_or_the_time_is_the_reason(
    error: type[Exception], limit_s: float | None, said: str
) -> None:
    found = search(Ended, limit_s=limit_s)
    found.error = error
    with pytest.raises(InputError, match=f"synthesize: {said}"):
        found.find()


def test_only_a_faster_schedule_is_proved_and_kept_and_one_beyond_the_clock_is_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def timed(job: Any) -> Any:
        if job.schedule == INF:
            raise InputError("it ends beyond the clock")
        return SimpleNamespace(end_s=job.schedule)

    proved: list[float] = []
    monkeypatch.setattr(study, "time_collective", timed)
    monkeypatch.setattr(study, "prove_whole", lambda schedule, *_: proved.append(schedule))
    found = search(_Search)
    assert [found._try(each, Variant(ONE, int(i), 1, 1, 0)) for i, each in enumerate((5.0, INF, 5.0, 6.0, 4.0))] == [
        5.0,
        INF,
        5.0,
        6.0,
        4.0,
    ]
    assert (proved, found.tried, found.refused) == ([5.0, 4.0], 5, "it ends beyond the clock")
    assert (found.best[0], found.best[2].trees) == (4.0, 4)


def test_a_schedule_that_takes_no_time_is_as_good_as_the_best_trees() -> None:
    nothing: Any = None
    result = SynthesisResult(nothing, nothing, nothing, 4, 0.0, 0.0, "trees", nothing, 1, cut_short=False)
    assert result.of_trees == 1
