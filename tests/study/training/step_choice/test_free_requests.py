"""The weights of the free requests of a step, and the best that each may be: by requests that are made by hand."""

from types import SimpleNamespace
from typing import Any

import pytest

from emu.study.training.step_choice.free_requests import FreeRequests
from emu.study.training.step_choice.options import Coordinate

DP, TP = Coordinate("dp", "all_reduce", 5), Coordinate("tp", "all_gather", 3)
S = 10**15  # ticks of a second


def asked(size_bytes: int, place: int = 0) -> Any:
    return SimpleNamespace(size_bytes=size_bytes, kind=SimpleNamespace(place=place))


def free(requests: dict[Coordinate, list[tuple[Any, int]]], **ticks: Any) -> FreeRequests:
    """Return the free requests of a step, each with the number of times that it occurs."""
    every = [pair for pairs in requests.values() for pair in pairs]
    step: Any = SimpleNamespace(requests=[of for of, _ in every], counts=[count for _, count in every])
    found = FreeRequests(step, SimpleNamespace(**ticks))  # type: ignore[arg-type]
    found.__dict__["by_coordinate"] = {coordinate: [of for of, _ in pairs] for coordinate, pairs in requests.items()}
    return found


def test_the_heaviest_request_moves_most_bytes_in_the_whole_step_and_not_at_once() -> None:
    often, large, few = asked(100), asked(500), asked(300)
    assert free({DP: [(few, 1), (often, 6), (large, 1)]}).heaviest(DP) is often
    assert free({DP: [(few, 1), (often, 4), (large, 1)]}).heaviest(DP) is large


def test_a_coordinate_weighs_what_its_requests_take_one_after_another_at_the_busiest_place() -> None:
    """A byte takes what one of the heaviest request takes; one of no bytes counts as one byte."""
    heaviest, same, other, none, alone = asked(100, 0), asked(50, 0), asked(100, 1), asked(0, 1), asked(0, 1)
    ticks = {id(heaviest): 4 * S, id(same): 9 * S, id(other): 9 * S, id(none): 9 * S, id(alone): 9 * S}
    found = free(
        {DP: [(same, 2), (heaviest, 3), (other, 2), (none, 500)], TP: [(alone, 5)]},
        isolated=lambda q: SimpleNamespace(ticks=ticks[id(q)]),
    )
    assert found.weights_s[DP] == pytest.approx(4 * (2 * 100 + 500) / 100)
    assert found.weights_s[TP] == pytest.approx(9 * 5)
    fewer = free({DP: [(same, 2), (heaviest, 3), (other, 2)]}, isolated=lambda q: SimpleNamespace(ticks=ticks[id(q)]))
    assert fewer.weights_s == {DP: pytest.approx(4 * (3 * 100 + 2 * 50) / 100)}


def test_the_least_share_of_a_place_is_that_of_its_largest_request() -> None:
    """Each place is asked about once, of the coordinates that are given alone."""
    small, large, there, free_of_time, other = asked(10, 0), asked(90, 0), asked(50, 1), asked(70, 2), asked(1, 0)
    now = {id(small): 10, id(large): 40, id(there): 50, id(free_of_time): 0, id(other): 10}
    least = {id(small): 9, id(large): 10, id(there): 40, id(free_of_time): 0, id(other): 1}
    seen: list[Any] = []

    def least_ticks(request: Any, others: Any) -> int:
        seen.append((request, others))
        return least[id(request)]

    found = free(
        {TP: [(other, 1)], DP: [(large, 1), (small, 9), (there, 1), (free_of_time, 1)]},
        isolated=lambda q: SimpleNamespace(ticks=now[id(q)]),
        least_ticks=least_ticks,
    )
    assert found.least_shares([DP], ["others"]) == {1: 0.25, 2: 0.25, 3: 0.8, 4: 0.0}  # type: ignore[list-item]
    assert len(seen) == 3
    assert all(others == ["others"] for _, others in seen)
    assert found.least_shares([TP, DP], []) == {0: 0.1, 1: 0.25, 2: 0.25, 3: 0.8, 4: 0.0}
