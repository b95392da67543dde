"""Results of methods are kept with their object, by a key of what the method is asked; others up to a sum of sizes."""

import pickle
from dataclasses import dataclass, field

import pytest

from emu.memo import SizedMemo, kept_by


@dataclass(frozen=True, eq=False)
class Halves:
    asked: list[int] = field(default_factory=list)

    @kept_by(lambda _, number: number // 2)
    def half(self, number: int) -> int:
        """Return the half of a number, rounded down."""
        self.asked.append(number)
        if number < 0:
            raise ValueError(f"{number} is below 0")
        return number // 2

    @kept_by(lambda _, *asked: asked)
    def both(self, one: int, other: int) -> tuple[int, int]:
        """Return both numbers."""
        self.asked.append(one)
        return one, other


def test_what_has_an_equal_key_is_worked_out_once_an_object():
    halves, others = Halves(), Halves()
    assert [halves.half(number) for number in (4, 5, 6, 4)] == [2, 2, 3, 2]
    assert others.half(5) == 2
    assert (halves.asked, others.asked) == ([4, 6], [5])


def test_methods_of_one_object_keep_their_results_apart():
    halves = Halves()
    assert (halves.half(1), halves.both(0, 1), halves.both(1, 0), halves.both(0, 1)) == (0, (0, 1), (1, 0), (0, 1))
    assert halves.asked == [1, 0, 1]


def test_an_error_is_not_kept():
    halves = Halves()
    for _ in range(2):
        with pytest.raises(ValueError, match="below 0"):
            halves.half(-1)
    assert halves.asked == [-1, -1]


def test_what_is_kept_goes_with_its_object():
    halves = Halves()
    halves.half(4)
    assert pickle.loads(pickle.dumps(halves)).half(5) == 2
    assert halves.asked == [4]


def test_results_are_kept_up_to_a_sum_of_sizes():
    memo, made = SizedMemo[str](10, len), []

    def asked(word: str) -> str:
        return memo.of(word[0], lambda: made.append(word) or word)

    assert [asked(word) for word in ("aaaa", "bbbb", "a")] == ["aaaa", "bbbb", "aaaa"]
    assert asked("cccc") == "cccc"  # there is room for two: "b" was not asked for the longest
    assert asked("a") == "aaaa"
    assert asked("b") == "b"
    assert made == ["aaaa", "bbbb", "cccc", "b"]


def test_a_result_that_is_too_large_is_not_kept():
    memo = SizedMemo[str](3, len)
    assert [memo.of("key", lambda: "long") for _ in range(2)] == ["long", "long"]
    assert len(memo) == 0
    assert memo.of("key", lambda: "new") == "new"


def test_a_copy_in_another_process_begins_empty():
    memo = SizedMemo[str](3, len)
    memo.of("key", lambda: "one")
    assert len(pickle.loads(pickle.dumps(memo))) == 0
    assert pickle.loads(pickle.dumps(memo)).of("key", lambda: "two") == "two"
