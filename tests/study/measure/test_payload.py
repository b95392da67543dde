"""The data that a bench moves: what is expected is what a definition by stacking gives, in every dtype, to the element."""

from functools import reduce as fold
from itertools import product

import pytest
import torch
from torch import Tensor

from emu.arrays import I64
from emu.backend.executor.reductions import check_reduces
from emu.collective.operation import OPERATIONS, REDUCING, Operation, operation
from emu.dtypes import DTYPES, REDUCE_OPERATIONS
from emu.errors import InputError
from emu.study.measure import move as payload_module
from emu.study.measure.move import Payload, dtype_of

COUNT = 40 * 8  # tokens are all of one size
BITWISE = {"and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor}


def input_block(payload: Payload, op: Operation, rank: int, block: int) -> Tensor:
    counts = payload.block_counts
    blocks = op.input_blocks(rank)
    before = int(counts[blocks[blocks < block]].sum())
    return payload.inputs[rank][before : before + int(counts[block])]


def over_a_stack(stack: Tensor, reduce: str) -> Tensor:
    """Return what torch says of [N, elements], in the widest dtype of the kind."""
    if reduce in BITWISE:
        return fold(BITWISE[reduce], stack)
    if stack.is_complex():
        return torch.view_as_complex(over_a_stack(torch.view_as_real(stack), reduce))
    table = {"sum": torch.sum, "avg": torch.mean, "min": torch.amin, "max": torch.amax, "product": torch.prod}
    return table[reduce](stack.double(), 0)


def by_definition(payload: Payload, op: Operation, rank: int, reduce: str) -> Tensor:
    parts = [payload.sequence[:0]]
    for block in op.output_blocks(rank).tolist():
        holders = op.have[op.have[:, 1] == block, 0].tolist()
        blocks = [input_block(payload, op, holder, block) for holder in holders]
        whole = over_a_stack(torch.stack(blocks), reduce) if len(blocks) > 1 else blocks[0]
        parts.append(whole.to(payload.sequence.dtype))
    return torch.cat(parts)


def can(name: str, dtype: str, reduce: str) -> bool:
    try:
        check_reduces(name, dtype_of(dtype), reduce)
    except InputError:
        return False
    return True


def cases(name: str) -> list[tuple[int, str, str]]:
    """Every dtype reduced every way on few ranks; on eight, one of each kind."""
    moved = name not in REDUCING
    return [
        (n, dtype, reduce)
        for n, dtype, reduce in product((1, 3, 8), DTYPES, ("sum",) if moved else REDUCE_OPERATIONS)
        if moved or (can(name, dtype, reduce) and (n < 8 or dtype in ("float32", "int64", "bool", "complex64")))
    ]


@pytest.mark.parametrize("name", OPERATIONS)
def test_outputs_by_definition_are_right_and_one_changed_element_is_counted(name: str) -> None:
    for n, dtype, reduce in cases(name):
        op = operation(name, n)
        payload = Payload.make(op, COUNT - COUNT % op.count_step, dtype_of(dtype), reduce)
        for rank, pair in payload.buffers().items():
            pair.output.copy_(by_definition(payload, op, rank, reduce))
        assert payload.wrong() == 0, (n, dtype, reduce)
        first = payload.buffers()[int(op.want[0, 0])].output
        first[0] = ~first[0] if first.dtype is torch.bool else (1 - first[:1].to(torch.complex128).real)[0]
        assert payload.wrong() == 1, (n, dtype, reduce)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint8"])
def test_a_rank_that_a_bitwise_operation_leaves_out_is_seen(dtype: str) -> None:
    """Whichever of 24 ranks is left out, what the others give differs in some element."""
    op = operation("all_reduce", 24)
    for reduce in BITWISE:
        inputs = torch.stack(Payload.make(op, 1000, dtype_of(dtype), reduce).inputs)
        whole = over_a_stack(inputs, reduce)
        for rank in range(24):
            assert not torch.equal(over_a_stack(torch.cat((inputs[:rank], inputs[rank + 1 :])), reduce), whole)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8"])
def test_sums_over_more_ranks_than_the_dtype_counts_to_stay_exact(dtype: str) -> None:
    op = operation("all_reduce", 600)
    payload = Payload.make(op, 50, dtype_of(dtype), "sum")
    exact = torch.stack(payload.inputs).double().sum(0)
    assert exact.max() <= {"bfloat16": 256, "float16": 2048, "int8": 127}[dtype]
    assert exact.max() > 0


def test_both_parts_of_a_complex_number_are_looked_at() -> None:
    payload = Payload.make(operation("all_reduce", 3), 40, torch.complex64, "sum")
    for pair in payload.buffers().values():
        pair.output.copy_(torch.stack(payload.inputs).sum(0))
    payload.buffers()[1].output[5] += 1j
    payload.buffers()[2].output[6] += 1
    assert payload.wrong() == 2


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name.startswith(("float", "bfloat", "complex"))])
def test_outputs_that_nobody_has_written_are_no_number(dtype: str) -> None:
    payload = Payload.make(operation("all_gather", 4), 40, dtype_of(dtype), "sum")
    assert payload.outputs.to(torch.complex128).isnan().all()


@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_integers_that_nobody_has_written_are_none_of_the_payload(dtype: str) -> None:
    payload = Payload.make(operation("all_reduce", 4), 40, dtype_of(dtype), "sum")
    assert (payload.outputs == torch.iinfo(dtype_of(dtype)).min + 1).all()
    assert (payload.sequence >= 0).all()


def test_untouched_outputs_are_all_wrong() -> None:
    payload = Payload.make(operation("all_gather", 4), 40, torch.float32, "sum")
    assert payload.wrong() == 4 * 40


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("count", [24 * 6, 24 * 6 + 7])
def test_as_many_elements_are_wrong_as_were_changed_wherever_they_lie(name: str, count: int) -> None:
    op = operation(name, 6)
    payload = Payload.make(op, count - count % op.count_step, torch.int64, "sum")
    for rank, pair in payload.buffers().items():
        pair.output.copy_(by_definition(payload, op, rank, "sum"))
    changed = torch.rand(payload.outputs.shape, generator=torch.Generator().manual_seed(0)) < 0.1
    payload.outputs[changed] -= 1
    asked = sum(int(changed[rank, : pair.output.numel()].sum()) for rank, pair in payload.buffers().items())
    assert payload.wrong() == asked > 0


@pytest.mark.parametrize("n", [2, 5, 13, 24, 37])
@pytest.mark.parametrize("reduce", ["sum", "min", "product", "xor"])
def test_what_any_number_of_ranks_come_to_is_what_torch_gets_from_a_stack(n: int, reduce: str) -> None:
    payload = Payload.make(operation("all_reduce", n), 50, torch.int32, reduce)
    for pair in payload.buffers().values():
        pair.output.copy_(over_a_stack(torch.stack(payload.inputs), reduce))
    assert payload.wrong() == 0
    payload.outputs[n - 1, 49] += 1
    assert payload.wrong() == 1


@pytest.mark.parametrize(
    ("name", "count", "most"),
    [("all_reduce", 43, 0), ("reduce_scatter", 43, 0), ("all_to_all", 43, 0), ("all_gather", 40, 0), ("all_gather", 43, 43)],
)
def test_checking_takes_no_index_for_each_element_where_blocks_lie_at_a_constant_stride(
    name: str, count: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unequal blocks of an all_gather need one index, which serves all ranks, as they want the same."""
    indexed, ramps = [0], payload_module.ramps

    def counted(start: I64, sizes: I64) -> I64:
        indexed.append(int(sizes.sum()))
        return ramps(start, sizes)

    monkeypatch.setattr(payload_module, "ramps", counted)
    payload = Payload.make(operation(name, 8), count, torch.float32, "sum")
    assert payload.wrong() > 0
    assert sum(indexed) == most
