"""The worked example of eight ranks on SiPAC(4, 2), and how many chunks a link carries."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from collectives import flex_sipco, sipco
from emu.collective.algorithm import algorithm
from emu.collective.operation import operation
from emu.collective.proof import prove
from emu.collective.schedule import Schedule
from emu.collective.shape import Part
from emu.errors import InputError


def rows_of(r: int, *digits: int) -> Part:
    """The job of the rows of SiPAC(r, 2) with those digits of level 1."""
    return Part((r, r), tuple(int(place) for digit in digits for place in range(digit * r, digit * r + r)))


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
    built = flex_sipco.all_reduce(rows_of(4, 0, 1))
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
    built = flex_sipco.all_reduce(rows_of(r, *range(m)))
    assert built.n_rounds == 3
    assert max(max(links(built, step).values()) for step in range(3)) == 2


@pytest.mark.parametrize("r", [2, 3, 4, 5])
def test_a_job_on_all_rows_is_sipco(r):
    assert flex_sipco.all_reduce(rows_of(r, *range(r))).digest() == sipco.all_reduce((r, r)).digest()


@pytest.mark.parametrize("r", [3, 4, 5])
def test_any_two_rows_or_more_will_do(r):
    for m in range(2, r + 1):
        for digits in combinations(range(r), m):
            assert prove(flex_sipco.all_reduce(rows_of(r, *digits)), operation("all_reduce", r * m)).uniform


def test_only_neighbours_on_the_channel_s_level_talk():
    part = rows_of(5, 1, 2, 4)
    built, place = flex_sipco.all_reduce(part), np.array(part.members)
    src, dst = place[built.src], place[built.dst]
    assert np.array_equal(src // 5 == dst // 5, built.channel == 0)
    assert np.array_equal(src % 5 == dst % 5, built.channel == 1)


def test_a_job_of_no_whole_rows_is_told_what_works():
    found = algorithm("all_reduce", "flex-sipco")
    assert found.fit(8, (4, 4)) == rows_of(4, 0, 1)
    with pytest.raises(InputError, match=r"flex-sipco: takes no 7 ranks; nearest that work: 6, 8"):
        found.fit(7)
    with pytest.raises(InputError, match=r"flex-sipco: does not take shape 3x3:0-2,4-6; 3x3:0-5 works"):
        found.check(Part((3, 3), (0, 1, 2, 4, 5, 6)))
