"""Move real tensors as a schedule says: one interpreter for the ranks that are here, with a wire to those that are not."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from emu.arrays import I64
from emu.backend.compile import REDUCE, Addressing, Batch, Compiler, Program, Round, Transfer
from emu.backend.layout import INBOX, SCRATCH, STAGE, Layout, lay_out
from emu.backend.memory import address, overwritten, stride
from emu.collective.operation import Operation
from emu.collective.schedule import Schedule
from emu.errors import InputError, must_be
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


_FOLDS: dict[str, Callable[..., Tensor]] = {
    "sum": torch.add,
    "avg": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
}
REDUCE_OPERATIONS = tuple(_FOLDS)


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
        schedule: Who sends what to whom.
        operation: What the schedule is for.
        buffers: Of the ranks that are here, all of one dtype.
        counts: [B] elements of each block; cut as even as can be from the largest buffer where all ranks are here.
        reduce: One of `REDUCE_OPERATIONS`; avg divides once, at the end.
        wire: To the ranks elsewhere, if there are any.

    Raises:
        InputError: buffers that do not fit the operation or lie over another rank's, an unknown reduce operation, or
            dtypes that are mixed or cannot be reduced so.
    """
    if reduce not in REDUCE_OPERATIONS:
        raise unknown("reduce operation", reduce, REDUCE_OPERATIONS)
    sizes = operation.block_counts(_largest(buffers)) if counts is None else np.asarray(counts, np.int64)
    _check(operation, buffers, sizes, wire)
    if reduce == "avg" or schedule.reduce.any():
        _check_reduces(operation, buffers, reduce)
    buffers = _kept_apart(operation, buffers, sizes)
    with torch.no_grad():
        if _is_worth_stacking(schedule, buffers, sizes):
            _execute_stacked(schedule, operation, buffers, sizes, reduce)
        else:
            _execute_here(schedule, operation, buffers, sizes, reduce, wire)
        if reduce == "avg":
            for pair in buffers.values():
                pair.output.div_(operation.n_ranks)


def _sides(buffers: Mapping[int, Buffers]) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    return {r: b.input for r, b in buffers.items()}, {r: b.output for r, b in buffers.items()}


def _largest(buffers: Mapping[int, Buffers]) -> int:
    return max((max(b.input.numel(), b.output.numel()) for b in buffers.values()), default=0)


def _check(operation: Operation, buffers: Mapping[int, Buffers], sizes: I64, wire: Wire | None) -> None:
    if wire is None and len(buffers) != operation.n_ranks:
        raise InputError(f"{operation.name}: {operation.n_ranks} ranks take part, buffers are given for {len(buffers)}")
    if len(dtypes := {t.dtype for b in buffers.values() for t in (b.input, b.output)}) > 1:
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


def _check_reduces(operation: Operation, buffers: Mapping[int, Buffers], reduce: str) -> None:
    """Try it on one element: PyTorch alone knows which dtypes it can do it with."""
    one = torch.zeros(1).to(next(iter(buffers.values())).output.dtype)
    try:
        _FOLDS[reduce](one, one, out=one)
        if reduce == "avg":
            one.div_(1)
    except RuntimeError as error:
        name = str(one.dtype).removeprefix("torch.")
        raise must_be(
            operation.name, "dtype", f"one that {reduce} can be taken of", name, "take another dtype or reduce"
        ) from error


def _kept_apart(operation: Operation, buffers: Mapping[int, Buffers], sizes: I64) -> Mapping[int, Buffers]:
    """The same, with an input of its own where the output would overwrite blocks that are still to be read."""
    inputs, outputs = _sides(buffers)
    copied = {r: Buffers(inputs[r].clone(), outputs[r]) for r in overwritten(operation, inputs, outputs, sizes)}
    return {**buffers, **copied}


def _is_worth_stacking(schedule: Schedule, buffers: Mapping[int, Buffers], sizes: I64) -> bool:
    """Many small rows over buffers that lie apart: side by side they become few strided operations."""
    if len(buffers) < 8 or len(buffers) != schedule.n_ranks or schedule.n_rows < 8 * len(buffers):
        return False
    inputs, outputs = (list(side.values()) for side in _sides(buffers))
    apart = [stride(inputs, read_only=True) is None, stride(outputs) is None]
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
    given, memories = address(schedule.n_participants, *_sides(buffers))
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


def _compiled(
    schedule: Schedule, operation: Operation, sizes: I64, given: Addressing, here: tuple[int, ...]
) -> tuple[Layout, Program]:
    """Compile once for each schedule, sizes and way the buffers lie; values that differ only in their data share it."""
    key = (schedule, operation, sizes.tobytes(), given.memory.tobytes(), given.base.tobytes(), here)
    with _COMPILING:
        if key not in _PROGRAMS:
            full = schedule.expand()
            layout = lay_out(full, operation, sizes)
            base = given.base.copy()
            base[SCRATCH] = np.cumsum(layout.scratch.width) - layout.scratch.width
            where = Addressing(given.memory, base)
            _PROGRAMS[key] = layout, Compiler(full, operation, layout, where, np.array(here)).program()
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
        _FOLDS[reduce](at, data, out=at)
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
    found = ((memories[memory], at, count) for memory, at, count in transfer.pieces)
    pieces = [memory.as_strided((count,), (1,), memory.storage_offset() + at) for memory, at, count in found]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)
