"""UB-Mesh's 2D multi-path all-to-all: link loads by phase, and the gain over one path by rows, then columns."""

import numpy as np
import pytest

from collectives import multipath
from emu.collective.algorithm import schedule
from emu.collective.operation import operation
from emu.collective.proof import prove
from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError
from emu.fabric.ideal import ideal
from emu.fabric.lower import lower
from emu.fabric.run import run

SIDES = (2, 3, 4, 8)
ITEM = 2 * 10**6  # bytes; a link takes 1 ms
TICKS = 10**12  # of 1 ms


@pytest.mark.parametrize("m", SIDES)
def test_every_link_carries_half_of_m_plus_one_items_and_then_half_of_m_less_one(m):
    built, n = multipath.all_to_all((m, m)).expand(), m * m
    linked = [s * n + d for s in range(n) for d in range(n) if (s // m == d // m) != (s % m == d % m)]
    for rows, halves in zip(built.rounds(), (m + 1, m - 1), strict=True):
        links, loads = np.unique(built.src[rows] * n + built.dst[rows], return_counts=True)
        assert links.tolist() == linked
        assert set(loads.tolist()) == {halves}


def test_the_halves_of_an_item_of_two_by_two_go_by_both_corners():
    built = multipath.all_to_all((2, 2)).expand()
    item = 0 * 4 + 3
    hops = [[(int(built.src[i]), int(built.dst[i])) for i in np.flatnonzero(built.slot == item * 2 + part)] for part in (0, 1)]
    assert hops == [[(0, 2), (2, 3)], [(0, 1), (1, 3)]]


@pytest.mark.parametrize("m", SIDES)
def test_it_is_two_less_one_mth_times_as_fast_as_one_path_by_columns_then_rows(m):
    several, one = _taken(multipath.all_to_all((m, m))), _taken(_one_path(m))
    assert several == m * TICKS
    assert one == (2 * m - 1) * TICKS


def _one_path(m: int) -> Schedule:
    """Along dimension 0, then along dimension 1; what needs only the second goes in phase 0."""
    n, i, j = m * m, np.arange(1, m)[:, None], np.arange(m)
    first = [Sends(0, i * m, slot=i * m + j), Sends(0, j[1:], slot=j[1:])]
    second = Sends(0, j[1:], slot=i * m * n + j[1:])
    built = Schedule.build(n, n * n, [first, second], translate=(m, m), slot_digits=2).expand()
    assert prove(built, operation("all_to_all", n)).uniform
    return built


def _taken(schedule: Schedule) -> int:
    full, items = schedule.expand(), schedule.n_ranks**2
    sizes = np.full(full.n_slots, ITEM * items // full.n_slots)
    fabric = ideal(full, "link", bandwidth_Bps=ITEM * 1000.0, latency_fs=0)
    return int(run(lower(full, sizes, fabric, np.arange(full.n_ranks, dtype=np.int32)).graph).end_fs.max())


def test_eight_ranks_are_no_square():
    with pytest.raises(InputError, match="all_to_all multipath: takes no 8 ranks; nearest that work: 4, 9"):
        schedule("all_to_all", "multipath", 8)
