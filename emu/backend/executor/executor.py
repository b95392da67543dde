"""The execution of a schedule on real tensors, for the ranks of this process, with messages to other processes.

A compiled program is interpreted: its operations are applied to memories, and its messages go over the wire.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from emu.arrays import I64
from emu.backend.executor.buffer_addresses import buffer_addresses, ranks_to_copy, stride
from emu.backend.executor.compiled_program import (
    CompiledProgram,
    ProgramRound,
    StridedOperation,
    StridedRange,
    compile_schedule,
)
from emu.backend.executor.crossing import WireMessage
from emu.backend.executor.reductions import FOLDS, check_reduces, divide, unwritten_mark
from emu.backend.executor.schedule_cells import INBOXES, SCRATCH, STAGE
from emu.backend.executor.wire import GlooTransfer, GlooWire
from emu.collective.operation import REDUCING, Operation
from emu.collective.schedule import Schedule
from emu.dtypes import REDUCE_OPERATIONS
from emu.errors import InputError, must_be
from emu.registry import unknown


def run_program(program: CompiledProgram, memories: Sequence[Tensor], reduce: str, wire: GlooWire | None) -> None:
    """Run a compiled program.

    While a round runs, the messages of the next round may arrive, and its own messages may still leave.
    """
    following = (*program.rounds, ProgramRound((), (), ()))[1:]
    coming, leaving = _receive(program.rounds[:1], memories, wire), list[GlooTransfer]()
    for each, after in zip(program.rounds, following, strict=True):
        awaited = [*coming, *leaving]
        leaving = [] if wire is None else [wire.send(t.here, t.peer, t.channel, _message_data(t, memories)) for t in each.sends]
        coming = _receive((after,), memories, wire)
        if each.overwrites:
            awaited, leaving = [*awaited, *leaving], []
        _wait(awaited)
        for batch in each.batches:
            _apply(batch, memories, reduce)
    _wait(leaving)


def _wait(under_way: Sequence[GlooTransfer]) -> None:
    for transfer in under_way:
        transfer.wait()


def _receive(rounds: Iterable[ProgramRound], memories: Sequence[Tensor], wire: GlooWire | None) -> list[GlooTransfer]:
    if wire is None:
        return []
    into = (t for each in rounds for t in each.receives)
    return [wire.receive(t.peer, t.here, t.channel, _stretch(memories, *t.pieces[0])) for t in into]


def _apply(batch: StridedOperation, memories: Sequence[Tensor], reduce: str) -> None:
    target, source = _view(memories, batch.target, batch.shape), _view(memories, batch.source, batch.shape)
    if batch.own is None:
        target.copy_(source)
    else:
        own = target if batch.own == batch.target else _view(memories, batch.own, batch.shape)
        FOLDS[reduce](own, source, out=target)


def _view(memories: Sequence[Tensor], stretch: StridedRange, shape: tuple[int, ...]) -> Tensor:
    found = memories[stretch.memory]
    return found.as_strided(shape, stretch.strides, found.storage_offset() + stretch.at)


def _stretch(memories: Sequence[Tensor], memory: int, at: int, count: int) -> Tensor:
    return _view(memories, StridedRange(memory, at, (1,)), (count,))


def _message_data(transfer: WireMessage, memories: Sequence[Tensor]) -> Tensor:
    pieces = [_stretch(memories, *piece) for piece in transfer.pieces]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


_SMALL_SLOT_BYTES = 16 * 1024  # below this size, one view per slot costs more than a copy of all buffers side by side and back
_STACK_BYTES = 2**27  # bytes of buffers that lie side by side at a time
_FEWEST_COLUMNS = 16  # with fewer columns, the rows of a strided operation cost more than its elements
_PROGRAMS: OrderedDict[tuple[object, ...], CompiledProgram] = OrderedDict()
_MOST_PROGRAMS = 64
_COMPILING = threading.Lock()  # held while a program is compiled: two threads of one rank may come at once


@dataclass(frozen=True, eq=False, slots=True)
class Buffers:
    """The flat, contiguous input and output of one rank; both are one memory where the collective is in place.

    A rank without input or output (off the root) gives an empty tensor.
    """

    input: Tensor
    output: Tensor


def execute(
    schedule: Schedule,
    operation: Operation,
    buffers: Mapping[int, Buffers],
    *,
    counts: I64 | None = None,
    reduce: str = "sum",
    wire: GlooWire | None = None,
    fill_scratch: bool = True,
) -> None:
    """Run a schedule on real tensors; afterwards the outputs hold what the operation wants.

    Args:
        schedule: The schedule of the collective.
        operation: The operation that the schedule does.
        buffers: The buffers of the ranks of this process, all of one dtype.
        counts: [B] the elements of each block; None: the largest buffer is divided evenly, and all ranks are in this process.
        reduce: One of `REDUCE_OPERATIONS`; avg divides once, at the end; inputs in float16 are halved before, so that their sum
            is not too large. A min or max of zeros of both signs is either.
        wire: The wire to ranks of other processes; None: there are none.
        fill_scratch: True if the executor's own memory is filled with `unwritten_mark` first, so that a read of memory that
            nobody wrote shows in the result. False saves this time, for a program whose results nobody checks.

    Raises:
        ProofError: the schedule reads an empty slot, or adds to an empty slot of a rank.
        InputError: buffers that do not fit the operation or overlap another rank's, an unknown reduce operation, or
            dtypes that are mixed or cannot be reduced so.
    """
    if reduce not in REDUCE_OPERATIONS:
        raise unknown("reduce operation", reduce, REDUCE_OPERATIONS)
    _check_ranks(schedule, operation, buffers, wire)
    if counts is None:
        counts = operation.block_counts(max((t.numel() for b in buffers.values() for t in (b.input, b.output)), default=0))
    sizes = np.asarray(counts, np.int64)
    _check(operation, buffers, sizes)
    if operation.name in REDUCING or schedule.reduce.any():
        check_reduces(operation.name, next(iter(buffers.values())).output.dtype, reduce)
    buffers = _without_overlap(operation, buffers, sizes)
    dtype, parts = next(iter(buffers.values())).output.dtype, operation.holders if reduce == "avg" else 1
    halvings = (parts - 1).bit_length() if dtype is torch.float16 else 0  # whose sum could be too large, though no average is
    with torch.no_grad():
        buffers = _halved(buffers, halvings) if halvings else buffers
        how = _Execution(reduce, wire, unwritten_mark(dtype, reduce) if fill_scratch else None)
        run = _execute_stacked if _is_worth_stacking(schedule, buffers, sizes) else _execute_here
        run(schedule, operation, buffers, sizes, how)
        for pair in buffers.values() if parts > 1 else ():
            divide(pair.output, parts / 2**halvings if halvings else parts)


def _halved(buffers: Mapping[int, Buffers], times: int) -> Mapping[int, Buffers]:
    """Return the buffers with each input halved some times, in a copy; a number that does not become tiny keeps its bits."""
    return {rank: Buffers(pair.input * 0.5**times, pair.output) for rank, pair in buffers.items()}


@dataclass(frozen=True, eq=False, slots=True)
class _Execution:
    """The settings of one execution: the reduction, the wire, and the initial content of the executor's own memory."""

    reduce: str
    wire: GlooWire | None
    mark: complex | None  # None: the memory keeps its old content

    def memory(self, like: Tensor, *shape: int) -> Tensor:
        """Return memory that belongs to the executor rather than to a rank, of the dtype of `like`."""
        made = like.new_empty(*shape)
        return made if self.mark is None else made.fill_(self.mark)


def _sides(buffers: Mapping[int, Buffers]) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    return {r: b.input for r, b in buffers.items()}, {r: b.output for r, b in buffers.items()}


def _check_ranks(schedule: Schedule, operation: Operation, buffers: Mapping[int, Buffers], wire: GlooWire | None) -> None:
    n = operation.n_ranks
    if schedule.n_ranks != n:
        raise must_be(operation.name, "schedule", f"one of {n} ranks", schedule.n_ranks)
    if wire is None and len(buffers) != n:
        raise InputError(f"{operation.name}: {n} ranks take part, buffers are given for {len(buffers)}")
    if beyond := [rank for rank in buffers if not 0 <= rank < n]:
        raise must_be(operation.name, "ranks with buffers", f"some of 0..{n - 1}", beyond)


def _check(operation: Operation, buffers: Mapping[int, Buffers], sizes: I64) -> None:
    tensors = [t for b in buffers.values() for t in (b.input, b.output)]
    if len(dtypes := {t.dtype for t in tensors}) > 1:
        raise InputError(f"{operation.name}: all buffers must have one dtype, got {', '.join(sorted(map(str, dtypes)))}")
    if not all(t.is_cpu for t in tensors):
        apart = {t.device.type for t in tensors} - {"cpu"}
        raise must_be(operation.name, "buffers", "on the CPU, as emulated NPUs are", ", ".join(sorted(apart)))
    for rank, pair in buffers.items():
        for side, tensor, blocks in (
            ("input", pair.input, operation.input_blocks(rank)),
            ("output", pair.output, operation.output_blocks(rank)),
        ):
            # One block is a case of its own: numpy takes ten times as long to sum it.
            wanted = int(sizes[blocks[0]] if len(blocks) == 1 else sizes[blocks].sum())
            if tensor.numel() != wanted or not tensor.is_contiguous():
                raise InputError(
                    f"{operation.name}: the {side} of rank {rank} must be {wanted} contiguous elements, "
                    f"got {tensor.numel()}{'' if tensor.is_contiguous() else ' that are not contiguous'}"
                )


def _without_overlap(operation: Operation, buffers: Mapping[int, Buffers], sizes: I64) -> Mapping[int, Buffers]:
    """Return the buffers, with a copy of each input that its rank's output would overwrite too early."""
    inputs, outputs = _sides(buffers)
    copied = {r: Buffers(inputs[r].clone(), outputs[r]) for r in ranks_to_copy(operation, inputs, outputs, sizes)}
    return {**buffers, **copied}


def _is_worth_stacking(schedule: Schedule, buffers: Mapping[int, Buffers], sizes: I64) -> bool:
    """Return True if there are many small slots in scattered buffers, which a copy side by side turns into few operations."""
    if len(buffers) < 8 or len(buffers) != schedule.n_ranks or schedule.n_rows_of_all < 8 * len(buffers):
        return False
    inputs, outputs = (list(side.values()) for side in _sides(buffers))
    apart = [stride(inputs, read_only=True) is None, stride(outputs) is None]
    item = next(iter(buffers.values())).output.element_size()
    return any(apart) and int(sizes.sum()) * item < _SMALL_SLOT_BYTES * schedule.n_slots


def _execute_stacked(
    schedule: Schedule, operation: Operation, buffers: Mapping[int, Buffers], sizes: I64, how: _Execution
) -> None:
    """Copy the inputs of all ranks side by side, run the schedule there, and copy the outputs back."""
    each, step = _columns(schedule, operation, buffers, sizes)
    given, made = _side_by_side(buffers, each, step, how)
    for low in range(0, each, step):
        width = min(step, each - low)
        stacked = {
            r: Buffers(given[r, : b.input.numel() // each * width], made[r, : b.output.numel() // each * width])
            for r, b in buffers.items()
        }
        for rank, pair in buffers.items():
            stacked[rank].input.view(-1, width).copy_(pair.input.view(-1, each)[:, low : low + width])
        _execute_here(schedule, operation, stacked, sizes // each * width, how)
        for rank, pair in buffers.items():
            pair.output.view(-1, each)[:, low : low + width].copy_(stacked[rank].output.view(-1, width))


def _columns(schedule: Schedule, operation: Operation, buffers: Mapping[int, Buffers], sizes: I64) -> tuple[int, int]:
    """Return the elements of every slot, and how many of these are executed at a time.

    The result is (1, 1) for uneven slots: all at once.
    """
    parts = schedule.n_slots // operation.n_blocks
    each = int(sizes[0]) // parts
    if each == 0 or schedule.shares or (sizes != each * parts).any():
        return 1, 1
    total = sum(t.nbytes for b in buffers.values() for t in (b.input, b.output)) // (2 if _in_place(buffers) else 1)
    return each, min(each, max(_FEWEST_COLUMNS, each * _STACK_BYTES // total))


def _side_by_side(buffers: Mapping[int, Buffers], each: int, step: int, how: _Execution) -> tuple[Tensor, Tensor]:
    """Return memory for some columns of all ranks' inputs and outputs; for in-place buffers both are one.

    Args:
        buffers: The buffers of the ranks.
        each: The elements of every slot.
        step: The number of these elements that are executed at a time.
        how: The settings of the execution.
    """
    given, made = (max(t.numel() for t in side.values()) // each * step for side in _sides(buffers))
    outputs = how.memory(buffers[0].output, len(buffers), made)
    return outputs if _in_place(buffers) else how.memory(outputs, len(buffers), given), outputs


def _in_place(buffers: Mapping[int, Buffers]) -> bool:
    return all(b.input.data_ptr() == b.output.data_ptr() and b.input.numel() == b.output.numel() for b in buffers.values())


def _execute_here(
    schedule: Schedule,
    operation: Operation,
    buffers: Mapping[int, Buffers],
    sizes: I64,
    how: _Execution,
) -> None:
    given, memories = buffer_addresses(schedule.n_participants, *_sides(buffers))
    program = _program(schedule, operation, sizes, given, tuple(buffers))
    sample = next(iter(buffers.values())).output
    memories[SCRATCH] = how.memory(sample, program.scratch_count)
    memories[STAGE] = how.memory(sample, program.stage_count)
    for inbox, count in zip(INBOXES, program.inbox_counts, strict=True):
        memories[inbox] = how.memory(sample, count)
    run_program(program, memories, how.reduce, how.wire)


def _program(schedule: Schedule, operation: Operation, sizes: I64, given: I64, here: tuple[int, ...]) -> CompiledProgram:
    """Return the compiled program, compiled once for each schedule, sizes and layout of buffers."""
    key = (schedule, operation, sizes.tobytes(), given.tobytes(), here)
    with _COMPILING:
        if key not in _PROGRAMS:
            _PROGRAMS[key] = compile_schedule(schedule, operation, sizes, given, np.array(here))
            if len(_PROGRAMS) > _MOST_PROGRAMS:
                _PROGRAMS.popitem(last=False)
        _PROGRAMS.move_to_end(key)
        return _PROGRAMS[key]
