"""Tokens to their experts and back: what is sent between boards is counted in distinct boards, and sums are the flat ones."""

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
import torch

from collectives import moe
from emu.backend.executor.executor import Buffers, execute
from emu.backend.executor.reductions import unwritten_mark
from emu.collective.algorithm import algorithm
from emu.collective.operation import operation, routed_operation
from emu.collective.proof import prove
from emu.collective.transform import dual
from emu.errors import InputError
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import run_graph
from emu.study.prove.verify import verify
from emu.topology.catalogue import build_topology

DIMS = [(1, 4), (4, 1), (2, 2), (2, 3), (3, 2), (2, 8), (4, 3)]


def random_routing(n, tokens, k, seed=0):
    keys = np.random.default_rng(seed).random((n, tokens, n))
    return np.argsort(keys, axis=2)[..., :k]


def every_subset(n, k):
    """A token of every rank for each k of the n ranks."""
    return np.tile(np.array(list(combinations(range(n), k))), (n, 1, 1))


def crossings(built, dims):
    """Rows between boards, and the links that all rows cross on a mesh of boards by places."""
    (src_board, src_place), (dst_board, dst_place) = (np.unravel_index(c, dims) for c in (built.src, built.dst))
    between, inside = src_board != dst_board, src_place != dst_place
    return int(between.sum()), int(between.sum() + inside.sum())


def outputs(schedule, op, inputs):
    """Return what every rank gets, where a token has one element."""
    widths = [len(op.output_blocks(r)) for r in range(op.n_ranks)]
    made = {
        r: Buffers(given, torch.full((w,), unwritten_mark(given.dtype, "sum"), dtype=given.dtype))
        for r, (given, w) in enumerate(zip(inputs, widths, strict=True))
    }
    execute(schedule, op, made, counts=np.ones(op.n_blocks, np.int64))
    return [made[r].output for r in range(op.n_ranks)]


def both(dims, experts):
    """(operation, flat schedule, hierarchical schedule) of the dispatch and of the combine."""
    asked = [routed_operation(name, experts) for name in ("dispatch", "combine")]
    return [(op, moe.flat(op), moe.hierarchical(op, dims)) for op in asked]


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("k", [1, 2, 4])
def test_any_routing_on_any_boards_is_dispatched_and_combined(dims, k):
    for op, flat, hierarchical in both(dims, random_routing(int(np.prod(dims)), 5, k)):
        assert prove(flat, op).uniform
        assert prove(hierarchical, op).uniform


@pytest.mark.parametrize("dims", DIMS)
def test_what_a_rank_gets_back_of_experts_that_change_nothing_is_its_tokens_once_an_expert(dims):
    n, k = int(np.prod(dims)), 3
    tokens = list(torch.randint(-(2**40), 2**40, (n, 5), generator=torch.Generator().manual_seed(0)))
    (dispatch, *ways), (combine, *backs) = both(dims, random_routing(n, 5, k))
    for there, back in zip(ways, backs, strict=True):
        came_back = outputs(back, combine, outputs(there, dispatch, tokens))
        assert all(torch.equal(got, k * sent) for got, sent in zip(came_back, tokens, strict=True))


@pytest.mark.parametrize("dims", DIMS)
def test_sums_on_the_boards_first_are_the_flat_sums(dims):
    n = int(np.prod(dims))
    _, (op, flat, hierarchical) = both(dims, random_routing(n, 5, 4))
    generator = torch.Generator().manual_seed(0)
    made = [torch.randint(-(2**60), 2**60, (len(op.input_blocks(r)),), generator=generator) for r in range(n)]
    sums = outputs(flat, op, made)
    assert all(torch.equal(a, b) for a, b in zip(sums, outputs(hierarchical, op, made), strict=True))
    whole = torch.zeros(op.n_blocks, dtype=torch.int64)
    for rank, contributions in enumerate(made):
        whole[op.input_blocks(rank).tolist()] += contributions
    assert torch.equal(torch.cat(sums), whole)


def test_the_average_of_a_combine_is_over_the_experts_of_a_token():
    op = routed_operation("combine", random_routing(6, 4, 2))
    made = {r: Buffers(torch.full((len(op.input_blocks(r)),), 8.0), torch.full((4,), torch.nan)) for r in range(6)}
    execute(moe.flat(op), op, made, counts=np.ones(24, np.int64), reduce="avg")
    assert all((pair.output == 8).all() for pair in made.values())


@pytest.mark.parametrize(("dims", "k"), [((2, 3), 2), ((3, 3), 3), ((4, 2), 4), ((4, 4), 2)])
def test_over_all_subsets_of_k_ranks_a_token_crosses_to_as_many_boards_as_a_random_one_is_expected_to(dims, k):
    """A board is missed by C(n-m, k) of C(n, k) subsets; a rank is in k/n of them."""
    (g, m), n = dims, int(np.prod(dims))
    other_boards = (g - 1) * (1 - Fraction(comb(n - m, k), comb(n, k)))
    other_places, flat_boards = k * Fraction(m - 1, m), k * Fraction(g - 1, g)
    for op, flat, hierarchical in both(dims, every_subset(n, k)):
        found = [[Fraction(count, op.n_blocks) for count in crossings(built, dims)] for built in (flat, hierarchical)]
        assert found == [[flat_boards, flat_boards + other_places], [other_boards, other_boards + other_places]]


def test_top_8_of_64_on_8_boards_crosses_to_a_third_fewer_boards():
    """4.75 copies a token between boards, not 7 (sampled: 6.99), and 11.75 links of the mesh, not 14."""
    experts, dims = random_routing(64, 64, 8), (8, 8)
    boards = 7 * (1 - comb(56, 8) / comb(64, 8))
    assert (round(boards, 2), round(boards + 7, 2)) == (4.75, 11.75)
    (op, flat, hierarchical), _ = both(dims, experts)
    own = np.arange(64)[:, None] // 8
    distinct = np.array(
        [[len({*t} - {o}) for t, o in zip(r, own[s].repeat(64), strict=True)] for s, r in enumerate(experts // 8)]
    )
    sampling = 4 * distinct.std() / np.sqrt(distinct.size)
    assert crossings(hierarchical, dims)[0] == distinct.sum()
    assert abs(distinct.mean() - boards) < sampling
    assert [count / op.n_blocks for count in crossings(flat, dims)] == pytest.approx([7, 14], rel=0.01)
    assert crossings(hierarchical, dims)[1] / op.n_blocks == pytest.approx(boards + 7, rel=0.01)


@pytest.mark.parametrize("operation_name", ["dispatch", "combine"])
@pytest.mark.parametrize("dims", [(2, 4), (4, 2), (3, 5)])
def test_hierarchical_sends_along_a_board_or_between_like_places_and_in_that_order_back(operation_name, dims):
    built = algorithm(operation_name, "hierarchical").schedule(dims)
    rows = np.arange(built.n_rows)
    sent = [rows[r][built.src[r] != built.dst[r]] for r in built.rounds()]  # the rounds between add what has landed
    between, inside = [each for each in (sent if operation_name == "dispatch" else reversed(sent)) if len(each)]
    m = dims[1]
    assert np.array_equal(built.src[between] % m, built.dst[between] % m)
    assert np.array_equal(built.src[inside] // m, built.dst[inside] // m)


@pytest.mark.parametrize(
    ("dims", "fabric"),
    [((16, 2), "switch:n=32"), ((8, 8), "torus:dims=4x4x4"), ((2, 4), "full-mesh:n=8"), ((4, 4), "ring:n=16")],
)
def test_what_lands_beside_what_is_there_takes_no_longer_than_adds_that_wait_for_nothing(dims, fabric):
    """Adds that waited for a copy, the first of their token, would take up to 3 % longer on two of these."""
    n = int(np.prod(dims))
    op, topology = operation("combine", n), build_topology(f"{fabric},bandwidth=50GB/s,latency=500ns")
    for copied, back in (
        (moe.flat(operation("dispatch", n)), moe.flat(op)),
        (moe.hierarchical(operation("dispatch", n), dims), moe.hierarchical(op, dims)),
    ):
        times = [
            run_graph(lower(FabricJob(each, np.full(op.n_blocks, 1024), topology, np.arange(n))).graph).end_fs.max()
            for each in (dual(copied), back)
        ]
        assert times[0] == times[1]


def test_no_board_gets_a_token_twice():
    built, m = moe.hierarchical(operation("dispatch", 16), (4, 4)), 4
    between = built.rounds()[0]
    pairs = np.stack((built.slot[between], built.dst[between] // m))
    assert np.unique(pairs, axis=1).shape == pairs.shape


@pytest.mark.parametrize("operation_name", ["dispatch", "combine"])
def test_the_claim_is_met_where_the_busiest_links_meet_and_a_bound_where_they_do_not(operation_name):
    found = algorithm(operation_name, "hierarchical")
    met, apart = verify([(found, (4, 4)), (found, (10, 10))])
    assert (met.claim, apart.claim) == ("equal", "bound")
    assert met.time_s == pytest.approx(met.claim_s, rel=1e-12)
    assert apart.time_s < apart.claim_s


def test_another_operation_or_a_grid_of_other_ranks_is_refused():
    with pytest.raises(InputError, match="moe: operation must be a dispatch or a combine, got 'all_to_all'"):
        moe.flat(operation("all_to_all", 4))
    with pytest.raises(InputError, match="moe: dims must be a grid of the 8 ranks, got '3x2'"):
        moe.hierarchical(operation("dispatch", 8), (3, 2))
