import itertools
from collections import Counter
from fractions import Fraction
from functools import cache

import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology
from emu.topology.facts import bisection
from emu.topology.faults import without
from topologies.hpn import paths

POD = "hpn:pod:dims=3x4x2,aggs=3"
PAPER = "hpn:pod:backup=8"
PORT = 25e9


@pytest.fixture(scope="module")
def pod():
    """The paper's, with its backup hosts."""
    return build_topology(PAPER)


def _count(topology):
    """First switch of NVLink, ToR, Agg, Core, and the end."""
    counts = [topology.bill.get(f"{kind} switch", 0) for kind in ("ToR", "Agg", "Core")]
    ends = np.cumsum([topology.n_npus, topology.bill["host"], *counts])
    assert ends[-1] == topology.n_nodes
    return ends.tolist()


def _range(topology, kind):
    first = _count(topology)
    place = ("host", "ToR", "Agg", "Core").index(kind)
    return np.arange(first[place], first[place + 1])


def _out(topology, node, to):
    """Bandwidth and cables from a node to each kind of node above or below it."""
    chosen = (topology.links.src == node) & np.isin(topology.links.dst, to)
    return topology.links.bandwidth_Bps[chosen].sum(), int(chosen.sum())


def _nodes(topology, src, dst, key=0):
    routes = topology.routes(np.array([src]), np.array([dst]), np.array([key]))
    return [src, *topology.links.dst[routes.of(0)].tolist()]


def _over(topology, nodes):
    return [node for node in nodes[1:-1] if node >= _count(topology)[1]]


def _graph(topology):
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(range(topology.n_nodes))
    graph.add_edges_from(zip(topology.links.src.tolist(), topology.links.dst.tolist(), strict=True))
    return graph


# What the paper counts


def test_the_small_pod_has_the_counts_that_follow_from_its_wiring():
    small = build_topology("hpn:pod:dims=2x2x2,aggs=2")
    assert (small.n_npus, small.bill["ToR switch"], small.bill["Agg switch"]) == (8, 8, 4)
    assert (small.bill["cable NIC to ToR"], small.bill["cable ToR to Agg"]) == (16, 16)


def test_switches_of_the_paper_use_the_ports_that_they_have(pod):
    tor, agg = _range(pod, "ToR"), _range(pod, "Agg")
    npus = np.arange(pod.n_npus)
    for switch in (tor[0], tor[-1]):
        assert _out(pod, switch, npus) == (136 * PORT, 136)
        assert _out(pod, switch, agg) == (60 * 2 * PORT, 60)
    for switch in (agg[0], agg[-1]):
        assert _out(pod, switch, tor)[1] == 120


def test_a_nic_has_its_two_ports_on_different_tors_of_one_rail():
    topology = build_topology(POD)
    tor, graph = _range(topology, "ToR"), _graph(topology)
    pairs = {}
    for npu in range(topology.n_npus):
        pairs[npu] = tuple(sorted(node for node in graph[npu] if node in tor))
        assert len(set(pairs[npu])) == 2
    for a, b in itertools.combinations(range(topology.n_npus), 2):
        same = (a // 8, a % 2) == (b // 8, b % 2)  # segment and rail
        assert (pairs[a] == pairs[b]) == same == bool(set(pairs[a]) & set(pairs[b]))


@pytest.mark.parametrize(("line", "planes"), [(POD, 2), ("hpn:dims=2x2x2x2,aggs=2", 2), ("hpn:rail-only:dims=3x2x4,aggs=3", 8)])
def test_planes_share_no_switch(line, planes):
    topology = build_topology(line)
    switches = nx.Graph(_graph(topology).subgraph(range(_count(topology)[1], topology.n_nodes)))
    found = list(nx.connected_components(switches))
    assert len(found) == planes
    for plane in found:
        below = Counter(npu for tor in plane for npu in _graph(topology)[tor] if npu < topology.n_npus)
        assert set(below.values()) == {1}


def test_a_typical_clos_is_one_plane():
    topology = build_topology("hpn:clos:dims=2x2x2,aggs=2")
    assert nx.is_connected(nx.Graph(_graph(topology).subgraph(range(_count(topology)[1], topology.n_nodes))))


def test_two_nics_of_a_rail_in_different_segments_have_120_disjoint_paths_and_channels_find_them_all(pod):
    a, b = 0, 5 * 128 * 8
    ends = pod.links.dst[np.isin(pod.links.src, (a, b))]
    between = np.isin(pod.links.src, [a, b, *_range(pod, "Agg"), *ends]) & np.isin(
        pod.links.dst, [a, b, *_range(pod, "Agg"), *ends]
    )
    graph = nx.DiGraph()
    for src, dst in zip(pod.links.src[between].tolist(), pod.links.dst[between].tolist(), strict=True):
        graph.add_edge(src, dst, capacity=60 if {a, b} & {src, dst} else 1)
    assert nx.maximum_flow_value(graph, a, b) == 120
    routes = pod.routes(np.full(4000, a), np.full(4000, b), np.arange(4000))
    assert set(routes.hops.tolist()) == {4}
    inner = np.unique(routes.link.reshape(-1, 4)[:, 1:3], axis=0)
    assert len(inner) == len(set(inner[:, 0])) == len(set(inner[:, 1])) == 120


def test_switches_on_the_way_are_one_in_a_rail_of_a_segment_three_between_segments_five_between_pods():
    topology = build_topology("hpn:dims=2x2x4x2,aggs=3")
    for key in range(20):
        assert len(_over(topology, _nodes(topology, 0, 2, key))) == 1
        assert len(_over(topology, _nodes(topology, 0, 8, key))) == 3
        assert len(_over(topology, _nodes(topology, 0, 16, key))) == 5


def test_a_message_to_another_rail_goes_over_the_gpu_of_its_host_or_through_an_agg():
    relayed, risen = build_topology(POD), build_topology(f"{POD},cross_rail=agg")
    host = _count(relayed)[0]
    for there in (3, 11):  # in the segment, and in the next
        route = _nodes(relayed, 0, there)
        assert route[:3] == [0, host, 1]
        assert len(_over(relayed, route)) == (1 if there < 8 else 3)
        assert len(_over(risen, _nodes(risen, 0, there))) == 3
        assert min(_nodes(risen, 0, there)[1:-1]) >= risen.n_npus


def test_no_route_between_gpus_of_a_host_leaves_it():
    for line in (POD, f"{POD},cross_rail=agg", "hpn:dcn-plus:dims=1x2x3x4,aggs=2,parallel=2"):
        topology = build_topology(line)
        assert _nodes(topology, 0, 1) == [0, _count(topology)[0], 1]


# Hashing


def _ports(topology, src, dst, keys):
    """How many of the keys leave by each port of the first NIC, and arrive by each of the second's."""
    routes = topology.routes(np.full(len(keys), src), np.full(len(keys), dst), keys)
    first, last = routes.link[routes.start[:-1]], routes.link[routes.start[1:] - 1]
    return [Counter((link // 2 % 2).tolist()) for link in (first, last)]


@pytest.mark.parametrize("flows", [2, 4, 8, 16])
def test_dual_plane_fills_both_ports_alike_where_a_clos_lays_flows_on_them_by_chance(flows):
    planes, clos = build_topology("hpn:pod:dims=2x64x1,aggs=4"), build_topology("hpn:clos:dims=2x64x1,aggs=4")
    fuller = []
    for pair in range(64):
        sent, arrived = _ports(planes, pair, 64 + pair, np.arange(flows))
        assert sent == arrived == Counter({0: flows // 2, 1: flows // 2})
        for draw in range(8):
            sent, arrived = _ports(clos, pair, 64 + pair, np.arange(flows) + draw * flows)
            assert sent == Counter({0: flows // 2, 1: flows // 2})
            fuller.append(2 * max(arrived.values()) / flows)
    assert np.mean(fuller) == pytest.approx(float(paths.imbalance(flows)), abs=0.06)


def test_the_imbalance_expected_of_flows_on_two_ports():
    assert [round(float(paths.imbalance(k)), 2) for k in (2, 4, 8, 16)] == [1.5, 1.38, 1.27, 1.2]
    for flows in (1, 3, 6):
        every = [max(sum(coins), flows - sum(coins)) for coins in itertools.product((0, 1), repeat=flows)]
        assert paths.imbalance(flows) == Fraction(2 * sum(every), flows * 2**flows)


def test_uplinks_are_taken_evenly(pod):
    n = 12000
    routes = pod.routes(np.full(n, 7), np.full(n, 9 * 1024 + 7), np.arange(n))
    taken = np.bincount(routes.link.reshape(n, 4)[:, 1] // 2 - 3 * pod.n_npus)
    counts = taken[taken > 0]
    assert len(counts) == 120
    assert ((counts - n / 120) ** 2 / (n / 120)).sum() < 190  # chi-squared of 119 degrees: 1 in 30,000


def test_a_core_port_forwards_to_each_pod_by_one_port_and_dcn_plus_hashes_again():
    fixed = build_topology("hpn:dims=3x2x1x2,aggs=4,up=3")
    hashed = build_topology("hpn:dcn-plus:dims=3x2x2x4,aggs=2,parallel=2,up=3")
    for topology, least, most in ((fixed, 1, 1), (hashed, 2, 6)):
        third = topology.n_npus // 3
        keys = np.arange(3000)
        routes = topology.routes(np.zeros(3000), np.full(3000, third), keys)
        hops = routes.link.reshape(3000, 6)
        ways = {up: set(hops[hops[:, 2] == up, 3].tolist()) for up in set(hops[:, 2].tolist())}
        assert {len(found) for found in ways.values()} <= set(range(least, most + 1))
        assert max(map(len, ways.values())) == most


@pytest.mark.parametrize(
    "line", ["hpn:dims=2x2x1x2,aggs=4,up=3", "hpn:dcn-plus:dims=2x2x2x4,aggs=2,parallel=3,up=3", "hpn:clos:dims=2x2x1,aggs=5"]
)
def test_between_two_nics_every_cable_of_their_tors_and_every_uplink_of_an_agg_is_taken(line):
    topology = build_topology(line)
    links, half = topology.links, topology.n_npus // 2
    routes = topology.routes(np.zeros(2000), np.full(2000, half), np.arange(2000))
    mine, theirs = (links.dst[(links.src == npu) & (links.dimension == 1)] for npu in (0, half))
    out = (links.dimension == 2) & np.isin(links.src, mine)
    into = (links.dimension == 2) & np.isin(links.dst, theirs)
    above = (links.dimension == 3) & np.isin(links.src, links.dst[out])
    assert set(np.flatnonzero(out | into | above)) <= set(routes.link)


# Faults and placement


def test_a_nic_that_lost_a_link_keeps_half_its_rate_and_everything_goes_by_the_other_port():
    topology = build_topology("hpn:pod:dims=2x4x8,aggs=4")
    nic = np.flatnonzero((topology.links.src == 3) & (topology.links.bandwidth_Bps == PORT))
    cable = [int(nic[0]) & ~1, int(nic[0]) | 1]
    left = without(topology, links=cable)
    assert _out(left, 3, _range(topology, "ToR")) == (PORT, 1)
    host = sum(_out(topology, npu, _range(topology, "ToR"))[0] for npu in range(8))
    assert PORT / host == 1 / 16
    others = np.array([npu for npu in range(64) if npu % 8 == 3 and npu != 3])
    for src, dst in ((np.full(len(others), 3), others), (others, np.full(len(others), 3))):
        for key in range(2):
            before = topology.routes(src, dst, np.full(len(src), key))
            after = left.routes(src, dst, np.full(len(src), key))
            assert np.array_equal(before.hops, after.hops)


def test_no_tor_takes_a_nic_with_it_and_an_agg_leaves_the_others_of_its_plane():
    topology = build_topology("hpn:pod:dims=2x2x2,aggs=3")
    tor, agg = _range(topology, "ToR"), _range(topology, "Agg")
    for switch in tor.tolist():
        left = without(topology, nodes=[switch])
        assert all(_out(left, npu, tor)[1] >= 1 for npu in range(topology.n_npus))
        assert all(_over(topology, _nodes(left, npu, (npu + 4) % 8)) for npu in range(8))
    left = without(topology, nodes=[agg[0]])
    assert sorted({_out(left, switch, agg)[1] for switch in tor.tolist()}) == [2, 3]
    assert sum(_out(left, switch, agg)[1] for switch in tor.tolist()) == 3 * len(tor) - len(tor) // 2


def test_an_agg_that_fails_leaves_59_in_its_plane(pod):
    left = without(pod, nodes=[_range(pod, "Agg")[0]])
    tor = _range(pod, "ToR")
    found = np.bincount(left.links.src, minlength=pod.n_nodes)[tor] - 136
    assert np.array_equal(found, np.tile([59, 60], len(tor) // 2))


def test_a_job_fills_hosts_in_the_order_of_segments(pod):
    assert pod.place(15360).tolist() == list(range(15360))
    with pytest.raises(InputError, match="ranks must be at most 15360"):
        pod.place(15361)


def test_a_backup_host_of_the_segment_takes_the_place_of_a_failed_one():
    topology = build_topology("hpn:pod:dims=2x3x2,aggs=2,backup=1")  # hosts 0 1 2, 3 4 5; 6 and 7 stand by
    hosts = lambda n, *faulty: (topology.place(n, faulty)[::2] // 2).tolist()  # noqa: E731
    assert hosts(12) == [0, 1, 2, 3, 4, 5]
    assert hosts(12, 3) == [0, 6, 2, 3, 4, 5]
    assert hosts(12, 2, 3, 9) == [0, 6, 2, 3, 7, 5]
    assert hosts(10, 0, 4) == [6, 1, 3, 4, 5]
    assert hosts(10, 13, 0) == [1, 2, 3, 4, 5]  # GPU 13 is of backup host 6
    with pytest.raises(InputError, match="at most 10"):
        topology.place(12, (0, 4))
    tors = {npu: set(_graph(topology)[npu]) & set(_range(topology, "ToR").tolist()) for npu in range(topology.n_npus)}
    assert tors[12] == tors[0]
    assert tors[14] == tors[6]


def test_a_host_with_a_faulty_gpu_is_out_where_nothing_stands_by():
    topology = build_topology("hpn:segment:dims=3x2")
    assert topology.place(4, [2]).tolist() == [0, 1, 4, 5]


def test_a_drawing_has_a_rail_in_a_column_under_its_tors_and_aggs_on_top():
    topology = build_topology("hpn:pod:dims=2x3x4,aggs=3,backup=1")
    drawn, tor, agg = topology.draw(), _range(topology, "ToR"), _range(topology, "Agg")
    x, y = drawn.at.T
    for npu in range(topology.n_npus):
        pair = topology.links.dst[(topology.links.src == npu) & (topology.links.dimension == 1)]
        assert x[pair].mean() == pytest.approx(x[npu])
    assert y[agg].min() > y[tor].max() > y[tor].min() > y[: topology.n_npus].max()
    named = {box.label: set(range(*box.nodes)) for box in drawn.boxes}
    assert named == {
        "segment 0": set(range(12)),
        "segment 1": set(range(12, 24)),
        "plane 0": set(agg[:3].tolist()),
        "plane 1": set(agg[3:].tolist()),
    }


# Path selection


@pytest.mark.parametrize("wanted", [4, 8, 16, 60])
def test_a_random_hash_meets_new_uplinks_as_a_collector_does_coupons(wanted):
    tries = []
    for flow in range(400):
        found = paths.establish(paths.random_hash(flow, 60, 2**12), wanted)
        tries.append(found[-1] - paths.FIRST_PORT + 1)
    expected = float(paths.expected_tries(60, wanted))
    assert np.mean(tries) == pytest.approx(expected, rel=0.04)
    assert round(expected, 1) == {4: 4.1, 8: 8.5, 16: 18.4, 60: 280.8}[wanted]


def test_a_linear_hash_meets_60_uplinks_with_60_ports():
    for flow in range(20):
        assert paths.establish(paths.linear_hash(flow, 60), 60).tolist() == list(range(paths.FIRST_PORT, paths.FIRST_PORT + 60))


def test_connections_that_are_established_leave_by_uplinks_of_their_own():
    uplinks = paths.random_hash(11, 60)
    found = paths.establish(uplinks, 40)
    taken = uplinks[found - paths.FIRST_PORT]
    assert len(set(taken.tolist())) == 40
    last = found[-1] - paths.FIRST_PORT
    assert len(set(uplinks[:last].tolist())) == 39  # no lower port would have done


def test_counters_spare_the_congested_connection():
    rates, messages, gap = (0.25, 1.0, 1.0, 1.0), 4000, 0.25
    in_turn, spared = (paths.drain(rates, messages, gap, counters=c) for c in (False, True))
    assert in_turn == messages / 4 / 0.25
    queue = (1 - sum(rates) * gap) * messages / 4  # what counters keep equal, when the last message is posted
    assert spared == pytest.approx(messages * gap + queue / 0.25, rel=0.002)
    assert messages / sum(rates) < spared < in_turn / 2


def test_counters_do_no_harm_where_connections_are_alike():
    for gap in (0.0, 0.25, 1.0):
        in_turn, spared = (paths.drain((1.0,) * 4, 400, gap, counters=c) for c in (False, True))
        assert spared == in_turn


# Rows of the paper, and of others that count HPN

ROWS = {
    "hpn-tor-cap": 51.2,
    "hpn-tor-os": 1.067,
    "hpn-seg": 1024,
    "hpn-seg-bk": 64,
    "hpn-seg-tor": 16,
    "hpn-pod": 15360,
    "hpn-agg-os": 15,
    "hpn-875": 87.5,
    "hpn-aggs": 60,
    "hpn-host": 3.2,
    "hpn-nvlink": (4, 9),
    "hpn-t1-HPN": 60,
    "hpn-t1-ft-n": 27648,
    "hpn-t2-t1-clos": 64,
    "hpn-t2-t1-dual": 128,
    "hpn-t2-t1-rail": 1024,
    "hpn-t2-t2-dual": 4096,
    "hpn-t2-t2-plane": 8192,
    "hpn-t2-t2-os": 15360,
    "hpn-t4-planes": 16,
    "hpn-t4-any": 2,
    "hpn-t4-gpus": 122880,
    "hpn-dcn-seg": 128,
    "hpn-dcn-pod": 512,
    "hpn-dcn-all": 16384,
    "hpn-dcn-bis": 8,
    "hpn-2300-dcn": 19,
    "hpn-2300-hpn": 3,
    "hpn-448": 448,
    "hpn-256": 256,
    "hpn-625": 6.25,
    "hbd-t8-hpn-counts": (360, 32640, 28800, 16320),
    "rx-hpn360": 360,
}


def _tor(topology, to):
    """Bandwidth and cables from the first ToR."""
    return _out(topology, _range(topology, "ToR")[0], to)


def _agg(topology, kind):
    """Cables from the first Agg to the kind of switch."""
    return _out(topology, _range(topology, "Agg")[0], _range(topology, kind))[1]


def _up(topology):
    return _tor(topology, _range(topology, "Agg"))


def _down(topology):
    return _tor(topology, np.arange(topology.n_npus))


def _nic(topology):
    return _out(topology, 0, _range(topology, "ToR"))


def _spans(topology, ranks, size):
    return len(set((topology.place(ranks) // size).tolist()))


def _after_a_link(topology):
    """Percent of a host's rate that is gone with one of its NIC's links."""
    gone = np.flatnonzero((topology.links.src == 0) & (topology.links.dst == _range(topology, "ToR")[0]))
    before, after = (
        sum(_out(t, npu, _range(topology, "ToR"))[0] for npu in range(8)) for t in (topology, without(topology, links=gone))
    )
    return 100 * (before - after) / before


COMPUTED = {
    "hpn-tor-cap": lambda built: (_up(built(PAPER))[0] + _down(built(PAPER))[0]) * 8 / 1e12,
    "hpn-tor-os": lambda built: round(_down(built("hpn:pod"))[0] / _up(built("hpn:pod"))[0], 3),
    "hpn-seg": lambda built: built("hpn:segment").n_npus,
    "hpn-seg-bk": lambda built: built("hpn:segment:backup=8").n_npus - len(built("hpn:segment:backup=8").place(1024)),
    "hpn-seg-tor": lambda built: built("hpn:segment").bill["ToR switch"],
    "hpn-pod": lambda built: built("hpn:pod").n_npus,
    "hpn-agg-os": lambda built: _agg(built("hpn"), "ToR") / _agg(built("hpn"), "Core"),
    "hpn-875": lambda built: (
        100 * (2 * _agg(built("hpn"), "ToR") / (_agg(built("hpn"), "ToR") + _agg(built("hpn"), "Core")) - 1)
    ),
    "hpn-aggs": lambda built: built("hpn:pod").bill["Agg switch"] / _nic(built("hpn:pod"))[1],
    "hpn-host": lambda built: 8 * _nic(built("hpn:pod"))[0] * 8 / 1e12,
    "hpn-nvlink": lambda built: tuple(
        built(f"hpn:segment:nvlink={rate}").links.bandwidth_Bps.max() / _nic(built("hpn:segment"))[0]
        for rate in ("200GB/s", "450GB/s")
    ),
    "hpn-t1-HPN": lambda built: _up(built("hpn:pod"))[1],
    "hpn-t1-ft-n": lambda built: built("fat-tree:radix=48,tiers=3").n_npus,
    "hpn-t2-t1-clos": lambda built: _down(built("hpn:pod"))[0] / _nic(built("hpn:pod"))[0],
    "hpn-t2-t1-dual": lambda built: _down(built("hpn:pod"))[1],
    "hpn-t2-t1-rail": lambda built: built("hpn:segment").n_npus,
    "hpn-t2-t2-dual": lambda built: built("hpn:clos").n_npus * (_agg(built("hpn:clos"), "ToR") == 64),
    "hpn-t2-t2-plane": lambda built: built("hpn:pod:dims=8x128x8").n_npus * (_agg(built("hpn:pod:dims=8x128x8"), "ToR") == 64),
    "hpn-t2-t2-os": lambda built: built("hpn:pod").n_npus * (_agg(built("hpn:pod"), "ToR") == 120),
    "hpn-t4-planes": lambda built: built("hpn:rail-only").bill["Agg switch"] / _up(built("hpn:rail-only"))[1],
    "hpn-t4-any": lambda built: built("hpn:pod").bill["Agg switch"] / _up(built("hpn:pod"))[1],
    "hpn-t4-gpus": lambda built: built("hpn:rail-only").n_npus,
    "hpn-dcn-seg": lambda built: _down(built("hpn:dcn-plus"))[1],
    "hpn-dcn-pod": lambda built: built("hpn:dcn-plus").n_npus // built("hpn:dcn-plus").dims[0],
    "hpn-dcn-all": lambda built: built("hpn:dcn-plus").n_npus,
    "hpn-dcn-bis": lambda built: _tor(built("hpn:dcn-plus"), _range(built("hpn:dcn-plus"), "Agg")[:1])[1],
    "hpn-2300-dcn": lambda built: _spans(built("hpn:dcn-plus"), 289 * 8, 128),  # 288+ hosts: at least one more
    "hpn-2300-hpn": lambda built: _spans(built("hpn:pod"), 289 * 8, 1024),
    "hpn-448": lambda built: built("hpn:segment:dims=56x8").n_npus,
    "hpn-256": lambda built: built("hpn:segment:dims=32x8").n_npus,
    "hpn-625": lambda built: _after_a_link(built("hpn:segment")),
    "hbd-t8-hpn-counts": lambda built: (
        built(PAPER).bill["ToR switch"] + built(PAPER).bill["Agg switch"],
        built(PAPER).bill["cable NIC to ToR"],
        built(PAPER).bill["optical transceiver"],
        built(PAPER).n_npus,
    ),
    "rx-hpn360": lambda built: built("hpn:pod").bill["ToR switch"] + built("hpn:pod").bill["Agg switch"],
}


@pytest.fixture(scope="module")
def built():
    return cache(build_topology)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_paper_is_what_is_built(row, built):
    assert COMPUTED[row](built) == pytest.approx(ROWS[row], rel=1e-12)


def test_dcn_plus_has_full_bisection_where_hpn_has_a_fifteenth_above_its_aggs(built):
    for line, ratio in (("hpn:dcn-plus", 1), ("hpn", 15)):
        topology = built(line)
        assert _agg(topology, "ToR") == ratio * _agg(topology, "Core")
    small = build_topology("hpn:dcn-plus:dims=2x4x2x8,aggs=2,parallel=4,up=32")
    assert bisection(small)[0] == small.n_npus * PORT  # half of the GPUs, two ports each


def test_a_clos_of_these_switches_has_4096_gpus_with_one_cable_to_an_agg_where_table_2_prints_2k(built):
    clos = built("hpn:clos")
    assert _tor(clos, _range(clos, "Agg")[:1])[1] == 1
    assert clos.n_npus == 2 * 2048


# What cannot be built

BAD = {
    "hpn:pod:dims=15x128": "dims must be segments x hosts x rails, 2 segments or more, such as 15x128x8, got '15x128'",
    "hpn:pod:dims=1x128x8": "dims must be segments x hosts x rails, 2 segments or more",
    "hpn:segment:dims=1x1": "dims must be hosts x rails, 2 GPUs or more, such as 128x8, got '1x1'",
    "hpn:segment:dims=4": "dims must be hosts x rails",
    "hpn:dims=15x128x8": "dims must be pods x segments x hosts x rails",
    "hpn:pod:dims=15x137x8": "ports of a ToR must be at most 256 of 200 Gb/s, of which an uplink takes 2, got '137 down",
    "hpn:segment:backup=9": "ports of a ToR must be at most 256 .* take fewer hosts, backup hosts or aggs",
    "hpn:pod:aggs=65": "ports of a ToR must be at most 256 .* got '128 down and 65 uplinks'",
    "hpn:dcn-plus:parallel=9": "ports of a ToR must be at most 256",
    "hpn:pod:dims=16x128x8": "ports of an Agg must be at most 128, got '128 down and 8 up'; take fewer segments or rails",
    "hpn:up=9": "ports of an Agg must be at most 128, got '120 down and 9 up'",
    "hpn:clos:dims=8x128x8": "ports of an Agg must be at most 128, got '128 down and 8 up'",
    "hpn:dims=129x2x2x2,aggs=2": "pods must be at most 128, the ports of a Core, got 129",
    "hpn:dims=128x1x254x120,aggs=1": "links must be at most 2..24, got",
    "hpn:pod:cross_rail=pxn": "cross_rail must be nvlink or agg, got 'pxn'",
    "hpn:pod:backup=-1": "backup must be a whole number of 0 or more, got '-1'",
    "hpn:pod:port=200": "port must be a rate above 0",
    "hpn:pod:planes=2": "unknown setting 'planes'",
}


@pytest.mark.parametrize("line", BAD)
def test_what_does_not_close_is_refused_in_one_line_that_says_what_does(line):
    with pytest.raises(InputError, match=BAD[line]) as error:
        build_topology(line)
    assert "\n" not in str(error.value)


def test_path_selection_refuses_what_no_path_is_for():
    with pytest.raises(InputError, match=r"disjoint paths must be 1\.\.60, the uplinks that 16384 source ports meet, got 61"):
        paths.establish(paths.random_hash(0, 60), 61)
    with pytest.raises(InputError, match="each above 0"):
        paths.drain((1.0, 0.0), 4, 1.0, counters=True)
    with pytest.raises(InputError, match="each above 0"):
        paths.drain((), 4, 1.0, counters=False)
    with pytest.raises(InputError, match="flows must be 1 or more, got 0"):
        paths.imbalance(0)


def test_what_the_paper_does_not_say_is_said():
    said = " ".join(build_topology("hpn:dims=3x2x2x2,aggs=4,port=400Gb/s,latency=1us").assumptions)
    for words in ("two NIC ports of 50 GB/s, an uplink carries 100 GB/s", "1 us", "no backup hosts", "ports for each pod"):
        assert words in said
    assert "2 backup hosts a segment" in " ".join(build_topology("hpn:pod:dims=2x2x2,aggs=2,backup=2").assumptions)
    assert "through an Agg" in " ".join(build_topology(f"{POD},cross_rail=agg").assumptions)
    assert "appendix C prints one" in build_topology("hpn:dcn-plus:dims=1x2x3x4,aggs=2,parallel=2").assumptions[-1]
