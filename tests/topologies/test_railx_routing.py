import itertools
import re
from collections import Counter

import networkx as nx
import numpy as np
import pytest

from emu.study.measure.bench import bench
from emu.study.measure.request import BenchRequest
from emu.topology.catalogue import TOPOLOGIES, build_topology
from emu.topology.paths.path_check import cycle

SMALL = [f"railx:{v}:{e}" for v in ("torus", "hyperx", "dragonfly", "split") for e in TOPOLOGIES.find(f"railx:{v}").examples]
ROWS = {"rx-t2-hx-d": 2, "rx-t2-df-d": 3, "rx-vc": 3}  # figures of the paper's, by their ids in the list of targets


def _between_nodes(topology, m):
    """How many rails each ordered pair of nodes has."""
    rails = topology.links.dimension > 0
    src, dst = topology.links.src[rails] // m**2, topology.links.dst[rails] // m**2
    return Counter(zip(src.tolist(), dst.tolist(), strict=True))


def _sample(topology, count, seed=0):
    src, dst = np.random.default_rng(seed).integers(topology.n_npus, size=(2, count))
    return src[src != dst], dst[src != dst]


def _routes(topology, count=None):
    """Routes of all pairs, or of some, with a few keys."""
    if count is None:
        src, dst = np.array(list(itertools.permutations(range(topology.n_npus), 2))).T
    else:
        src, dst = _sample(topology, count)
    return src, dst, topology.routes(src, dst, np.arange(len(src)) % 5)


def _hops(topology, routes):
    """Hops of each route inside nodes and between them."""
    pair = np.repeat(np.arange(len(routes.hops)), routes.hops)
    optical = topology.links.dimension[routes.link] > 0
    return (np.bincount(pair[kind], minlength=len(routes.hops)) for kind in (~optical, optical))


def _circle(routes):
    return cycle(routes, routes.virtual)


@pytest.mark.parametrize(("m", "n"), [(2, 1), (2, 2), (4, 1), (4, 2), (3, 2), (5, 2), (7, 9)])
def test_algorithm_1_keeps_the_diameter_and_cannot_deadlock(m, n):
    """All pairs of the smaller ones."""
    topology = build_topology(f"railx:hyperx:m={m},n={n}")
    _, _, routes = _routes(topology, None if topology.n_npus <= 400 else 40_000)
    inside, between = _hops(topology, routes)
    assert inside.max() <= 5 * m - 6  # rx-d-hx
    assert between.max() == ROWS["rx-t2-hx-d"]
    assert routes.virtual.max() + 1 == ROWS["rx-vc"]
    assert _circle(routes) == []


def test_on_a_single_channel_it_could():
    _, _, routes = _routes(build_topology("railx:hyperx:m=2,n=2"))
    assert len(cycle(routes)) > 1


@pytest.mark.parametrize("line", ["m=2,n=2", "m=3,n=2", "m=4,n=2,a=2"])
def test_every_hop_is_what_algorithm_1_says_where_the_message_is(line):
    topology = build_topology(f"railx:hyperx:{line}")
    size, m = topology.dims[0], topology.dims[-1]
    _, dst, routes = _routes(topology, 3000)
    here = topology.links.src[routes.link] // m**2
    there = np.repeat(dst, routes.hops) // m**2
    kind = topology.links.dimension[routes.link]
    x_differs, same = here % size != there % size, here == there
    assert (kind[same] == 0).all()
    assert (kind[x_differs] != 2).all()
    assert (kind[~x_differs] != 1).all()
    channel = np.where(same, 2, np.where(x_differs, 0, 1) + (kind > 0))
    assert np.array_equal(routes.virtual, channel)


@pytest.mark.parametrize("line", ["hyperx:m=3,n=2", "hyperx:m=4,n=2,a=2", "dragonfly:m=2,n=2,groups=11"])
def test_the_walk_before_the_first_rail_is_to_the_nearest_chip_that_leads_to_the_same_node(line):
    topology = build_topology(f"railx:{line}")
    m, links = topology.dims[-1], topology.links
    chips = {}
    for link in np.flatnonzero(links.dimension > 0):
        chips.setdefault((links.src[link] // m**2, links.dst[link] // m**2), []).append(links.src[link])
    src, _, routes = _routes(topology, 400)
    for pair in range(len(src)):
        route = routes.of(pair)
        rails = np.flatnonzero(links.dimension[route] > 0)
        if len(rails):
            taken = route[rails[0]]
            ends = chips[links.src[taken] // m**2, links.dst[taken] // m**2]
            away = [abs(end // m % m - src[pair] // m % m) + abs(end % m - src[pair] % m) for end in ends]
            assert rails[0] == min(away)


@pytest.mark.parametrize("line", SMALL)
def test_on_any_setting_channels_never_fall_and_no_route_waits_in_a_circle(line):
    topology = build_topology(line)
    _, _, routes = _routes(topology)
    inside = np.setdiff1d(np.arange(1, len(routes.link)), routes.start)
    assert (np.diff(routes.virtual.astype(int))[inside - 1] >= 0).all()
    assert _circle(routes) == []
    channels = int(re.search(r"(\d+) virtual channels", " ".join(topology.assumptions)).group(1))
    assert channels > routes.virtual.max()


def test_a_torus_takes_the_nearer_way_round_by_one_rail():
    topology = build_topology("railx:torus:m=2,n=3,nodes=8x5")
    src, dst, routes = _routes(topology, 3000)
    _, between = _hops(topology, routes)
    steps = [abs(src // 4 % 8 - dst // 4 % 8), abs(src // 32 - dst // 32)]
    assert np.array_equal(between, np.minimum(steps[0], 8 - steps[0]) + np.minimum(steps[1], 5 - steps[1]))
    used = np.unique(topology.links.src[routes.link[topology.links.dimension[routes.link] == 1]] % 4)
    assert used.tolist() == [0, 1, 2, 3]
    taken = np.bincount(routes.link, minlength=len(topology.links))
    assert taken[topology.links.dimension > 0].min() > 0


@pytest.mark.parametrize("line", ["m=3,n=2,nodes=6x4", "m=4,n=1,nodes=2x4", "m=2,n=2,nodes=5x8"])
def test_of_two_ways_round_with_as_many_rails_a_torus_takes_the_shorter_walk(line):
    """Along one dimension, where the best way is known: fewest rails, and of those fewest links inside nodes."""
    topology = build_topology(f"railx:torus:{line}")
    m, links = topology.dims[-1], topology.links
    graph = nx.DiGraph()
    weights = np.where(links.dimension > 0, 1000, 1).tolist()
    graph.add_weighted_edges_from(zip(links.src.tolist(), links.dst.tolist(), weights, strict=True))
    for axis in (1, 0):  # of the nodes' grid: X, then Y
        src = np.arange(m * m)  # all chips of node 0, to all chips in the same row (column) of chips
        place = np.stack(np.unravel_index(src, (m, m)))
        for far in range(1, topology.dims[axis]):
            node = far if axis == 1 else far * topology.dims[1]
            pairs = [(int(a), int(b)) for a in src for b in src if place[1 - axis][a] == place[1 - axis][b]]
            ends = np.array(pairs).T + np.array([[0], [node * m * m]])
            routes = topology.routes(*ends, np.arange(len(pairs)))
            for pair, (a, b) in enumerate(ends.T.tolist()):
                taken = np.where(links.dimension[routes.of(pair)] > 0, 1000, 1).sum()
                assert taken == nx.shortest_path_length(graph, a, b, weight="weight"), (a, b)


def test_a_dragonfly_takes_a_hop_in_its_row_one_between_rows_and_one_in_the_other():
    topology = build_topology("railx:dragonfly:m=2,n=2,groups=19")
    src, dst, routes = _routes(topology, 20_000)
    _, between = _hops(topology, routes)
    node, wanted = src // 4, dst // 4
    nearest = dict(nx.all_pairs_shortest_path_length(nx.Graph(list(_between_nodes(topology, 2)))))
    within = node // 5 == wanted // 5
    assert np.array_equal(between[within], (node != wanted)[within])
    assert between.max() == ROWS["rx-t2-df-d"]
    longer = between - [nearest[a][b] for a, b in zip(node.tolist(), wanted.tolist(), strict=True)]
    assert set(longer.tolist()) == {0, 1}  # two rows on the way are no minimal route of a dragonfly, and one is seldom more
    assert _circle(routes) == []


def test_the_nonminimal_routing_has_four_channels_and_uses_all_rails_between_two_nodes():
    topology = build_topology("railx:hyperx-nonminimal:m=2,n=2")
    _, _, all_routes = _routes(topology)
    assert all_routes.virtual.max() + 1 == 4
    assert _circle(all_routes) == []
    keys = np.arange(200)
    for dst in (4 * 2, 4 * 5 * 2):  # in the row, and in the column
        used = {}
        for name in ("railx:hyperx", "railx:hyperx-nonminimal"):
            fabric = build_topology(f"{name}:m=2,n=2")
            link = fabric.routes(np.zeros(200), np.full(200, dst), keys).link
            used[name] = len(np.unique(link[fabric.links.dimension[link] > 0]))
        assert used["railx:hyperx"] <= 2
        assert used["railx:hyperx-nonminimal"] >= 8


def test_a_detour_is_x_then_y_then_x_on_channels_one_one_and_two():
    topology = build_topology("railx:hyperx-nonminimal:m=2,n=2")
    _, _, routes = _routes(topology)
    rail = topology.links.dimension[routes.link] > 0
    taken = {(int(d), int(v)) for d, v in zip(topology.links.dimension[routes.link[rail]], routes.virtual[rail], strict=True)}
    assert taken == {(1, 1), (2, 1), (1, 2)}


def test_channels_take_the_parallel_rails_of_a_torus_in_turn():
    torus = build_topology("railx:torus:m=2,n=9,nodes=4x4")
    corner, beyond = np.ravel_multi_index((0, 0, 0, 1), torus.dims), np.ravel_multi_index((0, 1, 0, 0), torus.dims)
    routes = torus.routes(np.full(18, corner), np.full(18, beyond), np.arange(18))
    assert set(routes.hops) == {1}
    assert np.bincount(routes.link)[routes.link].tolist() == [2] * 18


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_2d_ring_on_as_many_channels_as_a_chip_has_ports_fills_all_rails_as_equation_7_says(n):
    """Upwards only, so V / (n B); a link of a node is as fast as the n rails here, and as long."""
    side, size, alpha, port = 8, 64 * 2**14, 300e-9, 50e9
    torus = build_topology(f"railx:torus:m=2,n={n},nodes=4x4,k=1,latency=300ns,optical=300ns")
    request = BenchRequest("all_reduce", f"2d-ring@{n}", (size * 2 * n,), "int8", dims=(side, side), axes=(0, 2, 1, 3))
    (row,) = bench(torus, request)
    steps, volume = 4 * (side - 1), size * 2 * n
    assert row.time_s == pytest.approx(steps * alpha + volume / (n * port) * (1 - 1 / side**2), rel=1e-6)
