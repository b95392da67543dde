"""A compiled schedule moves no more than it must, in few operations, beside little memory of its own."""

import re
from collections.abc import Sequence
from math import prod

import numpy as np
import pytest
import torch

from emu.backend.executor import compiled_program as program_module
from emu.backend.executor.buffer_addresses import buffer_addresses
from emu.backend.executor.compiled_program import CompiledProgram, compile_schedule
from emu.collective.algorithm import algorithm
from emu.collective.operation import operation
from emu.collective.schedule import RowsError, Schedule

ELEMENTS = 4  # of a slot


def program_of(schedule: Schedule, name: str, here: Sequence[int] | None = None) -> CompiledProgram:
    """Return the program of a schedule for buffers side by side, out of place, whose slots are all of one size."""
    n, op = schedule.n_ranks, operation(name, schedule.n_ranks)
    counts = np.full(op.n_blocks, ELEMENTS * schedule.n_slots // op.n_blocks)
    ranks = range(n) if here is None else here
    sides = ({r: int(counts[of(r)].sum()) for r in range(n)} for of in (op.input_blocks, op.output_blocks))
    inputs, outputs = (torch.empty(n, max(widths.values())) for widths in sides)
    where, _ = buffer_addresses(schedule.n_participants, *({r: side[r] for r in ranks} for side in (inputs, outputs)))
    return compile_schedule(schedule, op, counts, where, np.array(ranks))


def batches(program: CompiledProgram):
    return [batch for each in program.rounds for batch in each.batches]


def moved(program: CompiledProgram) -> int:
    return sum(prod(batch.shape) for batch in batches(program))


@pytest.mark.parametrize(
    ("name", "by", "own"),
    [("all_reduce", "ring", 0), ("all_gather", "ring", 1), ("all_to_all", "pairwise", 1), ("all_reduce", "circulant", 0)],
)
def test_each_row_moves_its_slot_once_and_only_what_stays_is_copied_beside(name: str, by: str, own: int) -> None:
    """The inputs of a sum are read where they were given: nothing is copied first to be added to."""
    stored = algorithm(name, by).compact_schedule(8)
    assert stored.translate
    for schedule in (stored, stored.expand()):
        assert moved(program_of(schedule, name)) == ELEMENTS * (stored.n_rows_of_all + 8 * own)


@pytest.mark.parametrize(
    ("name", "by", "shape"),
    [
        ("all_reduce", "ring", 40),
        ("all_reduce", "bidirectional-ring", 40),
        ("reduce_scatter", "ring", 40),
        ("all_gather", "bruck", 40),
        ("all_to_all", "pairwise", 40),
        ("all_reduce", "hyperx-direct", (6, 6)),
        ("all_reduce", "torus-buckets", (6, 6)),
        ("all_to_all", "dimension-ordered", (6, 6)),
    ],
)
def test_operations_are_as_many_as_the_rows_of_one_rank_and_not_as_those_of_all(name: str, by: str, shape) -> None:
    """A row is cut where its receiver or its slot turns over to 0, in each dimension: twice, and twice more for two digits."""
    stored = algorithm(name, by).compact_schedule(shape)
    pieces = (2 + stored.slot_digits) ** len(stored.translate)
    most = (stored.n_rows + stored.n_slots // stored.n_ranks ** max(1, stored.slot_digits)) * pieces
    assert 0 < len(batches(program_of(stored, name))) <= most < stored.n_rows_of_all


def test_what_is_staged_in_one_round_takes_the_place_of_what_was_staged_before() -> None:
    n = 16
    program = program_of(algorithm("all_reduce", "recursive-doubling").compact_schedule(n), "all_reduce")
    assert 0 < program.stage_count <= n * ELEMENTS


def test_a_rank_of_several_processes_has_scratch_for_itself_alone() -> None:
    n = 6
    stored = algorithm("reduce_scatter", "ring").compact_schedule(n)
    alone, all_here = program_of(stored, "reduce_scatter", [2]), program_of(stored, "reduce_scatter")
    assert 0 < alone.scratch_count < n * ELEMENTS
    assert all_here.scratch_count == n * alone.scratch_count


def test_a_round_of_too_many_rows_whose_sums_depend_on_their_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_module, "MAX_ROWS", 50)
    said = "112 rows of rounds whose sums depend on the order of ranks, at most 2**24 can be executed; take fewer ranks"
    with pytest.raises(RowsError, match=f"^schedule: {re.escape(said)}$"):
        program_of(algorithm("all_reduce", "direct").compact_schedule(8), "all_reduce")
    program_of(algorithm("all_gather", "direct").compact_schedule(8), "all_gather")
