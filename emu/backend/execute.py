"""Move real tensors as a schedule says: one interpreter for the ranks that are here, with a wire to those that are not."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from emu.arrays import I64
from emu.backend.compile import REDUCE, Addressing, Batch, Compiler, Program, Round, Transfer
from emu.backend.layout import INBOX, INPUT, OUTPUT, REGIONS, SCRATCH, STAGE, Layout, lay_out
from emu.collective.operation import Operation
from emu.collective.schedule import Schedule
from emu.errors import InputError
from emu.registry import unknown

_SMALL_ROW_BYTES = 16 * 1024  # below it a view a row costs more than copying all buffers side by side and back
_PROGRAMS: OrderedDict[tuple[object, ...], tuple[Layout, Program]] = OrderedDict()
_KEPT_PROGRAMS = 64
_COMPILING = threading.Lock()  # groups of one rank may run on threads of their own


@dataclass(frozen=True, eq=False, slots=True)
class Buffers:
    """One rank's flat, contiguous input and output; the same memory where the collective is in place.

    A rank without input or output (off the root) gives an empty tensor.
    """

    input: Tensor
    output: Tensor


class Pending(Protocol):
    """A transfer under way."""

    def wait(self) -> object:
        """Block until the buffer may be used again."""


class Wire(Protocol):
    """Carries messages between this process's participants and those of others, in order within (src, dst, channel).

    A helper (a participant of n_ranks or above) lives with rank 0.
    """

    def send(self, src: int, dst: int, channel: int, data: Tensor) -> Pending:
        """Start sending; `data` must not change until the wait is over."""

    def receive(self, src: int, dst: int, channel: int, data: Tensor) -> Pending:
        """Start receiving into `data`."""


def _fold(target: Tensor, source: Tensor, reduce: str) -> None:
    if reduce in ("sum", "avg"):
        target.add_(source)
    elif reduce == "product":
        target.mul_(source)
    else:
        _ELEMENTWISE[reduce](target, source, out=target)


_ELEMENTWISE = {
    "min": torch.minimum,
    "max": torch.maximum,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
}
REDUCE_OPERATIONS = ("sum", "avg", "product", *_ELEMENTWISE)


def execute(
    schedule: Schedule,
    operation: Operation,
    buffers: Mapping[int, Buffers],
    *,
    counts: I64 | None = None,
    reduce: str = "sum",
    wire: Wire | None = None,
) -> None:
    """Run a schedule over real tensors; on return the outputs hold what the operation wants.

    Args:
        schedule: With every row stored.
        operation: What the schedule is for.
        buffers: Of the ranks that are here, all of one dtype.
        counts: [B] elements of each block; cut as even as can be from the largest buffer where all ranks are here.
        reduce: One of `REDUCE_OPERATIONS`; avg divides once, at the end.
        wire: To the ranks elsewhere, if there are any.

    Raises:
        InputError: buffers that do not fit the operation, mixed dtypes, or an unknown reduce operation.
    """
    if reduce not in REDUCE_OPERATIONS:
        raise unknown("reduce operation", reduce, REDUCE_OPERATIONS)
    sizes = operation.block_counts(_largest(buffers)) if counts is None else np.asarray(counts, np.int64)
    _check(operation, buffers, sizes, wire)
    with torch.no_grad():
        if _is_worth_stacking(schedule, buffers, sizes):
            _execute_stacked(schedule, operation, buffers, sizes, reduce)
        else:
            _execute_here(schedule, operation, buffers, sizes, reduce, wire)
        if reduce == "avg":
            for pair in buffers.values():
                pair.output.div_(operation.n_ranks)


def _largest(buffers: Mapping[int, Buffers]) -> int:
    return max((max(b.input.numel(), b.output.numel()) for b in buffers.values()), default=0)


def _check(operation: Operation, buffers: Mapping[int, Buffers], sizes: I64, wire: Wire | None) -> None:
    if wire is None and len(buffers) != operation.n_ranks:
        raise InputError(f"{operation.name}: {operation.n_ranks} ranks take part, buffers are given for {len(buffers)}")
    dtypes = {t.dtype for b in buffers.values() for t in (b.input, b.output)}
    if len(dtypes) > 1:
        raise InputError(f"{operation.name}: all buffers must have one dtype, got {', '.join(sorted(map(str, dtypes)))}")
    for rank, pair in buffers.items():
        for side, tensor, blocks in (
            ("input", pair.input, operation.input_blocks(rank)),
            ("output", pair.output, operation.output_blocks(rank)),
        ):
            if tensor.numel() != sizes[blocks].sum() or not tensor.is_contiguous():
                raise InputError(
                    f"{operation.name}: the {side} of rank {rank} must be {sizes[blocks].sum()} contiguous elements, "
                    f"got {tensor.numel()}{'' if tensor.is_contiguous() else ' that are not contiguous'}"
                )


def _is_worth_stacking(schedule: Schedule, buffers: Mapping[int, Buffers], sizes: I64) -> bool:
    """Many small rows over buffers that lie apart: side by side they become few strided operations."""
    if len(buffers) < 8 or len(buffers) != schedule.n_ranks or schedule.n_rows < 8 * len(buffers):
        return False
    inputs, outputs = ([b.input for b in buffers.values()], [b.output for b in buffers.values()])
    apart = [_stride(inputs, read_only=True) is None, _stride(outputs) is None]
    item = next(iter(buffers.values())).output.element_size()
    return any(apart) and int(sizes.sum()) * item * schedule.n_ranks < _SMALL_ROW_BYTES * schedule.n_rows


def _execute_stacked(schedule: Schedule, operation: Operation, buffers: Mapping[int, Buffers], sizes: I64, reduce: str) -> None:
    """Copy the inputs side by side, run there, copy the outputs back."""
    sample = buffers[0].output
    given = sample.new_empty(len(buffers), max(b.input.numel() for b in buffers.values()))
    made = sample.new_empty(len(buffers), max(b.output.numel() for b in buffers.values()))
    stacked = {r: Buffers(given[r, : b.input.numel()], made[r, : b.output.numel()]) for r, b in buffers.items()}
    for rank, pair in buffers.items():
        stacked[rank].input.copy_(pair.input)
    _execute_here(schedule, operation, stacked, sizes, reduce, None)
    for rank, pair in buffers.items():
        pair.output.copy_(stacked[rank].output)


def _execute_here(
    schedule: Schedule,
    operation: Operation,
    buffers: Mapping[int, Buffers],
    sizes: I64,
    reduce: str,
    wire: Wire | None,
) -> None:
    given, memories = _address(schedule, buffers)
    layout, program = _compiled(schedule, operation, sizes, given, tuple(buffers))
    sample = next(iter(buffers.values())).output
    memories[SCRATCH] = sample.new_empty(int(layout.scratch.width.sum()))
    memories[STAGE] = sample.new_empty(program.stage_count)
    memories[INBOX] = sample.new_empty(program.inbox_count)
    for each in program.rounds:
        if wire is not None:
            _exchange(each, memories, wire)
        for batch in each.batches:
            _apply(batch, memories, reduce)


def _address(schedule: Schedule, buffers: Mapping[int, Buffers]) -> tuple[Addressing, list[Tensor]]:
    """Which memory each rank's input and output are in; buffers that lie at a constant stride share one memory."""
    memories = [torch.empty(0)] * REGIONS
    memory = np.tile(np.arange(REGIONS)[:, None], schedule.n_participants)
    base = np.zeros_like(memory)
    for region, tensors in (
        (INPUT, {r: b.input for r, b in buffers.items()}),
        (OUTPUT, {r: b.output for r, b in buffers.items()}),
    ):
        ranks, stride = list(tensors), _stride(list(tensors.values()), read_only=region == INPUT)
        if stride is not None:
            memories[region] = tensors[ranks[0]]
            base[region, ranks] = np.arange(len(ranks)) * stride
            continue
        memory[region, ranks] = np.arange(len(ranks)) + len(memories)
        memories.extend(tensors.values())
    in_place = [r for r, b in buffers.items() if b.input.numel() and b.input.data_ptr() == b.output.data_ptr()]
    memory[INPUT, in_place], base[INPUT, in_place] = memory[OUTPUT, in_place], base[OUTPUT, in_place]
    return Addressing(memory, base), memories


def _stride(tensors: Sequence[Tensor], *, read_only: bool = False) -> int | None:
    """Elements from each tensor to the next where all lie in one storage at a constant stride, else None.

    What is only read may overlap.
    """
    storage = tensors[0].untyped_storage().data_ptr()
    if len(tensors) < 2 or any(t.untyped_storage().data_ptr() != storage or not t.numel() for t in tensors):
        return None
    steps = {int(b.storage_offset()) - int(a.storage_offset()) for a, b in pairwise(tensors)}
    step = steps.pop()
    return None if steps or step < (1 if read_only else tensors[0].numel()) else step


def _compiled(
    schedule: Schedule, operation: Operation, sizes: I64, given: Addressing, here: tuple[int, ...]
) -> tuple[Layout, Program]:
    """Compile once for each schedule, sizes and way the buffers lie; values that differ only in their data share it."""
    key = (schedule, operation, sizes.tobytes(), given.memory.tobytes(), given.base.tobytes(), here)
    with _COMPILING:
        if key not in _PROGRAMS:
            layout = lay_out(schedule, operation, sizes)
            base = given.base.copy()
            base[SCRATCH] = np.cumsum(layout.scratch.width) - layout.scratch.width
            where = Addressing(given.memory, base)
            _PROGRAMS[key] = layout, Compiler(schedule, operation, layout, where, np.array(here)).program()
            if len(_PROGRAMS) > _KEPT_PROGRAMS:
                _PROGRAMS.popitem(last=False)
        _PROGRAMS.move_to_end(key)
        return _PROGRAMS[key]


def _apply(batch: Batch, memories: list[Tensor], reduce: str) -> None:
    target, source = memories[batch.target], memories[batch.source]
    shape = (batch.n, batch.width)
    at = target.as_strided(shape, (batch.target_step, 1), target.storage_offset() + batch.target_at)
    data = source.as_strided(shape, (batch.source_step, 1), source.storage_offset() + batch.source_at)
    if batch.code == REDUCE:
        _fold(at, data, reduce)
    else:
        at.copy_(data)


def _exchange(each: Round, memories: list[Tensor], wire: Wire) -> None:
    """Swap one round's messages with the ranks elsewhere; nothing here is written before what leaves has left."""
    incoming = [(t, _landing(t, memories)) for t in each.receives]
    under_way = [wire.receive(t.peer, t.here, t.channel, data) for t, data in incoming]
    under_way += [wire.send(t.here, t.peer, t.channel, _packed(t, memories)) for t in each.sends]
    for transfer in under_way:
        transfer.wait()


def _landing(transfer: Transfer, memories: list[Tensor]) -> Tensor:
    """The stretch of the inbox that a message fills: its pieces lie one after another there."""
    start = transfer.pieces[0][1]
    return memories[INBOX][start : start + sum(count for _, _, count in transfer.pieces)]


def _packed(transfer: Transfer, memories: list[Tensor]) -> Tensor:
    pieces = [_piece(memories[memory], at, count) for memory, at, count in transfer.pieces]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def _piece(memory: Tensor, at: int, count: int) -> Tensor:
    return memory.as_strided((count,), (1,), memory.storage_offset() + at)
