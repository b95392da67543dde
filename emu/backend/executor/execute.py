"""Move real tensors as a schedule says: one interpreter for the ranks that are here, with a wire to those that are not."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from emu.arrays import I64
from emu.backend.executor.compile import REDUCE, Batch, Compiler, Program, Round
from emu.backend.executor.crossing import Transfer
from emu.backend.executor.layout import INBOXES, SCRATCH, STAGE, Addressing, Layout, lay_out
from emu.backend.executor.memory import address, overwritten, stride
from emu.backend.executor.reduction import FOLDS, REDUCE_OPERATIONS, check_reduces
from emu.collective.operation import REDUCING, Operation
from emu.collective.schedule import Schedule
from emu.errors import InputError, must_be
from emu.registry import unknown

_SMALL_ROW_BYTES = 16 * 1024  # below it a view a row costs more than copying all buffers side by side and back
_STACK_BYTES = 2**27  # of buffers side by side at a time
_FEWEST_COLUMNS = 16  # below it a strided operation costs more by the row than by the element
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
        reduce: One of `REDUCE_OPERATIONS`; avg divides once, at the end. A min or max of zeros of both signs is either.
        wire: To the ranks elsewhere, if there are any.

    Raises:
        InputError: buffers that do not fit the operation or lie over another rank's, an unknown reduce operation, or
            dtypes that are mixed or cannot be reduced so.
    """
    if reduce not in REDUCE_OPERATIONS:
        raise unknown("reduce operation", reduce, REDUCE_OPERATIONS)
    _check_ranks(schedule, operation, buffers, wire)
    sizes = operation.block_counts(_largest(buffers)) if counts is None else np.asarray(counts, np.int64)
    _check(operation, buffers, sizes)
    if operation.name in REDUCING or schedule.reduce.any():
        check_reduces(operation.name, next(iter(buffers.values())).output.dtype, reduce)
    buffers = _kept_apart(operation, buffers, sizes)
    with torch.no_grad():
        if _is_worth_stacking(schedule, buffers, sizes):
            _execute_stacked(schedule, operation, buffers, sizes, reduce)
        else:
            _execute_here(schedule, operation, buffers, sizes, reduce, wire)
        if reduce == "avg" and operation.holders > 1:
            for output in (pair.output for pair in buffers.values()):
                parts = torch.view_as_real(output) if output.is_complex() else output  # a complex division rounds otherwise
                parts.div_(operation.holders)


def _sides(buffers: Mapping[int, Buffers]) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    return {r: b.input for r, b in buffers.items()}, {r: b.output for r, b in buffers.items()}


def _largest(buffers: Mapping[int, Buffers]) -> int:
    return max((max(b.input.numel(), b.output.numel()) for b in buffers.values()), default=0)


def _check_ranks(schedule: Schedule, operation: Operation, buffers: Mapping[int, Buffers], wire: Wire | None) -> None:
    n = operation.n_ranks
    if schedule.n_ranks != n:
        raise must_be(operation.name, "schedule", f"one of {n} ranks", schedule.n_ranks)
    if wire is None and len(buffers) != n:
        raise InputError(f"{operation.name}: {n} ranks take part, buffers are given for {len(buffers)}")
    if beyond := [rank for rank in buffers if not 0 <= rank < n]:
        raise must_be(operation.name, "ranks with buffers", f"some of 0..{n - 1}", beyond)


def _check(operation: Operation, buffers: Mapping[int, Buffers], sizes: I64) -> None:
    if len(dtypes := {t.dtype for b in buffers.values() for t in (b.input, b.output)}) > 1:
        raise InputError(f"{operation.name}: all buffers must have one dtype, got {', '.join(sorted(map(str, dtypes)))}")
    if apart := {t.device.type for b in buffers.values() for t in (b.input, b.output)} - {"cpu"}:
        raise must_be(operation.name, "buffers", "on the CPU, as emulated NPUs are", ", ".join(sorted(apart)))
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
    """Copy the inputs side by side, run there, copy the outputs back: some columns of every slot at a time."""
    each, step = _columns(schedule, operation, buffers, sizes)
    given, made = _side_by_side(buffers, each, step)
    for low in range(0, each, step):
        width = min(step, each - low)
        stacked = {
            r: Buffers(given[r, : b.input.numel() // each * width], made[r, : b.output.numel() // each * width])
            for r, b in buffers.items()
        }
        for rank, pair in buffers.items():
            stacked[rank].input.view(-1, width).copy_(pair.input.view(-1, each)[:, low : low + width])
        _execute_here(schedule, operation, stacked, sizes // each * width, reduce, None)
        for rank, pair in buffers.items():
            pair.output.view(-1, each)[:, low : low + width].copy_(stacked[rank].output.view(-1, width))


def _columns(schedule: Schedule, operation: Operation, buffers: Mapping[int, Buffers], sizes: I64) -> tuple[int, int]:
    """The elements of every slot, and how many of them to take at a time; (1, 1) takes all, where slots differ in size."""
    parts = schedule.n_slots // operation.n_blocks
    each = int(sizes[0]) // parts
    if each == 0 or schedule.shares or (sizes != each * parts).any():
        return 1, 1
    total = sum(t.nbytes for b in buffers.values() for t in (b.input, b.output)) // (2 if _in_place(buffers) else 1)
    return each, min(each, max(_FEWEST_COLUMNS, each * _STACK_BYTES // total))


def _side_by_side(buffers: Mapping[int, Buffers], each: int, step: int) -> tuple[Tensor, Tensor]:
    """Memory for `step` of `each` elements of every rank's input and output; one memory where these are one."""
    given, made = (max(t.numel() for t in side.values()) // each * step for side in _sides(buffers))
    outputs = buffers[0].output.new_empty(len(buffers), made)
    return outputs if _in_place(buffers) else outputs.new_empty(len(buffers), given), outputs


def _in_place(buffers: Mapping[int, Buffers]) -> bool:
    return all(b.input.data_ptr() == b.output.data_ptr() and b.input.numel() == b.output.numel() for b in buffers.values())


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
    for inbox, count in zip(INBOXES, program.inbox_counts, strict=True):
        memories[inbox] = sample.new_empty(count)
    if wire is not None:
        _run_between(program.rounds, memories, reduce, wire)
        return
    for each in program.rounds:
        for batch in each.batches:
            _apply(batch, memories, reduce)


def _run_between(rounds: Sequence[Round], memories: list[Tensor], reduce: str, wire: Wire) -> None:
    """Run with ranks elsewhere: the next round's messages may come while this one runs, and its own leave until the next."""
    following = (*rounds, Round((), (), ()))[1:]
    coming, leaving = _receive(rounds[0], memories, wire) if rounds else [], list[Pending]()
    for each, after in zip(rounds, following, strict=True):
        awaited = [*coming, *leaving]
        leaving = [wire.send(t.here, t.peer, t.channel, _packed(t, memories)) for t in each.sends]
        coming = _receive(after, memories, wire)
        if each.overwrites:
            awaited, leaving = [*awaited, *leaving], []
        _wait(awaited)
        for batch in each.batches:
            _apply(batch, memories, reduce)
    _wait(leaving)


def _wait(under_way: Sequence[Pending]) -> None:
    for transfer in under_way:
        transfer.wait()


def _receive(each: Round, memories: list[Tensor], wire: Wire) -> list[Pending]:
    return [wire.receive(t.peer, t.here, t.channel, _stretch(memories, *t.pieces[0])) for t in each.receives]


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
        FOLDS[reduce](at, data, out=at)
    else:
        at.copy_(data)


def _stretch(memories: list[Tensor], memory: int, at: int, count: int) -> Tensor:
    found = memories[memory]
    return found.as_strided((count,), (1,), found.storage_offset() + at)


def _packed(transfer: Transfer, memories: list[Tensor]) -> Tensor:
    pieces = [_stretch(memories, *piece) for piece in transfer.pieces]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)
