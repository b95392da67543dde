"""The strided tensor operations that a program is made of: the moves of cells, joined to runs of constant strides.

A move is carried to every rank that translations map it to; each such copy or addition is one line.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.backend.executor.compiler.crossing import CellMoves
from emu.backend.executor.compiler.schedule_cells import MEMORY, STAGE, SlotLayout, SlotPlace
from emu.collective.schedule import Translations


class StridedRange(NamedTuple):
    """A strided range of a memory: the address of its first element, and the stride of each dimension, in elements."""

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
    """Copies and additions, one a line, as columns that runs of constant strides join."""

    fixed: tuple[I64, ...]  # equal in a run: the step, the width, and n and the strides of each dimension
    ends: tuple[I64, ...]  # at constant strides in a run: the addresses of target, source and, if it is not the target, own

    def take(self, index: I64 | Bool) -> "_Lines":
        """Return the lines that `index` selects."""
        return _Lines(*(tuple(column[index] for column in columns) for columns in self))


class Cutter:
    """A builder of strided operations from the moves of some rounds at a time; it counts the stage memory that they need."""

    def __init__(self, layout: SlotLayout, where: I64) -> None:
        self.layout, self.where = layout, where
        self.stage_count = 0

    def cut(self, moves: CellMoves, carry: Translations | None) -> list[StridedOperation]:
        """Return the operations of some moves, or of all moves that translations map them to, in their order."""
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
        return _batches(found, moves.adds[starts])

    def _lines(self, moves: CellMoves, step: I64, carry: Translations | None) -> _Lines:
        rank, slot, sender, sent = _translate(moves, carry)
        width = self.layout.count[slot]
        stage = self._stage(moves, width)
        ends = [self._address(moves.target, rank, slot, stage), self._address(moves.source, sender, sent, stage)]
        if not all(np.array_equal(*both) for both in zip(moves.own, moves.target, strict=True)):
            ends.append(self._address(moves.own, rank, slot, stage))
        return _Lines((np.repeat(step, rank.shape[1]), width.ravel()), tuple(ends))

    def _address(self, place: SlotPlace, rank: I64, slot: I64, stage: I64) -> I64:
        """Return [moves * ranks] the addresses of places at every rank."""
        at = self.layout.address(self.where, SlotPlace(place.region[:, None], place.offset[:, None]), rank, slot)
        staged = np.flatnonzero(place.region == STAGE)
        at[staged] += stage[place.offset[staged]] - place.offset[staged, None]
        return at.ravel()

    def _stage(self, moves: CellMoves, width: I64) -> I64:
        """Return [staged cells, ranks] the places in the stage at which sums grow, one after another within each round."""
        staged = np.flatnonzero(moves.target.region == STAGE)
        _, first = np.unique(moves.target.offset[staged], return_index=True)
        size, now = width[staged[first]], moves.round[staged[first]]
        at = (np.cumsum(size) - size.ravel()).reshape(size.shape)
        at -= at[np.searchsorted(now, now), :1]
        self.stage_count = max(self.stage_count, int((at + size).max(initial=0)))
        return at


def _translate(moves: CellMoves, carry: Translations | None) -> tuple[I64, I64, I64, I64]:
    """Return [moves, ranks] rank, slot, sender and sent slot under every translation."""
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
    """Return an order in which lines that can be one run are neighbours."""
    columns = [*lines.fixed, lines.ends[1] // MEMORY, lines.ends[0]]
    return np.lexsort([c for c in columns[::-1] if c is columns[-1] or (len(c) and c.min() < c.max())])


def _join_runs(lines: _Lines) -> _Lines:
    """Return lines joined to runs, then these joined to runs, until nothing more can be joined."""
    while (first := _firsts(lines)).size < lines.ends[0].size:
        lines = _fold(lines, first)
        lines = lines.take(_neighbours(lines))
    return lines


def _firsts(lines: _Lines) -> I64:
    """Return the first line of each greedy run: a run takes the strides of its first pair and goes on while they hold."""
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
    """Return each run that begins at one of `first` as one line with one more dimension."""
    n = np.diff(first, append=len(lines.ends[0]))
    follower = np.where(n > 1, first + 1, first)
    strides = tuple(end[follower] - end[first] for end in lines.ends)
    fixed, ends = lines.take(first)
    return _Lines((*fixed, n, *strides), ends)


def _batches(lines: _Lines, adds: Bool) -> list[StridedOperation]:
    """Return one strided operation for each line; `adds` tells for each step whether it adds."""
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
