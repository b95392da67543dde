"""The descent over what serves each coordinate, on steps whose times are a formula."""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from types import SimpleNamespace

import pytest

from emu.collective.choice import AlgorithmOnDims
from emu.study.training.step_choice.descent import Descent, Move, StepTime, _axis_moves, _joint_moves
from emu.study.training.step_choice.options import Coordinate, Option, ServedFabric, pareto_front

ALONE = Option("each alone", lambda _: None)
A, B, C = (Coordinate(axis, "all_reduce", 5) for axis in ("a", "b", "c"))


def options(*names: str) -> list[Option]:
    return [ALONE, *(Option(name, lambda _, name=name: AlgorithmOnDims(name)) for name in names)]


def descent(time_s: Callable[[Mapping[Coordinate, str]], float], most: int = 100, good_enough_s: float = 0.0, **of):
    known = of or {"a": ("ring", "tree"), "b": ("ring", "tree"), "c": ("ring",)}
    every = {c: options(*known[c.axis]) for c in (A, B, C) if c.axis in known}
    judged = []

    def judge(served):
        names = {c: option.name for c, option in served.items()}
        judged.append(names)
        return StepTime(time_s(names), {"a": 3.0, "b": 2.0, "c": 1.0})

    found = Descent(every, dict.fromkeys(every, 1.0), judge, most, good_enough_s)
    served, found_s = found.best([dict.fromkeys(every, ALONE)])
    return {c: option.name for c, option in served.items()}, found_s, judged


def test_the_first_move_is_from_the_fastest_of_several_starts():
    every = {A: options("ring", "tree"), B: options("ring", "tree")}
    judged = []

    def judge(served):
        judged.append({c: option.name for c, option in served.items()})
        return StepTime(2.0 - sum(option.name == "tree" for option in served.values()) / 2, {})

    starts = [dict.fromkeys(every, every[A][i]) for i in (0, 1, 2)]
    Descent(every, dict.fromkeys(every, 1.0), judge, 100, 0.0).best(starts)
    assert judged[:3] == [dict.fromkeys(every, name) for name in ("each alone", "ring", "tree")]
    assert judged[3] == {A: "each alone", B: "tree"}


def test_each_coordinate_moves_to_what_makes_the_step_the_shortest():
    cost = {"each alone": 3.0, "ring": 2.0, "tree": 1.0}
    names, time_s, _ = descent(lambda names: sum(cost[names[c]] for c in names))
    assert (names, time_s) == ({A: "tree", B: "tree", C: "ring"}, 4.0)


def test_two_move_together_where_neither_helps_by_itself():
    """One ring leaves the other's messages in the way."""
    names, time_s, _ = descent(lambda names: 1.0 if names[A] == names[B] == "ring" else 2.0)
    assert (names[A], names[B], names[C], time_s) == ("ring", "ring", "each alone", 1.0)


def test_all_coordinates_of_an_axis_move_to_one_name_before_other_several_do():
    """Four of one axis must move, which no two or three of them show."""
    every = {Coordinate("a", "all_reduce", size): options("ring", "tree") for size in range(4)}

    def time_s(served):
        rings = sum(option.name == "ring" for option in served.values())
        return 1.0 if rings == 4 else 2.0 + 0.01 * rings

    of = Descent(every, dict.fromkeys(every, 1.0), lambda served: StepTime(time_s(served), {}), 100, 0.0)
    served, found_s = of.best([dict.fromkeys(every, ALONE)])
    assert ({option.name for option in served.values()}, found_s) == ({"ring"}, 1.0)


def test_three_move_together_those_first_whose_moves_alone_cost_least():
    """A ring of each helps if all three have it; a tree costs more alone, and is tried later."""
    judged = []

    def time_s(names):
        judged.append(tuple(names.values()))
        if list(names.values()) == ["ring"] * 3:
            return 1.0
        return 2.0 + sum({"each alone": 0.0, "ring": 0.01, "tree": 0.5}[name] for name in names.values())

    names, found_s, _ = descent(time_s, a=("ring", "tree"), b=("ring", "tree"), c=("ring", "tree"))
    assert (set(names.values()), found_s) == ({"ring"}, 1.0)
    three = [each for each in judged if "each alone" not in each]
    assert three[0] == ("ring",) * 3


def test_what_saves_nothing_stays_as_it_is_alone():
    """The ring of b helps only as long as a is as it was."""

    def time_s(names):
        return 1.0 if names[A] == "tree" else 2.0 if names[B] == "ring" else 3.0

    names, found_s, _ = descent(time_s)
    assert (names, found_s) == ({A: "tree", B: "each alone", C: "each alone"}, 1.0)
    start = {A: options("ring", "tree")[2], B: options("ring")[1], C: ALONE}
    known = {c: options("ring", "tree") for c in (A, B, C)}
    of = Descent(known, dict.fromkeys(known, 1.0), lambda s: StepTime(time_s({c: o.name for c, o in s.items()}), {}), 100, 0.0)
    served, _ = of.best([start])
    assert {c: o.name for c, o in served.items()} == {A: "tree", B: "each alone", C: "each alone"}


@pytest.mark.parametrize("most", [1, 2, 3, 5, 8])
def test_it_ends_after_so_many_steps_and_one_more_for_each_coordinate_and_times_none_twice(most):
    cost = {"each alone": 3.0, "ring": 2.0, "tree": 1.0}
    _, _, judged = descent(lambda names: sum(cost[names[c]] for c in names), most)
    assert len(judged) <= most + 3
    assert len({tuple(names.items()) for names in judged}) == len(judged)


def test_a_start_that_takes_no_longer_than_the_floor_is_taken_as_it_is():
    names, time_s, judged = descent(lambda names: 2.0 - 0.001 * (names[A] == "ring"), good_enough_s=2.0)
    assert (set(names.values()), time_s, len(judged)) == ({"each alone"}, 2.0, 1)
    names, _, _ = descent(lambda names: 2.0 - 0.001 * (names[A] == "ring"), good_enough_s=1.99)
    assert names[A] == "ring"


def test_a_gain_of_less_than_a_ten_thousandth_is_none():
    names, _, _ = descent(lambda names: 1.0 - 0.9e-4 * (names[A] == "ring"))
    assert set(names.values()) == {"each alone"}


def test_candidates_are_those_that_no_other_beats_in_time_and_in_messages_at_once():
    rows = [
        ("direct", 10, 7.0),
        ("ring", 14, 1.0),
        ("bruck", 11, 2.0),
        ("swing", 12, 2.0),
        ("twin", 10, 7.0),
        ("slow", 99, 1.0),
    ]
    found = pareto_front([(ticks, flows, name) for name, ticks, flows in rows])
    assert [name for _, _, name in found] == ["direct", "bruck", "ring"]


@pytest.mark.parametrize("seed", range(30))
def test_options_are_the_front_and_the_fastest_in_the_order_of_their_times(seed):
    """Algorithms count whose bound is within four times the present time, and whose messages are few."""
    random, limit = Random(seed), 2**18
    every = {f"a{i}": (random.randrange(1, 60), random.choice((8, limit, limit + 1)), random.randrange(9)) for i in range(12)}
    asked_for = list[float]()
    ticks = random.randrange(4, 20)

    def served_by(_, name):
        least, _, flows = every[name]
        return SimpleNamespace(isolated=lambda _: SimpleNamespace(ticks=least + len(name), flows=flows))

    def bounds(_, within_fs):
        asked_for.append(within_fs)
        found = sorted((least, name) for name, (least, *_) in every.items() if least <= within_fs)
        return iter([SimpleNamespace(name=name, messages=every[name][1], bound_fs=least) for least, name in found])

    now = SimpleNamespace(ticks=ticks)
    fabric = SimpleNamespace(bounds=bounds, isolated=lambda _: now, served_by=served_by, algorithm=lambda name: name)
    fabric.with_algorithm = partial(ServedFabric.with_algorithm, fabric)
    times = {name: (least + len(name), flows) for name, (least, count, flows) in every.items() if count <= limit}
    times = {name: time for name, time in times.items() if every[name][0] <= 4 * ticks}
    for few in (0, 1, 3):
        first = sorted((*time, name) for name, time in times.items())
        kept = {name for *_, name in first[:few]}
        for at, (_, flows, name) in enumerate(first):
            if not any(other[1] <= flows for other in first[:at]):
                kept.add(name)
        found = ServedFabric.options(fabric, None, few)
        assert found == [name for *_, name in first if name in kept]
        assert asked_for.pop() == 4 * ticks
        assert ServedFabric.least_ticks(fabric, None, ()) == min([ticks, *(time for time, _ in times.values())])


def test_the_twelve_cheapest_moves_of_a_whole_axis_are_tried_and_no_more():
    """The page of the model says how many are: docs/model.md. A move of one coordinate alone was tried already."""
    alone = Move(0.0, Coordinate("z", "all_reduce", 1), Option("ring", lambda _: None))
    axes = [Coordinate(name, "all_reduce", size) for name in "abcdefghijklmnop" for size in (1, 2)]
    moves = [Move(cost, each, Option("ring", lambda _: None)) for cost, each in enumerate(axes)]
    tried = _axis_moves([alone, *moves])
    assert [several[0].coordinate.axis for several in tried] == list("abcdefghijkl")
    assert all(len(several) == 2 for several in tried)


def test_of_joint_moves_the_cheapest_are_tried_first_and_never_two_of_one_coordinate():
    """Trials of each number of coordinates are as many as docs/model.md says, and the cheapest of all."""
    every = [Coordinate(name, "all_reduce", 1) for name in "abcdefghij"]
    moves = [
        Move((7.3 * i) % 10, each, Option(name, lambda _: None)) for i, each in enumerate(every) for name in ("ring", "tree")
    ]
    found = list(_joint_moves(moves))
    for size in (2, 3):
        several = [joint for joint in found if len(joint) == size]
        costs = [sum(move.costs_s for move in joint) for joint in several]
        assert costs == sorted(costs)
        assert all(len({move.coordinate for move in joint}) == size for joint in several)
        cheapest = sorted({(7.3 * i) % 10 for i in range(10)})[:size]
        assert costs[: 2**size] == pytest.approx([sum(cheapest)] * 2**size)  # each of them by ring or by tree
    assert [len(joint) for joint in found] == sorted(len(joint) for joint in found)
