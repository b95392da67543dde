"""The limit of each operation: against all sets of nodes, and against every schedule of the catalogue that can be timed."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from collectives import pipelined_chain
from emu.bound import limit
from emu.bound.limit import CUT, LATENCY, MESSAGES, PATHS, TRIED, limit_of
from emu.bound.network import network
from emu.collective.algorithm import ALGORITHMS, algorithm
from emu.collective.operation import OPERATIONS, ROOTED, operation
from emu.collective.proof import prove
from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError
from emu.fabric.lowering.circuits import TornError
from emu.study.bench import BenchRequest, bench
from emu.study.choice import candidates
from emu.study.timing import time_collective
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
    return net.seconds(best)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_cut_is_the_worst_of_all_sets_and_what_is_tried_no_more(random_topology, name, seed, monkeypatch) -> None:
    topology = random_topology(seed)
    n = topology.n_npus
    op = operation(name, n, n - 1 if name in ROOTED else 0)
    places = tuple(np.random.default_rng(seed).permutation(n).tolist())
    wanted = pytest.approx(_by_all_sets(topology, op, places), rel=1e-12)
    found = {term.by: term.s_per_byte for term in limit_of(topology, op, places, helpers=True).terms}
    if CUT in found:
        assert found[CUT] == wanted
    monkeypatch.setattr(limit, "_FLOW_WORK", 0)
    monkeypatch.setattr(limit, "_MOST_PATHS", 0)
    limit_of.cache_clear()
    tried = {term.by: term.s_per_byte for term in limit_of(topology, op, places, helpers=True).terms}
    limit_of.cache_clear()
    assert set(tried) == {LATENCY, TRIED}
    assert tried[TRIED] == wanted or tried[TRIED] < wanted.expected
    assert PATHS not in found or found[PATHS] >= wanted.expected * (1 - 1e-9)


LINES = [":".join(filter(None, (name, example))) for name, blueprint in TOPOLOGIES for example in blueprint.examples]
FEW = [f"switch:n=5,{LINK}", f"ring:n=9,{LINK}", f"torus:dims=4x4,{LINK}", f"hypercube:d=3,{LINK}", "sipac:r=4,L=2"]
FEW += ["ub-mesh:board", "servers:nodes=2,gpus=4,network=rails", "fat-tree:radix=4,tiers=3", "hpn:pod:dims=2x2x2,aggs=2"]
FEW += ["railx:torus:m=1,n=2,nodes=5x4,optical=1us", "dragonfly:p=1,a=2,h=1", "dgx-h100:chips=apart"]
TICKS = 50e-15  # half a tick that each message of a chain may be rounded down


def _room(topology):
    """How many ranks its rules of placement find room for."""
    for n in range(topology.n_npus, 1, -1):
        try:
            return len(place(topology, n))
        except InputError:
            continue
    return 1


def _hold(line, name):
    topology = build_topology(line)
    n = _room(topology)
    op = operation(name, n)
    sizes = (op.blocks_in_size, op.blocks_in_size * 3000)
    for each in candidates(name, n, topology):
        for row in _rows(topology, BenchRequest(name, each.name, sizes, "uint8", ranks=n, timing_only=True)):
            assert 0 < row.bound_s <= row.time_s * (1 + 1e-9) + TICKS, (row.algorithm, row.size_bytes, row.bound)
            assert row.of_bound == row.bound_s / row.time_s


def _rows(topology, request):
    """None where a round would need an optical switch in two states: that schedule cannot be on this topology."""
    try:
        return list(bench(topology, request))
    except TornError:
        return []


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("line", FEW)
def test_no_schedule_beats_the_bound(line, name) -> None:
    _hold(line, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("line", LINES)
def test_no_schedule_beats_the_bound_on_any_small_topology_of_the_catalogue(line, name) -> None:
    if 1 < build_topology(line).n_npus <= 24:
        _hold(line, name)


def test_every_algorithm_is_held_against_a_bound() -> None:
    built = [build_topology(line) for line in FEW]
    found = {each.key for name in OPERATIONS for topology in built for each in candidates(name, topology.n_npus, topology)}
    assert {key for key, _ in ALGORITHMS} - found == set()


def _as_sizes_grow(line, operation_name, name):
    """The row of a size at which latency is nothing."""
    topology = build_topology(line)
    (row,) = bench(topology, BenchRequest(operation_name, name, (15 * 2**40,), "uint8", timing_only=True))
    return row


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (f"switch:n=8,{LINK}", "ring"),
        (f"full-mesh:n=8,{LINK}", "direct"),
        ("ub-mesh:board", "multi-ring"),
        (f"torus:dims=4x4,{LINK}", "torus-buckets"),
        (f"ring:n=8,{LINK}", "bidirectional-ring"),
    ],
)
def test_what_is_known_to_be_optimal_reaches_the_bound_and_the_best_trees(line, name) -> None:
    row = _as_sizes_grow(line, "all_reduce", name)
    assert row.bound == MESSAGES
    assert row.of_bound == pytest.approx(1, abs=1e-6)
    assert row.trees_s / row.time_s == pytest.approx(1, abs=1e-6)


def test_sipco_is_as_far_from_the_bound_as_its_claim_says() -> None:
    row, claim = _as_sizes_grow("sipac:r=4,L=2", "all_reduce", "sipco"), algorithm("all_reduce", "sipco").claim
    assert claim is not None
    ((_, beta),) = claim.terms((4, 4))
    least = Fraction(2 * 15, 16) / 6  # of the whole, over the six links of a rank
    assert row.of_bound == pytest.approx(float(least / (beta / 3)), rel=1e-6)  # it is claimed of the three links of a level


def test_a_switch_that_adds_beats_what_ranks_could_and_not_its_own_bound() -> None:
    row = _as_sizes_grow(f"switch:n=8,{LINK}", "all_reduce", "in-switch")
    assert (row.bound, row.of_bound) == (CUT, pytest.approx(8 / 9, rel=1e-6))  # the first of eight pieces goes up alone
    assert row.trees_s > row.time_s


@pytest.mark.parametrize("pieces", [1, 8, 64, 1024])
def test_a_pipelined_chain_on_a_path_tends_to_the_bound_as_its_pieces_grow(path, pieces, monkeypatch) -> None:
    monkeypatch.setattr(pipelined_chain, "PIECES", pieces)
    n, count, topology = 4, 1024 * 10**6, path(4)
    op, plan = operation("broadcast", n), pipelined_chain.broadcast(n)
    took = time_collective(op, plan, count, 1, topology, np.arange(n, dtype=np.int32)).end_s
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
    took = time_collective(op, near_last, size, 1, topology, np.arange(3, dtype=np.int32)).end_s
    prove(near_last, op)
    assert limit_of(topology, op, (0, 1, 2), helpers=False).least_s(size // 3)[0] <= took < added


def test_a_block_of_no_bytes_and_a_lone_rank_have_no_bound() -> None:
    (row,) = bench(build_topology(f"switch:n=8,{LINK}"), BenchRequest("all_gather", "ring", (7,), "uint8", timing_only=True))
    assert (row.of_bound, row.bound, row.bound_s) == (None, "", 0.0)
    (alone,) = bench(build_topology(f"switch:n=1,{LINK}"), BenchRequest("all_reduce", "ring", (7,), "uint8", timing_only=True))
    assert (alone.of_bound, alone.trees_s, alone.in_a_row_s) == (None, None, None)


def test_groups_joined_by_little_need_their_messages_too(made) -> None:
    # Three pairs: 10 GB/s within one, between the first of each 1 GB/s each way. Four blocks are between pairs, over six links.
    near = [(a, b, 1e10, 0) for i in (0, 2, 4) for a, b in ((i, i + 1), (i + 1, i))]
    between = [(a, b, 1e9, 0) for a in (0, 2, 4) for b in (0, 2, 4) if a != b]
    topology = replace(made(6, 6, near + between), dims=(3, 2))
    terms = {term.by: term for term in limit_of(topology, operation("all_reduce", 6), tuple(range(6)), helpers=False).terms}
    assert terms[CUT].s_per_byte * 1e9 == pytest.approx(1 / 2)
    assert terms[MESSAGES].s_per_byte * 1e9 == pytest.approx(2 / 3)


@pytest.mark.parametrize(("name", "latency_fs"), [("scatter", 700), ("gather", 300), ("broadcast", 700), ("reduce", 300)])
def test_a_cut_adds_the_latency_of_the_way_that_its_blocks_take(made, name, latency_fs) -> None:
    topology = made(2, 2, [(0, 1, 1e9, 700), (1, 0, 1e9, 300)])
    terms = {term.by: term for term in limit_of(topology, operation(name, 2), (0, 1), helpers=False).terms}
    assert (terms[CUT].latency_fs, terms[LATENCY].latency_fs) == (latency_fs, latency_fs)


def test_the_best_set_tried_may_be_what_is_left_of_a_half(made, monkeypatch) -> None:
    # Out of the upper half of a path, as the root is there: neither a rank alone, nor all but one, nor the lower half.
    rows = [(a, b, 1e9 if {a, b} == {1, 2} else 1e10, 0) for i in range(3) for a, b in ((i, i + 1), (i + 1, i))]
    topology = made(4, 4, rows)
    monkeypatch.setattr(limit, "_FLOW_WORK", 0)
    limit_of.cache_clear()
    terms = {t.by: t for t in limit_of(topology, operation("broadcast", 4, 3), (0, 1, 2, 3), helpers=False).terms}
    limit_of.cache_clear()
    assert terms[TRIED].s_per_byte * 1e9 == pytest.approx(1)
