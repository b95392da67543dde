"""The steps that a descent times, and their order: on steps whose times are a formula."""

from collections.abc import Callable, Iterable, Mapping

import pytest

from emu.collective.choice import AlgorithmOnDims
from emu.study.training.step_choice.descent import NEVER, Descent, Move, StepTime, _joint_moves
from emu.study.training.step_choice.options import Coordinate, Option

PLAIN, RING, TREE, SWING = (
    Option(name, lambda _, name=name: AlgorithmOnDims(name)) for name in ("plain", "ring", "tree", "swing")
)
Names = Mapping[str, str]


def at(word: str) -> Coordinate:
    """Return the coordinate of an axis and a size, such as a1."""
    return Coordinate(word[0], "all_reduce", int(word[1]))


class Timed:
    """A descent over coordinates such as a1, and what it judged: the coordinates that are not plain, with their options."""

    def __init__(
        self,
        words: str,
        time_s: Callable[[Names], float],
        options: Iterable[Option] = (PLAIN, RING),
        most: int = 1000,
        good_enough_s: float = 0.0,
        exposed_s: Mapping[str, float] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self.words, self.judged = words.split(), list[Names]()
        known, weight_s = {at(word): list(options) for word in self.words}, weights or {}

        def judge(served: Mapping[Coordinate, Option]) -> StepTime:
            self.judged.append(self.named(served))
            return StepTime(time_s(self.judged[-1]), exposed_s or {})

        self.of = Descent(known, {at(word): weight_s.get(word, 1.0) for word in self.words}, judge, most, good_enough_s)

    def named(self, served: Mapping[Coordinate, Option]) -> Names:
        """Return the names of options that are not plain, by their coordinates."""
        return {word: served[at(word)].name for word in self.words if served[at(word)] is not PLAIN}

    def start(self, **changed: Option) -> dict[Coordinate, Option]:
        """Return the plain options, but for some coordinates."""
        return {at(word): changed.get(word, PLAIN) for word in self.words}

    def best(self, *starts: dict[Coordinate, Option]) -> tuple[Names, float]:
        """Return what is found from some starts."""
        served, time_s = self.of.best(starts or [self.start()])
        return self.named(served), time_s


def test_a_slower_start_counts_where_the_way_from_it_leads_further() -> None:
    """Four coordinates differ between the fastest start, where nothing helps, and the best."""
    best = {"a1": "ring", "b1": "ring", "c1": "ring", "d1": "tree"}

    def time_s(names: Names) -> float:
        return {0: 2.0}.get(len(names), 1.0 if names == best else 3.0 if set(names.values()) == {"ring"} else 5.0)

    tried = Timed("a1 b1 c1 d1", time_s, (PLAIN, RING, TREE))
    assert tried.best(tried.start(), tried.start(a1=RING, b1=RING, c1=RING, d1=RING)) == (best, 1.0)


def test_the_first_start_is_taken_if_it_is_good_enough_though_another_is_faster() -> None:
    tried = Timed("a1", lambda names: 1.0 if names else 1.5, good_enough_s=1.5)
    assert tried.best(tried.start(), tried.start(a1=RING)) == ({}, 1.5)


@pytest.mark.parametrize(("first", "second"), ["ab", "ba"])
def test_what_is_exposed_most_moves_first_and_of_one_axis_what_weighs_most(first: str, second: str) -> None:
    """Axes as wholes, then each coordinate alone, then two together, those first that cost the least; nothing helps."""
    costs = {f"{first}1": 0.1, f"{first}2": 0.2, f"{second}1": 0.4, f"{second}2": 0.8}
    heavy = {"a2": 5.0, "b2": 5.0}
    tried = Timed(
        "a1 a2 b1 b2",
        lambda names: 2.0 + sum(costs[each] for each in names),
        exposed_s={first: 2.0, second: 1.0},
        weights=heavy,
    )
    tried.best()
    whole = [{f"{axis}1", f"{axis}2"} for axis in (first, second)]
    alone = [{f"{axis}{size}"} for axis in (first, second) for size in (2, 1)]
    assert [set(names) for names in tried.judged[:7]] == [set(), *whole, *alone]
    assert [set(names) for names in tried.judged[7:11]] == [{f"{first}{i}", f"{second}{j}"} for j in (1, 2) for i in (1, 2)]


def test_an_axis_moves_on_top_of_what_helped_on_the_axis_before_it() -> None:
    gains = {"a1": 0.5, "a2": 0.5, "b1": 0.25, "b2": 0.25}
    tried = Timed("a1 a2 b1 b2", lambda names: 3.0 - sum(gains[each] for each in names), exposed_s={"a": 2.0, "b": 1.0})
    assert tried.best() == (dict.fromkeys(gains, "ring"), 1.5)
    assert [set(names) for names in tried.judged[:3]] == [set(), {"a1", "a2"}, {*gains}]


def test_coordinates_that_each_want_another_option_move_one_after_another() -> None:
    wanted = {"a1": "ring", "a2": "tree", "a3": "swing"}
    tried = Timed("a1 a2 a3", lambda names: 4.0 - len(names.items() & wanted.items()), (PLAIN, RING, TREE, SWING))
    served, time_s = tried.of._descend(tried.start())
    assert (tried.named(served), time_s) == (wanted, 1.0)


def test_joint_moves_go_on_until_none_helps() -> None:
    """Two rings help only beside each other: a with b, and c with d."""

    def time_s(names: Names) -> float:
        pairs = sum({*pair} <= {*names} for pair in (("a1", "b1"), ("c1", "d1")))
        return 3.0 - pairs + 0.1 * (len(names) - 2 * pairs)

    assert Timed("a1 b1 c1 d1", time_s).best() == (dict.fromkeys(("a1", "b1", "c1", "d1"), "ring"), 1.0)


def test_a_whole_axis_moves_together_before_two_of_its_coordinates_do() -> None:
    times_s = {0: 2.0, 1: 2.1, 2: 1.5, 3: 2.2, 4: 1.0}
    tried = Timed("a1 a2 a3 a4", lambda names: times_s[len(names)])
    moved = tried.of._joint_move(tried.start(), 2.0)
    assert moved is not None
    assert len(tried.named(moved)) == 4


def test_of_many_moves_those_that_cost_least_are_joined() -> None:
    words = [f"{axis}{size}" for size in range(2) for axis in "abcdefghijklmnopqrst"]
    costs = {word: 0.01 * (i + 1) for i, word in enumerate(words)}
    tried = Timed(" ".join(reversed(words)), lambda names: 2.0 + sum(costs[each] for each in names))
    assert tried.of._joint_move(tried.start(), 2.0) is None
    joined = [{*names} for names in tried.judged if len(names) > 1 and len({word[0] for word in names}) > 1]
    assert joined[:2] == [{"a0", "b0"}, {"a0", "c0"}]


def test_no_move_is_joined_with_one_by_which_no_step_can_be_timed() -> None:
    tried = Timed("a1 b1 c1", lambda names: NEVER if "a1" in names else 2.0 + len(names))
    assert tried.best() == ({}, 2.0)
    assert [{*names} for names in tried.judged if len(names) > 1] == [{"b1", "c1"}]


def test_from_a_step_that_is_good_enough_nothing_moves() -> None:
    tried = Timed("a1 a2", lambda names: 2.0 - 0.5 * len(names), good_enough_s=2.0)
    served, time_s = tried.of._descend(tried.start())
    assert (tried.named(served), time_s) == ({}, 2.0)
    assert tried.of._joint_move(tried.start(), 2.0) is None
    assert len(tried.judged) == 1


def test_beyond_the_limit_no_step_is_timed_but_for_plainer_options() -> None:
    tried = Timed("a1 b1", lambda _: 1.0, most=1)
    assert tried.best(tried.start(a1=RING, b1=RING)) == ({}, 1.0)
    assert tried.judged == [{"a1": "ring", "b1": "ring"}, {"b1": "ring"}, {}]
    few = Timed("a1 b1", lambda _: 1.0, most=2)
    every = few.start(), few.start(a1=RING), few.start(b1=RING), few.start()
    assert [few.of.time_of(each).time_s for each in every] == [1.0, 1.0, NEVER, 1.0]
    assert len(few.judged) == 2


def test_two_dozen_joint_moves_of_two_and_sixteen_of_three_are_tried() -> None:
    """The cheapest few of each number are tried, whatever the machine."""
    moves = [Move(float(cost), Coordinate(axis, "all_reduce", 1), RING) for cost, axis in enumerate("abcdefghijkl")]
    assert [len(several) for several in _joint_moves(moves)] == [2] * 24 + [3] * 16
