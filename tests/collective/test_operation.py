import tracemalloc
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.collective.expert_routing import TOKENS, standard_routing
from emu.collective.operation import OPERATIONS, REDUCING, ROOTED, ROUTED, divide_blocks, operation, routed_operation
from emu.errors import InputError


def tokens_at(n):
    """Return for each rank the (rank, token) that it has an expert of, in ascending order."""
    experts = standard_routing(n)
    return [[(s, t) for s in range(n) for t in range(TOKENS) if e in experts[s, t]] for e in range(n)]


def combined(x):
    made = np.zeros((len(x), TOKENS, x.shape[-1]), np.int64)
    for expert, tokens in enumerate(tokens_at(len(x))):
        for i, (s, t) in enumerate(tokens):
            made[s, t] += x[expert, i]
    return made


DEFINITIONS = {
    # What each rank ends with, of x [rank, n or 1 blocks, elements]; `root` where there is one.
    "all_reduce": lambda x, _: [x.sum(axis=0)] * len(x),
    "reduce_scatter": lambda x, _: [x.sum(axis=0)[r : r + 1] for r in range(len(x))],
    "all_gather": lambda x, _: [x[:, 0]] * len(x),
    "all_to_all": lambda x, _: list(x.transpose(1, 0, 2)),
    "broadcast": lambda x, root: [x[root]] * len(x),
    "reduce": lambda x, root: [x.sum(axis=0) if r == root else x[:0, 0] for r in range(len(x))],
    "scatter": lambda x, root: [x[root, r : r + 1] for r in range(len(x))],
    "gather": lambda x, root: [x[:, 0] if r == root else x[:0, 0] for r in range(len(x))],
    "dispatch": lambda x, _: [np.array([x[s, t] for s, t in tokens]) for tokens in tokens_at(len(x))],
    "combine": lambda x, _: list(combined(x)),
}
INPUT_BLOCKS = {"reduce_scatter", "all_to_all", "scatter"}  # whose input is n blocks a rank; of most others it is one


def input_blocks(name, n):
    if name in ROUTED:
        return TOKENS * (standard_routing(n).shape[2] if name == "combine" else 1)
    return n if name in INPUT_BLOCKS else 1


@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_having_and_wanting_say_what_numpy_says_of_the_operation(name, n):
    x = np.random.default_rng(0).integers(0, 100, (n, input_blocks(name, n), 3))
    for root in {0, n - 1} if name in ROOTED else {0}:
        asked = operation(name, n, root)
        blocks = np.zeros((asked.n_blocks, 3), np.int64)
        for rank in range(n):
            blocks[asked.input_blocks(rank)] += x[rank, : len(asked.input_blocks(rank))]
        for rank, expected in enumerate(DEFINITIONS[name](x, root)):
            assert blocks[asked.output_blocks(rank)].tolist() == expected.reshape(-1, 3).tolist()


def test_every_operation_has_a_definition_here():
    assert set(DEFINITIONS) == set(OPERATIONS)
    assert set(OPERATIONS) >= ROOTED | REDUCING


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_only_operations_that_reduce_have_a_block_twice(name):
    holders = np.bincount(operation(name, 5).have[:, 1])
    assert (holders.max() > 1) == (name in REDUCING)


@given(st.sampled_from(sorted(OPERATIONS)), st.integers(1, 9), st.integers(0, 50))
def test_the_blocks_of_the_largest_buffer_hold_the_whole_size(name, n, count):
    asked = operation(name, n)
    count += -count % asked.count_step
    counts = asked.block_counts(count)
    buffers = [counts[asked.input_blocks(r)].sum() for r in range(n)] + [counts[asked.output_blocks(r)].sum() for r in range(n)]
    assert len(counts) == asked.n_blocks
    assert counts.max() - counts.min() <= 1
    if name == "all_to_all":
        assert {counts[asked.input_blocks(r)].sum() for r in range(n)} == {count}
    else:
        assert max(buffers) == count


@pytest.mark.parametrize("name", sorted(ROUTED))
def test_tokens_are_of_one_size_so_that_a_size_which_does_not_divide_is_refused(name):
    """48 tokens, and the 32 that go to each of 2 experts: a rank sends or has 16, gets or has 32 of them."""
    asked = operation(name, 3)
    assert asked.block_counts(64).tolist() == [2] * 48
    with pytest.raises(InputError, match=f"{name}: elements must be a multiple of 32, the tokens of the largest buffer, got 1"):
        asked.block_counts(1)


def test_a_routing_of_ones_own_is_dispatched_and_combined_as_it_says():
    experts = [[[1, 2], [0, 1]], [[0, 2], [1, 0]], [[2, 1], [2, 0]]]  # [3 ranks, 2 tokens, 2 experts]
    there, back = (routed_operation(name, experts) for name in ("dispatch", "combine"))
    assert [there.output_blocks(r).tolist() for r in range(3)] == [[1, 2, 3, 5], [0, 1, 3, 4], [0, 2, 4, 5]]
    assert [there.input_blocks(r).tolist() for r in range(3)] == [[0, 1], [2, 3], [4, 5]]
    assert (back.have.tolist(), back.want.tolist()) == (there.want.tolist(), there.have.tolist())
    assert (there.holders, back.holders) == (1, 2)


def test_only_dispatch_and_combine_have_a_routing():
    with pytest.raises(InputError, match="no routed operation is called 'dispach'; did you mean dispatch"):
        routed_operation("dispach", standard_routing(4))


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=6), st.lists(st.integers(0, 7), min_size=1, max_size=5))
def test_a_block_is_cut_without_gap_or_overlap_as_its_shares_say(block_counts, shares):
    shares = [*shares, 1]
    parts = len(shares)
    slots = divide_blocks(np.array(block_counts), len(block_counts) * parts, shares)
    assert slots.block.tolist() == [b for b in range(len(block_counts)) for _ in range(parts)]
    for block, count in enumerate(block_counts):
        own = slice(block * parts, (block + 1) * parts)
        ends = slots.start[own] + slots.count[own]
        assert slots.start[own].tolist() == [0, *ends[:-1].tolist()]
        assert ends.tolist() == [int(count * Fraction(sum(shares[: j + 1]), sum(shares))) for j in range(parts)]


def test_equal_parts_are_the_shares_of_none():
    counts = np.array([10, 3, 0])
    assert divide_blocks(counts, 12).count.tolist() == divide_blocks(counts, 12, (1, 1, 1, 1)).count.tolist()
    assert divide_blocks(counts, 12).count.tolist() == [2, 3, 2, 3, 0, 1, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(("n_slots", "shares"), [(7, ()), (6, (1, 1, 1)), (0, ())])
def test_slots_that_do_not_cut_the_blocks_are_refused(n_slots, shares):
    with pytest.raises(InputError, match=f"{n_slots} slots and {len(shares)} shares do not cut 3 blocks"):
        divide_blocks(np.array([1, 1, 1]), n_slots, shares)


@pytest.mark.parametrize(
    ("name", "n", "root", "says"),
    [
        ("allreduce", 4, 0, "no operation is called 'allreduce'; did you mean all_reduce"),
        ("gather", 0, 0, "gather: ranks must be 1 or more, got 0"),
        ("gather", 4, 4, r"gather: root must be a rank of 0\.\.3, got 4"),
        ("gather", 4, -1, r"gather: root must be a rank of 0\.\.3, got -1"),
        ("all_reduce", 4, 1, "all_reduce: root must be 0, because the operation has no root, got 1"),
    ],
)
def test_what_is_no_operation_is_refused(name, n, root, says):
    with pytest.raises(InputError, match=says):
        operation(name, n, root)


def test_equal_operations_have_equal_digests_and_others_have_not():
    asked = [
        operation(name, n, root) for name, n, root in [("gather", 4, 0), ("gather", 4, 1), ("gather", 5, 0), ("scatter", 4, 0)]
    ]
    assert len({o.digest() for o in asked}) == len(asked)
    operation.cache_clear()
    assert operation("gather", 4, 1).digest() == asked[1].digest()


def test_the_blocks_of_many_ranks_are_counted_without_being_made():
    tracemalloc.start()
    try:
        counts = operation("all_to_all", 8192).block_counts(3 * 8192)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (len(counts), counts[0], counts[-1]) == (8192**2, 3, 3)
    assert peak < 2**20


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter"])
def test_more_pairs_of_rank_and_block_than_memory_should_hold_are_refused(name):
    said = r"^operation: pairs of a rank and a block must be at most 2\*\*29, 4 GiB of them, got 4294967296; take fewer ranks$"
    with pytest.raises(InputError, match=said):
        operation(name, 65_536)


@given(st.integers(2**40, 2**62), st.integers(2, 300), st.lists(st.integers(0, 1000), min_size=1, max_size=9).filter(any))
def test_the_largest_sizes_are_cut_as_whole_numbers_of_any_length_say(count, n, shares):
    edges = [count * b // n for b in range(n + 1)]
    blocks = operation("reduce_scatter", n).block_counts(count)
    assert blocks.tolist() == [high - low for low, high in pairwise(edges)]
    parts = [sum(shares[:i]) * count // sum(shares) for i in range(len(shares) + 1)]
    assert divide_blocks(np.array([count]), len(shares), tuple(shares)).count.tolist() == [
        high - low for low, high in pairwise(parts)
    ]


def test_blocks_that_are_asked_for_again_are_not_searched_again_nor_keep_all_others():
    op = operation("all_to_all", 5)
    for rank in (3, 0, 3):
        assert op.input_blocks(rank).tolist() == op.have[op.have[:, 0] == rank, 1].tolist()
        assert op.output_blocks(rank).tolist() == op.want[op.want[:, 0] == rank, 1].tolist()
    assert op.input_blocks(3) is op.input_blocks(3)
    assert op.input_blocks(3).base is None
    with pytest.raises(ValueError, match="read-only"):
        op.input_blocks(3)[0] = 1
