"""The data that a bench moves: what is expected is what a definition by stacking gives, in every dtype, to the element."""

from itertools import product

import pytest
import torch
from torch import Tensor

from emu.collective.operation import OPERATIONS, Operation, operation
from emu.study.payload import DTYPES, REDUCTIONS, Payload


def input_block(payload: Payload, op: Operation, rank: int, block: int) -> Tensor:
    counts = payload.block_counts
    before = sum(int(counts[b]) for b in op.input_blocks(rank) if b < block)
    return payload.buffers()[rank].input[before : before + int(counts[block])]


def by_definition(payload: Payload, op: Operation, rank: int, reduce: str) -> Tensor:
    parts = [torch.empty(0, dtype=torch.float64)]
    for block in op.output_blocks(rank).tolist():
        holders = [int(r) for r, b in op.have if b == block]
        stack = torch.stack([input_block(payload, op, h, block) for h in holders]).double()
        total = {
            "sum": stack.sum(0),
            "avg": stack.mean(0),
            "min": stack.amin(0),
            "max": stack.amax(0),
            "product": stack.prod(0),
        }
        parts.append(total[reduce])
    return torch.cat(parts)


CASES = [
    (name, n, dtype, reduce)
    for name, n, dtype, reduce in product(OPERATIONS, (1, 3, 8), DTYPES, REDUCTIONS)
    if reduce != "avg" or DTYPES[dtype].is_floating_point
]


@pytest.mark.parametrize("name", OPERATIONS)
def test_outputs_by_definition_are_right_and_one_changed_element_is_counted(name: str) -> None:
    for _, n, dtype, reduce in (case for case in CASES if case[0] == name):
        op = operation(name, n)
        payload = Payload.make(op, 37, DTYPES[dtype], reduce)
        for rank, pair in payload.buffers().items():
            pair.output.copy_(by_definition(payload, op, rank, reduce).to(DTYPES[dtype]))
        assert payload.wrong() == 0, (n, dtype, reduce)
        first = payload.buffers()[int(op.want[0, 0])].output
        first[0] = 1 - first[0]
        assert payload.wrong() == 1, (n, dtype, reduce)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8"])
def test_sums_over_more_ranks_than_the_dtype_counts_to_stay_exact(dtype: str) -> None:
    op = operation("all_reduce", 600)
    payload = Payload.make(op, 50, DTYPES[dtype], "sum")
    exact = torch.stack(payload.inputs).double().sum(0)
    assert exact.max() <= {"bfloat16": 256, "float16": 2048, "int8": 127}[dtype]
    assert exact.max() > 0


def test_untouched_outputs_are_all_wrong() -> None:
    payload = Payload.make(operation("all_gather", 4), 40, torch.float32, "sum")
    assert payload.wrong() == 4 * 40
