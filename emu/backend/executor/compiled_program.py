"""The compilation of a schedule to strided operations and messages.

If translations give the rows of all ranks, only those of rank 0 are read, and their moves are carried to all ranks.

A program is made of strided tensor operations: the moves of cells, joined to runs of constant strides. A move is carried to
every rank that translations map it to; each such copy or addition is one line.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.backend.executor.crossing import CellMoves, Crossing, WireMessage, initial_copies, is_order_free, moves_of
from emu.backend.executor.schedule_cells import MEMORY, SCRATCH, STAGE, CellRows, Cells, SlotLayout, SlotPlace
from emu.collective.operation import Operation
from emu.collective.schedule import MAX_ROWS, RowsError, Schedule, Translations
from emu.collective.transform import block_translations, rows_of_participants


class StridedRange(NamedTuple):
    """A strided range of a memory: the address of its first element, and the stride of each dimension, in elements.

    `memory` is the number of the memory: a rank's input or output, scratch, stage or inbox.
    """

    memory: int
    at: int
    strides: tuple[int, ...]


class StridedOperation(NamedTuple):
    """One strided tensor operation: a copy of a source, or an addition of the source to another operand."""

    shape: tuple[int, ...]  # the last dimension is contiguous
    target: StridedRange
    source: StridedRange
    own: StridedRange | None  # the other operand of the addition, often the target itself; None: a copy


class _Lines(NamedTuple):
    """Strided copies and additions as columns; a line is one operation.

    Lines that follow one another in a run, with equal shapes and with addresses at constant strides, can become one line.
    """

    fixed: tuple[I64, ...]  # equal in a run: the step, the width, and the length and the strides of each dimension
    ends: tuple[I64, ...]  # the addresses of target, source and, if it is not the target, the other operand

    def take(self, index: I64 | Bool) -> "_Lines":
        """Return the lines that `index` selects."""
        return _Lines(*(tuple(column[index] for column in columns) for columns in self))


class OperationBuilder:
    """The builder of strided operations from the moves of rounds; it also counts the stage memory that they need."""

    def __init__(self, layout: SlotLayout, where: I64) -> None:
        self.layout, self.where = layout, where
        self.stage_count = 0

    def build(self, moves: CellMoves, carry: Translations | None) -> list[StridedOperation]:
        """Return the strided operations that do the moves of some rounds, in their order.

        Args:
            moves: The moves; those of rank 0 if there are translations.
            carry: The translations that give the moves of all ranks; None: the moves are those of all ranks.
        """
        if not moves.round.size:
            return []
        moves = moves.take(np.lexsort((moves.adds, moves.phase, moves.round)))
        starts = np.diff(np.stack((moves.round, moves.phase, moves.adds)), prepend=-1).any(axis=0)
        lines = self._lines(moves, np.cumsum(starts) - 1, carry)
        some = (lines.fixed[1] > 0) & (lines.ends[0] != lines.ends[1])
        if not some.all():
            lines = lines.take(some)
        found = _join_runs(lines if starts.all() else lines.take(_neighbours(lines)))
        if carry is not None and not starts.all() and len(found.ends[0]) > np.count_nonzero(np.bincount(lines.fixed[0])):
            by_rank = _join_runs(lines)  # one move after another
            found = min(found, by_rank, key=lambda each: len(each.ends[0]))
        return _operations(found, moves.adds[starts])

    def _lines(self, moves: CellMoves, step: I64, carry: Translations | None) -> _Lines:
        rank, slot, sender, sent = _translate(moves, carry)
        width = self.layout.count[slot]
        stage = self._stage(moves, width)
        ends = [self._address(moves.target, rank, slot, stage), self._address(moves.source, sender, sent, stage)]
        if not all(np.array_equal(*both) for both in zip(moves.own, moves.target, strict=True)):
            ends.append(self._address(moves.own, rank, slot, stage))
        return _Lines((np.repeat(step, rank.shape[1]), width.ravel()), tuple(ends))

    def _address(self, place: SlotPlace, rank: I64, slot: I64, stage: I64) -> I64:
        """Return [moves * ranks] the memory addresses of slots at every rank, in elements."""
        at = self.layout.address(self.where, SlotPlace(place.region[:, None], place.offset[:, None]), rank, slot)
        staged = np.flatnonzero(place.region == STAGE)
        at[staged] += stage[place.offset[staged]] - place.offset[staged, None]
        return at.ravel()

    def _stage(self, moves: CellMoves, width: I64) -> I64:
        """Return [staged cells, ranks] the addresses in the stage memory, in which sums grow, one cell after another."""
        staged = np.flatnonzero(moves.target.region == STAGE)
        _, first = np.unique(moves.target.offset[staged], return_index=True)
        size, now = width[staged[first]], moves.round[staged[first]]
        at = (np.cumsum(size) - size.ravel()).reshape(size.shape)
        at -= at[np.searchsorted(now, now), :1]
        self.stage_count = max(self.stage_count, int((at + size).max(initial=0)))
        return at


def _translate(moves: CellMoves, carry: Translations | None) -> tuple[I64, I64, I64, I64]:
    """Return [moves, ranks] rank, slot, sender and sent slot of each move under every translation."""
    if carry is None:
        return moves.rank[:, None], moves.slot[:, None], moves.sender[:, None], moves.sent[:, None]
    every = np.arange(carry.n_ranks)
    slot = carry.slot(moves.slot[:, None], every)  # sent and received slot are one: schedules with translations rename none
    rank, sender = (carry.rank(name[:, None], every)[at] for name, at in map(_distinct, (moves.rank, moves.sender)))
    return rank, slot, sender, slot


def _distinct(values: I64) -> tuple[I64, I64]:
    """Return each different value once, and the index of each value among these."""
    found, at = np.unique(values, return_inverse=True)
    return found, at


def _neighbours(lines: _Lines) -> I64:
    """Return an order of lines in which lines that can be merged are neighbours."""
    columns = [*lines.fixed, lines.ends[1] // MEMORY, lines.ends[0]]
    return np.lexsort([c for c in columns[::-1] if c is columns[-1] or (len(c) and c.min() < c.max())])


def _join_runs(lines: _Lines) -> _Lines:
    """Merge lines into runs, and runs into runs, until nothing more can be merged; return the lines."""
    while (first := _firsts(lines)).size < lines.ends[0].size:
        lines = _fold(lines, first)
        lines = lines.take(_neighbours(lines))
    return lines


def _firsts(lines: _Lines) -> I64:
    """Return the numbers of the lines with which runs begin.

    A run takes the strides of its first pair, and lasts while they hold.
    """
    strides, n = [end[1:] - end[:-1] for end in lines.ends], len(lines.ends[0])
    joined = strides[0].view(np.uint64) < MEMORY // 2  # forwards, and in one memory
    for stride in strides[1:]:
        joined &= stride.view(np.uint64) < MEMORY // 2
    for column in lines.fixed:
        joined &= column[1:] == column[:-1]
    if not joined.any():
        return np.arange(n)
    same = joined[1:] & joined[:-1]  # True where the stride into a line is the stride out of it
    for stride in strides:
        same &= stride[1:] == stride[:-1]
    lasts, may_go_on = iter([*(np.flatnonzero(~same) + 1).tolist(), n - 1]), [*joined.tolist(), False]
    firsts, line, last = [], 0, 0
    while line < n:
        firsts.append(line)
        if may_go_on[line]:
            while last <= line:
                last = next(lasts)
            line = last
        line += 1
    return np.array(firsts, np.int64)


def _fold(lines: _Lines, first: I64) -> _Lines:
    """Return the lines with each run merged into one line, which has one dimension more.

    Args:
        lines: The lines.
        first: The number of the first line of each run; a run ends where the next one begins.
    """
    n = np.diff(first, append=len(lines.ends[0]))
    follower = np.where(n > 1, first + 1, first)
    strides = tuple(end[follower] - end[first] for end in lines.ends)
    fixed, ends = lines.take(first)
    return _Lines((*fixed, n, *strides), ends)


def _operations(lines: _Lines, adds: Bool) -> list[StridedOperation]:
    """Return one strided operation for each line; `adds` says for each step whether it adds."""
    (step, width, *dims), ends = lines
    outwards = [dims[i : i + 1 + len(ends)] for i in range(0, len(dims), 1 + len(ends))]
    shapes = _rows([dim[0] for dim in outwards[::-1]], width)
    columns = []
    for e, end in enumerate(ends, 1):
        memory, at = np.divmod(end, MEMORY)
        strides = _rows([dim[e] for dim in outwards[::-1]], np.ones_like(width))
        columns.append(list(map(StridedRange, memory.tolist(), at.tolist(), strides)))
    target, source, own = (*columns, columns[0])[:3]
    table = zip(shapes, target, source, own, adds[step].tolist(), strict=True)
    return [StridedOperation(shape, t, s, o if adding else None) for shape, t, s, o, adding in table]


def _rows(columns: list[I64], last: I64) -> list[tuple[int, ...]]:
    return list(zip(*(column.tolist() for column in (*columns, last)), strict=True))


_AT_A_TIME = 2**16  # rows of all ranks: few enough that their columns stay in cache


class ProgramRound(NamedTuple):
    """The messages and operations of one round of a compiled program."""

    sends: tuple[WireMessage, ...]
    receives: tuple[WireMessage, ...]
    batches: Sequence[StridedOperation]
    overwrites: bool = False  # True if batches write memory that the round's own sends read


@dataclass(frozen=True, eq=False, slots=True)
class CompiledProgram:
    """A schedule compiled for the ranks of this process: for each round the messages and the strided tensor operations.

    It also has the numbers of elements of the memories that it needs besides inputs and outputs.
    """

    rounds: tuple[ProgramRound, ...]  # one round stands for many of the schedule, if all ranks are in this process
    scratch_count: int  # elements of the memory for slots that no buffer holds
    stage_count: int  # elements of the memory in which sums grow
    inbox_counts: tuple[int, ...]  # elements of each memory in which messages arrive


def compile_schedule(schedule: Schedule, operation: Operation, block_counts: I64, given: I64, ranks: I64) -> CompiledProgram:
    """Return the compiled program of a schedule.

    Args:
        schedule: The schedule as it is stored.
        operation: The operation of the schedule.
        block_counts: [B] elements of each block.
        given: [regions, P] the address of each participant's region.
        ranks: The ranks of this process; helpers live with rank 0.

    Raises:
        RowsError: all rows, or all rows of one round, are needed, and they are too many.
    """
    people = np.arange(schedule.n_participants)
    here = np.isin(np.where(people < schedule.n_ranks, people, 0), ranks)
    layout = SlotLayout.of(schedule, operation, block_counts)
    carry = schedule.translations if here.all() and _carries(schedule, operation, layout) else None
    cells = Cells.of(schedule if carry else rows_of_participants(schedule, here), operation, layout, carry, here)
    where = given.copy()
    where[SCRATCH] += np.cumsum(cells.scratch) - cells.scratch
    builder, crossing = OperationBuilder(layout, where), Crossing(layout, where, here)
    rounds = [ProgramRound((), (), builder.build(initial_copies(layout, *cells.stay), carry))]
    if here.all():
        rounds += [ProgramRound((), (), _batches(rows, builder, carry)) for rows in _some_rounds(cells, carry)]
    else:
        rounds += [_wire_round(cells.rows(at), builder, crossing) for at in cells.schedule.rounds()]
    kept = tuple(r for r in rounds if r.sends or r.receives or r.batches)
    return CompiledProgram(kept, int(cells.scratch.sum()), builder.stage_count, tuple(crossing.inbox_counts))


def _carries(schedule: Schedule, operation: Operation, layout: SlotLayout) -> bool:
    """Return whether translations of rank 0's rows give the rows of all ranks.

    The buffers of all ranks must have one layout, too.
    """
    alike = layout.have.alike is not None and layout.want.alike is not None
    return schedule.by_rank and alike and block_translations(schedule, operation) is not None


def _some_rounds(cells: Cells, carry: Translations | None) -> Iterator[CellRows]:
    """Yield the rows of a schedule, several rounds at a time."""
    ends, most = cells.schedule.round_end, _AT_A_TIME // (carry.n_ranks if carry else 1)
    last = np.flatnonzero(np.diff((ends - 1) // max(1, most), append=-1))
    for low, high in pairwise((0, *ends[last].tolist())):
        yield cells.rows(slice(low, high))


def _batches(rows: CellRows, builder: OperationBuilder, carry: Translations | None) -> list[StridedOperation]:
    """Return the strided operations of some rounds in which no row goes to another process."""
    if carry is None or is_order_free(rows):
        return builder.build(moves_of(rows), carry)
    if (n_rows := len(rows.src) * carry.n_ranks) > MAX_ROWS:
        why = "rows of rounds whose sums depend on the order of ranks"
        raise RowsError(f"schedule: {n_rows} {why}, at most 2**24 can be executed; take fewer ranks")
    return builder.build(moves_of(rows.for_all_ranks(carry)), None)


def _wire_round(rows: CellRows, builder: OperationBuilder, crossing: Crossing) -> ProgramRound:
    sends, receives, left, overwrites = crossing.plan_round(rows.take(builder.layout.count[rows.slot] > 0))
    return ProgramRound(sends, receives, builder.build(moves_of(left), None), overwrites)
