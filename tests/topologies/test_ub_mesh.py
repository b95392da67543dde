"""UB-Mesh's wiring: what the paper counts, and that every port closes. Routing is in test_ub_mesh_routing.py."""

from functools import cache
from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from emu.topology.catalogue import TOPOLOGIES, build_topology

# Figures of the paper that follow from the wiring, by their ids in `emu repro ub-mesh`.
ROWS = {
    "ub-npu-rack": 64,
    "ub-pod": 1024,
    "ub-sp": 128,
    "ub-lrs-plane": 18,
    "ub-lrs-rack": 72,
    "ub-up": 16,
    "ub-lanes": 72,
    "ub-rack-links": 256,
    "ub-lrs-x72": 72,
    "ub-hrs98": 98,
    "ub-opt93": 93,
    "ub-hrs-ub": 64,
    "ub-hrs-clos": 3072,
    "ub-lrs-all": (9216, 2048),
    "ub-afr-sw": 0.0088,
    "ub-64k": 65536,
}
LANE = 14e9


@cache
def _built(line):
    return build_topology(line)


def _lanes(topology):
    """[nodes] lanes out of each node."""
    used = np.bincount(topology.links.src, weights=topology.links.bandwidth_Bps, minlength=topology.n_nodes) / LANE
    return used.astype(int)


def _tier(topology, word):
    return topology.links.dimension == next(i for i, name in enumerate(topology.tiers) if word in name)


def _racks(topology, nodes):
    """The rack of NPUs, LRS and backup NPUs; -1 for HRS."""
    racks, n = topology.bill["backup NPU"], topology.n_npus
    first_hrs = n + topology.bill["LRS"]
    found = np.where(nodes < n, nodes * racks // n, (nodes - n) * racks // topology.bill["LRS"])
    backup = nodes - (topology.n_nodes - racks)
    return np.where(nodes < first_hrs, found, np.where(backup >= 0, backup, -1))


def _rack_lanes(topology):
    """[racks + 1, racks + 1] lanes from rack to rack; the last stands for HRS."""
    links = topology.links
    a, b = _racks(topology, links.src), _racks(topology, links.dst)
    racks = topology.bill["backup NPU"]
    found = np.zeros((racks + 1, racks + 1))
    np.add.at(found, (a, b), links.bandwidth_Bps / LANE)
    np.fill_diagonal(found, 0)
    return found.astype(int)


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


def test_the_full_rack_is_the_rack_with_switches_and_a_backup_behind_it():
    rack, full = _built("ub-mesh:rack"), _built("ub-mesh:rack-full")
    between = (full.links.src < 64) & (full.links.dst < 64)
    assert not between[896:].any()
    assert {*zip(full.links.src[:896].tolist(), full.links.dst[:896].tolist(), strict=True)} == {
        *zip(rack.links.src.tolist(), rack.links.dst.tolist(), strict=True)
    }
    assert (full.bill["NPU"], full.bill["LRS"], full.bill["backup NPU"]) == (ROWS["ub-npu-rack"], ROWS["ub-lrs-rack"], 1)
    src, dst = np.array(list(combinations(range(64), 2))).T
    ways = [t.links.dst[t.routes(src, dst, src).link].tolist() for t in (rack, full)]
    assert ways[0] == ways[1]


def test_a_plane_is_three_groups_of_lrs_each_linked_to_all_of_the_others_at_x4():
    full = _built("ub-mesh:rack-full")
    graph = nx.Graph(zip(full.links.src.tolist(), full.links.dst.tolist(), strict=True))
    lrs = graph.subgraph(range(64, 64 + 72))
    planes = list(nx.connected_components(lrs))
    assert [len(plane) for plane in planes] == [ROWS["ub-lrs-plane"]] * 4
    assert all(nx.is_isomorphic(lrs.subgraph(plane), nx.complete_multipartite_graph(8, 8, 2)) for plane in planes)
    assert nx.complete_graph(18).degree(0) * 4 + 32 > 72  # all to all would not close


def test_each_npu_of_a_board_is_on_the_board_s_lrs_of_every_plane():
    full = _built("ub-mesh:rack-full")
    up = (full.links.src < 64) & (full.links.dst >= 64)
    lanes = np.bincount(full.links.src[up], weights=full.links.bandwidth_Bps[up] / LANE)
    assert set(lanes) == {ROWS["ub-up"]}
    assert np.array_equal((full.links.dst[up] - 64) % 18, full.links.src[up] // 8)


def test_lanes_close_on_every_npu_and_every_switch_of_the_superpod():
    superpod = _built("ub-mesh:superpod")
    lanes, n, racks = _lanes(superpod), 8192, 128
    lrs = lanes[n : n + 72 * racks].reshape(-1, 18)
    assert set(lanes[:n]) == {ROWS["ub-lanes"]}
    assert set(lrs[:, :16].ravel()) == {ROWS["ub-lrs-x72"]}
    assert set(lrs[:, 16:].ravel()) == {ROWS["ub-lrs-x72"] - 4}  # x4 of each is the CPUs'
    assert set(lanes[n + 72 * racks : -racks]) == {512}
    assert set(lanes[-racks:]) == {32}  # with as many for a CPU of x32, the x64 of 8 LRS at x8
    assert lrs[:, 16:].size // racks * 8 == 64


def test_the_superpod_has_the_counts_of_the_paper():
    superpod = _built("ub-mesh:superpod")
    assert superpod.dims == (8, 4, 4, 8, 8)
    assert superpod.n_npus // ROWS["ub-npu-rack"] == superpod.bill["backup NPU"] == ROWS["ub-sp"]
    assert (superpod.bill["LRS"], superpod.bill["HRS"]) == (ROWS["ub-lrs-all"][0], ROWS["ub-hrs-ub"])
    assert superpod.bill["link x4"] == 57344


@pytest.mark.parametrize(("via", "lanes_out"), [("nic", 4), ("ub", 2)])
def test_the_dcn_joins_64_pods_and_all_ports_close(via, lanes_out):
    dcn, superpod = _built(f"ub-mesh:dcn:via={via}"), _built("ub-mesh:superpod")
    n, racks, leaves, spines = 65536, 1024, 64, 128
    assert dcn.n_npus == ROWS["ub-64k"] == np.prod(dcn.dims[:2]) * _built("ub-mesh:pod").n_npus
    assert dcn.bill["backup NPU"] * _built("ub-mesh:rack").n_npus == ROWS["ub-64k"]
    assert (dcn.bill["HRS"], dcn.bill["DCN switch"]) == (8 * superpod.bill["HRS"], leaves + spines)
    lanes, ports = _lanes(dcn), np.bincount(dcn.links.src)
    assert set(lanes[:n]) == {ROWS["ub-lanes"]}
    assert set(lanes[n : n + 72 * racks].reshape(-1, 18)[:, 16:].ravel()) == {ROWS["ub-lrs-x72"] - 4 + lanes_out}
    assert set(lanes[n + 72 * racks :][: dcn.bill["HRS"]]) == {512}
    switch = dcn.n_nodes - racks - leaves - spines
    assert [set(ports[switch:][part]) for part in (slice(leaves), slice(leaves, leaves + spines))] == [{256}, {leaves}]
    assert via == "ub" or set(_cpu_lanes(dcn, switch - racks)) == {32}


def _cpu_lanes(dcn, first):
    """[racks] lanes from each CPU to LRS."""
    tier = _tier(dcn, "LRS to CPU")
    return np.bincount(dcn.links.src[tier], weights=dcn.links.bandwidth_Bps[tier] / LANE)[first:]


def test_nothing_but_the_dcn_joins_superpods():
    dcn = _built("ub-mesh:dcn:dims=3x2x2x1x2x2")
    graph = nx.Graph(zip(dcn.links.src.tolist(), dcn.links.dst.tolist(), strict=True))
    leaves, spines, racks = 3 * 8, 4, 12
    switch = dcn.n_nodes - racks - leaves - spines
    parts = list(nx.connected_components(nx.restricted_view(graph, range(switch + leaves, dcn.n_nodes - racks), [])))
    assert sorted(min(part) for part in parts) == [0, 16, 32]
    assert all(len([n for n in part if switch <= n < switch + leaves]) == 8 for part in parts)
    assert all(
        set(graph[spine]) == set(range(switch, switch + leaves)) for spine in range(switch + leaves, dcn.n_nodes - racks)
    )


def test_racks_of_a_row_and_a_column_have_x128_between_them_and_x256_to_hrs():
    pod = _rack_lanes(_built("ub-mesh:pod"))[:-1, :-1]
    oracle = nx.to_numpy_array(nx.cartesian_product(nx.complete_graph(4), nx.complete_graph(4)))
    assert np.array_equal(pod, 128 * oracle)
    assert np.count_nonzero(pod) // 2 == 48
    assert _built("ub-mesh:pod").n_npus == ROWS["ub-pod"]
    superpod = _rack_lanes(_built("ub-mesh:superpod"))
    assert set(superpod[:-1, -1]) == {ROWS["ub-rack-links"]}
    assert set(superpod[:-1].sum(axis=1)) == {4 * 256}
    assert np.array_equal(superpod[:-1, :-1], np.kron(np.eye(8, dtype=int), pod))


def test_every_rack_has_one_x4_to_every_hrs():
    superpod = _built("ub-mesh:superpod")
    rows = _tier(superpod, "HRS") & (superpod.links.src < superpod.links.dst)
    ends = {*zip(_racks(superpod, superpod.links.src[rows]).tolist(), superpod.links.dst[rows].tolist(), strict=True)}
    assert len(ends) == rows.sum() == 128 * 64


@pytest.mark.parametrize("lanes", [4, 8, 16, 32])
def test_lanes_out_of_the_rack_are_four_a_plane(lanes):
    pod = _built(f"ub-mesh:pod:planes={lanes // 4},lanes=2")
    out = _rack_lanes(pod)
    assert set(_lanes(pod)[: pod.n_npus]) == {28 + lanes}
    assert set(out[out > 0]) == {8 * lanes}
    superpod = _built(f"ub-mesh:superpod:planes={lanes // 4},lanes=2")
    assert set(_rack_lanes(superpod)[:-1].sum(axis=1)) == {64 * lanes}
    assert superpod.bill["HRS"] == 4 * lanes
    used = _lanes(superpod)
    assert used[superpod.n_npus : superpod.n_npus + superpod.bill["LRS"]].max() == 72


def test_racks_on_hrs_alone_have_all_their_lanes_there():
    clos = _built("ub-mesh:superpod-clos")
    out = _rack_lanes(clos)
    assert not out[:-1, :-1].any()
    assert set(out[:-1, -1]) == {1024}
    assert clos.bill["HRS"] == 256 == 4 * ROWS["ub-hrs-ub"]
    assert set(_lanes(clos)[-128 - 256 : -128]) == {512}


def test_the_clos_has_two_tiers_of_hrs_that_are_full():
    clos = _built("ub-mesh:clos")
    assert (clos.bill["HRS"], clos.bill["LRS"]) == (ROWS["ub-hrs-clos"], ROWS["ub-lrs-all"][1])
    lanes = _lanes(clos)
    assert set(lanes[8192 : 8192 + 3072]) == {512}
    assert set(lanes[:8192]) == {64 + 8}
    assert set(lanes[8192 + 3072 :]) == {32}


def test_a_superpod_saves_the_switches_and_the_optics_that_the_paper_says():
    ub, clos = _built("ub-mesh:superpod"), _built("ub-mesh:clos")
    assert round(100 * (1 - ub.bill["HRS"] / clos.bill["HRS"])) == ROWS["ub-hrs98"]
    optical = [t.links.bandwidth_Bps[_tier(t, word)].sum() for t, word in ((ub, "HRS"), (clos, "spine"))]
    assert int(100 * (1 - optical[0] / optical[1])) == ROWS["ub-opt93"]  # 93.75, printed without its decimals


def test_one_failure_rate_of_a_switch_explains_all_four_of_table_6():
    (ub_lrs, ub_hrs), (clos_lrs, clos_hrs) = (_switches(_built(line)) for line in ("ub-mesh:superpod", "ub-mesh:clos"))
    rates = [81 / ub_lrs, 0.56 / ub_hrs, 18 / clos_lrs, 27 / clos_hrs]
    assert {round(rate, 4) for rate in rates} == {ROWS["ub-afr-sw"]}


def _switches(topology):
    """How many LRS and HRS there are: those that the links to and between LRS end at, and all others that are no backup."""
    ends = {name: np.unique(topology.links.dst[topology.links.dimension == i]) for i, name in enumerate(topology.tiers)}
    lrs, backup = set(), set()
    for name, nodes in ends.items():
        lrs |= set(nodes[nodes >= topology.n_npus]) if name.startswith(("NPU to LRS", "LRS to LRS")) else set()
    for name, nodes in ends.items():
        backup |= set(nodes) - lrs if "backup" in name else set()
    return len(lrs), topology.n_nodes - topology.n_npus - len(lrs) - len(backup)


FIGURE_16 = [
    ("rack-1d-fm-a", 60, (32, 32), (4, 256)),
    ("rack-1d-fm-b", 68, (16, 32), (8, 256)),
    ("rack-clos", 72, (16, 32), (16, 256)),
]


@pytest.mark.parametrize(("variant", "npu", "lrs", "hrs"), FIGURE_16)
def test_the_racks_it_is_held_against_have_the_switches_of_figure_16(variant, npu, lrs, hrs):
    rack = _built(f"ub-mesh:{variant}")
    assert (rack.bill["LRS"], rack.bill["HRS"]) == (lrs[0], hrs[0])
    lanes = _lanes(rack)
    assert set(lanes[:64]) == {npu}
    assert sorted(lanes[64:]) == sorted([lrs[1]] * lrs[0] + [hrs[1]] * hrs[0])


def test_npus_out_of_the_rack_have_x16_by_1d_fm_a_x32_by_b_and_x64_by_the_clos():
    for variant, lanes in (("rack-1d-fm-a", 16), ("rack-1d-fm-b", 32), ("rack-clos", 64)):
        rack = _built(f"ub-mesh:{variant}")
        assert rack.links.bandwidth_Bps[_tier(rack, "HRS") & (rack.links.src < 64)].sum() / LANE == 64 * lanes


def test_racks_of_the_clos_in_pods_have_x64_of_an_npu_in_and_out_and_no_link_between_npus():
    pods = _built("ub-mesh:superpod-rack-clos:dims=2x4x4x8x8")
    assert set(_lanes(pods)[: pods.n_npus]) == {64}
    of_hrs = slice(pods.n_npus, pods.n_npus + 32)  # one stands for those of a rack
    assert set(_lanes(pods)[of_hrs]) == {2 * 64 * 64}
    src, dst = np.array([0, 0, 0]), np.array([1, 8, 64])
    assert pods.routes(src, dst, np.zeros(3, np.int64)).hops.tolist() == [2, 2, 3]


def test_1d_fm_a_goes_over_lrs_and_not_over_the_switches_that_lead_out():
    rack = _built("ub-mesh:rack-1d-fm-a")
    src, dst = np.array(list(combinations(range(64), 2))).T
    routes = rack.routes(src, dst, src)
    assert not _tier(rack, "HRS")[routes.link].any()
    same_board, same_place = src // 8 == dst // 8, src % 8 == dst % 8
    assert np.array_equal(routes.hops, np.where(same_board, 1, np.where(same_place, 2, 3)))


@pytest.mark.parametrize("variant", ["rack-1d-fm-b", "rack-clos", "clos:dims=3x2x2"])
def test_switches_for_cpus_carry_no_message_between_npus(variant):
    topology = _built(f"ub-mesh:{variant}")
    src, dst = np.array(list(combinations(range(topology.n_npus), 2))).T
    for key in range(4):
        assert not _tier(topology, "LRS")[topology.routes(src, dst, np.full(len(src), key)).link].any()


def test_pods_are_cut_where_the_halves_are_worst_joined():
    """Against networkx's least cut between halves of the pods, of rows and of columns."""
    topology = _built("ub-mesh:superpod:dims=2x2x2x2x2")
    graph = nx.DiGraph()
    for a, b, rate in zip(topology.links.src, topology.links.dst, topology.links.bandwidth_Bps, strict=True):
        graph.add_edge(int(a), int(b), capacity=rate)
    half = []
    for digit in np.unravel_index(np.arange(32), topology.dims):
        joined = graph.copy()
        joined.add_edges_from((("s" if low else npu, npu if low else "t") for npu, low in enumerate(digit == 0)))
        half.append(nx.minimum_cut_value(joined, "s", "t"))
    invariants = TOPOLOGIES.find("ub-mesh:superpod").invariants(dims=(2, 2, 2, 2, 2))
    assert invariants.bisection_Bps == min(half)


@pytest.mark.parametrize("line", ["ub-mesh:rack-full:dims=4x4", "ub-mesh:pod:dims=2x2x2x2", "ub-mesh:superpod:dims=2x1x2x2x2"])
def test_a_drawing_has_boards_as_rows_and_all_racks_alike(line):
    topology = _built(line)
    drawn, (y, x) = topology.draw(), topology.dims[-2:]
    racks = drawn.at[: topology.n_npus].reshape(-1, y, x, 2)
    assert np.ptp(racks[..., 1], axis=2).max() == 0
    assert np.allclose(racks - racks[:, :1, :1], (racks - racks[:, :1, :1])[0])
    assert {b.label.split()[0] for b in drawn.boxes} >= ({"rack", "plane", "board"} if len(topology.dims) == 2 else {"rack"})
