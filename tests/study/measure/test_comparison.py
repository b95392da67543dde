"""The comparison of algorithms and what a case says of itself: their order, the best of each size, and their assumptions."""

from dataclasses import replace
from typing import Any

import pytest

from emu.study.choice.site import candidates
from emu.study.measure import bench as study
from emu.study.measure.bench import (
    UntimedRow,
    algorithm_names,
    best_rows,
    busbw_factor,
    compare,
    comparison_order,
    measure,
    next_case,
)
from emu.study.measure.request import BenchRequest, PlacedBench, place_bench, sizes_between
from emu.study.timing import LIGHT, time_bound
from emu.topology.catalogue import build_topology

KIB = 2**10
STAR = build_topology("switch:n=6,bandwidth=50GB/s,latency=500ns")


def placed(algorithm: str = "all", sizes: tuple[int, ...] = (12, 96 * KIB, 384 * KIB), **more: Any) -> PlacedBench:
    """All reduces of six ranks; the largest size is not the largest number of latencies."""
    return place_bench(STAR, BenchRequest("all_reduce", algorithm if algorithm != "all" else "ring", sizes, **more))


@pytest.mark.parametrize(
    ("operation", "factor"),
    [("all_reduce", 5 / 3), ("broadcast", 1), ("reduce", 1), ("all_gather", 5 / 6), ("scatter", 5 / 6), ("all_to_all", 5 / 6)],
)
def test_busbw_is_what_each_port_carries_of_six_ranks(operation: str, factor: float) -> None:
    assert busbw_factor(operation, 6) == pytest.approx(factor)


def test_of_each_size_the_fastest_row_is_best_and_of_equal_ones_the_first_by_name() -> None:
    rows = [row for row in measure(placed("ring")) if row.size_bytes > 12]
    small, large = (replace(row, time_s=5.0) for row in rows)
    every = [
        replace(small, algorithm="d", time_s=7.0),
        replace(small, algorithm="c"),
        replace(small, algorithm="b"),
        UntimedRow(**shared(small), at_least_s=1.0),
        replace(large, algorithm="b"),
        replace(large, algorithm="c", time_s=4.0),
    ]
    found = best_rows(every)
    assert {size: (row.algorithm, row.time_s) for size, row in found.items()} == {
        96 * KIB: ("b", 5.0),
        384 * KIB: ("c", 4.0),
    }
    assert best_rows(reversed(every)) == found
    assert best_rows([UntimedRow(**shared(small), at_least_s=1.0)]) == {}


def shared(row: Any) -> dict[str, Any]:
    """The fields of a row that one without a time has, too."""
    return {name: getattr(row, name) for name in ("topology", "operation", "algorithm", "shape", "ranks", "size_bytes")}


def test_algorithms_are_timed_by_their_bound_at_the_largest_size_those_of_many_messages_last() -> None:
    asked = placed()
    order = comparison_order(asked)
    bounds = {name: time_bound(asked.case(name).job(384 * KIB)) for _, name in order}
    assert [heavy for heavy, _ in order] == [bounds[name].messages > LIGHT for _, name in order]
    keys = [(heavy, bounds[name].end_fs, name) for heavy, name in order]
    assert keys == sorted(keys)
    assert {name for _, name in order} == {each.name for each in candidates("all_reduce", asked.site)}
    assert {name.partition(" ")[0] for name in algorithm_names(asked)} == {name for _, name in order}


def test_an_algorithm_of_many_messages_is_timed_where_its_bound_is_below_the_best_time_so_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here all are of many messages: at either size one or more have a bound above the time of those before them."""
    some = list(candidates("all_reduce", placed().site))[::3]
    monkeypatch.setattr(study, "candidates", lambda *_: some)
    asked = placed(sizes=(12, 384 * KIB))
    alone = {(row.algorithm, row.size_bytes): row for row in compare(asked)}
    assert not any(isinstance(row, UntimedRow) for row in alone.values())
    monkeypatch.setattr(study, "LIGHT", -1)
    order = comparison_order(asked)
    assert all(heavy for heavy, _ in order)
    best, untimed = dict[int, float](), set[int]()
    for row in compare(asked, order=order):
        own = alone[row.algorithm, row.size_bytes]
        least_s = study._least_s(time_bound(asked.case(row.algorithm).job(row.size_bytes)))
        assert isinstance(row, UntimedRow) == (least_s > best.get(row.size_bytes, float("inf")))
        if isinstance(row, UntimedRow):
            assert (row.at_least_s, row.why_not) == (least_s, "")
            untimed.add(row.size_bytes)
        else:
            assert row.time_s == own.time_s
            best[row.size_bytes] = min(best.get(row.size_bytes, float("inf")), row.time_s)
    assert untimed == {12, 384 * KIB}
    assert best == {size: row.time_s for size, row in best_rows(alone.values()).items()}


def test_a_case_is_taken_again_while_the_choice_stays_and_made_anew_where_it_changes() -> None:
    named = placed("ring")
    first = next_case(named, 12)
    assert next_case(named, 384 * KIB, first) is first
    asked = placed("auto", sizes=(12, 16, 64 * 2**20 * 3))
    small = next_case(asked, 12)
    assert next_case(asked, 12, small) is small
    large = next_case(asked, 64 * 2**20 * 3, small)
    assert large.algorithm != small.algorithm
    other = replace(small, passed_over=("another",))
    assert next_case(asked, 12, other).passed_over == small.passed_over == ()


def test_a_case_says_what_its_time_rests_on() -> None:
    plain, launched = placed("ring").case("ring"), placed("ring", launch_s=3e-6).case("ring")
    assert plain.assumptions()[: len(STAR.assumptions)] == STAR.assumptions
    more = [line for line in launched.assumptions() if line not in plain.assumptions()]
    assert more == ["launching a collective takes 3 us on each of its ranks"]
    chosen = replace(plain, chosen_assumed=("a library chose",)).assumptions()
    assert [line for line in chosen if line not in plain.assumptions()] == ["a library chose"]


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ((8, 8, 2.0), (8,)),
        ((8, 64, 2.0), (8, 16, 32, 64)),
        ((8, 63, 2.0), (8, 16, 32)),
        ((10, 100, 2.5), (10, 25, 62)),
        ((1, 1000, 10.0), (1, 10, 100, 1000)),
        ((3, 3**9, 3.0), tuple(3**i for i in range(1, 10))),
    ],
)
def test_sizes_reach_to_the_end_where_they_hit_it_and_no_further(given: tuple[int, int, float], sizes: tuple[int, ...]) -> None:
    assert sizes_between(*given) == sizes
