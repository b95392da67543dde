"""UB-Mesh's all-path routing, its source routes, its backup NPU and how a failure is told."""

import itertools
from collections import Counter
from functools import cache

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.arrays import column
from emu.collective.algorithm import algorithm
from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError
from emu.fabric.lower import lower
from emu.fabric.run import run
from emu.topology.catalogue import build_topology
from emu.topology.path.deadlock import cycle
from emu.topology.topology import Routes
from topologies.ub_mesh.backup import redirected
from topologies.ub_mesh.routes import apr
from topologies.ub_mesh.routes.recovery import recovery, users
from topologies.ub_mesh.routes.source_route import forward, pack

ROWS = {"ub-sr": 8, "ub-vl": 2}
MESHES = [(3, 3), (4, 4), (3, 3, 3), (2, 2, 2, 2)]


@cache
def _paths(dims, detours=1):
    nodes = list(np.ndindex(*dims))
    return {(a, b): apr.paths(dims, a, b, detours) for a, b in itertools.permutations(nodes, 2)}


def _all(dims, detours=1):
    return list(itertools.chain.from_iterable(_paths(dims, detours).values()))


def _routes(paths):
    """Paths of a mesh as routes, a link for each ordered pair of nodes, and the virtual lane of each hop."""
    number = {}
    hops = [[number.setdefault(hop, len(number)) for hop in itertools.pairwise(path)] for path in paths]
    start = np.cumsum([0, *map(len, hops)])
    routes = Routes(column(start, np.int64), column(list(itertools.chain(*hops)), np.int32))
    return routes, np.array(list(itertools.chain(*map(apr.lanes, paths))))


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_two_nodes_of_a_full_mesh_have_a_direct_path_and_a_detour_over_each_other_node(n):
    assert len(apr.paths((n,), (0,), (n - 1,), 0)) == 1
    found = apr.paths((n,), (0,), (n - 1,), 1)
    assert [len(path) - 1 for path in found] == [1] + [2] * (n - 2)


@pytest.mark.parametrize("dims", MESHES[:3])
@pytest.mark.parametrize("detours", [0, 1, 2])
def test_paths_are_the_simple_paths_that_networkx_finds(dims, detours):
    mesh = nx.complete_graph(dims[0])
    for size in dims[1:]:
        mesh = nx.cartesian_product(mesh, nx.complete_graph(size))
    flat = {node: tuple(np.ravel(_digits(node))) for node in mesh}
    mesh = nx.relabel_nodes(mesh, flat)
    src = (0,) * len(dims)
    for dst in [tuple(size - 1 for size in dims), (*src[:-1], 1)]:
        limit = nx.shortest_path_length(mesh, src, dst) + detours
        found = apr.paths(dims, src, dst, detours)
        assert sorted(found) == sorted(map(tuple, nx.all_simple_paths(mesh, src, dst, limit)))
        assert [len(path) for path in found] == sorted(len(path) for path in found)


def _digits(node):
    """Digits of a node of a product of products."""
    return [digit for part in node for digit in _digits(part)] if isinstance(node, tuple) else [node]


@pytest.mark.parametrize(
    ("dims", "usable", "of", "one_lane"),
    [((3, 3), 336, 360, 144), ((4, 4), 2112, 2304, 752), ((3, 3, 3), 8100, 11988, 1674), ((2, 2, 2, 2), 768, 1024, 240)],
)
def test_two_virtual_lanes_serve_every_pair_with_most_paths_and_cannot_deadlock(dims, usable, of, one_lane):
    paths = _all(dims)
    kept = apr.usable(paths)
    assert (len(kept), len(paths), len(apr.usable(paths, 1))) == (usable, of, one_lane)
    routes, lanes = _routes(kept)
    assert lanes.max() + 1 == ROWS["ub-vl"] == apr.LANES
    assert cycle(routes, lanes) == []
    assert cycle(routes) != []
    assert all(apr.usable(between) for between in _paths(dims).values())


@pytest.mark.parametrize(
    ("path", "lanes"),
    [
        ([(0, 0), (0, 2), (1, 2)], [0, 0]),
        ([(0, 0), (1, 0), (1, 2)], [0, 1]),
        ([(0,), (2,), (1,)], [0, 0]),
        ([(1,), (0,), (2,)], [0, 1]),
        ([(0, 1), (0, 0), (1, 0), (1, 2)], [0, 0, 1]),
    ],
)
def test_a_path_takes_the_next_lane_where_it_breaks_the_order_of_dimensions_or_goes_up_again(path, lanes):
    assert apr.lanes(path).tolist() == lanes


@given(st.sampled_from([(3, 3), (4, 4), (2, 2, 2, 2)]), st.randoms(use_true_random=False))
def test_any_paths_on_as_many_lanes_as_they_ask_for_cannot_deadlock(dims, random):
    paths = random.sample(_all(dims), 60)
    assert cycle(*_routes(paths)) == []


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (((3, 3), (0, 0), (0, 3), 1), "ub-mesh paths: a node must be digits below 3x3, got (0, 3)"),
        (((3, 3), (0,), (0, 1), 1), "ub-mesh paths: a node must be digits below 3x3, got (0,)"),
        (((3, 3), (0, 0), (0, 1), -1), "ub-mesh paths: detours must be 0 or more, got -1"),
    ],
)
def test_paths_that_cannot_be_are_refused(ask, message):
    with pytest.raises(InputError) as refused:
        apr.paths(*ask)
    assert str(refused.value) == message


def _asked(topology, keys):
    pairs = np.array(list(itertools.permutations(range(topology.n_npus), 2)))
    src, dst = np.repeat(pairs, keys, axis=0).T
    key = np.tile(np.arange(keys), len(pairs))
    return src, dst, topology.routes(src, dst, key)


@pytest.mark.parametrize(
    ("line", "distinct"),
    [
        ("pod:dims=3x3x1x1,planes=1", 36 + 36 * 2),
        ("pod:dims=3x3x1x1,planes=1,routing=detour", 36 * 2 + 36 * 4),
        ("pod:dims=4x2x1x1,planes=1,routing=detour", None),
        ("superpod:dims=1x3x3x1x1,planes=1,routing=borrow", 36 * 2 + 36 * 4 + 72 * 2),
        ("superpod:dims=2x3x2x1x2,planes=1,routing=borrow", None),
        ("rack-full:dims=3x3,planes=1", 72),
        ("rack-full:dims=3x3,planes=1,routing=multipath", 36 + 36 * 2),
        ("rack-full:dims=3x3,planes=1,routing=detour", 36 * 2 + 36 * 4),
        ("pod:dims=2x2x2x3,planes=1,routing=detour", None),
        ("dcn:dims=2x1x2x2x1x2,planes=1,routing=detour", None),
        ("dcn:dims=2x2x1x3x2x1,planes=1,via=ub,routing=borrow", None),
    ],
)
def test_routes_are_all_ways_that_share_no_link_and_cannot_deadlock(line, distinct):
    topology = build_topology(f"ub-mesh:{line}")
    src, _, routes = _asked(topology, 160)
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
    found = _on_one(build_topology(f"{rack}:routing={routing}"), 0, dst, 14 * 20)
    assert found == dict.fromkeys(ways, 14 * 20 // len(ways))


def test_all_pairs_of_a_rack_have_detours_on_two_lanes_without_a_cycle():
    rack = build_topology("ub-mesh:rack:routing=detour")
    _, _, routes = _asked(rack, 14)
    assert routes.virtual.max() + 1 == ROWS["ub-vl"]
    assert cycle(routes, routes.virtual) == []
    assert cycle(routes) != []


@pytest.mark.parametrize(
    ("routing", "dst", "ways"), [("multipath", 9, 2), ("detour", 1, 7), ("detour", 8, 7), ("detour", 9, 14)]
)
def test_a_message_of_a_pair_alone_is_as_much_faster_as_the_pair_has_ways(routing, dst, ways):
    rack = build_topology(f"ub-mesh:rack:routing={routing},latency=0s")
    one = Schedule.build(2, ways, [[Sends(0, 1, slot=np.arange(ways), channel=np.arange(ways))]])
    piece = lower(one, np.full(ways, 56_000_000), rack, np.array([0, dst]))
    assert run(piece.graph).end_s == pytest.approx(1e-3, rel=1e-12)  # what one x4 needs for one of the parts


def test_no_pair_of_a_rack_could_have_more_ways():
    rack = build_topology("ub-mesh:rack")
    graph = nx.Graph(zip(rack.links.src.tolist(), rack.links.dst.tolist(), strict=True))
    assert nx.edge_connectivity(graph, 0, 9) == 14
    assert 1 + len(nx.common_neighbors(graph, 0, 1)) == 1 + len(nx.common_neighbors(graph, 0, 8)) == 7  # of one relay at most


@pytest.mark.parametrize("group", [0, 7])
def test_one_channel_of_a_rack_goes_x_then_y_on_one_lane_whatever_the_strategy(group):
    src, dst = np.array(list(itertools.permutations(range(64), 2))).T
    for line in ("rack", "rack:routing=multipath", "rack:routing=detour", "rack-full", "rack-full:routing=detour"):
        topology = build_topology(f"ub-mesh:{line}")
        found = topology.routes(src, dst, np.full(len(src), group * 2**16))
        corner = found.start[:-1][found.hops == 2]
        assert np.array_equal(found.hops, 1 + (src // 8 != dst // 8) * (src % 8 != dst % 8))
        assert np.array_equal(topology.links.src[found.link[corner]] // 8, topology.links.dst[found.link[corner]] // 8)
        assert found.virtual is None or not found.virtual.any()


def test_at_once_on_two_channels_loads_links_as_the_multi_path_all_to_all_does():
    """The halves that it sends by X and by Y first (5.1, Figure 14(a))."""
    rack = build_topology("ub-mesh:rack:routing=multipath")
    multipath = algorithm("all_to_all", "multipath").stored((8, 8)).expand()
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
    superpod = build_topology(f"ub-mesh:superpod:routing={routing}")
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
    superpod = build_topology("ub-mesh:superpod:routing=borrow")
    for src in range(0, 64, 9):
        taken = _crossed(superpod, src, 64 * rack + src, ways)
        assert set(taken.values()) <= {1, 2}
        assert taken[0, -1, rack] == 2


@pytest.mark.parametrize("routing", ["shortest", "multipath", "detour", "borrow"])
def test_between_racks_of_a_pod_hrs_are_borrowed_only_where_asked(routing):
    topology = build_topology(f"ub-mesh:superpod:dims=2x2x2x2x2,routing={routing}")
    src, dst, routes = _asked(topology, 16)
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
    superpod = build_topology("ub-mesh:superpod:routing=borrow")
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


def _walk(header, hops):
    found = []
    for _ in range(hops):
        instruction, header = forward(header)
        found.append(instruction)
    return found


def test_a_header_of_8_bytes_has_a_ptr_a_bitmap_and_six_instructions():
    header = pack([7, None, 255])
    assert len(header) == ROWS["ub-sr"]
    assert header == bytes([0b0000_1010, 0b0000_0000, 7, 255, 0, 0, 0, 0])
    assert forward(header)[1][0] == 0b0001_1010


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 255)), max_size=12).filter(lambda hops: sum(h is not None for h in hops) <= 6)
)
def test_routers_read_what_was_packed_hop_by_hop(hops):
    assert _walk(pack(hops), len(hops)) == hops
    assert _walk(pack(hops), 12) == hops + [None] * (12 - len(hops))


@pytest.mark.parametrize(
    ("line", "most"),
    [("rack:routing=detour", 3), ("superpod:dims=2x3x3x2x2,routing=borrow", 7), ("superpod:dims=2x3x3x2x2", 6)],
)
def test_a_header_leads_a_packet_along_every_way_of_six_source_routed_hops(line, most):
    """Instructions are ports: which of the links out of a node. The last hop, of more than six, is the router's own."""
    topology = build_topology(f"ub-mesh:{line}")
    src, dst, routes = _asked(topology, 14)
    out = np.argsort(topology.links.src, kind="stable")
    first = np.searchsorted(topology.links.src[out], np.arange(topology.n_nodes))
    port = np.empty(len(out), np.int64)
    port[out] = np.arange(len(out)) - first[topology.links.src[out]]
    assert routes.hops.max() == most
    for pair in range(0, len(src), 97):
        links = routes.of(pair).tolist()
        header, at = pack([*port[links[:6]].tolist(), *[None] * (len(links) - 6)]), int(src[pair])
        for link in links:
            instruction, header = forward(header)
            at = int(topology.links.dst[link if instruction is None else out[first[at] + instruction]])
        assert at == dst[pair]


@pytest.mark.parametrize(
    ("hops", "message"),
    [
        ([None] * 13, "source route: hops must be at most 12, got 13; let routers' tables lead from a later node on"),
        ([1] * 7, "source route: source-routed hops must be at most 6, got 7; leave some hops to the routers' tables"),
        ([1, 256], "source route: instructions must be 0..255, got [1, 256]"),
    ],
)
def test_paths_that_no_header_holds_are_refused(hops, message):
    with pytest.raises(InputError) as refused:
        pack(hops)
    assert str(refused.value) == message


def test_a_packet_has_gone_twelve_hops_at_most():
    header = pack([])
    for _ in range(12):
        _, header = forward(header)
    with pytest.raises(InputError, match="source route: ptr must be below 12, got 12"):
        forward(header)


# 64+1


def test_the_backup_npu_stands_in_for_one_failed_npu_of_its_rack():
    pod = build_topology("ub-mesh:pod:dims=2x2x2x4")
    first_backup = pod.n_nodes - 4
    placed = pod.place(32, [3, 17])
    expected = np.arange(32)
    expected[[3, 17]] = first_backup, first_backup + 2
    assert np.array_equal(placed, expected)
    assert np.array_equal(pod.place(32), np.arange(32))


def test_of_two_failed_npus_of_a_rack_one_is_replaced():
    pod = build_topology("ub-mesh:pod:dims=2x2x2x4")
    placed = pod.place(31, [3, 5])
    assert np.array_equal(placed, [0, 1, 2, pod.n_nodes - 4, 4, *range(6, 32)])
    with pytest.raises(InputError) as refused:
        pod.place(32, [3, 5])
    expected = "ub-mesh:pod:dims=2x2x2x4: ranks must be at most 31 where 2 of 32 NPUs are faulty, got 32; "
    assert str(refused.value) == expected + "take fewer ranks or a larger topology"


@pytest.mark.parametrize("failed", [0, 9, 63])
def test_every_neighbour_of_a_failed_npu_meets_the_backup_over_three_links_of_one_back_plane_and_in_900_ns(failed):
    rack = build_topology("ub-mesh:rack-full")
    near, ways = redirected(rack, failed)
    backup = int(rack.place(64, [failed])[failed])
    assert sorted(near) == sorted(rack.links.dst[(rack.links.src == failed) & (rack.links.dst < 64)])
    for at, npu in enumerate(near.tolist()):
        *lrs, last = rack.links.dst[ways.of(at)].tolist()
        assert last == backup
        assert len(lrs) == 2
        assert len({(switch - 64) // 18 for switch in lrs}) == 1
        assert [_latency_fs(rack, npu, to) for to in (failed, backup)] == [300_000_000, 900_000_000]


def _latency_fs(topology, src, dst):
    """Of a message that an x4 needs a nanosecond for, without this nanosecond."""
    one = Schedule.build(2, 1, [[Sends(0, 1, slot=0)]])
    piece = lower(one, np.array([56]), topology, np.array([src, dst]))
    return int(run(piece.graph).end_fs.max()) - 1_000_000


def test_any_npu_of_a_full_rack_can_fail_and_64_are_joined():
    rack = build_topology("ub-mesh:rack-full")
    graph = nx.Graph(zip(rack.links.src.tolist(), rack.links.dst.tolist(), strict=True))
    for failed in range(64):
        placed = rack.place(64, [failed]).tolist()
        assert failed not in placed
        assert len(set(placed)) == 64
        left = nx.restricted_view(graph, [failed], [])
        assert nx.is_connected(left)


# Direct notification


def _installed(topology, seed=0, chosen=300):
    pairs = np.random.default_rng(seed).choice(topology.n_npus, (chosen, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return pairs[:, 0], topology.routes(*pairs.T, np.arange(len(pairs)))


def test_the_index_of_users_is_that_of_the_installed_paths():
    pod = build_topology("ub-mesh:pod:dims=2x2x2x2")
    src, routes = _installed(pod)
    index = users(pod, src, routes)
    assert len(index) == len(pod.links)
    for link, nodes in enumerate(index):
        assert set(nodes) == {int(src[p]) for p in range(len(src)) if link in routes.of(p)}


@pytest.mark.parametrize("line", ["ub-mesh:pod:dims=2x2x2x2", "ub-mesh:rack-full:dims=4x4", "ub-mesh:rack"])
def test_all_who_must_hear_do_by_either_way_and_directly_no_later(line):
    topology = build_topology(line)
    src, routes = _installed(topology)
    act, latency = 5_000_000_000, 300_000_000
    graph = nx.Graph(zip(topology.links.src.tolist(), topology.links.dst.tolist(), strict=True))
    later = 0
    for failed in np.unique(routes.link)[::7].tolist():
        told = recovery(topology, src, routes, failed, act)
        ends = {int(topology.links.src[failed]), int(topology.links.dst[failed])}
        crossing = {int(src[p]) for p in range(len(src)) for n in [routes.of(p)] if ends in _hops(topology, n)}
        assert set(told.nodes) == crossing
        left = nx.restricted_view(graph, [], [tuple(ends)])
        depth = nx.multi_source_dijkstra_path_length(left, ends)
        assert told.flooded_fs.tolist() == [depth[n] * (latency + act) + act for n in told.nodes.tolist()]
        assert (told.direct_fs <= told.flooded_fs).all()
        later += (told.direct_fs < told.flooded_fs).any()
        hops = (told.direct_fs - act) / latency
        assert (hops >= [depth[n] for n in told.nodes.tolist()]).all()
        assert (hops == hops.astype(int)).all()
    assert later


def _hops(topology, links):
    return [{int(topology.links.src[i]), int(topology.links.dst[i])} for i in links]


def test_a_link_that_is_not_there_cannot_fail():
    rack = build_topology("ub-mesh:rack")
    src, routes = _installed(rack)
    with pytest.raises(InputError) as refused:
        recovery(rack, src, routes, 896, 0)
    assert str(refused.value) == "ub-mesh:rack: a failed link must be one of 0..895, got 896"
