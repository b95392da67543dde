"""The limit of each operation: against all sets of nodes, and against every schedule of the catalogue that can be timed."""

from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product

import networkx as nx
import numpy as np
import pytest

from collectives import pipelined_chain
from emu.bound import limit
from emu.bound.cuts import sampled_cut
from emu.bound.limit import CROSSED, CUT, FULL_EFFORT, LATENCY, MESSAGES, PATHS, QUICK_EFFORT, TRIED, Effort, Limit, limit_of
from emu.bound.linear_programs import NEAR
from emu.bound.network import network, network_kinds
from emu.collective.algorithm import ALGORITHMS, algorithm
from emu.collective.operation import OPERATIONS, ROOTED, operation
from emu.collective.proof import prove
from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError
from emu.fabric.lowering.circuit_turns import TornError
from emu.study.choice.site import Site, candidates
from emu.study.measure.bench import bench
from emu.study.measure.request import BenchRequest
from emu.study.timing import CollectiveJob, time_collective
from emu.topology.catalogue import TOPOLOGIES, build_topology
from emu.topology.placement import place

LINK = "bandwidth=50GB/s,latency=500ns"
SEEDS = range(12)


def _by_all_sets(topology, op, places):
    """The most that a set of nodes has to send, for what leaves it."""
    net, best = network(topology, places), Fraction(0)
    for bits in product((False, True), repeat=topology.n_nodes):
        inside = np.array(bits)
        held = {b for r, b in op.have.tolist() if inside[places[r]]}
        wanted = {b for r, b in op.want.tolist() if not inside[places[r]]}
        if held & wanted:
            best = max(best, Fraction(len(held & wanted), net.out_of(inside)))
    return net.seconds(best) * 1e9


NONE = Effort(0, 0, programs=False)


def _terms(topology, op, places, effort=QUICK_EFFORT, *, helpers=False):
    """Nanoseconds a byte, by bound: seconds would be below what `pytest.approx` takes for nothing."""
    found = limit_of(topology, op, tuple(places), helpers=helpers, effort=effort).terms
    return {term.by: term.s_per_byte * 1e9 for term in found}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_cut_is_the_worst_of_all_sets_and_what_is_tried_no_more(random_topology, name, seed) -> None:
    topology = random_topology(seed)
    n = topology.n_npus
    op = operation(name, n, n - 1 if name in ROOTED else 0)
    places = tuple(np.random.default_rng(seed).permutation(n).tolist())
    wanted = pytest.approx(_by_all_sets(topology, op, places), rel=1e-12)
    efforts = (FULL_EFFORT, QUICK_EFFORT, NONE, Effort(1, 2**20, programs=False))
    found, quick, least, one = (_terms(topology, op, places, effort, helpers=True) for effort in efforts)
    if CUT in found:
        assert found[CUT] == wanted
    assert set(least) == {LATENCY, TRIED}
    for some in (quick.get(TRIED, 0.0), least[TRIED], one.get(TRIED, 0.0)):
        assert some == wanted or some < wanted.expected
    assert PATHS not in found or found[PATHS] >= wanted.expected * (1 - 1e-9)
    assert CROSSED not in found or found[CROSSED] <= found[PATHS] * (1 + 1e-9)
    assert max(least.values()) <= max(quick.values()) <= max(found.values())


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("seed", SEEDS)
def test_single_ranks_all_but_one_and_halves_are_tried_both_ways(random_topology, name, seed) -> None:
    topology = random_topology(seed)
    n = topology.n_npus
    op = operation(name, n, n - 1 if name in ROOTED else 0)
    net, ranks, sets = network(topology, np.arange(n)), np.arange(n), list(product((False, True), repeat=topology.n_nodes))
    alone = [np.arange(topology.n_nodes) == rank for rank in ranks]
    wanted = [_amount(op, s) / Fraction(net.out_of(s)) for one in alone for s in (one, ~one) if net.out_of(s)]
    for half in (ranks < n // 2, ranks >= n // 2):
        amount = _amount(op, half)
        if amount:
            wanted.append(amount / Fraction(min(net.out_of(np.array(s)) for s in sets if np.array_equal(s[:n], half))))
    assert sampled_cut(net, network_kinds(net, topology), op, (), most_sets=1).ratio == max(wanted)


def _amount(op, inside):
    """Blocks that a rank in the set has and one outside wants."""
    held = {b for r, b in op.have.tolist() if inside[r]}
    return len(held & {b for r, b in op.want.tolist() if not inside[r]})


EXAMPLES = [[":".join(filter(None, (name, each))) for each in blueprint.examples] for name, blueprint in TOPOLOGIES]
LINES = [line for lines in EXAMPLES for line in lines]
FEW = [f"switch:n=5,{LINK}", f"ring:n=9,{LINK}", f"torus:dims=4x4,{LINK}", f"hypercube:d=3,{LINK}", "sipac:r=4,L=2"]
FEW += ["ub-mesh:board", "servers:nodes=2,gpus=4,network=rails", "fat-tree:radix=4,tiers=3", "hpn:pod:dims=2x2x2,aggs=2"]
FEW += ["railx:torus:m=1,n=2,nodes=5x4,optical=1us", "dragonfly:p=1,a=2,h=1", "dgx-h100:chips=apart,adds=yes"]
FEW += ["fat-tree:radix=4,tiers=2,adds=yes"]


def _room(topology):
    """How many ranks its rules of placement find room for."""
    for n in range(topology.n_npus, 1, -1):
        try:
            return len(place(topology, n))
        except InputError:
            continue
    return 1


_built = cache(build_topology)


def _hold(line, name, *, most_ranks=24, times=(1, 100, 3000)):
    """Hold every algorithm to the bound, at so many times the smallest size."""
    topology = _built(line)
    n = min(most_ranks, _room(topology))
    op = operation(name, n)
    sizes = tuple(op.blocks_in_size * each for each in times)
    for each in candidates(name, Site.first(topology, n)):
        for row in _rows(topology, BenchRequest(name, each.name, sizes, "uint8", ranks=n, effort=FULL_EFFORT)):
            assert 0 < row.of_bound <= 1, (row.algorithm, row.size_bytes, row.bound)


def _rows(topology, request):
    """None where a round would need an optical switch in two states: that schedule cannot be on this topology."""
    try:
        return list(bench(topology, request))
    except TornError:
        return []


@pytest.mark.usefixtures("no_trees")
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("line", FEW)
def test_no_schedule_beats_the_bound(line, name) -> None:
    _hold(line, name)


@pytest.mark.usefixtures("no_trees")
@pytest.mark.parametrize(
    ("line", "names"),
    [
        # A quarter of the operations on each topology by turns, the others are slow.
        pytest.param(lines[0], [*OPERATIONS][quarter::4], marks=pytest.mark.slow if (turn + quarter) % 4 else ())
        for turn, lines in enumerate(EXAMPLES)
        for quarter in range(4)
    ],
    ids=lambda each: each if isinstance(each, str) else each[0],
)
def test_no_schedule_of_a_few_ranks_beats_the_bound_on_any_topology_of_the_catalogue(line, names) -> None:
    for name in names:
        _hold(line, name, most_ranks=6, times=(3000,))


@pytest.mark.slow
@pytest.mark.usefixtures("no_trees")
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("line", LINES)
def test_no_schedule_beats_the_bound_on_any_small_topology_of_the_catalogue(line, name) -> None:
    if 1 < build_topology(line).n_npus <= 24:
        _hold(line, name)


def test_a_time_rounded_down_to_ticks_is_not_above_its_bound_and_a_wrong_bound_is_seen(monkeypatch) -> None:
    topology, request = build_topology("ub-mesh:board"), BenchRequest("reduce_scatter", "direct", (80,), "uint8")
    (row,) = bench(topology, request)
    assert row.bound_s > row.time_s  # ten bytes a link take 178.57142857 ps, of which the clock counts 178.571
    assert 1 - 1e-8 < row.of_bound <= 1
    least_s = Limit.least_s
    monkeypatch.setattr(Limit, "least_s", lambda *of: ((1 + 1e-8) * least_s(*of)[0], CUT))
    (wrong,) = bench(topology, request)
    assert wrong.of_bound > 1


def test_every_algorithm_is_held_against_a_bound() -> None:
    built = [build_topology(line) for line in FEW]
    sites = [Site.first(topology, topology.n_npus) for topology in built]
    found = {each.key for name in OPERATIONS for site in sites for each in candidates(name, site)}
    assert {key for key, _ in ALGORITHMS} - found == set()


def _as_sizes_grow(line, operation_name, name):
    """The row of a size at which latency is nothing."""
    topology = build_topology(line)
    (row,) = bench(topology, BenchRequest(operation_name, name, (15 * 2**40,), "uint8", effort=FULL_EFFORT))
    return row


@pytest.mark.parametrize(
    ("line", "name", "out_Bps"),  # of a rank, all its links together
    [
        (f"switch:n=8,{LINK}", "ring", 50e9),
        (f"full-mesh:n=8,{LINK}", "direct", 7 * 50e9),
        ("ub-mesh:board", "multi-ring", 7 * 56e9),
        (f"torus:dims=4x4,{LINK}", "torus-buckets", 4 * 50e9),
        (f"torus:dims=2x2x2,{LINK}", "torus-buckets", 6 * 50e9),
        (f"ring:n=8,{LINK}", "bidirectional-ring", 2 * 50e9),
    ],
)
def test_what_is_known_to_be_optimal_reaches_the_bound_and_the_best_trees(line, name, out_Bps) -> None:
    row = _as_sizes_grow(line, "all_reduce", name)
    n = row.ranks
    assert row.time_s == pytest.approx(2 * (n - 1) / n * row.size_bytes / out_Bps, rel=1e-6)
    assert row.bound == MESSAGES
    assert row.of_bound == pytest.approx(1, abs=1e-6)
    limit = limit_of(build_topology(line), operation("all_reduce", n), tuple(range(n)), helpers=False, effort=FULL_EFFORT)
    assert limit.trees_s_per_byte * row.size_bytes / row.time_s == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("r", "levels"), [(4, 2), (3, 2), (2, 2), (2, 3)])
def test_sipco_is_as_far_from_the_bound_as_its_claim_says(r, levels) -> None:
    row, claim = _as_sizes_grow(f"sipac:r={r},L={levels}", "all_reduce", "sipco"), algorithm("all_reduce", "sipco").claim
    assert claim is not None
    ((_, beta),) = claim.terms((r,) * levels)
    n, links = r**levels, levels * (r - 1)
    least = Fraction(2 * (n - 1), n) / links  # of the whole, over all links of a rank
    assert row.of_bound == pytest.approx(float(least / (beta / (r - 1))), rel=1e-6)  # it is claimed of the links of a level
    assert row.of_bound == pytest.approx(2 * (n - 1) / (r ** (levels - 1) * (levels + 1) * (r - 1)), rel=1e-6)


@pytest.mark.parametrize(
    ("line", "by"),
    [
        (f"torus:dims=4x4,{LINK}", PATHS),
        ("dragonfly:p=2,a=4,h=2", PATHS),
        # Rails of two ways to go that look alike, and one is full first.
        ("railx:split:m=2,n=3,rails=K3@4+C2@2/C3@6", TRIED),
    ],
)
def test_an_exchange_too_large_for_its_program_is_limited_by_prices_or_a_cut_as_by_it(line, by, monkeypatch) -> None:
    topology = build_topology(line)
    what = topology, operation("all_to_all", topology.n_npus), range(topology.n_npus), FULL_EFFORT
    exact = _terms(*what)
    monkeypatch.setattr(limit, "_MOST_PATHS", 0)
    limit_of.cache_clear()
    found = _terms(*what)
    limit_of.cache_clear()
    assert max(found.values()) == pytest.approx(exact[PATHS], rel=2 * NEAR)
    assert found[by] == pytest.approx(exact[PATHS], rel=2 * NEAR)


def test_an_exchange_may_take_longer_than_any_cut_that_is_tried_says(made) -> None:
    """Circuits that are drawn at random lead everywhere, so that no cut is narrow, and most pairs are two circuits apart."""
    joined = nx.random_regular_graph(16, 64, seed=0).edges
    topology = made(64, 64, [(*ends, 15e9, 0) for a, b in joined for ends in ((a, b), (b, a))])
    found = _terms(topology, operation("all_to_all", 64), range(64), FULL_EFFORT)[PATHS]
    net = network(topology, np.arange(64))
    worst = sampled_cut(net, network_kinds(net, topology), operation("all_to_all", 64), topology.dims, most_sets=100)
    assert found > 1.5 * net.seconds(worst.ratio) * 1e9


def test_a_switch_that_adds_beats_what_ranks_could_and_not_its_own_bound() -> None:
    row = _as_sizes_grow(f"switch:n=8,{LINK}", "all_reduce", "in-switch")
    assert (row.bound, row.of_bound) == (CUT, pytest.approx(8 / 9, rel=1e-6))  # the first of eight pieces goes up alone
    assert row.trees_s > row.time_s


@pytest.mark.parametrize("pieces", [1, 8, 64, 1024])
def test_a_pipelined_chain_on_a_path_tends_to_the_bound_as_its_pieces_grow(path, pieces, monkeypatch) -> None:
    monkeypatch.setattr(pipelined_chain, "PIECES", pieces)
    n, count, topology = 4, 1024 * 10**6, path(4)
    op, plan = operation("broadcast", n), pipelined_chain.broadcast(n)
    took = time_collective(CollectiveJob(op, plan, count, 1, topology, np.arange(n, dtype=np.int32))).end_s
    least, by = limit_of(topology, op, tuple(range(n)), helpers=False).least_s(count)
    assert by == CUT
    assert least / took == pytest.approx(pieces / (n - 2 + pieces), rel=1e-9)


def test_the_latency_of_the_farthest_two_does_not_come_on_top_of_the_worst_cut(made) -> None:
    # Rank 2 is far, but the slow link to rank 1 need not wait for it.
    far = 10**12
    topology = made(3, 3, [(0, 1, 1e9, 0), (1, 0, 1e9, 0), (0, 2, 1e12, far), (2, 0, 1e12, far)])
    op, size = operation("all_gather", 3), 3 * 10**7
    terms = {term.by: term for term in limit_of(topology, op, (0, 1, 2), helpers=False).terms}
    added = terms[CUT].s_per_byte * size / 3 + terms[LATENCY].latency_fs / 1e15
    near_last = Schedule.build(3, 3, [Sends([2, 0, 0, 1], [0, 2, 1, 0], [2, 0, 0, 1]), Sends([0, 0], [1, 2], [2, 1])])
    took = time_collective(CollectiveJob(op, near_last, size, 1, topology, np.arange(3, dtype=np.int32))).end_s
    prove(near_last, op)
    assert limit_of(topology, op, (0, 1, 2), helpers=False).least_s(size // 3)[0] <= took < added


def test_a_block_of_no_bytes_and_a_lone_rank_have_no_bound() -> None:
    (row,) = bench(build_topology(f"switch:n=8,{LINK}"), BenchRequest("all_gather", "ring", (7,), "uint8"))
    assert (row.of_bound, row.bound, row.bound_s) == (None, "", 0.0)
    (alone,) = bench(build_topology(f"switch:n=1,{LINK}"), BenchRequest("all_reduce", "ring", (7,), "uint8"))
    assert (alone.of_bound, alone.trees_s, alone.in_a_row_s) == (None, None, None)


def test_groups_joined_by_little_need_their_messages_too(made) -> None:
    # Three pairs: 10 GB/s within one, between the first of each 1 GB/s each way. Four blocks are between pairs, over six links.
    near = [(a, b, 1e10, 0) for i in (0, 2, 4) for a, b in ((i, i + 1), (i + 1, i))]
    between = [(a, b, 1e9, 0) for a in (0, 2, 4) for b in (0, 2, 4) if a != b]
    topology = replace(made(6, 6, near + between), dims=(3, 2))
    terms = _terms(topology, operation("all_reduce", 6), range(6))
    assert terms[TRIED] == pytest.approx(1 / 2)
    assert terms[MESSAGES] == pytest.approx(2 / 3)


@pytest.mark.parametrize("fast", [0, 1])
def test_messages_need_the_way_to_each_rank_as_they_need_the_way_from_it(made, fast) -> None:
    rates = [1e9, 1e9]
    rates[fast] = 2e9  # up to a switch, down from it
    topology = made(3, 4, [(*ends, rate, 0) for i in range(3) for ends, rate in zip(((i, 3), (3, i)), rates, strict=True)])
    terms = limit_of(topology, operation("all_reduce", 3), (0, 1, 2), helpers=False).terms
    (found,) = (term.s_per_byte for term in terms if term.by == MESSAGES)
    assert found * 1e9 == pytest.approx(2 * 2 / 3)


@pytest.mark.parametrize("turned", [False, True])
def test_of_ranks_alone_the_one_with_the_slowest_links_limits(made, turned) -> None:
    rows = [(a, b, 1e9 if a == 3 else 1e10, 0) for a in range(4) for b in range(4) if a != b]
    topology = made(4, 4, [(b, a, *rest) for a, b, *rest in rows] if turned else rows)
    net, op = network(topology, np.arange(4)), operation("reduce_scatter" if turned else "all_gather", 4)
    assert net.seconds(sampled_cut(net, network_kinds(net, topology), op, (), most_sets=0).ratio) * 1e9 == pytest.approx(1 / 3)


def test_of_groups_that_are_alike_one_flow_is_enough() -> None:
    topology = build_topology("servers:nodes=16")
    what = topology, operation("all_reduce", 128), range(128)
    out_of_all_Bps = 16 * 8 * 50e9  # by NICs
    by_server, by_rank = 2 * 15 / out_of_all_Bps, 2 * 127 / (out_of_all_Bps + 128 * 450e9)
    for flows, arcs, wanted in ((1, 0, by_server), (0, 0, by_rank), (1, -1, by_rank)):
        effort = Effort(flows, len(topology.links) + arcs, programs=False)
        assert _terms(*what, effort)[MESSAGES] == pytest.approx(wanted * 1e9, rel=1e-9)


@pytest.mark.parametrize(("name", "latency_fs"), [("scatter", 700), ("gather", 300), ("broadcast", 700), ("reduce", 300)])
def test_a_cut_adds_the_latency_of_the_way_that_its_blocks_take(made, name, latency_fs) -> None:
    topology = made(2, 2, [(0, 1, 1e9, 700), (1, 0, 1e9, 300)])
    terms = {term.by: term for term in limit_of(topology, operation(name, 2), (0, 1), helpers=False).terms}
    assert (terms[CUT].latency_fs, terms[LATENCY].latency_fs) == (latency_fs, latency_fs)


def test_the_best_set_tried_may_be_what_is_left_of_a_half(made) -> None:
    # Out of the upper half of a path, as the root is there: neither a rank alone, nor all but one, nor the lower half.
    rows = [(a, b, 1e9 if {a, b} == {1, 2} else 1e10, 0) for i in range(3) for a, b in ((i, i + 1), (i + 1, i))]
    topology = made(4, 4, rows)
    one = Effort(1, 2**10, programs=False)
    assert _terms(topology, operation("broadcast", 4, 3), range(4), one)[TRIED] == pytest.approx(1)


def _one_way(made, *, slow):
    """Three ranks in a cycle each way; what leads to rank 1 (or from it) is slow, so that a cut is least one way round only."""
    rows = [(a, b, 1e9 if (b if slow == "in" else a) == 1 else 1e10, 0) for a in range(3) for b in range(3) if a != b]
    return made(3, 3, rows)


@pytest.mark.parametrize("slow", ["in", "out"])
@pytest.mark.parametrize("effort", [QUICK_EFFORT, FULL_EFFORT])
def test_an_all_reduce_needs_the_way_to_each_rank_as_it_needs_the_way_from_it(made, slow, effort) -> None:
    terms = _terms(_one_way(made, slow=slow), operation("all_reduce", 3), range(3), effort)
    (cut,) = (terms[by] for by in (CUT, TRIED) if by in terms)
    assert cut == pytest.approx(1 / 2)  # a block over two slow links


@pytest.mark.parametrize("slow", ["in", "out"])
def test_a_reduce_scatter_and_an_all_gather_in_a_row_need_both_ways(made, slow) -> None:
    limit = limit_of(_one_way(made, slow=slow), operation("all_reduce", 3), (0, 1, 2), helpers=False)
    one_way, other = 2 / 2, 1 / 2  # of two blocks to rank 1 (from it), and of its own; the two other ranks are no worse
    assert limit.in_a_row_s_per_byte * 1e9 == pytest.approx((one_way + other) / 3)


@pytest.mark.parametrize(
    ("name", "slow", "capacity"),  # GB/s of the least cut: two slow links, or a fast one and a slow one
    [("reduce", "in", 11), ("reduce", "out", 2), ("broadcast", "in", 2), ("broadcast", "out", 11)],
)
@pytest.mark.parametrize("effort", [QUICK_EFFORT, FULL_EFFORT, Effort(1, 2**10, programs=False)])
def test_a_reduce_needs_the_way_from_each_rank_and_a_broadcast_the_way_to_it(made, name, slow, capacity, effort) -> None:
    found = max(_terms(_one_way(made, slow=slow), operation(name, 3), range(3), effort).values())
    assert found == pytest.approx(1 / capacity)
