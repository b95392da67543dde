"""The bound over a router's ways: not above what schedules on these ways take, and equal to what is known of some fabrics."""

import pytest

from emu.bound.limit import FULL_EFFORT, limit_of
from emu.bound.trees import tree_optimum
from emu.collective.operation import operation
from emu.study.synthesis_row import synthesis_row
from emu.study.synthesize import SynthesisRequest, synthesize
from emu.synthesis import route_bound
from emu.synthesis.exchange.exchange_network import whole_network
from emu.synthesis.exchange.path_program import block_paths
from emu.synthesis.hops import hop_network
from emu.synthesis.route_bound import routes_s_per_byte
from emu.synthesis.variants import SYNTHESIS_OPERATIONS
from emu.topology.catalogue import build_topology
from tests.synthesis.graphs import drawn

RACK = "ub-mesh:rack-full:dims=4x4"
HPN = "hpn:pod:dims=2x2x2,aggs=2"
LARGE = 64 * 2**20


def never() -> None:
    """Let no time end."""


@pytest.mark.parametrize("name", SYNTHESIS_OPERATIONS)
@pytest.mark.parametrize("seed", range(6))
def test_no_schedule_is_faster_than_the_bound_of_its_ways(seed, name):
    topology = drawn(seed, most=6)
    found = synthesize(topology, SynthesisRequest(name, LARGE))
    hops = hop_network(topology, found.site.npus)
    block_bytes = int(found.operation.block_counts(LARGE // 4).min()) * 4
    bound_s = routes_s_per_byte(hops, name) * block_bytes
    assert 0 < bound_s <= found.time_s * (1 + 1e-6)


@pytest.mark.parametrize("line", [RACK, HPN])
def test_of_an_all_to_all_it_is_what_the_program_of_paths_gives(line):
    hops = hop_network(build_topology(line), tuple(range(build_topology(line).n_npus)))
    paths = block_paths(whole_network(hops), never)
    found = routes_s_per_byte(hops, "all_to_all")
    assert 0.97 * paths.least <= found <= paths.slowness * (1 + 1e-6)


@pytest.mark.parametrize("line", [RACK, HPN])
def test_it_is_no_lower_than_what_each_rank_takes_in(line):
    topology = build_topology(line)
    n, op = topology.n_npus, operation("all_gather", topology.n_npus)
    hops = hop_network(topology, tuple(range(n)))
    into = {int(link) for hop in range(len(hops.src)) if hops.dst[hop] == 0 for link in hops.links_of(hop)[-1:]}
    rate_Bps = sum(hops.capacity_Bps[link] for link in into)
    assert routes_s_per_byte(hops, op.name) >= (n - 1) / rate_Bps * (1 - 1e-6)


def test_a_row_tells_it_where_a_router_has_a_say_and_it_is_no_lower_than_that_of_trees(monkeypatch):
    row, found = synthesis_row(build_topology(RACK), SynthesisRequest("all_gather", LARGE))
    assert row.of_tree_bound < 0.85
    assert 0.97 < row.of_routes_bound <= 1 + 1e-9
    least_s = tree_optimum(found.site.topology, found.operation, found.site.npus).least_s(LARGE // 16)
    assert row.of_tree_bound == pytest.approx(least_s / row.time_s)
    torus = build_topology("torus:dims=4x4,bandwidth=50GB/s,latency=500ns")
    assert synthesis_row(torus, SynthesisRequest("all_gather", LARGE))[0].of_routes_bound is None
    monkeypatch.setattr(route_bound, "_MOST", 1)
    assert synthesis_row(build_topology(RACK), SynthesisRequest("all_gather", LARGE))[0].of_routes_bound is None


def test_it_is_above_the_bound_of_all_ways_where_the_router_offers_few():
    topology = build_topology(RACK)
    hops = hop_network(topology, tuple(range(16)))
    limit = limit_of(topology, operation("all_to_all", 16), tuple(range(16)), helpers=False, effort=FULL_EFFORT)
    assert routes_s_per_byte(hops, "all_to_all") > 1.2 * max(term.s_per_byte for term in limit.terms)
