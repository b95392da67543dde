import itertools
from dataclasses import replace

import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.builders.grid import Dimension, grid
from emu.topology.builders.wiring import Cables, star, wire
from emu.topology.paths.shortest_paths import shortest
from emu.topology.placement import by_axes, hubs, place, switches_add_assumption, with_helpers
from emu.topology.topology import Topology

FOUR = grid("four", [Dimension(4, "complete", 1e9, 0)])


def test_ranks_take_the_first_npus():
    assert place(FOUR, 3).tolist() == [0, 1, 2]


def test_ranks_sit_where_they_are_put():
    assert place(FOUR, 3, [3, 0, 2]).tolist() == [3, 0, 2]


def test_ranks_count_the_dims_in_the_order_asked_for():
    grid_3x4 = grid("3x4", [Dimension(size, "cycle", 1e9, 0) for size in (3, 4)])
    assert by_axes(grid_3x4, (0, 1)).tolist() == list(range(12))
    assert by_axes(grid_3x4, (1, 0)).tolist() == [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]
    assert by_axes(star("star", 3, 1e9, 0), (0,)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
def test_the_digits_of_a_rank_are_those_of_its_npu_in_the_order_of_the_axes(axes):
    dims = (2, 3, 4)
    npus = by_axes(grid("2x3x4", [Dimension(size, "cycle", 1e9, 0) for size in dims]), axes)
    of_npus = np.unravel_index(npus, dims)
    of_ranks = np.unravel_index(np.arange(24), [dims[axis] for axis in axes])
    for digit, axis in zip(of_ranks, axes, strict=True):
        assert np.array_equal(digit, of_npus[axis])


@pytest.mark.parametrize("axes", [(0,), (0, 0), (0, 2), (0, 1, 2)])
def test_axes_that_do_not_name_each_dim_once_are_refused(axes):
    grid_3x4 = grid("3x4", [Dimension(size, "cycle", 1e9, 0) for size in (3, 4)])
    with pytest.raises(InputError, match=r"placement: axes must be each of 0..1 once, the dims 3x4 of 3x4, got"):
        by_axes(grid_3x4, axes)


@pytest.mark.parametrize(
    ("ranks", "npus", "message"),
    [
        (5, None, "placement: 5 ranks do not fit four with its 4 NPUs; take fewer ranks or a larger topology"),
        (2, [1, 1], "placement: 2 ranks need 2 different NPUs, got 1"),
        (2, [0, 1, 2], "placement: 2 ranks need 2 different NPUs, got 3"),
        (2, [0, 4], "placement: NPUs must be 0..3, got 0..4"),
        (2, [-1, 0], "placement: NPUs must be 0..3, got -1..0"),
    ],
)
def test_a_placement_that_cannot_be_is_refused(ranks, npus, message):
    with pytest.raises(InputError) as refused:
        place(FOUR, ranks, npus)
    assert str(refused.value) == message


def _two_servers():
    """NPUs 0, 1 on switch 4, NPUs 2, 3 on switch 5, all on switches 6 and 7."""
    ends = [(0, 4), (1, 4), (2, 5), (3, 5), *((npu, top) for npu in range(4) for top in (6, 7))]
    links, _ = wire("two", [Cables("cable", *zip(*ends, strict=True), 1e9, 0)])
    return Topology("two", 4, 8, links, shortest(links, 8, [False] * 4 + [True] * 4))


def test_helpers_sit_on_the_first_switches_that_every_rank_reaches():
    assert with_helpers(_two_servers(), [0, 2, 1], 2).tolist() == [0, 2, 1, 6, 7]
    assert with_helpers(_two_servers(), [0, 1], 2).tolist() == [0, 1, 4, 6]
    assert with_helpers(_two_servers(), [3, 1], 0).tolist() == [3, 1]
    assert hubs(_two_servers(), range(4), 9).tolist() == [6, 7]


def test_helpers_of_equal_runs_of_ranks_sit_on_a_switch_of_each_run_where_none_is_reached_by_all():
    """And where a topology says which switches add, they sit on these alone, for ranks on their own links."""
    ends = [(0, 4), (1, 4), (2, 5), (3, 5), *((npu, 6) for npu in range(4))]
    links, _ = wire("two", [Cables("cable", *zip(*ends, strict=True), 1e9, 0)])
    top = [False] * 4 + [True] * 3
    two = Topology("two", 4, 7, links, shortest(links, 7, top), adders=np.array([False] * 4 + [True, True, False]))
    assert with_helpers(two, [0, 1, 2, 3], 2).tolist() == [0, 1, 2, 3, 4, 5]
    assert with_helpers(two, [2, 3, 0, 1], 2).tolist() == [2, 3, 0, 1, 5, 4]
    assert with_helpers(two, [3, 2], 1).tolist() == [3, 2, 5]
    assert hubs(replace(two, adders=None), [0, 1, 2, 3], 1).tolist() == [6]
    for ranks, helpers in (([0, 2, 1, 3], 2), ([0, 1, 2, 3], 1)):
        with pytest.raises(InputError, match=f"placement: {helpers} helpers"):
            with_helpers(two, ranks, helpers)


FILLED = (
    "take ranks that fill whole hosts, as many on each, by --ranks or by --dims HOSTSxRANKS; "
    "or take an algorithm without helpers"
)


@pytest.mark.parametrize(
    ("topology", "helpers", "told"),
    [
        (FOUR, 1, "four with its 0 switches; take an algorithm without helpers, or a topology with switches"),
        (_two_servers(), 3, f"two with its 4 switches: each must be a switch that every rank reaches, and 2 are; {FILLED}"),
    ],
)
def test_helpers_that_find_no_switch_are_refused(topology, helpers, told):
    with pytest.raises(InputError) as refused:
        with_helpers(topology, range(4), helpers)
    assert str(refused.value) == f"placement: {helpers} helpers, such as a switch that adds, do not fit {told}"


def test_that_switches_add_is_taken_for_granted_where_they_are_needed_and_nothing_says_so():
    switch = star("switch", 4, 1e9, 0)
    assert switches_add_assumption(switch, 0) == ()
    assert switches_add_assumption(replace(switch, adds=True), 1) == ()
    assert switches_add_assumption(switch, 1) == (
        "switches of switch are taken to add and to copy what they pass on; nothing says that they can",
    )


def test_ranks_take_the_npus_in_the_systems_own_order():
    ring = star("switch", 6, 1e9, 0)
    backwards = replace(ring, placer=lambda _, faulty: np.setdiff1d(np.arange(6), faulty)[::-1][:4])
    assert place(backwards, 3).tolist() == [5, 4, 3]
    with pytest.raises(InputError, match="5 ranks do not fit switch with its 6 NPUs, of which ranks can have 4"):
        place(backwards, 5)
