"""RailX around nodes that failed, on grids whose sides differ: which chips the ranks are on, and what joins them."""

import numpy as np
import pytest

from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault import parse_fault
from emu.topology.fault_injection.machine_state import WHOLE, machine_state

GRID = "railx:torus:m=2,n=1,nodes=5x3"  # 5 nodes along X, 3 along Y; node (X, Y) is number 5 Y + X, and has four chips


def node(x, y):
    return 5 * y + x


def mended(ranks, *faults):
    return machine_state(build_topology(GRID), [parse_fault(f"{each} at step 1") for each in faults], ranks, WHOLE)


@pytest.mark.parametrize(
    ("failed", "columns", "rows"),
    [
        ([(1, 1)], [0, 2, 3, 4], [0, 1, 2]),  # a column of 3 nodes rather than a row of 5
        ([(0, 0), (3, 0)], [0, 1, 2, 3, 4], [1, 2]),  # both in one row
        ([(4, 0), (4, 2)], [0, 1, 2, 3], [0, 1, 2]),  # both in one column
        ([(2, 0)], [0, 1, 3, 4], [0, 1, 2]),
    ],
)
def test_the_row_or_the_column_of_a_node_that_failed_is_left_out_and_rails_close_round_it(failed, columns, rows):
    kept = [node(x, y) for y in rows for x in columns]
    chips = np.array([4 * each + chip for each in kept for chip in range(4)])
    found = mended(len(chips), *(f"npu {4 * node(x, y) + 1}" for x, y in failed))
    assert found.npus.tolist() == chips.tolist()
    smaller = build_topology(f"railx:torus:m=2,n=1,nodes={len(columns)}x{len(rows)}")
    for name in ("src", "dst", "dimension", "bandwidth_Bps"):
        assert np.array_equal(getattr(found.topology.links, name), getattr(smaller.links, name))
    assert found.of.tolist() == chips.tolist()
    assert f"rails are split anew over {len(columns)} x {len(rows)} nodes" in found.told


def test_a_job_that_no_failed_node_is_part_of_keeps_all_rails():
    gone = 4 * node(1, 1)
    found = mended(4, f"npu {gone}")
    assert found.npus.tolist() == [0, 1, 2, 3]
    assert found.of.tolist() == list(range(60))
    assert gone not in (*found.topology.links.src, *found.topology.links.dst)  # nor does a message pass there
    assert found.took_fs == 0
    assert "no optical switch turns" in found.told
