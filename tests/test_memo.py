"""Results of methods are kept with their object, by a key of what the method is asked."""

import pickle
from dataclasses import dataclass, field

import pytest

from emu.memo import kept_by


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
