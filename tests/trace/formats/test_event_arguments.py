"""Numbers, ranks and groups of other programs' files: what is taken, and what is refused in one line."""

from math import inf, nan
from typing import Any

import pytest

from emu.errors import BareError, InputError
from emu.trace.formats.kineto.distributed_info import distributed_info
from emu.trace.formats.kineto.event_arguments import MOST, refusal, whole
from emu.trace.formats.rank_group import MOST_RANKS, is_count, told_ranks


@pytest.mark.parametrize(
    ("value", "found"),
    [(0, 0), (5, 5), (5.0, 5), ("5", 5), ("007", 7), (MOST - 1, MOST - 1), ("9" * 18, 10**18 - 1), (str(MOST - 1), MOST - 1)],
)
def test_a_whole_number_is_taken_as_a_number_or_as_digits(value: Any, found: int) -> None:
    assert whole({"n": value}, "n") == found
    assert type(whole({"n": value}, "n")) is int


@pytest.mark.parametrize(
    "value", [-1, "-1", MOST, 0.5, True, False, None, "", "x", "1.0", "--1", inf, -inf, nan, [5], "9" * 20, "1" * 20]
)
def test_another_value_is_refused(value: Any) -> None:
    with pytest.raises(BareError, match=rf"^must have a whole number of 0 or more and below {MOST} as 'n', got '"):
        whole({"n": value}, "n")


def test_limits_and_defaults_are_the_callers() -> None:
    assert [whole({"n": str(n)}, "n", least=-2, below=3) for n in range(-2, 3)] == [-2, -1, 0, 1, 2]
    for n in (-3, 3):
        with pytest.raises(BareError, match=f"of -2 or more and below 3 as 'n', got '{n}'"):
            whole({"n": n}, "n", least=-2, below=3)
    assert (whole({}, "n", 7), whole({"n": 5}, "n", 7)) == (7, 5)
    with pytest.raises(BareError, match="got 'None'"):
        whole({}, "n")
    with pytest.raises(BareError, match=f"got '{'x' * 40}'$"):
        whole({"n": "x" * 100}, "n")


def test_an_error_of_the_arguments_names_the_event() -> None:
    assert str(refusal("event 5", BareError("must be so"))) == "profile: event 5 must be so"
    told = "profile: event 5 has arguments of another form than PyTorch writes (KeyError); profile again"
    assert str(refusal("event 5", KeyError("a"))) == told


@pytest.mark.parametrize(
    ("value", "is_one"),
    [(0, True), (4, True), (5, False), (-1, False), (True, False), ("1", False), (1.0, False), (None, False)],
)
def test_a_count_is_a_whole_number_below_a_limit(value: object, is_one: bool) -> None:
    assert is_count(value, 5) == is_one


def test_the_ranks_of_a_group_are_each_told_once() -> None:
    for ranks in ([], [3], (0, MOST_RANKS - 1), [2, 0, 1]):
        assert told_ranks(ranks) == tuple(ranks)
    for bad in ([0, -1], [0, MOST_RANKS], ["0"], [True], "01", {0: 1}, None, 5):
        with pytest.raises(ValueError, match=r"^must have a list of ranks below 2\*\*24, got "):
            told_ranks(bad)
    with pytest.raises(ValueError, match=r"^must have each rank once in a group, got \[1, 2, 1\]"):
        told_ranks([1, 2, 1])


def test_what_a_profile_tells_of_its_job_is_read() -> None:
    config = [
        {"pg_name": 0, "ranks": [0, 1], "pg_desc": "default"},
        {"pg_name": "5", "ranks": [1]},
        {"pg_name": "6", "ranks": []},
    ]
    found = distributed_info({"rank": 1, "world_size": 2, "pg_config": config}, "a.json")
    assert (found.rank, found.world) == (1, 2)
    assert found.groups == {"0": (0, 1), "5": (1,)}
    assert found.labels == {"0": "default", "5": "", "6": ""}
    for told in (None, {}):
        assert distributed_info(told, "a.json") == (None, None, {}, {})
    assert distributed_info({"rank": 0, "world_size": 0}, "a.json")[:2] == (0, 0)
    assert distributed_info({"pg_config": None}, "a.json") == (None, None, {}, {})


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"rank": -1}, "must have a whole number below 2**24 as rank, got -1"),
        ({"rank": "0"}, "must have a whole number below 2**24 as rank, got 0"),
        ({"world_size": MOST_RANKS}, f"must have a whole number below 2**24 as world_size, got {MOST_RANKS}"),
        ({"pg_config": [{"pg_name": "0", "ranks": [0, 0]}]}, "must have each rank once in a group, got [0, 0]"),
        ({"pg_config": [{"ranks": [0]}]}, "is not as PyTorch writes it (KeyError)"),
        ({"pg_config": 5}, "is not as PyTorch writes it (TypeError)"),
        ([], "is not as PyTorch writes it (AttributeError)"),
        ([1], "is not as PyTorch writes it (AttributeError)"),
    ],
)  # fmt: skip
def test_what_is_no_job_is_refused(told: Any, why: str) -> None:
    with pytest.raises(InputError) as raised:
        distributed_info(told, "a.json")
    assert str(raised.value) == f"profile: distributedInfo of 'a.json' {why}; profile again"
