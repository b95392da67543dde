"""Laws that every topology of the catalogue must keep, on each of the small instances that it names."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import TOPOLOGIES, build_topology, read_topology
from emu.topology.facts.facts import cut, summary
from emu.topology.topology import Topology

LINES = [":".join(filter(None, (name, example))) for name, blueprint in TOPOLOGIES for example in blueprint.examples]
KEYS = (0, 1)


@dataclass(frozen=True)
class Small:
    """An instance, with what several tests look at; built once for all of them."""

    line: str

    @cached_property
    def topology(self) -> Topology:
        return build_topology(self.line)

    @cached_property
    def promised(self):
        blueprint, arguments = read_topology(self.line)
        return blueprint.invariants(**arguments)

    @cached_property
    def pairs(self):
        return np.argwhere(~np.eye(self.topology.n_npus, dtype=np.bool_))

    @cached_property
    def routes(self):
        """Return the routes of all pairs by each key."""
        return [self.topology.routes(*self.pairs.T, np.full(len(self.pairs), key)) for key in KEYS]

    @cached_property
    def graph(self):
        graph = nx.DiGraph()
        graph.add_nodes_from(range(self.topology.n_nodes))
        graph.add_edges_from(zip(self.topology.links.src.tolist(), self.topology.links.dst.tolist(), strict=True))
        return graph


@pytest.fixture(scope="module", params=LINES)
def small(request) -> Small:
    return Small(request.param)


def test_links_degree_diameter_and_bisection_are_those_promised(small):
    promised, found = small.promised, summary(small.topology)
    degree = promised.degree if isinstance(promised.degree, tuple) else (promised.degree,) * 2
    assert (found.links, found.degree) == (promised.links, degree)
    assert promised.diameter in (None, found.diameter)
    assert found.diameter_exact
    for name in ("npus", "switches"):
        assert getattr(promised, name) in (None, getattr(found, name))
    if promised.paths is not None:
        assert found.paths[0] == promised.paths
    if promised.injection_Bps is not None:
        assert found.injection_Bps == pytest.approx((promised.injection_Bps,) * 2, rel=1e-12)
    if promised.bisection_Bps is not None:
        assert found.bisection_Bps == pytest.approx(promised.bisection_Bps, rel=1e-12)


def test_npus_come_before_switches(small):
    topology, graph = small.topology, small.graph
    assert 1 <= topology.n_npus <= topology.n_nodes == len(graph)
    switches = range(topology.n_npus, topology.n_nodes)
    assert all(graph.in_degree(s) and graph.out_degree(s) for s in switches)


def test_every_link_has_one_back_of_the_same_rate(small):
    links = small.topology.links
    src, dst = links.src.tolist(), links.dst.tolist()
    rates = list(zip(links.bandwidth_Bps.tolist(), links.latency_fs.tolist(), links.dimension.tolist(), strict=True))
    assert Counter(zip(src, dst, rates, strict=True)) == Counter(zip(dst, src, rates, strict=True))
    assert not (links.src == links.dst).any()


def test_routes_start_and_end_right_are_contiguous_and_visit_no_node_twice(small):
    links, pairs = small.topology.links, small.pairs
    for routes in small.routes:
        src, dst = links.src[routes.link], links.dst[routes.link]
        assert np.array_equal(src[routes.start[:-1]], pairs[:, 0])
        assert np.array_equal(dst[routes.start[1:] - 1], pairs[:, 1])
        inside = np.setdiff1d(np.arange(1, len(src)), routes.start)
        assert np.array_equal(dst[inside - 1], src[inside])
        pair, n = np.arange(len(pairs)), small.topology.n_nodes
        visits = np.concatenate((np.repeat(pair, routes.hops) * n + dst, pair * n + pairs[:, 0]))
        assert len(np.unique(visits)) == len(visits)


def test_routes_are_as_short_as_networkx_finds_where_that_is_promised(small):
    shortest = [nx.single_source_shortest_path_length(small.graph, src) for src in range(small.topology.n_npus)]
    least = np.array([shortest[src][dst] for src, dst in small.pairs.tolist()], dtype=np.int64)
    for routes in small.routes:
        assert (routes.hops >= least).all()
        assert not small.promised.shortest or np.array_equal(routes.hops, least)


def test_the_cut_between_the_halves_of_the_numbering_is_what_networkx_finds(small):
    topology = small.topology
    if topology.n_npus >= 2 and len(topology.links) <= 1000:
        low = np.arange(topology.n_npus) < topology.n_npus // 2
        graph = nx.DiGraph()
        columns = (topology.links.src.tolist(), topology.links.dst.tolist(), topology.links.bandwidth_Bps)
        for src, dst, rate in zip(*columns, strict=True):
            before = graph.get_edge_data(src, dst, {"capacity": 0})["capacity"]
            graph.add_edge(src, dst, capacity=before + round(rate))
        for npu in range(topology.n_npus):
            graph.add_edge("low", npu) if low[npu] else graph.add_edge(npu, "high")
        assert cut(topology, low) == pytest.approx(nx.minimum_cut_value(graph, "low", "high"), rel=1e-6)


def test_a_pair_is_routed_alike_whatever_else_is_asked(small):
    routes = small.routes[1]
    order = np.random.default_rng(0).permutation(len(small.pairs))[:40]
    asked = small.pairs[order]
    some = small.topology.routes(asked[:, 0], asked[:, 1], np.full(len(asked), KEYS[1]))
    for place, pair in enumerate(order.tolist()):
        assert np.array_equal(some.of(place), routes.of(pair))


def test_a_topology_with_no_room_for_more_ranks_says_how_many_fit(small):
    topology = small.topology
    assert len(topology.place(1)) == 1
    for most in (topology.n_npus, topology.n_nodes):
        with pytest.raises(InputError, match="at most"):
            topology.place(most + 1)


def test_a_drawing_gives_every_node_a_place_of_its_own(small):
    topology = small.topology
    if topology.draw is not None:
        drawn = topology.draw()
        assert drawn.at.shape == (topology.n_nodes, 2)
        assert len(np.unique(drawn.at.round(6), axis=0)) == topology.n_nodes
        assert all(0 <= box.nodes[0] < box.nodes[1] <= topology.n_nodes for box in drawn.boxes)


def test_dims_number_the_npus_and_the_bill_counts_them_and_the_cables(small):
    topology = small.topology
    assert not topology.dims or np.prod(topology.dims) == topology.n_npus
    assert topology.bill["NPU"] == topology.n_npus
    cables = [number for part, number in topology.bill.items() if part.startswith(("cable", "link"))]
    assert sum(cables) == len(topology.links) // 2


FULL = [f"{name}:{settings}".rstrip(":") for name, blueprint in TOPOLOGIES for settings in blueprint.full]


@pytest.mark.parametrize("line", FULL)
def test_full_size_builds_with_the_counts_promised_and_routes_what_is_asked(line):
    blueprint, arguments = read_topology(line)
    promised, topology = blueprint.invariants(**arguments), build_topology(line)
    assert len(topology.links) == promised.links
    assert promised.npus in (None, topology.n_npus)
    assert promised.switches in (None, topology.n_nodes - topology.n_npus)
    src, dst = np.random.default_rng(0).permutation(topology.n_npus)[:400].reshape(2, -1)
    routes = topology.routes(src, dst, np.arange(len(src)))
    assert np.array_equal(topology.links.src[routes.link[routes.start[:-1]]], src)
    assert np.array_equal(topology.links.dst[routes.link[routes.start[1:] - 1]], dst)


@pytest.mark.parametrize("name", [name for name, _ in TOPOLOGIES])
def test_a_blueprint_says_what_it_is_where_it_is_from_and_how_to_build_one(name):
    blueprint = TOPOLOGIES.find(name)
    assert blueprint.summary.endswith(".")
    assert blueprint.source
    assert build_topology(blueprint.example).n_npus > 1
