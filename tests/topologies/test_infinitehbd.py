"""InfiniteHBD's rings against networkx, what cannot be built, and its bill beside those it is held against."""

import networkx as nx
import numpy as np
import pytest

from emu.collective.algorithm import schedule
from emu.collective.operation import operation
from emu.errors import InputError
from emu.study.timing import CollectiveJob, time_collective
from emu.topology.catalogue import build_topology, read_topology
from launch.papers.infinitehbd.counts import fibre_neighbours
from tests.topologies import counted
from topologies.infinitehbd.gpu_rings import settings
from topologies.infinitehbd.ocstrx_bundles import bundles, states
from topologies.infinitehbd.ocstrx_plan import OcstrxPlan, OcstrxRates
from topologies.infinitehbd.orchestration import deploy, orchestrate


def plan(dims=(1, 8, 1, 4), k=2, tp=4, closed=True, powers=False):
    return OcstrxPlan("infinitehbd", dims, k, tp, OcstrxRates(), closed, powers)


def hbd(topology):
    """The links that are not the DCN's, each cable once."""
    graph = nx.MultiGraph()
    graph.add_nodes_from(range(topology.n_npus))
    ends = [e[::2][topology.links.dimension[::2] < 3].tolist() for e in (topology.links.src, topology.links.dst)]
    graph.add_edges_from(zip(*ends, strict=True))
    return graph


def _classes(line, src, dst):
    topology = build_topology(line)
    routes = topology.routes(src, dst, np.zeros(len(src)))
    return [set(topology.links.dimension[routes.of(i)].tolist()) for i in range(len(src))]


RINGS = [
    "infinitehbd:dims=1x8x2x4,tp=16",
    "infinitehbd:dims=1x12x1x4,tp=12,faulty=3+4+8",
    "infinitehbd:dims=1x8x2x4,k=2,tp=32,faulty=5",
    "infinitehbd:dims=1x9x1x8,k=4,tp=40,faulty=1+3",
    "infinitehbd:dims=1x11x1x5,k=5,tp=55",
    "infinitehbd:dims=1x9x1x2,k=2,tp=2",
    "infinitehbd:dims=1x6x3x3,k=3,tp=9,faulty=0+7-8+16",
    "infinitehbd:line:dims=1x8x2x4,tp=24,faulty=0+9",
]


@pytest.mark.parametrize("line", RINGS)
def test_groups_are_single_rings_of_all_their_gpus_and_other_nodes_are_looped(line):
    topology = build_topology(line)
    tp, gpus = read_topology(line)[1]["tp"], topology.dims[-1]
    graph = hbd(topology)
    assert {degree for _, degree in graph.degree} == {2}
    placed = topology.placer(0, np.zeros(0, np.int64))
    parts = set(map(frozenset, nx.connected_components(graph)))
    rings = {frozenset(ring) for ring in placed.reshape(-1, tp).tolist()}
    alone = set(range(topology.n_npus // gpus)) - set((placed // gpus).tolist())
    assert parts == rings | {frozenset(range(node * gpus, node * gpus + gpus)) for node in alone}
    assert alone >= set(read_topology(line)[1].get("faulty", ()))


@pytest.mark.parametrize(("gpus", "k"), [(4, 2), (4, 3), (4, 4), (8, 2), (8, 5)])
def test_m_nodes_in_a_line_make_one_ring_whatever_fibres_join_them(gpus, k):
    rng = np.random.default_rng(gpus + k)
    for m in range(1, 9):
        faulty = "+".join(map(str, np.flatnonzero(rng.random(40) < 0.3))) or "none"
        topology = build_topology(f"infinitehbd:dims=1x40x1x{gpus},k={k},tp={m * gpus},faulty={faulty},job={m * gpus}")
        ring = topology.place(m * gpus).tolist()
        assert nx.node_connected_component(hbd(topology), ring[0]) == set(ring)


def test_a_ring_of_two_has_two_cables_and_a_key_takes_one():
    topology = build_topology("infinitehbd:dims=1x9x1x2,k=2,tp=2")
    for src, dst in ((0, 1), (1, 0)):
        routes = topology.routes(np.array([src, src]), np.array([dst, dst]), np.arange(2))
        assert len(set((routes.link // 2).tolist())) == 2


@pytest.mark.parametrize("line", RINGS)
def test_ranks_in_a_row_and_the_last_and_first_of_a_ring_are_neighbours(line):
    topology = build_topology(line)
    tp = read_topology(line)[1]["tp"]
    ring = topology.place(tp)
    routes = topology.routes(ring, np.roll(ring, -1), np.zeros(tp))
    assert (routes.hops == 1).all()
    assert np.unique(routes.link).size == tp


def _plan_of(line):
    """The plan, from the line as it is read."""
    given = read_topology(line)[1]
    return plan(given["dims"], given.get("k", 3), given["tp"], ":line" not in line)


@pytest.mark.parametrize("line", RINGS)
def test_fibres_join_equal_lanes_and_a_looped_bundle_is_copper_where_it_is_no_ocstrx(line):
    topology, p = build_topology(line), _plan_of(line)
    place = np.argsort(deploy(p))
    lit = 0
    for a, b, kind in zip(topology.links.src, topology.links.dst, topology.links.dimension, strict=True):
        (i, g), (j, h) = divmod(int(a), p.gpus), divmod(int(b), p.gpus)
        if kind < 2:
            crossed = {g} if (h - g) % p.gpus == 1 else set()
            crossed |= {h} if (g - h) % p.gpus == 1 else set()
            assert kind in np.isin(list(crossed), bundles(p))
        if kind == 2:
            (out, _), (into, _) = states(p, place[i], place[j])
            assert (g - out) % p.gpus == (h - into) % p.gpus < 2
            lit += 1
    assert lit == 4 * (p.m - 1) * topology.placer(0, np.zeros(0, np.int64)).size // p.tp


@pytest.mark.parametrize("line", RINGS)
def test_all_bundles_of_a_node_are_looped_but_one_or_two_that_lead_to_other_nodes(line):
    topology = build_topology(line)
    gpus = topology.dims[-1]
    cables = np.stack((topology.links.src, topology.links.dst), axis=-1)[::2][topology.links.dimension[::2] < 3]
    node, gpu = np.divmod(cables, gpus)
    within = node[:, 0] == node[:, 1]
    assert np.isin((gpu[within, 1] - gpu[within, 0]) % gpus, (1, gpus - 1)).all()
    leaving = node[~within].reshape(-1, 2)
    joined, lanes = np.unique(np.sort(leaving, axis=1), axis=0, return_counts=True)
    assert (lanes == 2).all()  # the upper and the lower half
    assert np.bincount(joined.ravel(), minlength=1).max() <= 2  # one to each side
    looped = np.bincount(node[within, 0], minlength=topology.n_npus // gpus)
    assert np.array_equal(looped + np.bincount(leaving.ravel(), minlength=len(looped)) // 2, np.full(len(looped), gpus))


@pytest.mark.parametrize(("k", "faulty"), [(2, []), (3, [1, 2, 4, 5]), (3, [1, 2, 4]), (4, [2, 3, 4, 7])])
def test_a_bundle_is_in_the_state_that_the_one_fibre_of_its_ring_needs_else_looped(k, faulty):
    p = plan((1, 16, 1, 4), k, 12)
    found = orchestrate(p, np.array(faulty, np.int64), 0)
    ends = found[:, :-1].ravel(), found[:, 1:].ravel()
    lit = np.zeros((16, 4), np.int64)
    for nodes, (which, state) in zip(ends, states(p, *ends), strict=True):
        assert np.isin(state, (1, 2)).all()
        assert not lit[nodes, which].any()  # a bundle never has two active paths
        lit[nodes, which] = state
    assert np.array_equal(settings(p, found), lit)


def test_a_ring_does_not_pass_a_node_both_of_whose_fibres_share_a_bundle():
    p = plan((1, 16, 1, 4), 3, 12)
    faulty = np.array([4, 5, 7, 8])  # node 6 is 3 from 3 and 3 from 9
    for ring in orchestrate(p, faulty, 0):
        assert ring.tolist()[1] != 6
    even = plan((1, 16, 1, 4), 4, 12)
    assert any(6 in ring.tolist() for ring in orchestrate(even, faulty, 0))


def test_a_ring_with_a_faulty_gpu_takes_no_rank():
    topology = build_topology("infinitehbd:dims=1x8x2x4,tp=16")
    placed = topology.place(48, [0])
    assert 0 not in placed
    assert topology.place(64).reshape(4, 16)[1:].ravel().tolist() == placed.tolist()
    with pytest.raises(InputError, match="at most 48 where 1 of 64 NPUs are faulty"):
        topology.place(49, [0])


def test_a_message_to_no_neighbour_takes_the_dcn():
    topology = build_topology("infinitehbd:dims=1x8x2x4,tp=16")
    ring = topology.place(16)
    routes = topology.routes(ring[:1], ring[2:3], np.zeros(1))
    assert topology.links.dimension[routes.link].tolist() == [3, 3]
    to_switch = topology.routes(np.array([5, 64]), np.array([64, 5]), np.zeros(2))
    assert to_switch.hops.tolist() == [1, 1]


def test_an_all_reduce_round_a_ring_takes_what_its_links_take():
    topology = build_topology("infinitehbd:dims=1x8x2x4,tp=64,latency=1us")
    op, count = operation("all_reduce", 64), 2**20
    timeline = time_collective(CollectiveJob(op, schedule("all_reduce", "ring", 64), count, 4, topology, topology.place(64)))
    body = count * 4 / 64 / 400e9
    assert timeline.end_fs.max() == pytest.approx(2 * 63 * (1e-6 + body) * 1e15, rel=1e-9)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("infinitehbd:dims=8x4", "dims must be domains x ToRs of a domain x nodes of a ToR x GPUs of a node, .* got '8x4'"),
        ("infinitehbd:dims=1x8x2x1", "GPUs of a node must be 2 or more, such as 4 or 8, got 1"),
        ("infinitehbd:k=1", "k must be 2..4, as a node of 4 GPUs has as many bundles and a ring takes two, got 1"),
        ("infinitehbd:k=5", "k must be 2..4, .* got 5"),
        (
            "infinitehbd:dims=1x6x1x4,k=3,tp=4",
            "nodes must be 7 or more, so that the fibres of a node lead to different ones, got 6",
        ),
        ("infinitehbd:line:dims=1x3x1x4,k=3,tp=4", "nodes must be 4 or more"),
        ("infinitehbd:tp=30", "tp must be a multiple of 4, the GPUs of a node, up to 2880, got 30"),
        ("infinitehbd:tp=2884", "tp must be a multiple of 4, .* got 2884"),
        ("infinitehbd:faulty=720", r"faulty must be nodes of 0..719, got 720"),
        (
            "infinitehbd:faulty=5-3",
            "faulty must be nodes and ranges of them joined by [+], such as 3[+]17-19, or none, got '5-3'",
        ),
        ("infinitehbd:faulty=x", "faulty must be nodes and ranges"),
        (
            "infinitehbd:dims=1x8x1x4,tp=16,faulty=0-4",
            "faulty must be such that 4 nodes in a row are left .* got '5 of 8 nodes'",
        ),
        ("infinitehbd:faulty=1-3,job=2881", "job must be a multiple of tp=32 up to 2848, .* got 2881"),
        ("infinitehbd:job=2912", "job must be a multiple of tp=32 up to 2880, for which 720 working nodes have room, got 2912"),
        ("infinitehbd:job=0", "job must be a whole number of 1 or more, or all, got '0'"),
        ("infinitehbd:dims=4096x4096x1x8", "links must be at most 2[*][*]24"),
        (
            "infinitehbd:binary:nodes=12",
            "nodes must be a multiple of 16, the groups that fibres to 1..8 nodes away serve, got 12",
        ),
        ("infinitehbd:binary:nodes=16,bandwidth=0GB/s", "bandwidth"),
    ],
)
def test_what_cannot_be_built_is_said_in_a_line(line, message):
    with pytest.raises(InputError, match=message) as refused:
        build_topology(line)
    assert "\n" not in str(refused.value)


def test_settings_are_shown_as_they_are_written():
    shown = build_topology("infinitehbd:dims=1x8x2x4,tp=16,faulty=none,job=all")
    assert np.array_equal(shown.links.dst, build_topology("infinitehbd:dims=1x8x2x4,tp=16").links.dst)


def test_a_drawing_has_the_nodes_of_a_sub_line_in_a_row_and_a_box_a_tor():
    topology = build_topology("infinitehbd:dims=2x4x2x4,tp=16")
    drawn = topology.draw()
    node = drawn.at[:-1].reshape(2, 4, 2, 4, 2).mean(axis=3)  # domain, ToR, node of the ToR
    assert np.ptp(node[..., 1], axis=(0, 1)).max() == pytest.approx(0)
    assert np.ptp(node[..., 0], axis=2).max() == pytest.approx(0)
    assert [box.nodes for box in drawn.boxes] == [(8 * i, 8 * i + 8) for i in range(8)]


SYSTEMS = [  # light of TPUv4 takes 700 ns so that it is told from copper
    "hpn:pod:backup=8",
    "tpuv4:cubes=4x4x4,optical=700ns",
    "nvl:36:chips=apart",
    "nvl:72:chips=apart",
    "nvl:36x2:chips=apart",
    "nvl:576:chips=apart",
    "infinitehbd:k=2,job=32",  # other nodes are looped, so that all of their bundles are links
    "infinitehbd:k=3,job=32",
]


def _counted(built):
    """The parts that the links and nodes of a system are, none of them from its bill."""
    family = built.name.partition(":")[0]
    parts = getattr(counted, family)(built)
    if family == "infinitehbd":
        k = int(built.name.partition("k=")[2][0])
        parts["fibre"] = parts["node"] * len(fibre_neighbours(k)) // 2 * 8  # bundles of 8, two ends
    return parts


@pytest.mark.parametrize("line", SYSTEMS)
def test_the_bill_is_what_the_links_take(line):
    built = build_topology(line)
    found = {part: number for part, number in _counted(built).items() if number}
    assert found == {part: built.bill[part] for part in found}
