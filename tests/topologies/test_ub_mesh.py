from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from emu.topology.catalogue import build_topology


def test_a_rack_is_eight_boards_of_eight_meshed_both_ways():
    rack = build_topology("ub-mesh:rack")
    oracle = nx.cartesian_product(nx.complete_graph(8), nx.complete_graph(8))  # (board, place on it)
    expected = {(8 * a[0] + a[1], 8 * b[0] + b[1]) for a, b in oracle.to_directed().edges}
    found = list(zip(rack.links.src.tolist(), rack.links.dst.tolist(), strict=True))
    assert len(found) == 896 == 2 * rack.bill["link x4"]
    assert set(found) == expected


def test_x_and_y_have_224_links_each():
    rack = build_topology("ub-mesh:rack")
    assert (np.bincount(rack.links.dimension) // 2).tolist() == [224, 224]
    x = rack.links.dimension == 1
    assert np.array_equal(rack.links.src[x] // 8, rack.links.dst[x] // 8)


def test_a_board_has_28_links():
    board = build_topology("ub-mesh:board")
    assert (board.n_npus, board.bill["link x4"], len(board.links)) == (8, 28, 56)
    assert board.dims == (8,)


def test_lanes_close_on_the_72_of_an_npu():
    rack = build_topology("ub-mesh:rack")
    out = np.bincount(rack.links.src)
    assert set((4 * out + 16).tolist()) == {72}


def test_pairs_off_row_and_column_go_x_then_y():
    rack = build_topology("ub-mesh:rack")
    src, dst = np.array([3, 3, 3]), np.array([5, 43, 45])
    routes = rack.routes(src, dst, np.zeros(3))
    paths = [rack.links.dst[routes.of(p)].tolist() for p in range(3)]
    assert paths == [[5], [43], [5, 45]]


@pytest.mark.parametrize(
    ("line", "bandwidth_Bps", "latency_fs"),
    [
        ("ub-mesh:rack", 56e9, 300_000_000),
        ("ub-mesh:board", 56e9, 300_000_000),
        ("ub-mesh:rack:lane_rate=50Gb/s", 25e9, 300_000_000),
        ("ub-mesh:board:latency=10ns", 56e9, 10_000_000),
    ],
)
def test_rates_are_the_stated_ones_unless_they_are_given(line, bandwidth_Bps, latency_fs):
    topology = build_topology(line)
    assert set(topology.links.bandwidth_Bps.tolist()) == {bandwidth_Bps}
    assert set(topology.links.latency_fs.tolist()) == {latency_fs}


def test_what_the_paper_does_not_say_is_said():
    rates, latency, *_ = build_topology("ub-mesh:rack:lane_rate=50Gb/s").assumptions
    assert "50 Gb/s" in rates
    assert "25 GB/s" in rates
    assert "300 ns" in latency


def test_any_npu_can_fail_and_the_others_still_meet():
    rack = build_topology("ub-mesh:rack")
    graph = nx.Graph(zip(rack.links.src.tolist(), rack.links.dst.tolist(), strict=True))
    for npu in range(64):
        assert nx.is_connected(nx.restricted_view(graph, [npu], []))
    assert all(nx.node_connectivity(graph, a, b) >= 13 for a, b in combinations((0, 9, 63), 2))
