import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology
from emu.topology.facts.facts import bisection
from tests.topologies import counted

FULL = "rail-only:dims=64x64,planes=18"
ROWS = {  # what is printed, and how it is counted: switches have 64 ports of 400 Gb/s, a chip 36
    "rx-t6-RO-sw": (2304, lambda grid: counted.switches(grid, 64)),
    "rx-t6-RO-aot": (294.9, lambda grid: round(counted.ports(grid) / 1000, 1)),
    "rx-t6-RO-gbw": (50, lambda grid: 100 * bisection(grid)[0] / (grid.n_npus / 2 * 36 * counted.PORT)),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_paper_is_what_is_built(row):
    printed, computed = ROWS[row]
    assert computed(build_topology(FULL)) == printed


def test_the_bill_is_what_the_links_take():
    grid = build_topology(FULL)
    assert grid.n_npus == 4096
    assert (grid.bill["switch"], grid.bill["optical transceiver"]) == (counted.switches(grid, 64), counted.ports(grid))


def test_chips_of_a_row_and_of_a_column_meet_at_one_switch():
    grid = build_topology("rail-only:dims=3x4")
    graph = nx.Graph(zip(grid.links.src.tolist(), grid.links.dst.tolist(), strict=True))
    row, column = 12 + 1, 12 + 3 + 2
    assert sorted(graph[row]) == [4, 5, 6, 7]
    assert sorted(graph[column]) == [2, 6, 10]


def test_a_message_off_row_and_column_is_relayed_at_either_corner():
    grid = build_topology("rail-only:dims=3x4")
    routes = grid.routes(np.zeros(64), np.full(64, 11), np.arange(64))
    relays = {int(grid.links.dst[routes.of(pair)][1]) for pair in range(64)}
    assert relays == {3, 8}


def test_rows_and_columns_have_rates_of_their_own():
    grid = build_topology("rail-only:dims=2x2,planes=2,row=450GB/s,column=25GB/s")
    assert set(grid.links.bandwidth_Bps[grid.links.dimension == 0].tolist()) == {900e9}
    assert set(grid.links.bandwidth_Bps[grid.links.dimension == 1].tolist()) == {50e9}
    assert "450 GB/s" in grid.assumptions[0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("dims=4x4x4", "dims must be two sizes, rows and columns, such as 64x64, got '4x4x4'"),
        ("dims=65x4", "dims must be at most 64 each, the ports of a switch, got '65x4'"),
    ],
)
def test_a_grid_that_switches_cannot_join_is_refused(line, message):
    with pytest.raises(InputError, match=message):
        build_topology(f"rail-only:{line}")
