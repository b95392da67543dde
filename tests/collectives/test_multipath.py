"""UB-Mesh's 2D multi-path all-to-all: link loads by phase, and the gain over one path by rows, then columns."""

import numpy as np
import pytest

from collectives import relayed
from emu.collective.algorithm import algorithm, schedule
from emu.errors import InputError
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import run_graph
from emu.topology.catalogue import build_topology

SIDES = (2, 3, 4, 8)
ITEM = 2 * 10**6  # bytes; a link takes 1 ms
TICKS = 10**12  # of 1 ms


@pytest.mark.parametrize("m", SIDES)
def test_every_link_carries_half_of_m_plus_one_items_and_then_half_of_m_less_one(m):
    built, n = relayed.multipath((m, m)).expand(), m * m
    linked = [s * n + d for s in range(n) for d in range(n) if (s // m == d // m) != (s % m == d % m)]
    for rows, halves in zip(built.rounds(), (m + 1, m - 1), strict=True):
        links, loads = np.unique(built.src[rows] * n + built.dst[rows], return_counts=True)
        assert links.tolist() == linked
        assert set(loads.tolist()) == {halves}


def test_the_halves_of_an_item_of_two_by_two_go_by_both_corners():
    built = relayed.multipath((2, 2)).expand()
    item = 0 * 4 + 3
    hops = [[(int(built.src[i]), int(built.dst[i])) for i in np.flatnonzero(built.slot == item * 2 + part)] for part in (0, 1)]
    assert hops == [[(0, 2), (2, 3)], [(0, 1), (1, 3)]]


@pytest.mark.parametrize(("baseline", "busiest"), [("single-path", 15), ("dimension-ordered", 16)])
def test_a_rack_takes_15_eighths_of_the_time_by_a_single_path_and_twice_the_time_by_order_of_dimensions(baseline, busiest):
    several, other = _on_a_rack("multipath"), _on_a_rack(baseline)
    assert (several, other) == (8 * TICKS, busiest * TICKS)


def _on_a_rack(name: str) -> int:
    """Ticks of an all_to_all of items that a link takes 1 ms for, on the rack with nothing but bandwidth."""
    rack = build_topology("ub-mesh:rack:lane_rate=0.5GB/s,latency=0s")
    built = algorithm("all_to_all", name).compact_schedule((8, 8)).expand()
    sizes = np.full(built.n_slots, ITEM * 64**2 // built.n_slots)
    return int(run_graph(lower(FabricJob(built, sizes, rack, np.arange(64))).graph).end_fs.max())


def test_by_a_single_path_what_stays_in_a_row_leaves_at_once_and_other_items_go_along_the_column_first():
    built = algorithm("all_to_all", "single-path").compact_schedule((3, 3)).expand()
    along_rows = [
        [int(built.src[i]) // 3 == int(built.dst[i]) // 3 for i in np.arange(len(built.src))[r]] for r in built.rounds()
    ]
    assert [(sum(rows), len(rows)) for rows in along_rows] == [(9 * 2, 9 * 2 + 9 * 2 * 3), (9 * 4, 9 * 4)]


def test_eight_ranks_are_no_square():
    with pytest.raises(InputError, match="all_to_all multipath: cannot run on 8 ranks; nearest that work: 4, 9"):
        schedule("all_to_all", "multipath", 8)
