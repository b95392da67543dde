"""Every collective of the catalogue on real tensors: against its plain definition, and one way to run it against another."""

import threading
from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest
import torch
from torch import Tensor

from emu.backend import execute as execute_module
from emu.backend.execute import Buffers, execute
from emu.collective.algorithm import ALGORITHMS, Algorithm
from emu.collective.operation import ROOTED, Operation, operation
from emu.collective.schedule import Schedule
from tests.backend.test_execute import QueueWire

NS = (1, 2, 3, 5, 8, 12, 16)
SHAPES = 3  # of a number of ranks, the best first
EVERY = pytest.mark.parametrize(("found", "n"), [pytest.param(a, n, id=f"{k}-{n}") for k, a in ALGORITHMS for n in NS])


def cases(found: Algorithm, n: int):
    """Schedules with the operation they are for: some shapes, and the first and the last rank as the root."""
    roots = sorted({0, n - 1}) if found.operation in ROOTED else [0]
    for shape in islice(found.shapes(n), SHAPES):
        for root in roots:
            yield found.schedule(shape, root), operation(found.operation, n, root)


def some_counts(op: Operation):
    """Elements of each block: none, one in all, a whole that does not divide, and whatever comes."""
    yield from (op.block_counts(size) for size in (0, 1, 3 * op.n_ranks + 2))
    yield np.random.default_rng(op.n_ranks).integers(0, 6, op.n_blocks)


def input_sizes(op: Operation, counts: np.ndarray) -> list[int]:
    n, ranks = op.n_ranks, range(op.n_ranks)
    if op.name in ("all_gather", "gather"):
        return counts.tolist()
    if op.name == "all_to_all":
        return counts.reshape(n, n).sum(axis=1).tolist()
    whole = int(counts.sum())
    return [whole if r == op.root or op.name not in ("broadcast", "scatter") else 0 for r in ranks]


def by_definition(op: Operation, given: Sequence[np.ndarray], counts: np.ndarray) -> list[np.ndarray]:
    """What every rank's output must be, without blocks, slots or schedules."""
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
    table = counts.reshape(n, n)
    sent = [np.split(g, np.cumsum(row)[:-1]) for g, row in zip(given, table, strict=True)]
    return [np.concatenate([sent[s][d] for s in range(n)]) for d in range(n)]


def side_by_side(sizes: Sequence[int], dtype: torch.dtype) -> list[Tensor]:
    table = torch.zeros(len(sizes), max(sizes) + 1, dtype=dtype)
    return [table[r, :size] for r, size in enumerate(sizes)]


def apart(sizes: Sequence[int], dtype: torch.dtype) -> list[Tensor]:
    return [torch.zeros(size, dtype=dtype) for size in sizes]


def buffers(op: Operation, given: Sequence[Tensor], counts: np.ndarray, lay) -> dict[int, Buffers]:
    inputs = lay([t.numel() for t in given], given[0].dtype)
    for place, values in zip(inputs, given, strict=True):
        place.copy_(values)
    widths = [int(counts[op.output_blocks(r)].sum()) for r in range(op.n_ranks)]
    return dict(enumerate(map(Buffers, inputs, lay(widths, given[0].dtype))))


@EVERY
@pytest.mark.parametrize("lay", [side_by_side, apart])
def test_integers_end_as_the_operation_is_defined(found: Algorithm, n: int, lay):
    generator = np.random.default_rng(n)
    for schedule, op in cases(found, n):
        for counts in some_counts(op):
            given = [generator.integers(-(2**62), 2**62, size) for size in input_sizes(op, counts)]
            made = buffers(op, [torch.from_numpy(g) for g in given], counts, lay)
            execute(schedule, op, made, counts=counts)
            for rank, expected in enumerate(by_definition(op, given, counts)):
                assert made[rank].output.tolist() == expected.tolist()
                assert made[rank].input.tolist() == given[rank].tolist()


def over_a_wire(schedule: Schedule, op: Operation, made: dict[int, Buffers], counts: np.ndarray) -> None:
    """Ranks 0, 3, 6, ... on one side, 1, 4, 7, ... on another, the rest on a third."""
    wire, homes = QueueWire(), [list(made)[first::3] for first in range(min(3, len(made)))]
    threads = [
        threading.Thread(
            target=execute, args=(schedule, op, {r: made[r] for r in home}), kwargs={"counts": counts, "wire": wire}
        )
        for home in homes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(lane.empty() for lane in wire.lanes.values())


@EVERY
def test_floats_have_the_same_bits_side_by_side_apart_stacked_and_over_a_wire(
    found: Algorithm, n: int, monkeypatch: pytest.MonkeyPatch
):
    generator = torch.Generator().manual_seed(n)
    for schedule, op in cases(found, n):
        counts = op.block_counts(4 * n + 3)
        given = [torch.randn(size, generator=generator) for size in input_sizes(op, counts)]
        ways = [buffers(op, given, counts, lay) for lay in (side_by_side, apart, apart, apart)]
        execute(schedule, op, ways[0], counts=counts)
        execute(schedule, op, ways[1], counts=counts)
        with monkeypatch.context() as patch:
            patch.setattr(execute_module, "_SMALL_ROW_BYTES", 0)  # so that nothing is worth stacking
            execute(schedule, op, ways[2], counts=counts)
        over_a_wire(schedule, op, ways[3], counts)
        for way in ways[1:]:
            assert all(torch.equal(way[r].output, ways[0][r].output) for r in range(n))
        if op.name == "all_reduce":
            assert all(torch.equal(ways[0][r].output, ways[0][0].output) for r in range(n))


@EVERY
def test_in_place_gives_what_apart_gives(found: Algorithm, n: int):
    """Where a rank's input and output are of one size, they may be the same memory."""
    generator = np.random.default_rng(n)
    for schedule, op in cases(found, n):
        for counts in (np.full(op.n_blocks, 3), *some_counts(op)):
            sizes = input_sizes(op, counts)
            given = [torch.from_numpy(generator.integers(-(2**62), 2**62, size)) for size in sizes]
            plain, same = (buffers(op, given, counts, apart) for _ in range(2))
            for rank, pair in plain.items():
                if pair.input.numel() == pair.output.numel():
                    same[rank] = Buffers(same[rank].input, same[rank].input)
            execute(schedule, op, plain, counts=counts)
            execute(schedule, op, same, counts=counts)
            assert all(torch.equal(same[r].output, plain[r].output) for r in range(n))
