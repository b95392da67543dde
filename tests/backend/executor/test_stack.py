"""Buffers that lie apart, taken side by side some columns at a time: the same bits, in little memory."""

import numpy as np
import pytest
import torch
from torch import Tensor

from emu.backend.executor import executor as execute_module
from emu.backend.executor.executor import Buffers, execute
from emu.collective.algorithm import algorithm
from emu.collective.operation import Operation, operation
from emu.collective.schedule import Schedule
from tests.backend.executor.test_execute_catalogue import apart, buffers, in_place

N = 16
CASES = [("all_reduce", "ring"), ("reduce_scatter", "ring"), ("all_gather", "ring"), ("all_to_all", "bruck")]


def made_for(name: str, by: str) -> tuple[Schedule, Operation]:
    return algorithm(name, by).schedule(N), operation(name, N)


def outputs(schedule: Schedule, op: Operation, columns: int, *, same: bool) -> list[Tensor]:
    """Return the outputs for random floats, where every slot has so many elements."""
    counts = np.full(op.n_blocks, columns * schedule.n_slots // op.n_blocks)
    generator = torch.Generator().manual_seed(columns)
    sizes = [int(counts[op.input_blocks(r)].sum()) for r in range(N)]
    given = buffers(op, [torch.randn(size, generator=generator) for size in sizes], counts, apart)
    made = in_place(given) if same else given
    execute(schedule, op, made, counts=counts)
    return [pair.output for pair in made.values()]


@pytest.mark.parametrize(("name", "by"), CASES)
@pytest.mark.parametrize("columns", [1, 6, 7])
@pytest.mark.parametrize("same", [False, True])
def test_columns_at_a_time_give_the_bits_of_rows_one_by_one(
    name: str, by: str, columns: int, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule, op = made_for(name, by)
    monkeypatch.setattr(execute_module, "_SMALL_SLOT_BYTES", 0)
    one_by_one = outputs(schedule, op, columns, same=same)
    monkeypatch.setattr(execute_module, "_SMALL_SLOT_BYTES", 2**20)
    monkeypatch.setattr(execute_module, "_FEWEST_COLUMNS", 3)
    monkeypatch.setattr(execute_module, "_STACK_BYTES", 1)
    assert all(torch.equal(a, b) for a, b in zip(outputs(schedule, op, columns, same=same), one_by_one, strict=True))


class Allocated:
    """Counts the elements that the executor takes for itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most, take = 0, Tensor.new_empty

        def new_empty(sample: Tensor, *size: int) -> Tensor:
            made = take(sample, *size)
            self.most = max(self.most, made.numel())
            return made

        monkeypatch.setattr(Tensor, "new_empty", new_empty)


def test_buffers_in_place_need_no_second_copy_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule, op = made_for("all_reduce", "ring")
    columns, kept = 64, 16
    monkeypatch.setattr(execute_module, "_STACK_BYTES", N * N * kept * 4)
    tensors = [torch.ones(N * columns) for _ in range(N)]
    taken = Allocated(monkeypatch)
    execute(schedule, op, {r: Buffers(t, t) for r, t in enumerate(tensors)})
    assert all(bool((t == N).all()) for t in tensors)
    assert taken.most == N * N * kept


def test_slots_of_several_sizes_are_taken_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule, op = made_for("all_reduce", "ring")
    monkeypatch.setattr(execute_module, "_STACK_BYTES", 1)
    tensors = [torch.full((3 * N + 5,), float(r)) for r in range(N)]
    taken = Allocated(monkeypatch)
    execute(schedule, op, {r: Buffers(t, t) for r, t in enumerate(tensors)})
    assert all(bool((t == sum(range(N))).all()) for t in tensors)
    assert taken.most == N * (3 * N + 5)
