"""Every collective of the catalogue on real tensors: against its plain definition, and one way to run it against another."""

import functools
import threading
from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest
import torch
from torch import Tensor

from emu.backend.executor import executor as execute_module
from emu.backend.executor.executor import Buffers, execute
from emu.backend.executor.reductions import unwritten_mark
from emu.collective.algorithm import ALGORITHMS, Algorithm, algorithm
from emu.collective.expert_routing import TOKENS, standard_routing
from emu.collective.operation import ROOTED, ROUTED, Operation, operation
from emu.collective.schedule import Schedule
from emu.errors import InputError
from tests.backend.executor.test_executor import QueueWire

NS = (1, 2, 3, 5, 8, 12, 16)
SHAPES = 2  # of a number of ranks, the best first


def marks(found: Algorithm, n: int):
    """Most ranks take most of the time: slow are 16 of what takes 8, and 12 of what takes 8 and 5, where no grid is 3 x 4."""
    takes = {fewer for fewer in (5, 8) if list(found.shapes(fewer))}
    plain = all(isinstance(shape, int) for shape in found.shapes(n))
    return pytest.mark.slow if (n == 16 and 8 in takes) or (n == 12 and plain and len(takes) == 2) else ()


EVERY = pytest.mark.parametrize(
    ("found", "n"),
    [pytest.param(a, n, id=f"{key}-{n}", marks=marks(a, n)) for key, a in ALGORITHMS for n in NS if list(a.shapes(n))],
)


def cases(found: Algorithm, n: int):
    """Schedules with the operation they are for: some shapes, and the first and the last rank as the root."""
    roots = sorted({0, n - 1}) if found.operation in ROOTED else [0]
    for shape in islice(found.shapes(n), SHAPES):
        for root in roots:
            yield found.compact_schedule(shape, root), operation(found.operation, n, root)


def some_counts(op: Operation, *, few: bool):
    """Yield counts of blocks: some drawn, and unless few are wanted none, one, a whole that divides, and one that does not."""
    yield np.random.default_rng(op.n_ranks).integers(0, 6, op.n_blocks)
    yield from () if few else (counts_of(op, size) for size in (0, 1, 3 * op.n_ranks, 3 * op.n_ranks + 2))


def counts_of(op: Operation, size: int) -> np.ndarray:
    """Return the counts of blocks of so many elements in all, or of the next number that divides where it must."""
    return op.block_counts(size + -size % op.count_step)


def tokens_at(n: int) -> list[list[int]]:
    """Return for each rank the tokens of all ranks that it has an expert of."""
    experts = standard_routing(n).reshape(n * TOKENS, -1)
    return [np.flatnonzero((experts == rank).any(axis=1)).tolist() for rank in range(n)]


def input_sizes(op: Operation, counts: np.ndarray) -> list[int]:
    n, ranks = op.n_ranks, range(op.n_ranks)
    if op.name in ("all_gather", "gather"):
        return counts.tolist()
    if op.name in ("all_to_all", "dispatch"):
        return counts.reshape(n, -1).sum(axis=1).tolist()
    if op.name == "combine":
        return [int(counts[tokens].sum()) for tokens in tokens_at(n)]
    whole = int(counts.sum())
    return [whole if r == op.root or op.name not in ("broadcast", "scatter") else 0 for r in ranks]


def by_definition(op: Operation, given: Sequence[np.ndarray], counts: np.ndarray) -> list[np.ndarray]:
    """Return every rank's output as the operation defines it, without blocks, slots or schedules."""
    n, nothing = op.n_ranks, np.empty(0, np.int64)
    ends = np.cumsum(counts)[:-1]
    if op.name in ("all_reduce", "broadcast"):
        return [sum(given) if op.name == "all_reduce" else given[op.root]] * n
    if op.name in ("reduce", "gather"):
        made = sum(given) if op.name == "reduce" else np.concatenate(given)
        return [made if r == op.root else nothing for r in range(n)]
    if op.name == "all_gather":
        return [np.concatenate(given)] * n
    if op.name in ("reduce_scatter", "scatter"):
        return np.split(sum(given) if op.name == "reduce_scatter" else given[op.root], ends)
    if op.name in ROUTED:
        return routed_by_definition(op.name, given, counts)
    table = counts.reshape(n, n)
    sent = [np.split(g, np.cumsum(row)[:-1]) for g, row in zip(given, table, strict=True)]
    return [np.concatenate([sent[s][d] for s in range(n)]) for d in range(n)]


def routed_by_definition(name: str, given: Sequence[np.ndarray], counts: np.ndarray) -> list[np.ndarray]:
    n = len(given)
    if name == "dispatch":
        tokens = np.split(np.concatenate(given), np.cumsum(counts)[:-1])
        return [np.concatenate([tokens[t] for t in there]) for there in tokens_at(n)]
    sums = [np.zeros(count, np.int64) for count in counts]
    for made, there in zip(given, tokens_at(n), strict=True):
        for t, of_token in zip(there, np.split(made, np.cumsum(counts[there])[:-1]), strict=True):
            sums[t] += of_token
    return [np.concatenate(sums[r * TOKENS : (r + 1) * TOKENS]) for r in range(n)]


def side_by_side(sizes: Sequence[int], dtype: torch.dtype) -> list[Tensor]:
    table = torch.full((len(sizes), max(sizes) + 1), unwritten_mark(dtype, "sum"), dtype=dtype)
    return [table[r, :size] for r, size in enumerate(sizes)]


def apart(sizes: Sequence[int], dtype: torch.dtype) -> list[Tensor]:
    return [torch.full((size,), unwritten_mark(dtype, "sum"), dtype=dtype) for size in sizes]


def buffers(op: Operation, given: Sequence[Tensor], counts: np.ndarray, lay) -> dict[int, Buffers]:
    inputs = lay([t.numel() for t in given], given[0].dtype)
    for place, values in zip(inputs, given, strict=True):
        place.copy_(values)
    widths = [int(counts[op.output_blocks(r)].sum()) for r in range(op.n_ranks)]
    return dict(enumerate(map(Buffers, inputs, lay(widths, given[0].dtype))))


def in_place(made: dict[int, Buffers]) -> dict[int, Buffers]:
    """Lay each output over its input wherever both are of one size."""
    equal = {r: pair.input.numel() == pair.output.numel() for r, pair in made.items()}
    return {r: Buffers(pair.input, pair.input if equal[r] else pair.output) for r, pair in made.items()}


@EVERY
def test_integers_end_as_the_operation_is_defined_side_by_side_apart_and_in_place(found: Algorithm, n: int):
    generator = np.random.default_rng(n)
    for number, (schedule, op) in enumerate(cases(found, n)):
        for counts in some_counts(op, few=number > 0):
            given = [generator.integers(-(2**62), 2**62, size) for size in input_sizes(op, counts)]
            expected = by_definition(op, given, counts)
            ways = [buffers(op, list(map(torch.from_numpy, given)), counts, lay) for lay in (side_by_side, apart, apart)]
            ways[2] = in_place(ways[2])
            for made in ways:
                execute(schedule, op, made, counts=counts)
                assert all(np.array_equal(made[r].output.numpy(), expected[r]) for r in range(n))
            assert all(np.array_equal(way[r].input.numpy(), given[r]) for way in ways[:2] for r in range(n))


def over_a_wire(schedule: Schedule, op: Operation, made: dict[int, Buffers], counts: np.ndarray) -> None:
    """Run a schedule in three threads: ranks 0, 3, 6, ... in one, 1, 4, 7, ... in another, the rest in a third."""
    wire, homes = QueueWire(), [list(made)[first::3] for first in range(min(3, len(made)))]
    given = {"counts": counts, "wire": wire}
    threads = [
        threading.Thread(target=execute, args=(schedule, op, {r: made[r] for r in home}), kwargs=given) for home in homes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(lane.empty() for lane in wire.lanes.values())


@EVERY
def test_floats_have_the_same_bits_side_by_side_stacked_one_by_one_over_a_wire_and_with_every_row_stored(
    found: Algorithm, n: int, monkeypatch: pytest.MonkeyPatch
):
    generator = torch.Generator().manual_seed(n)
    schedule, op = next(cases(found, n))
    counts = counts_of(op, 4 * n + 3)
    given = [torch.randn(size, generator=generator) for size in input_sizes(op, counts)]
    ways = [buffers(op, given, counts, lay) for lay in (side_by_side, apart, apart, apart, side_by_side)]
    execute(schedule, op, ways[0], counts=counts)
    execute(schedule, op, ways[1], counts=counts)
    with monkeypatch.context() as patch:
        patch.setattr(execute_module, "_SMALL_SLOT_BYTES", 0)  # so that nothing is worth stacking
        execute(schedule, op, ways[2], counts=counts)
    over_a_wire(schedule, op, ways[3], counts)
    execute(schedule.expand(), op, ways[4], counts=counts)
    first, *others = [[pair.output.view(torch.int32) for pair in way.values()] for way in ways]
    assert all(torch.equal(a, b) for way in others for a, b in zip(way, first, strict=True))
    assert op.name != "all_reduce" or all(torch.equal(bits, first[0]) for bits in first)


def all_to_all(n: int) -> tuple[Schedule, Operation]:
    return algorithm("all_to_all", "at-once").schedule(n), operation("all_to_all", n)


def test_an_output_that_begins_amid_its_input_gets_what_one_of_its_own_gets():
    schedule, op = all_to_all(4)
    given = torch.randn(4, 8)
    memory = torch.cat([given, torch.full((4, 2), torch.nan)], dim=1)
    over = {r: Buffers(memory[r, :8], memory[r, 2:]) for r in range(4)}
    plain = buffers(op, list(given), np.full(16, 2), apart)
    execute(schedule, op, over)
    execute(schedule, op, plain)
    assert all(torch.equal(over[r].output, plain[r].output) for r in range(4))


@pytest.mark.parametrize("step", [0, 3])
def test_an_output_over_a_buffer_of_another_rank_is_refused(step: int):
    schedule, op = all_to_all(2)
    memory, values = torch.zeros(12), [torch.arange(4.0), torch.arange(4.0)]
    before = "all_to_all: buffers of ranks 0 and 1 share memory that is written; give each rank its own"
    both = {r: Buffers(values[r], memory[step * r : step * r + 4]) for r in range(2)}
    crossed = {0: Buffers(memory[step + 4 : step + 8], values[0]), 1: Buffers(values[1], memory[4:8])}
    for made in (both, crossed):
        with pytest.raises(InputError, match=before):
            execute(schedule, op, made)
    assert not memory.any()


def test_ranks_may_read_one_input():
    op = operation("all_reduce", 3)
    shared = torch.arange(5.0)
    made = {r: Buffers(shared, torch.full((5,), torch.nan)) for r in range(3)}
    execute(algorithm("all_reduce", "ring").schedule(3), op, made)
    assert all(torch.equal(pair.output, 3 * shared) for pair in made.values())


_BITS = "and, or or xor"


@pytest.mark.parametrize(
    ("dtype", "reduce", "said"),
    [
        (torch.bool, "avg", f"reduce must be sum, product, min, max, {_BITS} for bool, got 'avg'"),
        (torch.float32, "xor", "reduce must be sum, avg, product, min or max for float32, got 'xor'"),
        (torch.complex64, "min", "reduce must be sum or avg for complex64, got 'min'"),
        (torch.complex128, "product", "reduce must be sum or avg for complex128, got 'product'"),
        (torch.float8_e4m3fn, "sum", "dtype must be one that can be reduced, got 'float8_e4m3fn'; it can be moved"),
    ],
)
def test_a_dtype_that_cannot_be_reduced_so_is_refused_before_anything_moves(dtype: torch.dtype, reduce: str, said: str):
    for n in (1, 2):
        made = {r: Buffers(torch.ones(4).to(dtype), torch.zeros(4).to(dtype)) for r in range(n)}
        with pytest.raises(InputError, match=f"^all_reduce: {said}"):
            execute(algorithm("all_reduce", "ring").schedule(n), operation("all_reduce", n), made, reduce=reduce)
        assert not any(pair.output.view(torch.uint8).any() for pair in made.values())


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.int64])
@pytest.mark.parametrize("name", ["ring", "halving-doubling", "double-tree"])
def test_bitwise_operations_do_what_torch_does_one_after_another(name: str, dtype: torch.dtype):
    given = torch.randint(0, 2 if dtype is torch.bool else 100, (8, 33)).to(dtype)
    schedule, op = algorithm("all_reduce", name).schedule(8), operation("all_reduce", 8)
    for reduce, fold in (("and", torch.bitwise_and), ("or", torch.bitwise_or), ("xor", torch.bitwise_xor)):
        made = buffers(op, list(given), np.array([33]), apart)
        execute(schedule, op, made, reduce=reduce)
        assert all(torch.equal(pair.output, functools.reduce(fold, given)) for pair in made.values())


@pytest.mark.parametrize("reduce", ["sum", "avg"])
def test_complex_numbers_are_reduced_part_by_part(reduce: str):
    given = torch.randint(-9, 9, (3, 20, 2)).float()
    op = operation("all_reduce", 3)
    made = buffers(op, list(torch.view_as_complex(given)), np.array([20]), apart)
    execute(algorithm("all_reduce", "ring").schedule(3), op, made, reduce=reduce)
    expected = given.sum(0) if reduce == "sum" else given.mean(0)
    assert all(torch.equal(torch.view_as_real(pair.output), expected) for pair in made.values())


@pytest.mark.parametrize("name", [a.name for _, a in ALGORITHMS if a.operation == "all_reduce" and list(a.shapes(8))])
@pytest.mark.parametrize("reduce", ["min", "max"])
def test_of_zeros_of_both_signs_every_rank_gets_the_same(name: str, reduce: str):
    """Torch does not say which one: its own minimum of 0 and -0 is that of the lane it is computed in."""
    found = algorithm("all_reduce", name)
    given = torch.where(torch.rand(8, 97, generator=torch.Generator().manual_seed(0)) < 0.5, 0.0, -0.0)
    op = operation("all_reduce", 8)
    made = buffers(op, list(given), np.array([97]), apart)
    execute(found.schedule(found.fit(8)), op, made, reduce=reduce)
    first, *others = (pair.output.view(torch.int32) for pair in made.values())
    assert not made[0].output.any()
    assert all(torch.equal(first, bits) for bits in others)


@pytest.mark.parametrize("n", [3, 4, 8])
@pytest.mark.parametrize("lay", [side_by_side, apart])
def test_an_average_in_float16_is_right_where_the_sum_would_be_too_large(n: int, lay):
    given = [torch.full((33,), 40000.0 + 64 * r, dtype=torch.float16) for r in range(n)]
    op = operation("all_reduce", n)
    made = buffers(op, given, np.array([33]), lay)
    execute(algorithm("all_reduce", "ring").schedule(n), op, made, reduce="avg")
    expected = torch.stack(given).double().mean(0)
    assert all((pair.output.double() / expected - 1).abs().max() < 2e-3 for pair in made.values())


def test_an_average_in_float16_has_the_bits_of_the_sum_divided_where_the_sum_fits():
    given = [torch.randint(-99, 99, (50,), generator=torch.Generator().manual_seed(r)).half() for r in range(7)]
    op = operation("all_reduce", 7)
    made = buffers(op, given, np.array([50]), apart)
    execute(algorithm("all_reduce", "ring").schedule(7), op, made, reduce="avg")
    assert all(torch.equal(pair.output, torch.stack(given).sum(0) / 7) for pair in made.values())


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_an_average_of_integers_is_cut_towards_zero(dtype: torch.dtype):
    op = operation("all_reduce", 3)
    made = buffers(op, [torch.tensor([r, -r, 7, -7]).to(dtype) for r in (1, 3, 4)], np.array([4]), apart)
    execute(algorithm("all_reduce", "ring").schedule(3), op, made, reduce="avg")
    assert all(pair.output.tolist() == [2, -2, 7, -7] for pair in made.values())


def test_float8_is_moved_as_it_is():
    given = [torch.randn(6).to(torch.float8_e5m2) for _ in range(3)]
    op = operation("all_gather", 3)
    made = buffers(op, given, np.full(3, 6), apart)
    execute(algorithm("all_gather", "ring").schedule(3), op, made)
    assert all(torch.equal(pair.output.view(torch.uint8), torch.cat(given).view(torch.uint8)) for pair in made.values())


def test_an_average_of_what_one_rank_has_is_what_it_has():
    op = operation("all_gather", 3)
    made = {r: Buffers(torch.full((2,), float(r)), torch.full((6,), torch.nan)) for r in range(3)}
    execute(algorithm("all_gather", "ring").schedule(3), op, made, reduce="avg")
    assert all(pair.output.tolist() == [0, 0, 1, 1, 2, 2] for pair in made.values())


@pytest.mark.parametrize("lay", [side_by_side, apart])
def test_what_translations_give_is_run_without_storing_every_row(lay, monkeypatch: pytest.MonkeyPatch):
    """All ranks are in one process, or they are spread over several."""
    stored, op, n = algorithm("all_reduce", "ring").compact_schedule(6), operation("all_reduce", 6), 6
    assert stored.translate
    monkeypatch.setattr(Schedule, "expand", lambda _: pytest.fail("every row was stored"))
    given, counts = [torch.full((20,), float(r)) for r in range(n)], np.array([20])
    together, split = (buffers(op, given, counts, lay) for _ in range(2))
    execute(stored, op, together, counts=counts)
    over_a_wire(stored, op, split, counts)
    assert all(pair.output.tolist() == [15.0] * 20 for way in (together, split) for pair in way.values())
