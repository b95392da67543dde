"""The worked example of eight ranks on SiPAC(4, 2), how many chunks a link carries, and jobs that fold."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from collectives import sipco
from emu.collective.algorithm import algorithm
from emu.collective.operation import operation
from emu.collective.proof import prove
from emu.collective.schedule import Schedule
from emu.collective.shape import PartialGrid
from emu.errors import InputError
from emu.study.timing import CollectiveJob, time_collective
from emu.topology.catalogue import build_topology
from emu.units import TICKS_PER_S


def rows_of(r: int, *digits: int) -> PartialGrid:
    """The job of the rows of SiPAC(r, 2) with those digits of level 1."""
    return PartialGrid((r, r), tuple(int(place) for digit in digits for place in range(digit * r, digit * r + r)))


def first_rows(r: int, L: int, k: int, at: int = 0) -> PartialGrid:
    """k rows of SiPAC(r, L), from row `at` on."""
    return PartialGrid((r,) * L, tuple(range(at * r, (at + k) * r)))


def links(built: Schedule, step: int) -> Counter:
    rows = built.rounds()[step]
    return Counter(zip(built.src[rows].tolist(), built.dst[rows].tolist(), strict=True))


def sent(built: Schedule, step: int, me: int) -> list[tuple[int, int, str]]:
    """(level, receiver, chunk) of what rank `me` sends."""
    rows = built.rounds()[step]
    mine = zip(built.src[rows], built.channel[rows], built.dst[rows], built.slot[rows], strict=True)
    r = built.n_slots // 2
    return sorted((int(level), int(dst), f"{slot // r}.{slot % r}") for src, level, dst, slot in mine if src == me)


def test_eight_ranks_of_sixteen_send_what_the_worked_example_says():
    """Rank u_0 + 4 u_1; no row has the digits 2 and 3 of level 1, so that chunks 1.2 and 1.3 go to the ranks of u_0 = 2, 3."""
    built = sipco.flex_all_reduce(rows_of(4, 0, 1))
    assert sent(built, 0, 0) == [(0, 1, "0.1"), (0, 2, "0.2"), (0, 2, "1.2"), (0, 3, "0.3"), (0, 3, "1.3"), (1, 4, "1.1")]
    assert sent(built, 1, 0) == [(0, 1, "1.0"), (0, 2, "1.0"), (0, 3, "1.0"), (1, 4, "0.0")]
    assert sent(built, 2, 0) == [(0, 1, "0.0"), (0, 2, "0.0"), (0, 3, "0.0"), (1, 4, "1.0")]
    assert sent(built, 1, 2) == [(0, 0, "1.0"), (0, 1, "1.0"), (0, 3, "1.0"), (1, 6, "0.2"), (1, 6, "1.2")]
    assert sent(built, 2, 2) == [
        *((0, dst, chunk) for dst in (0, 1, 3) for chunk in ("0.2", "1.2")),
        (1, 6, "1.0"),
    ]


@pytest.mark.parametrize(("r", "m"), [(3, 2), (4, 2), (4, 3), (8, 5)])
def test_a_link_carries_at_most_two_chunks_a_step_and_two_somewhere(r, m):
    built = sipco.flex_all_reduce(rows_of(r, *range(m)))
    assert built.n_rounds == 3
    assert max(max(links(built, step).values()) for step in range(3)) == 2


@pytest.mark.parametrize(("r", "m"), [(3, 2), (4, 2), (4, 3), (8, 5)])
def test_on_a_job_of_flex_sipac_the_busiest_link_of_each_of_three_steps_carries_two_chunks(r, m):
    """The upper bound of the time, (l + 1)(a + (r - 1) 2n/(r l) b) with l = 2, is met: r - 1 links share a port of 1 / b.

    Links of a job have 2 wavelengths of 4 GB/s.
    """
    size, wavelengths = 1_728_000, 2 * (r - 1 + m - 1)
    built = build_topology(f"flex-sipac:r={r},L=2,w={wavelengths},jobs={r * m},latency=2us")
    npus = np.arange(r * m, dtype=np.int32)
    plan, b = sipco.flex_all_reduce(rows_of(r, *range(m))), 1 / (8e9 * (r - 1))
    found = time_collective(CollectiveJob(operation("all_reduce", r * m), plan, size // 4, 4, built, npus))
    assert found.end_fs.max() / TICKS_PER_S == pytest.approx(3 * (2e-6 + (r - 1) * 2 * size / (2 * r) * b), rel=1e-9)


@pytest.mark.parametrize(("r", "L"), [(2, 2), (3, 2), (4, 2), (5, 2), (2, 3), (3, 3), (2, 4)])
def test_a_job_on_all_rows_is_sipco(r, L):
    assert sipco.flex_all_reduce(first_rows(r, L, r ** (L - 1))).digest() == sipco.all_reduce((r,) * L).digest()


def test_levels_on_which_a_job_has_one_digit_do_not_count():
    """The third plane of SiPAC(3, 3) is SiPAC(3, 2)."""
    assert sipco.flex_all_reduce(first_rows(3, 3, 3, at=6)).digest() == sipco.all_reduce((3, 3)).digest()


@pytest.mark.parametrize("r", [3, 4, 5])
def test_any_two_rows_or_more_will_do(r):
    for m in range(2, r + 1):
        for digits in combinations(range(r), m):
            assert prove(sipco.flex_all_reduce(rows_of(r, *digits)), operation("all_reduce", r * m)).uniform


def test_only_neighbours_on_the_channel_s_level_talk():
    part = rows_of(5, 1, 2, 4)
    built, place = sipco.flex_all_reduce(part), np.array(part.members)
    src, dst = place[built.src], place[built.dst]
    assert np.array_equal(src // 5 == dst // 5, built.channel == 0)
    assert np.array_equal(src % 5 == dst % 5, built.channel == 1)


ALIGNED = [(2, 3), (2, 4), (3, 3), (4, 2), (4, 3)]


def aligned_jobs(r: int, L: int) -> list[PartialGrid]:
    """All of two rows or more in succession that have every place of some digit of the highest level on which they differ."""
    rows, found = r ** (L - 1), algorithm("all_reduce", "flex-sipco")
    jobs = (first_rows(r, L, k, at) for at in range(rows) for k in range(2, rows - at + 1))
    return [job for job in jobs if found.takes(job)]


def distances(built: Schedule, part: PartialGrid) -> np.ndarray:
    """In how many digits the two ends of each row differ; where it is one, that of the row's channel."""
    r, place = part.dims[0], np.array(part.members)
    level = np.arange(len(part.dims))[:, None]
    src, dst = (place[column] // r**level % r for column in (built.src, built.dst))
    apart = src != dst
    assert (apart.argmax(axis=0) == built.channel).all()
    return apart.sum(axis=0)


@pytest.mark.parametrize(("r", "L"), ALIGNED)
def test_every_aligned_job_is_proved_and_each_message_goes_to_a_neighbour(r, L):
    for part in aligned_jobs(r, L):
        built = sipco.flex_all_reduce(part)
        assert prove(built, operation("all_reduce", len(part.members))).uniform
        assert set(distances(built, part)) == {1}


@pytest.mark.parametrize(("r", "L"), ALIGNED)
def test_rows_from_the_first_on_are_aligned_however_many(r, L):
    found = algorithm("all_reduce", "flex-sipco")
    assert all(found.takes(first_rows(r, L, k)) for k in range(2, r ** (L - 1) + 1))


@pytest.mark.parametrize(("r", "L"), ALIGNED)
def test_folding_does_for_all_of_them_in_six_rounds_at_most(r, L):
    for part in aligned_jobs(r, L):
        built = sipco.fold(part)
        assert prove(built, operation("all_reduce", len(part.members))).uniform
        assert set(distances(built, part)) == {1}
        assert built.n_rounds <= 6


def test_rows_anywhere_on_a_partial_digit_fold_onto_the_first_whole_one():
    """SiPAC(3, 3) with digit 1 of level 2 whole, and of digits 0 and 2 the middle row and the outer ones."""
    part = PartialGrid((3, 3, 3), tuple(place for row in (1, 3, 4, 5, 6, 8) for place in range(3 * row, 3 * row + 3)))
    built = algorithm("all_reduce", "flex-sipco").schedule(part)
    assert prove(built, operation("all_reduce", 18)).uniform
    folded = built.rounds()[1]
    assert {part.members[dst] // 9 for dst in built.dst[folded]} == {1}
    assert sorted({part.members[src] // 3 for src in built.src[folded]}) == [1, 6, 8]


def test_six_of_eight_fold_row_two_onto_row_zero_and_back():
    built = sipco.flex_all_reduce(first_rows(2, 3, 3))
    ends = [list(zip(built.src[rows].tolist(), built.dst[rows].tolist(), strict=True)) for rows in built.rounds()]
    within = [(0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (5, 4)]
    assert ends == [within, [(4, 0), (5, 1)], [(0, 2), (1, 3), (2, 0), (3, 1)], [(0, 4), (1, 5)], within]


@pytest.mark.parametrize(
    "part",
    [
        PartialGrid((4, 4), (0, 1, 2, 3)),  # one row
        PartialGrid((4, 4), (0, 1, 2, 3, 5, 6, 7, 8)),  # no whole rows
        first_rows(4, 3, 4, at=2),  # no digit whole
        PartialGrid((2, 4), tuple(range(8))),  # no SiPAC
        PartialGrid((1, 1), (0,)),
        (4, 4),
        16,
    ],
)
def test_jobs_that_are_not_aligned_are_refused(part):
    found = algorithm("all_reduce", "flex-sipco")
    assert not found.takes(part)
    with pytest.raises(InputError, match="flex-sipco"):
        found.check(part)


@pytest.mark.parametrize("n", [*range(1, 65), 1024])
def test_what_is_listed_is_taken_and_of_so_many_ranks(n):
    found = algorithm("all_reduce", "flex-sipco")
    for part in found.shapes(n):
        assert found.takes(part)
        assert len(part.members) == n


def test_a_job_of_no_whole_rows_is_told_what_works():
    found = algorithm("all_reduce", "flex-sipco")
    assert found.fit(8, (4, 4)) == rows_of(4, 0, 1)
    with pytest.raises(InputError, match=r"flex-sipco: cannot run on 7 ranks; nearest that work: 6, 8"):
        found.fit(7)
    with pytest.raises(InputError, match=r"flex-sipco: does not take shape 3x3:0-2,4-6; 3x3:0-5 works"):
        found.check(PartialGrid((3, 3), (0, 1, 2, 4, 5, 6)))
