import itertools
from collections import Counter

import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology
from emu.topology.removal import remove_parts
from tests.topologies.hpn_nodes import PAPER, POD, PORT, firsts, graph_of, nodes_on, of_kind, out_of, switches_on


@pytest.fixture(scope="module")
def pod():
    """The paper's, with its backup hosts."""
    return build_topology(PAPER)


# What the paper counts


def test_the_small_pod_has_the_counts_that_follow_from_its_wiring():
    small = build_topology("hpn:pod:dims=2x2x2,aggs=2")
    assert (small.n_npus, small.bill["ToR switch"], small.bill["Agg switch"]) == (8, 8, 4)
    assert (small.bill["cable NIC to ToR"], small.bill["cable ToR to Agg"]) == (16, 16)


def test_switches_of_the_paper_use_the_ports_that_they_have(pod):
    tor, agg = of_kind(pod, "ToR"), of_kind(pod, "Agg")
    npus = np.arange(pod.n_npus)
    for switch in (tor[0], tor[-1]):
        assert out_of(pod, switch, npus) == (136 * PORT, 136)
        assert out_of(pod, switch, agg) == (60 * 2 * PORT, 60)
    for switch in (agg[0], agg[-1]):
        assert out_of(pod, switch, tor)[1] == 120


def test_a_nic_has_its_two_ports_on_different_tors_of_one_rail():
    topology = build_topology(POD)
    tor, graph = of_kind(topology, "ToR"), graph_of(topology)
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
    switches = nx.Graph(graph_of(topology).subgraph(range(firsts(topology)[1], topology.n_nodes)))
    found = list(nx.connected_components(switches))
    assert len(found) == planes
    for plane in found:
        below = Counter(npu for tor in plane for npu in graph_of(topology)[tor] if npu < topology.n_npus)
        assert set(below.values()) == {1}


def test_a_typical_clos_is_one_plane():
    topology = build_topology("hpn:clos:dims=2x2x2,aggs=2")
    assert nx.is_connected(nx.Graph(graph_of(topology).subgraph(range(firsts(topology)[1], topology.n_nodes))))


def test_two_nics_of_a_rail_in_different_segments_have_120_disjoint_paths_and_channels_find_them_all(pod):
    a, b = 0, 5 * 128 * 8
    ends = pod.links.dst[np.isin(pod.links.src, (a, b))]
    between = np.isin(pod.links.src, [a, b, *of_kind(pod, "Agg"), *ends]) & np.isin(
        pod.links.dst, [a, b, *of_kind(pod, "Agg"), *ends]
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
        assert len(switches_on(topology, nodes_on(topology, 0, 2, key))) == 1
        assert len(switches_on(topology, nodes_on(topology, 0, 8, key))) == 3
        assert len(switches_on(topology, nodes_on(topology, 0, 16, key))) == 5


def test_a_message_to_another_rail_goes_over_the_gpu_of_its_host_or_through_an_agg():
    relayed, risen = build_topology(POD), build_topology(f"{POD},cross_rail=agg")
    host = firsts(relayed)[0]
    for there in (3, 11):  # in the segment, and in the next
        route = nodes_on(relayed, 0, there)
        assert route[:3] == [0, host, 1]
        assert len(switches_on(relayed, route)) == (1 if there < 8 else 3)
        assert len(switches_on(risen, nodes_on(risen, 0, there))) == 3
        assert min(nodes_on(risen, 0, there)[1:-1]) >= risen.n_npus


def test_no_route_between_gpus_of_a_host_leaves_it():
    for line in (POD, f"{POD},cross_rail=agg", "hpn:dcn-plus:dims=1x2x3x4,aggs=2,parallel=2"):
        topology = build_topology(line)
        assert nodes_on(topology, 0, 1) == [0, firsts(topology)[0], 1]


# Faults and placement


def test_a_nic_that_lost_a_link_keeps_half_its_rate_and_everything_goes_by_the_other_port():
    topology = build_topology("hpn:pod:dims=2x4x8,aggs=4")
    nic = np.flatnonzero((topology.links.src == 3) & (topology.links.bandwidth_Bps == PORT))
    cable = [int(nic[0]) & ~1, int(nic[0]) | 1]
    left = remove_parts(topology, links=cable)
    assert out_of(left, 3, of_kind(topology, "ToR")) == (PORT, 1)
    host = sum(out_of(topology, npu, of_kind(topology, "ToR"))[0] for npu in range(8))
    assert PORT / host == 1 / 16
    others = np.array([npu for npu in range(64) if npu % 8 == 3 and npu != 3])
    for src, dst in ((np.full(len(others), 3), others), (others, np.full(len(others), 3))):
        for key in range(2):
            before = topology.routes(src, dst, np.full(len(src), key))
            after = left.routes(src, dst, np.full(len(src), key))
            assert np.array_equal(before.hops, after.hops)


def test_no_tor_takes_a_nic_with_it_and_an_agg_leaves_the_others_of_its_plane():
    topology = build_topology("hpn:pod:dims=2x2x2,aggs=3")
    tor, agg = of_kind(topology, "ToR"), of_kind(topology, "Agg")
    for switch in tor.tolist():
        left = remove_parts(topology, nodes=[switch])
        assert all(out_of(left, npu, tor)[1] >= 1 for npu in range(topology.n_npus))
        assert all(switches_on(topology, nodes_on(left, npu, (npu + 4) % 8)) for npu in range(8))
    left = remove_parts(topology, nodes=[agg[0]])
    assert sorted({out_of(left, switch, agg)[1] for switch in tor.tolist()}) == [2, 3]
    assert sum(out_of(left, switch, agg)[1] for switch in tor.tolist()) == 3 * len(tor) - len(tor) // 2


def test_an_agg_that_fails_leaves_59_in_its_plane(pod):
    left = remove_parts(pod, nodes=[of_kind(pod, "Agg")[0]])
    tor = of_kind(pod, "ToR")
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
    tors = {npu: set(graph_of(topology)[npu]) & set(of_kind(topology, "ToR").tolist()) for npu in range(topology.n_npus)}
    assert tors[12] == tors[0]
    assert tors[14] == tors[6]


def test_a_host_with_a_faulty_gpu_is_out_where_nothing_stands_by():
    topology = build_topology("hpn:segment:dims=3x2")
    assert topology.place(4, [2]).tolist() == [0, 1, 4, 5]


def test_a_drawing_has_a_rail_in_a_column_under_its_tors_and_aggs_on_top():
    topology = build_topology("hpn:pod:dims=2x3x4,aggs=3,backup=1")
    drawn, tor, agg = topology.draw(), of_kind(topology, "ToR"), of_kind(topology, "Agg")
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


def test_what_the_paper_does_not_say_is_said():
    said = " ".join(build_topology("hpn:dims=3x2x2x2,aggs=4,port=400Gb/s,latency=1us").assumptions)
    for words in ("two NIC ports of 50 GB/s, an uplink carries 100 GB/s", "1 us", "no backup hosts", "ports for each pod"):
        assert words in said
    assert "2 backup hosts a segment" in " ".join(build_topology("hpn:pod:dims=2x2x2,aggs=2,backup=2").assumptions)
    assert "through an Agg" in " ".join(build_topology(f"{POD},cross_rail=agg").assumptions)
    assert "appendix C prints one" in build_topology("hpn:dcn-plus:dims=1x2x3x4,aggs=2,parallel=2").assumptions[-1]
