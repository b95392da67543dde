import itertools

import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology


def _graph(topology):
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(range(topology.n_nodes))
    graph.add_edges_from(zip(topology.links.src.tolist(), topology.links.dst.tolist(), strict=True))
    return graph


# SiP-Ring


@pytest.mark.parametrize("size", [2, 3, 8])
def test_each_ring_is_a_cycle_of_its_own_and_the_network_joins_all(size):
    topology = build_topology(f"sip-ring:size={size},rings=3")
    rings = nx.Graph(_graph(topology).subgraph(range(3 * size)))
    assert sorted(map(sorted, nx.connected_components(rings))) == [list(range(i * size, (i + 1) * size)) for i in range(3)]
    degrees = dict(_graph(topology).subgraph(range(3 * size)).out_degree()).values()
    assert set(degrees) == {2}
    assert set(_graph(topology)[3 * size]) == set(range(3 * size))


def test_a_message_stays_in_its_ring_and_goes_the_nearer_way():
    topology = build_topology("sip-ring:size=9,rings=2")
    pairs = np.array([(a, b) for a, b in itertools.permutations(range(18), 2) if a // 9 == b // 9])
    routes = topology.routes(*pairs.T, np.zeros(len(pairs)))
    away = (pairs[:, 1] - pairs[:, 0]) % 9
    assert np.array_equal(routes.hops, np.minimum(away, 9 - away))
    assert (topology.links.dimension[routes.link] == 0).all()


def test_half_of_equally_near_messages_go_each_way_and_others_take_the_network():
    topology = build_topology("sip-ring:size=4,rings=2")
    both = topology.routes(np.array([0, 0, 0]), np.array([2, 2, 6]), np.array([0, 1, 0]))
    ends = [topology.links.dst[both.of(at)].tolist() for at in range(3)]
    assert ends == [[1, 2], [3, 2], [8, 6]]


def test_a_fault_costs_its_whole_ring():
    topology = build_topology("sip-ring:size=4,rings=3")
    assert topology.place(8, [5]).tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    with pytest.raises(InputError, match="ranks must be at most 4 where 2 of 12 NPUs are faulty, got 5"):
        topology.place(5, [5, 11])


def test_a_gpu_has_half_of_its_bandwidth_to_each_side():
    topology = build_topology("sip-ring:size=8")
    assert set(topology.links.bandwidth_Bps.tolist()) == {6.4e12 / 8 / 2}
    assert topology.bill == {"NPU": 8, "link of a ring": 8}


# SiP-OCS


@pytest.mark.parametrize(("n", "ports"), [(n, ports) for n in range(2, 66, 4) for ports in (2, 3, 16)])
def test_as_many_others_as_can_be_are_joined_and_every_switch_is_a_permutation(n, ports):
    topology = build_topology(f"sip-ocs:n={n},ports={ports}")
    degree = min(ports, n - 1)
    graph = _graph(topology)
    assert nx.is_strongly_connected(graph)
    assert {len(set(graph[npu])) for npu in graph} == {degree}
    port = 240e9 / ports
    circuits = topology.links.bandwidth_Bps / port
    assert circuits == pytest.approx(circuits.round())
    assert circuits.max() - circuits.min() <= 1 + 1e-9
    assert np.bincount(topology.links.src, circuits) == pytest.approx(ports)
    matchings = topology.links.src[: n * degree].reshape(degree, n)  # cables of a kind one after another
    assert (np.sort(matchings, axis=1) == np.arange(n)).all()


def test_circuits_lead_far_in_few_hops():
    topology = build_topology("sip-ocs:n=512,ports=16")
    graph = nx.Graph(_graph(topology))
    assert max(nx.single_source_shortest_path_length(graph, 0).values()) <= 5  # a ring of neighbours would take 32
    graph = nx.Graph(_graph(build_topology("sip-ocs:n=512,ports=64")))
    assert max(nx.single_source_shortest_path_length(graph, 0).values()) == 2


def test_circuits_stay_within_jobs_and_each_job_has_all_of_its_ports():
    topology = build_topology("sip-ocs:n=64,jobs=40+16")
    joined = sorted(map(sorted, nx.strongly_connected_components(_graph(topology))))
    assert joined == [list(range(40)), list(range(40, 56)), list(range(56, 64))]
    assert np.bincount(topology.links.src, topology.links.bandwidth_Bps) == pytest.approx(240e9)
    with pytest.raises(InputError, match="no route from node 3 to node 41: circuits join GPUs of one job only"):
        topology.routes(np.array([3]), np.array([41]), np.array([0]))


@pytest.mark.parametrize("line", ["sip-ocs:n=64,jobs=40+16", "sip-ocs:n=40,ports=5", "sip-ocs:n=24,ports=48,jobs=10+2"])
def test_a_shift_of_a_job_keeps_links_and_routes(line):
    topology = build_topology(line)
    pairs = np.array([(a, b) for a, b in nx.transitive_closure(nx.DiGraph(_graph(topology))).edges if a != b])
    routes = topology.routes(*pairs.T, np.zeros(len(pairs), int))
    links = topology.links
    ends = {end: i for i, end in enumerate(zip(links.src.tolist(), links.dst.tolist(), strict=True))}
    for image in topology.symmetry():
        moved = [ends[a, b] for a, b in zip(image[links.src].tolist(), image[links.dst].tolist(), strict=True)]
        assert np.array_equal(links.bandwidth_Bps[moved], links.bandwidth_Bps)
        there = topology.routes(*image[pairs].T, np.zeros(len(pairs), int))
        assert np.array_equal(there.link, np.array(moved)[routes.link])


def test_of_equal_ways_pairs_take_those_that_leave_circuits_alike_loaded():
    topology = build_topology("sip-ocs:n=512,ports=64,jobs=256+256")
    routes = topology.routes(np.zeros(255, int), np.arange(1, 256), np.zeros(255, int))
    load = np.bincount(routes.link // 256, minlength=64)  # by distance: the pairs of GPU 0 stand for all
    assert load.max() <= 1.75 * load.mean()


def test_one_switch_joins_two_gpus():
    assert build_topology("sip-ocs:n=2,ports=1").bill == {"NPU": 2, "OCS": 1, "fibre": 2, "link through OCS": 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sip-ocs:n=5", "sip-ocs: n must be even, as a circuit joins two GPUs, got 5; take 6"),
        ("sip-ocs:n=8,jobs=3", "sip-ocs: GPUs of a job must be even, as a circuit joins two GPUs, got 3; take 4"),
        ("sip-ocs:n=8,jobs=6+4", "sip-ocs: GPUs of all jobs must be at most 8 (n), got 10; take fewer or a larger n"),
        ("sip-ocs:n=8,ports=1", "sip-ocs: ports must be 2 or more, as one joins GPUs in pairs only, got 1"),
        ("sip-ocs:n=8192,ports=8192", "sip-ocs: links must be at most 2**24, got 67100672; take fewer NPUs"),
        ("sip-ring:size=9000000", "sip-ring: links must be at most 2**24, got 18000000; take fewer NPUs"),
        ("sip-ring:size=0", "sip-ring: size must be a whole number of 1 or more, got '0'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line_that_says_what_can(line, message):
    with pytest.raises(InputError) as refused:
        build_topology(line)
    assert str(refused.value) == message
