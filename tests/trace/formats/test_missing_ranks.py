"""Ranks without a file, on grids of groups: each does what a rank of the same groups does."""

from pathlib import Path

import pytest

from emu.errors import InputError
from emu.trace.formats.missing_ranks import filled_groups
from emu.trace.formats.rank_group import RankGroup
from emu.trace.formats.trace_formats import read_foreign
from tests.trace.formats.profiles import NCCL, exchange, kernel, profile_of, step, write

Own = list[RankGroup]


def grid(tp: int, dp: int, pp: int = 1) -> dict[int, Own]:
    """The groups of each rank of a grid: of neighbours, of those beyond, and of stages."""
    shape = {"tp": (tp, 1), "dp": (dp, tp), "pp": (pp, tp * dp)}
    found = {}
    for rank in range(tp * dp * pp):
        at = {axis: rank // stride % size for axis, (size, stride) in shape.items()}
        found[rank] = [
            RankGroup(tuple(rank + (i - at[axis]) * stride for i in range(size)), axis)
            for axis, (size, stride) in shape.items()
            if size > 1
        ]
    return found


def filled(
    every: dict[int, Own], there: tuple[int, ...], apart: tuple[tuple[int, ...], ...] = ()
) -> dict[int, tuple[int, Own]]:
    missing = [rank for rank in every if rank not in there]
    return filled_groups("profile", {rank: every[rank] for rank in there}, missing, len(every), apart)


@pytest.mark.parametrize(("tp", "dp"), [(2, 2), (2, 4), (4, 2), (3, 3), (1, 4), (4, 1)])
def test_of_a_grid_the_file_of_rank_0_is_enough_and_each_rank_gets_its_own_groups(tp: int, dp: int) -> None:
    every = grid(tp, dp)
    found = filled(every, (0,))
    assert found == {rank: (0, own) for rank, own in every.items() if rank}


@pytest.mark.parametrize("stages", [2, 3])
def test_a_stage_is_done_by_a_rank_of_that_stage(stages: int) -> None:
    """Members of a group of stages send messages to one another: they do not do the same."""
    every = grid(2, 2, stages)
    apart = tuple({group.ranks for own in every.values() for group in own if group.label == "pp"})
    there = tuple(4 * stage for stage in range(stages))
    found = filled(every, there, apart)
    for rank, (donor, own) in found.items():
        assert donor == 4 * (rank // 4)
        assert own == every[rank]


def test_who_shares_a_group_does_what_its_members_do_before_others() -> None:
    groups = {0: [RankGroup((0, 1), "x")], 5: [RankGroup((4, 5), "x")]}
    found = filled_groups("profile", groups, [1, 4, 2, 3], 6, ())
    assert {rank: donor for rank, (donor, _) in found.items()} == {1: 0, 4: 5, 2: 0, 3: 0}
    assert found[4][1] == [RankGroup((4, 5), "x")]
    assert found[2][1] == found[3][1] == [RankGroup((2, 3), "x")]


@pytest.mark.parametrize(
    ("groups", "missing", "world", "rank"),
    [
        ({0: [RankGroup((0, 1), "x")]}, [1, 2], 3, 2),  # there is no rank 3
        ({1: [RankGroup((0, 1, 2), "x")]}, [0, 2, 3], 4, 3),  # nor a group of two and one more
        ({0: [RankGroup((0, 2), "x")]}, [1, 2, 3, 4], 5, 4),  # which would need rank 6
        ({2: [RankGroup((1, 2), "x")]}, [0], 3, 0),  # nor a rank -1
    ],
)
def test_a_rank_that_no_group_fits_is_named(groups: dict[int, Own], missing: list[int], world: int, rank: int) -> None:
    match = f"^profile: no rank with a file has groups like those of rank {rank}; add the file of rank {rank}$"
    with pytest.raises(InputError, match=match):
        filled_groups("profile", groups, missing, world, ())


def test_groups_of_other_labels_and_sizes_are_no_ones_like() -> None:
    own = [RankGroup((0, 1), "a"), RankGroup((0, 2), "b")]
    beside = {0: own, 3: [RankGroup((2, 3), "a"), RankGroup((1, 3), "b")]}
    found = filled_groups("trace", beside, [1, 2], 4, ())
    assert found == {
        1: (0, [RankGroup((0, 1), "a"), RankGroup((1, 3), "b")]),
        2: (0, [RankGroup((2, 3), "a"), RankGroup((0, 2), "b")]),
    }


def test_the_ends_of_a_message_do_not_do_the_same(tmp_path: Path) -> None:
    """Rank 1 has no file, and sends to both its neighbours: neither is like it, so that the first of all stands for it."""
    for rank, at, ranks in ((0, 0, "[0, 1]"), (2, 1, "[1, 2]")):
        sends = exchange("send", 5, 1 - at, 100, ranks)
        events = [step(1, 0, 900), *sends, *kernel("ncclDevKernel_SendRecv", 20, 30, 40, 2, NCCL)]
        write(tmp_path, f"rank{rank}.json", profile_of(rank, events, world=3))
    trace = read_foreign(tmp_path, fill_ranks=True)
    assert trace.role_of_rank[1] == trace.role_of_rank[0] != trace.role_of_rank[2]
