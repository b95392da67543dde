"""The routes of a UB-Mesh: as many ways as there are, in equal parts, within a rack and beyond it."""

import itertools
from collections import Counter

import networkx as nx
import numpy as np
import pytest

from emu.collective.algorithm import algorithm
from emu.collective.schedule import Schedule, Sends
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import run_graph
from emu.topology.catalogue import build_topology
from emu.topology.paths.path_check import cycle
from tests.topologies.ub_mesh_cases import ROWS, asked


@pytest.mark.parametrize(
    ("line", "distinct"),
    [
        ("pod:dims=3x3x1x1,planes=1", 36 + 36 * 2),
        ("pod:dims=3x3x1x1,planes=1,route=detour", 36 * 2 + 36 * 4),
        ("pod:dims=4x2x1x1,planes=1,route=detour", None),
        ("superpod:dims=1x3x3x1x1,planes=1,route=borrow", 36 * 2 + 36 * 4 + 72 * 2),
        ("superpod:dims=2x3x2x1x2,planes=1,route=borrow", None),
        ("rack-full:dims=3x3,planes=1", 72),
        ("rack-full:dims=3x3,planes=1,route=multipath", 36 + 36 * 2),
        ("rack-full:dims=3x3,planes=1,route=detour", 36 * 2 + 36 * 4),
        ("pod:dims=2x2x2x3,planes=1,route=detour", None),
        ("dcn:dims=2x1x2x2x1x2,planes=1,route=detour", None),
        ("dcn:dims=2x2x1x3x2x1,planes=1,via=ub,route=borrow", None),
    ],
)
def test_routes_are_all_ways_that_share_no_link_and_cannot_deadlock(line, distinct):
    topology = build_topology(f"ub-mesh:{line}")
    src, _, routes = asked(topology, 160)
    assert distinct is None or len({(src[p], *routes.of(p).tolist()) for p in range(len(src))}) == distinct
    assert routes.virtual.max() < ROWS["ub-vl"]
    assert cycle(routes, routes.virtual) == []
    if "detour" in line or "borrow" in line:
        assert cycle(routes) != []


# What a pair gets: NPUs of a rack by `lanes`, racks by rate

RACKS = ["ub-mesh:rack", "ub-mesh:rack-full"]


def _on_one(topology, src, dst, channels):
    """The nodes of the ways between two nodes, and how many channels take each."""
    routes = topology.routes(*(np.full(channels, node) for node in (src, dst)), np.arange(channels))
    return Counter((src, *topology.links.dst[routes.of(p)].tolist()) for p in range(channels))


@pytest.mark.parametrize("rack", RACKS)
@pytest.mark.parametrize(
    ("routing", "dst", "ways"),
    [
        ("shortest", 9, {(0, 1, 9)}),
        ("shortest", 1, {(0, 1)}),
        ("multipath", 9, {(0, 1, 9), (0, 8, 9)}),
        ("multipath", 1, {(0, 1)}),
        ("detour", 1, {(0, 1), *((0, m, 1) for m in range(2, 8))}),
        ("detour", 8, {(0, 8), *((0, m, 8) for m in range(16, 64, 8))}),
        (
            "detour",
            9,
            {(0, 1, 9), (0, 8, 9), *((0, m, m + 8, 9) for m in range(2, 8)), *((0, m, m + 1, 9) for m in range(16, 64, 8))},
        ),
    ],
)
def test_a_pair_of_a_rack_has_the_direct_way_or_both_round_the_corner_and_detours_in_equal_parts(rack, routing, dst, ways):
    found = _on_one(build_topology(f"{rack}:route={routing}"), 0, dst, 14 * 20)
    assert found == dict.fromkeys(ways, 14 * 20 // len(ways))


def test_all_pairs_of_a_rack_have_detours_on_two_lanes_without_a_cycle():
    rack = build_topology("ub-mesh:rack:route=detour")
    _, _, routes = asked(rack, 14)
    assert routes.virtual.max() + 1 == ROWS["ub-vl"]
    assert cycle(routes, routes.virtual) == []
    assert cycle(routes) != []


@pytest.mark.parametrize(
    ("routing", "dst", "ways"), [("multipath", 9, 2), ("detour", 1, 7), ("detour", 8, 7), ("detour", 9, 14)]
)
def test_a_message_of_a_pair_alone_is_as_much_faster_as_the_pair_has_ways(routing, dst, ways):
    rack = build_topology(f"ub-mesh:rack:route={routing},latency=0s")
    one = Schedule.build(2, ways, [[Sends(0, 1, slot=np.arange(ways), channel=np.arange(ways))]])
    piece = lower(FabricJob(one, np.full(ways, 56_000_000), rack, np.array([0, dst])))
    assert run_graph(piece.graph).end_s == pytest.approx(1e-3, rel=1e-12)  # what one x4 needs for one of the parts


def test_no_pair_of_a_rack_could_have_more_ways():
    rack = build_topology("ub-mesh:rack")
    graph = nx.Graph(zip(rack.links.src.tolist(), rack.links.dst.tolist(), strict=True))
    assert nx.edge_connectivity(graph, 0, 9) == 14
    assert 1 + len(nx.common_neighbors(graph, 0, 1)) == 1 + len(nx.common_neighbors(graph, 0, 8)) == 7  # of one relay at most


@pytest.mark.parametrize("group", [0, 7])
def test_one_channel_of_a_rack_goes_x_then_y_on_one_lane_whatever_the_strategy(group):
    src, dst = np.array(list(itertools.permutations(range(64), 2))).T
    for line in ("rack", "rack:route=multipath", "rack:route=detour", "rack-full", "rack-full:route=detour"):
        topology = build_topology(f"ub-mesh:{line}")
        found = topology.routes(src, dst, np.full(len(src), group * 2**16))
        corner = found.start[:-1][found.hops == 2]
        assert np.array_equal(found.hops, 1 + (src // 8 != dst // 8) * (src % 8 != dst % 8))
        assert np.array_equal(topology.links.src[found.link[corner]] // 8, topology.links.dst[found.link[corner]] // 8)
        assert found.virtual is None or not found.virtual.any()


def test_at_once_on_two_channels_loads_links_as_the_multi_path_all_to_all_does():
    """The halves that it sends by X and by Y first (5.1, Figure 14(a))."""
    rack = build_topology("ub-mesh:rack:route=multipath")
    multipath = algorithm("all_to_all", "multipath").compact_schedule((8, 8)).expand()
    by_hand = rack.routes(multipath.src, multipath.dst, multipath.channel)
    src, dst = np.array(list(itertools.permutations(range(64), 2))).T
    halves = [rack.routes(src, dst, np.full(len(src), channel)) for channel in (0, 1)]
    loads = np.bincount(by_hand.link), sum(np.bincount(half.link) for half in halves)
    assert np.array_equal(*loads)
    assert set(loads[0]) == {16}
    first = [half.link[half.start[:-1]][half.hops == 2] for half in halves]
    assert [set(rack.links.dimension[links]) for links in first] == [{1}, {0}]


def _rack_or_hrs(topology, nodes):
    """The rack of each LRS, -1 for HRS, -2 for NPUs."""
    lrs, racks = topology.bill["LRS"], topology.bill["backup NPU"]
    past = np.asarray(nodes) - topology.n_npus
    found = np.where(past < 0, -2, past * racks // lrs)
    return np.where(past >= lrs + topology.bill["HRS"], -2, np.where(past >= lrs, -1, found)).tolist()


def _crossed(topology, src, dst, channels):
    """The racks and HRS of the ways between two racks, and how many channels take each."""
    found = Counter()
    for nodes, count in _on_one(topology, src, dst, channels).items():
        found[tuple(rack for rack, _ in itertools.groupby(_rack_or_hrs(topology, nodes[1:-1])))] += count
    return found


def _rates(topology):
    """Bytes per second from each rack to each other and to HRS, summed over the links between them."""
    links, found = topology.links, Counter()
    for *ends, rate in zip(*(_rack_or_hrs(topology, end) for end in (links.src, links.dst)), links.bandwidth_Bps, strict=True):
        found[tuple(ends)] += rate
    return found


@pytest.mark.parametrize("routing", ["shortest", "multipath", "detour", "borrow"])
@pytest.mark.parametrize(
    ("rack", "ways"),
    [
        (1, {"shortest": 1, "multipath": 1, "detour": 3, "borrow": 4}),
        (5, {"shortest": 2, "multipath": 2, "detour": 6, "borrow": 7}),
    ],
)
def test_ways_between_racks_share_no_link_and_each_has_its_part_by_its_bandwidth(routing, rack, ways):
    """V_i = V B_i / sum B, as the multi-ring collectives part a block (5.1)."""
    superpod = build_topology(f"ub-mesh:superpod:route={routing}")
    channels = 32 * 8 * 15
    found, rates = _crossed(superpod, 5, 64 * rack + 17, channels), _rates(superpod)
    assert len(found) == ways[routing]
    hops = [hop for way in found for hop in itertools.pairwise(way)]
    assert len(set(hops)) == len(hops)
    slowest = {way: min(rates[hop] for hop in itertools.pairwise(way)) for way in found}
    for way, count in found.items():
        assert count * sum(slowest.values()) == channels * slowest[way]


@pytest.mark.parametrize(("rack", "ways"), [(1, 5), (5, 8)])
def test_few_channels_between_two_racks_take_as_many_ways(rack, ways):
    superpod = build_topology("ub-mesh:superpod:route=borrow")
    for src in range(0, 64, 9):
        taken = _crossed(superpod, src, 64 * rack + src, ways)
        assert set(taken.values()) <= {1, 2}
        assert taken[0, -1, rack] == 2


@pytest.mark.parametrize("routing", ["shortest", "multipath", "detour", "borrow"])
def test_between_racks_of_a_pod_hrs_are_borrowed_only_where_asked(routing):
    topology = build_topology(f"ub-mesh:superpod:dims=2x2x2x2x2,route={routing}")
    src, dst, routes = asked(topology, 16)
    over = topology.links.dimension[routes.link] == 0
    pods = src // 16 == dst // 16
    crossed = np.bincount(np.repeat(np.arange(len(src)), routes.hops)[over], minlength=len(src))
    assert set(crossed[~pods]) == {2}
    assert set(crossed[pods]) == ({0, 2} if routing == "borrow" else {0})
    assert not crossed[src // 4 == dst // 4].any()


def test_two_npus_of_different_racks_use_all_32_lrs_that_lead_out_evenly():
    pod = build_topology("ub-mesh:pod")
    keys = np.arange(6400)
    routes = pod.routes(np.full(6400, 5), np.full(6400, 64 + 17), keys)
    assert set(routes.hops) == {5}
    exits, times = np.unique(pod.links.dst[routes.link.reshape(-1, 5)[:, 1]], return_counts=True)
    assert len(exits) == 32
    assert set(times) == {200}


def test_two_npus_of_different_pods_use_all_64_hrs_evenly():
    superpod = build_topology("ub-mesh:superpod:route=borrow")
    routes = superpod.routes(np.full(12800, 5), np.full(12800, 7000), np.arange(12800))
    switches, times = np.unique(superpod.links.dst[routes.link.reshape(-1, 6)[:, 2]], return_counts=True)
    assert len(switches) == 64
    assert set(times) == {200}


@pytest.mark.parametrize(
    ("line", "tiers"),
    [
        ("dims=2x2x2x1x4x4,planes=2", ["DCN, leaf", "LRS to HRS", "alpha", "Y", "X", "NPU to LRS", "LRS to CPU", "NIC"]),
        ("dims=3x1x2x2x2x4,planes=2,via=ub", ["DCN, leaf", "alpha", "Z", "Y", "X", "NPU to LRS", "LRS to DCN"]),
    ],
)
def test_what_all_send_to_all_is_even_on_all_cables_of_a_kind_below_and_in_the_dcn(line, tiers):
    dcn = build_topology(f"ub-mesh:dcn:{line}")
    src, dst = np.array(list(itertools.permutations(range(dcn.n_npus), 2))).T
    carried = np.bincount(dcn.routes(src, dst, np.zeros(len(src))).link, minlength=len(dcn.links))
    for tier in tiers:
        some = carried[dcn.links.dimension == _tier(dcn, tier)]
        assert some.min() == some.max() > 0


@pytest.mark.parametrize(("via", "hops", "slowest"), [("nic", 10, 25e9), ("ub", 8, 28e9)])
def test_what_64k_npus_send_to_their_like_in_the_next_superpod_is_even_on_the_dcn(via, hops, slowest):
    dcn = build_topology(f"ub-mesh:dcn:via={via}")
    src = np.arange(dcn.n_npus)
    routes = dcn.routes(src, (src + 8192) % dcn.n_npus, np.zeros(len(src)))
    assert set(routes.hops) == {hops}
    assert dcn.links.bandwidth_Bps[routes.link].min() == slowest
    carried = np.bincount(routes.link, minlength=len(dcn.links))
    for tier in ("DCN, leaf", "NIC" if via == "nic" else "LRS to DCN"):
        assert set(carried[dcn.links.dimension == _tier(dcn, tier)]) == {8}


def _tier(topology, word):
    return next(i for i, name in enumerate(topology.tiers) if name.startswith(word))


def test_two_npus_of_different_superpods_use_all_nics_and_spines_evenly():
    dcn = build_topology("ub-mesh:dcn")
    n = 8 * 128 * 5
    routes = dcn.routes(np.full(n, 5), np.full(n, 60000), np.arange(n))
    nodes = dcn.links.dst[routes.link.reshape(-1, 10)]
    for at, kinds in ((1, 8), (3, 8), (4, 128)):  # the LRS for CPUs, the leaf, the spine
        assert set(np.unique(nodes[:, at], return_counts=True)[1]) == {n // kinds}


def test_two_npus_of_different_racks_of_the_clos_use_all_1024_spines_evenly():
    clos = build_topology("ub-mesh:clos")
    n = 100 * 1024
    routes = clos.routes(np.full(n, 5), np.full(n, 7000), np.arange(n))
    spines, times = np.unique(clos.links.dst[routes.link.reshape(-1, 4)[:, 1]], return_counts=True)
    assert len(spines) == 1024
    assert set(times) == {100}


@pytest.mark.parametrize(
    ("line", "tiers", "most"),
    [
        ("ub-mesh:superpod:dims=2x2x2x8x8", 7, 0),
        ("ub-mesh:pod:dims=3x2x4x4,planes=2", 6, 0),
        ("ub-mesh:clos:dims=3x8x8", 2, 1),  # within a rack leaves carry too, and nobody sends to itself
    ],
)
def test_what_all_send_to_all_is_even_on_all_cables_of_a_kind(line, tiers, most):
    topology = build_topology(line)
    n = topology.n_npus
    src, dst = np.array(list(itertools.permutations(range(n), 2))).T
    carried = np.bincount(topology.routes(src, dst, np.zeros(len(src))).link, minlength=len(topology.links))
    for tier in range(tiers):
        some = carried[topology.links.dimension == tier]
        assert np.ptp(some[some > 0]) <= most


def test_a_leaf_of_the_clos_is_reached_from_another_rack_over_a_spine():
    clos = build_topology("ub-mesh:clos:dims=2x2x2")
    routes = clos.routes([0, 0, 8, 0], [8, 8 + 16, 7, 5], [0, 0, 0, 0])
    assert routes.hops.tolist() == [1, 3, 3, 4]
    assert routes.of(3).tolist() == clos.routes([0], [5], [0]).link.tolist()


def test_a_switch_and_a_backup_npu_are_reached_from_everywhere_and_no_route_goes_over_a_backup():
    topology = build_topology("ub-mesh:superpod:dims=2x1x2x2x2")
    pairs = np.array([(a, b) for a in range(topology.n_nodes) for b in (0, 15, 16, 20, 130, topology.n_nodes - 1) if a != b])
    routes = topology.routes(*pairs.T, np.zeros(len(pairs)))
    graph = nx.MultiDiGraph(zip(topology.links.src.tolist(), topology.links.dst.tolist(), strict=True))
    backups = set(range(topology.n_nodes - 4, topology.n_nodes))
    for hops, (a, b) in zip(routes.hops, pairs.tolist(), strict=True):
        assert hops == nx.shortest_path_length(nx.restricted_view(graph, backups - {a, b}, []), a, b)
    inner = np.setdiff1d(np.arange(len(routes.link)), routes.start[1:] - 1)
    assert topology.links.dst[routes.link[inner]].max() < topology.n_nodes - 4


# The source route
