"""InfiniteHBD's rings against networkx, what cannot be built, and the rows of the paper."""

import networkx as nx
import numpy as np
import pytest

from emu.collective.algorithm import schedule
from emu.collective.operation import operation
from emu.errors import InputError
from emu.study.timing.collective import time_collective
from emu.topology.catalogue import build_topology, read_topology
from tests.topologies import counted
from topologies.infinitehbd.circuits.fibres import bundles, states
from topologies.infinitehbd.circuits.orchestration import deploy, orchestrate
from topologies.infinitehbd.circuits.rings import settings
from topologies.infinitehbd.plan import Plan, Rates


def plan(dims=(1, 8, 1, 4), k=2, tp=4, closed=True, powers=False):
    return Plan("infinitehbd", dims, k, tp, Rates(), closed, powers)


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
    timeline = time_collective(op, schedule("all_reduce", "ring", 64), count, 4, topology, topology.place(64))
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


PRICES = {  # dollars and watts each (Table 8)
    "tpuv4": {"OCS": (80000, 108), "DAC cable": (63.6, 0.1), "optical module": (360, 12), "fibre": (6.8, 0)},
    "nvl": {
        "NVLink switch": (28000, 275),
        "DAC cable": (35.6, 0.1),
        "ACC cable": (320, 2.5),
        "optical module": (850 + 6.8, 25),  # with its fibre
    },
    "hpn": {
        "ToR switch": (14960, 3145),
        "Agg switch": (14960, 3145),
        "cable NIC to ToR": (35.6, 0.1),
        "optical transceiver": (360, 12),
        "cable ToR to Agg": (6.8, 0),
    },
    "infinitehbd": {"DAC cable": (199.6, 0.1), "OCSTrx": (600, 12), "fibre": (6.8, 0)},
}
SYSTEMS = {  # line, GB/s a GPU; light of TPUv4 takes 700 ns so that it is told from copper
    "HPN": ("hpn:pod:backup=8", 50),
    "TPUv4": ("tpuv4:cubes=4x4x4,optical=700ns", 300),
    "NVL-36": ("nvl:36:chips=apart", 900),
    "NVL-72": ("nvl:72:chips=apart", 900),
    "NVL-36x2": ("nvl:36x2:chips=apart", 900),
    "NVL-576": ("nvl:576:chips=apart", 900),
    "InfHBD-K2": ("infinitehbd:k=2,job=32", 800),  # other nodes are looped, so that all of their bundles are links
    "InfHBD-K3": ("infinitehbd:k=3,job=32", 800),
}
COSTS = {  # what Table 6 prints, by the rows' ids; hbd-t6-NVL-36x2-watts has a test of its own
    "hbd-t8-hpn-cost": 1042.49,
    "hbd-t8-hpn-watts": 90.75,
    **{
        f"hbd-t6-{name}-{what}": printed
        for name, all_printed in {
            "TPUv4": (1567.20, 19.39, 5.22, 0.06),
            "NVL-36": (9563.20, 75.95, 10.63, 0.08),
            "NVL-72": (9563.20, 75.95, 10.63, 0.08),
            "NVL-36x2": (17924.00, None, 19.92, 0.17),
            "NVL-576": (30417.60, 413.45, 33.80, 0.46),
            "InfHBD-K2": (2626.80, 48.10, 3.28, 0.06),
            "InfHBD-K3": (3740.60, 72.05, 4.68, 0.09),
        }.items()
        for what, printed in zip(("cost", "watts", "costgb", "wattsgb"), all_printed, strict=True)
        if printed is not None
    },
}


def _counted(name):
    """The parts that the links and nodes of a system are, none of them from its bill."""
    built = build_topology(SYSTEMS[name][0])
    if name == "HPN":
        return counted.hpn(built)
    if name.startswith("InfHBD"):
        parts = counted.infinitehbd(built)
        return {**parts, "fibre": parts["node"] * len(_joined(int(name[-1]))) // 2 * 8}  # bundles of 8, two ends
    return counted.tpuv4(built) if name == "TPUv4" else counted.nvl(built)


def cost(name):
    """Dollars and watts a GPU, and a GPU and GB/s."""
    line, rate = SYSTEMS[name]
    found, prices = _counted(name), PRICES[line.partition(":")[0]]
    dollars, watts = (sum(found.get(part, 0) * price[i] for part, price in prices.items()) / found["NPU"] for i in (0, 1))
    return {"cost": dollars, "watts": watts, "costgb": dollars / rate, "wattsgb": watts / rate}


@pytest.mark.parametrize("row", COSTS)
def test_parts_at_the_prices_of_table_8_cost_what_table_6_prints(row):
    name, what = row.removeprefix("hbd-t6-").removeprefix("hbd-t8-").rsplit("-", 1)
    assert round(cost("HPN" if name == "hpn" else name)[what], 2) == COSTS[row]


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_bill_is_what_the_links_take(name):
    bill = build_topology(SYSTEMS[name][0]).bill
    found = {part: number for part, number in _counted(name).items() if number}
    assert found == {part: bill[part] for part in found}


def test_the_watts_of_nvl_36x2_in_table_6_take_fewer_cables_than_table_8_has():
    """Table 6's 150.33 takes 5184 cables of copper, its cost the 6480 of Table 8."""
    assert _counted("NVL-36x2")["DAC cable"] == 6480
    watts = cost("NVL-36x2")["watts"]
    assert watts == pytest.approx(152.125)
    assert watts - (6480 - 5184) * 0.1 / 72 == pytest.approx(150.33, abs=0.0051)


def _fibre_ends(topology):
    """[2, links] the nodes at both ends of the fibres that are lit."""
    lit = topology.links.dimension == 2
    return np.stack((topology.links.src[lit], topology.links.dst[lit])) // topology.dims[-1]


def _joined(k):
    """The nodes that fibres lead to from node 8 of 20: each lights where all nodes between are faulty."""
    found = set()
    for gap in range(k):
        for first in (9, 8 - gap):
            faulty = "+".join(map(str, range(first, first + gap))) or "none"
            src, dst = _fibre_ends(build_topology(f"infinitehbd:dims=1x20x1x4,k={k},tp={4 * (20 - gap)},faulty={faulty}"))
            found |= set(dst[src == 8].tolist())
    return found


def _passed(k, left, right):
    """Whether one ring takes all nodes that work where a node's neighbours that work are so far away."""
    faulty = [8 - away for away in range(1, left)] + [8 + away for away in range(1, right)]
    work = 16 - len(faulty)
    shown = "+".join(map(str, sorted(faulty))) or "none"
    try:
        built = build_topology(f"infinitehbd:line:dims=1x16x1x4,k={k},tp={4 * work},faulty={shown}")
    except InputError:
        return False
    return 8 in _fibre_ends(built)[0]


def _beside(line, node):
    """Numbers, from 1, of the nodes that fibres of a ring lead to from that one."""
    src, dst = _fibre_ends(build_topology(line))
    return set((dst[src == node - 1] + 1).tolist())


def _largest(line):
    """GPUs below which all partners of GPU 0 are reached without the DCN."""
    n = build_topology(line).n_npus
    bits = 1 << np.arange(n.bit_length() - 1)
    used = _classes(line, np.zeros_like(bits), bits)
    return int(2 ** sum(3 not in classes for classes in used))


def _exchange(p):
    """Pairs of each round of Binary Exchange, from the schedule."""
    full = schedule("all_to_all", "binary-exchange", p).expand()
    ends = [np.sort((full.src[rows], full.dst[rows]), axis=0).T for rows in full.rounds()]
    return [[tuple(pair) for pair in np.unique(pairs, axis=0).tolist()] for pairs in ends]


ROWS = {
    "hbd-cost-nvl-pct": 30.86,
    "hbd-cost-tpu-pct": 62.84,
    "hbd-cost-abs": 31,
    "hbd-cost-x-nvl": 3.24,
    "hbd-cost-x-tpu": 1.59,
    "hbd-hw-rate": 6.4,
    "hbd-topo-deg": 6,
    "hbd-topo-k3": 1,
    "hbd-dep-n3": 14,
    "hbd-aa-lim4": 64,
    "hbd-aa-lim8": 2048,
    "hbd-aa-k2": 4,
    "hbd-aa-fig24": [[(0, 2), (1, 3)], [(0, 1), (2, 3)]],
    "hbd-tr-scale": 2880,
}
COMPUTED = {
    "hbd-cost-nvl-pct": lambda: round(100 * round(cost("InfHBD-K2")["costgb"], 2) / round(cost("NVL-72")["costgb"], 2), 2),
    "hbd-cost-tpu-pct": lambda: round(100 * round(cost("InfHBD-K2")["costgb"], 2) / round(cost("TPUv4")["costgb"], 2), 2),
    "hbd-cost-abs": lambda: round(100 * cost("InfHBD-K2")["costgb"] / cost("NVL-72")["costgb"]),
    "hbd-cost-x-nvl": lambda: round(cost("NVL-72")["costgb"] / cost("InfHBD-K2")["costgb"], 2),
    "hbd-cost-x-tpu": lambda: round(cost("TPUv4")["costgb"] / cost("InfHBD-K2")["costgb"], 2),
    "hbd-hw-rate": lambda: _hbd_rate("infinitehbd") * 8 / 1e12,
    "hbd-topo-deg": lambda: len(_joined(3)),
    "hbd-topo-k3": lambda: sum(not _passed(3, left, right) for left in (1, 2, 3) for right in (1, 2, 3)),
    "hbd-dep-n3": lambda: min(_beside("infinitehbd:dims=1x4x4x4,tp=64", 3) - {7}),
    "hbd-aa-lim4": lambda: _largest("infinitehbd:binary:nodes=64"),
    "hbd-aa-lim8": lambda: _largest("infinitehbd:binary:nodes=1024,gpus=8,k=8"),
    "hbd-aa-k2": lambda: _largest("infinitehbd:binary:nodes=16,k=2") // 4,
    "hbd-aa-fig24": lambda: _exchange(4),
    "hbd-tr-scale": lambda: 3200 // build_topology("nvl:576").n_npus * build_topology("nvl:576").n_npus,
}


def _hbd_rate(line):
    built = build_topology(line)
    mine = (built.links.src == 0) & (built.links.dimension < 3)
    return built.links.bandwidth_Bps[mine].sum()


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_paper_is_what_is_built(row):
    assert COMPUTED[row]() == ROWS[row]
