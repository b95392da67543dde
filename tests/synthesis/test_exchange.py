"""All_to_alls by paths: closed forms, whole parts beside the program, translations, and other ways of a router."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from emu.bound.limit import FULL_EFFORT, limit_of
from emu.collective.algorithm import compact_schedule
from emu.collective.operation import operation
from emu.collective.proof import prove
from emu.collective.transform import slot_representatives
from emu.study.synthesize import SynthesisRequest, synthesize
from emu.synthesis.exchange.exchange_families import GRID_LANES, GRID_STREAMS, QUICKEST, ExchangeFamilies
from emu.synthesis.exchange.exchange_network import grid_network, whole_network
from emu.synthesis.exchange.path_program import block_paths, quickest_paths, whole_parts
from emu.synthesis.hops import hop_network
from emu.synthesis.programs import solve_in_time
from emu.synthesis.translation import grid_hops
from emu.topology.catalogue import build_topology
from tests.synthesis.graphs import drawn, made

LINK = "bandwidth=50GB/s,latency=500ns"
LARGE = 64 * 2**20


def never() -> None:
    """Let no time end."""


def networks(name):
    topology = build_topology(name)
    hops = hop_network(topology, tuple(range(topology.n_npus)))
    grid = grid_hops(topology, hops)
    return hops, whole_network(hops), None if grid is None else grid_network(hops, grid)


@pytest.mark.parametrize("dims", ["4x4", "8", "2x3x4"])
def test_paths_on_a_torus_take_what_its_bisection_takes(dims):
    hops, whole, grid = networks(f"torus:dims={dims},{LINK}")
    side = max(map(int, dims.split("x")))
    least = hops.n_ranks * side / 8 / 50e9  # half of the blocks of a ring of `side` cross its middle, which has two links
    for net in (whole, grid):
        found = block_paths(net, never)
        assert found.slowness == pytest.approx(least, rel=2e-3)
        assert found.least == pytest.approx(least, rel=2e-3)


@pytest.mark.parametrize("seed", range(12))
def test_shares_and_parts_are_above_a_bound_of_other_code_and_parts_come_near(seed):
    topology = drawn(seed)
    npus = tuple(range(topology.n_npus))
    net = whole_network(hop_network(topology, npus))
    found = block_paths(net, never)
    limit = limit_of(topology, operation("all_to_all", len(npus)), npus, helpers=False, effort=FULL_EFFORT)
    least = max(term.s_per_byte for term in limit.terms)
    assert least * (1 - 1e-6) <= found.slowness <= least * 1.02
    assert np.bincount(found.block, found.share) == pytest.approx(1)
    for parts in (1, 3, 16):
        count, slowness = whole_parts(net, found, parts)
        assert np.array_equal(np.bincount(found.block, count), np.full(len(net.pairs[0]), parts))
        assert slowness >= found.slowness * (1 - 1e-6)
    assert slowness <= found.slowness * 1.05


@pytest.mark.parametrize("seed", range(6))
def test_every_path_leads_from_the_source_of_its_block_to_its_destination(seed):
    topology = drawn(seed)
    net = whole_network(hop_network(topology, tuple(range(topology.n_npus))))
    found = block_paths(net, never)
    for block, arcs in zip(found.block.tolist(), found.arc.tolist(), strict=True):
        at = net.pairs[0][block]
        for arc in (arc for arc in arcs if arc >= 0):
            assert net.src[arc] == at
            at = net.dst[arc]
        assert at == net.pairs[1][block]


class OverError(Exception):
    pass


def test_a_program_ends_when_the_time_is_over():
    """The solver is given what is left, and that it has stopped is told by the error of the tick."""
    given, seen = iter([1e-9]), []

    def tick() -> float | None:
        left = next(given, None)
        if left is None:
            raise OverError
        seen.append(left)
        return left

    held = np.eye(400)
    program = (csr_array(held), np.ones(400)), (csr_array(held[:200]), np.ones(200) / 2)
    with pytest.raises(OverError):
        solve_in_time(tick, -np.ones(400), *program)
    assert seen == [1e-9]
    assert solve_in_time(never, -np.ones(400), *program).x == pytest.approx([0.5] * 200 + [1.0] * 200)


def test_a_proof_ends_when_its_check_says_so():
    schedule, op = compact_schedule("all_to_all", "pairwise", 6).expand(), operation("all_to_all", 6)
    count = iter(range(3))

    def check() -> None:
        if next(count, None) is None:
            raise OverError

    with pytest.raises(OverError):
        prove(schedule, op, check=check)
    prove(schedule, op, check=never)


def test_the_quickest_paths_have_the_least_latency():
    hops, whole, grid = networks(f"torus:dims=4x4,{LINK}")
    for net in (whole, grid):
        found = quickest_paths(net, hops.head_s[net.number])
        assert (found.arc >= 0).sum(axis=1).max() == 4
        assert (found.arc >= 0).sum() == 32 * len(net.sources)  # of 15 ranks 4, 6, 4 and 1 are 1 to 4 hops away


def test_a_quickest_path_may_have_more_hops():
    rows = [(0, 1, 1e9, 900), (0, 2, 1e9, 100), (2, 1, 1e9, 100), (1, 0, 1e9, 100), (2, 0, 1e9, 500)]
    hops = hop_network(made(3, 3, rows), (0, 1, 2))
    net = whole_network(hops)
    found = quickest_paths(net, hops.head_s)
    pairs = np.stack(net.pairs, axis=1).tolist()
    ways = {
        tuple(pair): net.dst[[arc for arc in arcs if arc >= 0]].tolist() for pair, arcs in zip(pairs, found.arc, strict=True)
    }
    assert ways == {(0, 1): [2, 1], (0, 2): [2], (1, 0): [0], (1, 2): [0, 2], (2, 0): [1, 0], (2, 1): [1]}


@pytest.mark.parametrize("name", ["fat-tree:radix=8", "fat-tree:radix=4"])
def test_hops_whose_ways_are_no_translations_are_not_taken_on_a_grid(name):
    """A fat tree's switches look alike, so that its links translate; but its router picks a spine by a hash."""
    topology = build_topology(name)
    hops = hop_network(topology, tuple(range(topology.n_npus)))
    grid = grid_hops(topology, hops)
    assert grid is not None
    assert grid_network(hops, grid) is None


def test_parallel_links_have_queues_of_their_own():
    topology = build_topology("railx:torus:m=2,n=2,nodes=2x2")
    hops = hop_network(topology, tuple(range(topology.n_npus)))
    assert len(np.unique(hops.src * topology.n_npus + hops.dst)) < len(hops.src)  # some pairs have several links
    assert len(np.unique(hops.queue)) == len(hops.src)
    assert hops.takes_way(np.arange(len(hops.src)), hops.channel).all()


@pytest.mark.parametrize("how", [GRID_LANES, GRID_STREAMS, QUICKEST])
@pytest.mark.parametrize("name", [f"torus:dims=2x3x4,{LINK}", "ub-mesh:board", f"switch:n=6,{LINK}"])
def test_translated_orders_store_the_rows_of_rank_0_and_do_the_operation(name, how):
    topology = build_topology(name)
    n = topology.n_npus
    op, hops = operation("all_to_all", n), hop_network(topology, tuple(range(n)))
    for _, (_, build) in zip(range(2), ExchangeFamilies(topology, hops, op, 2.0**20, never).family(how), strict=False):
        schedule = build()
        assert schedule.by_rank
        prove(*slot_representatives(schedule, op))
        prove(schedule.expand(), op)


def test_a_router_that_picks_ways_by_channel_is_spread_evenly():
    found = synthesize(build_topology("fat-tree:radix=4"), SynthesisRequest("all_to_all", LARGE))
    assert found.of_trees > 0.99


@pytest.mark.parametrize("name", ["hammingmesh:boards=1x2", "railx:torus:m=2,n=2,nodes=2x2", f"torus:dims=4x4,{LINK}"])
def test_an_all_to_all_comes_near_the_bound_of_paths(name):
    found = synthesize(build_topology(name), SynthesisRequest("all_to_all", LARGE))
    assert 0.95 < found.of_trees <= 1
