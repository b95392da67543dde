"""Shapes: which there are of so many ranks, and how they are written."""

import re
from math import prod

import pytest

from emu.collective.algorithm import Algorithm, schedule
from emu.collective.choice import Choice, Request
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule
from emu.collective.shape import (
    PartialGrid,
    any_rank_count,
    cubes,
    dims_of,
    grids,
    parse_dims,
    parse_grid,
    planes,
    powers_of_two,
    ranks_of,
    show_shape,
)
from emu.errors import InputError


@pytest.mark.parametrize("n", range(1, 65))
def test_every_shape_of_n_ranks_has_n_ranks_and_comes_once(n: int) -> None:
    for shapes in (any_rank_count, powers_of_two, grids, planes, cubes):
        found = list(shapes(n))
        assert all(ranks_of(shape) == n for shape in found)
        assert len(set(found)) == len(found)


def test_grids_are_all_ordered_factorisations_of_up_to_four_dims() -> None:
    brute = {d for a in range(2, 25) for d in ((a,),) if a == 24}
    sides = range(2, 25)
    brute |= {(a, b) for a in sides for b in sides if a * b == 24}
    brute |= {(a, b, c) for a in sides for b in sides for c in sides if a * b * c == 24}
    brute |= {
        (a, b, c, d) for a in (2, 3, 6) for b in (2, 3, 6) for c in (2, 3, 6) for d in (2, 3, 6) if prod((a, b, c, d)) == 24
    }
    assert set(grids(24)) == brute
    assert next(iter(grids(24))) == (4, 6)


def test_shapes_are_written_as_they_are_read() -> None:
    assert show_shape(16) == "16"
    assert show_shape((4, 2)) == "4x2"
    assert parse_dims("4x2") == (4, 2)
    part = PartialGrid((4, 4), (0, 1, 2, 3, 8, 10, 11))
    assert show_shape(part) == "4x4:0-3,8,10-11"
    assert (ranks_of(part), dims_of(part)) == (7, (4, 4))


@pytest.mark.parametrize("text", ["", "4x", "0x4", "4*4", "four", "-2"])
def test_dims_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="dims must be whole numbers of 1 or more joined by x, such as 4x4"):
        parse_dims(text)


@pytest.mark.parametrize("text", ["4x4", "4x4:0-3,8,10-11", "2x2x2:5", "3:0-2"])
def test_a_grid_and_a_part_of_one_are_read_as_they_are_shown(text: str) -> None:
    assert show_shape(parse_grid(text)) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("4x4:", "dims must be a grid and places of it, such as 4x4:0-3,8, got '4x4:'"),
        ("4x4:a", "dims must be a grid and places of it"),
        ("4x:1", "dims must be whole numbers of 1 or more joined by x"),
        ("4x4:0-16", "dims must be places 0..15 after the colon, got '4x4:0-16'"),
        ("4x4:3,1", "members must be some of the places 0..15 of 4x4 in ascending order, got '3,1'"),
        ("4x4:0-2,2", "members must be some of the places 0..15 of 4x4 in ascending order"),
        ("4x4:3-1", "members must be some of the places 0..15 of 4x4 in ascending order, got 'none'"),
    ],
)
def test_parts_that_are_none_are_refused(text: str, says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        parse_grid(text)


def test_a_part_is_on_places_that_the_grid_has() -> None:
    with pytest.raises(InputError, match=r"members must be some of the places 0\.\.3 of 2x2 in ascending order, got '4'"):
        PartialGrid((2, 2), (4,))
    with pytest.raises(InputError, match=r"dims must be a grid of at most 2\*\*31 places, got '65536x65536'"):
        PartialGrid((65536, 65536), (0,))


def _of_powers() -> Algorithm:
    claim = Claim("rank", alpha=lambda _: 0, beta=lambda _: 0)
    return Algorithm("all_reduce", "of-powers", lambda n: Schedule.build(n, n, []), claim, "", powers_of_two)


def test_a_number_of_ranks_that_does_not_fit_is_refused_with_the_nearest_that_do() -> None:
    with pytest.raises(InputError, match="all_reduce of-powers: cannot run on 13 ranks; nearest that work: 8, 16"):
        _of_powers().fit(13)
    with pytest.raises(InputError, match="does not take shape 2x2; 4 works"):
        _of_powers().schedule((2, 2))


def test_asked_dims_are_taken_where_they_fit_and_the_best_elsewhere() -> None:
    on_grids = Algorithm("all_reduce", "on-grids", lambda d: Schedule.build(prod(d), 1, []), _of_powers().claim, "", grids)
    assert on_grids.fit(8, (2, 2, 2)) == (2, 2, 2)
    assert on_grids.fit(8, (4, 4)) == (2, 4)


def test_a_builder_may_take_more_than_it_lists() -> None:
    """The builder lists whole grids, and takes any three places of one."""

    def three(shape: object) -> bool:
        return isinstance(shape, PartialGrid) and len(shape.members) == 3

    claim = _of_powers().claim
    empty = Algorithm(
        "all_reduce", "of-three", lambda p: Schedule.build(len(p.members), 1, []), claim, "", grids, accepts=three
    )
    asked = PartialGrid((2, 2), (0, 1, 3))
    assert empty.fit(3, asked) == asked
    assert empty.fit(4, asked) == (2, 2)
    assert empty.schedule(asked).n_ranks == 3
    with pytest.raises(InputError, match="of-three: does not take shape 2x2:0-1; 2 works"):
        empty.check(PartialGrid((2, 2), (0, 1)))


def test_a_choice_carries_dims() -> None:
    choice = Choice.parse(("all_reduce=ring:2x4",))
    assert choice.dims == {"all_reduce": (2, 4)}
    assert choice.schedule(Request("all_reduce", tuple(range(8)))).digest() == schedule("all_reduce", "ring", 8).digest()


def test_a_choice_carries_a_part_of_a_grid() -> None:
    choice = Choice.parse(("all_reduce=flex-sipco:4x4:4-11",))
    assert choice.dims == {"all_reduce": PartialGrid((4, 4), tuple(range(4, 12)))}
    assert str(choice.algorithm_for(Request("all_reduce", tuple(range(8))))) == "flex-sipco:4x4:4-11"
