"""The rows of a round as copies and additions in phases: reads come before writes, and sums are in ascending rank.

The receiver's own value takes the place of its rank in the sum. A cell that is read in the round that writes it, and a sum that
does not begin with the receiver's own value, are built in a stage and copied home last.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.backend.executor.schedule_cells import NOWHERE, STAGE, CellRows, SlotLayout, SlotPlace

_LAST = 2**31  # the phase of copies from the stage: after all others


class CellMoves(NamedTuple):
    """Single copies and additions; the moves of a round are in phases, and moves of one phase do not wait for each other."""

    round: I64
    phase: I64
    adds: Bool
    rank: I64
    slot: I64
    sender: I64
    sent: I64  # the slot at the sender
    target: SlotPlace
    own: SlotPlace  # the other operand of an addition; the target for a copy
    source: SlotPlace

    def take(self, index: I64 | Bool) -> "CellMoves":
        """Return the moves that `index` selects."""
        return CellMoves._make(x.take(index) if isinstance(x, SlotPlace) else x[index] for x in self)


def initial_copies(layout: SlotLayout, rank: I64, slot: I64) -> CellMoves:
    """Return the copies from inputs to outputs before the first round."""
    zero, made = np.zeros(len(rank), np.int64), layout.output_places(rank, slot)
    return CellMoves(zero, zero, zero > 0, rank, slot, rank, slot, made, made, layout.input_places(rank, slot))


def is_order_free(rows: CellRows) -> bool:
    """Return True if no sum of these rows depends on the order of ranks, as with one sender and one receiver."""
    cell, read = _within_rounds(rows)
    return len(np.unique(cell)) == len(cell) and not np.isin(cell[rows.own.region != NOWHERE], read).any()


def moves_of(rows: CellRows) -> CellMoves:
    """Return the moves of the rows of some rounds."""
    rows = rows.take(np.lexsort((rows.src, rows.write, rows.round)))
    cell, read = _within_rounds(rows)
    first = np.flatnonzero(np.diff(cell, prepend=-1))
    group = np.repeat(np.arange(len(first)), np.diff(first, append=len(cell)))
    turn = np.arange(len(cell)) - first[group]  # the index of the sender among the cell's senders, ascending
    own = rows.own.region[first] != NOWHERE
    before_own = np.bincount(group[rows.src < rows.dst], minlength=len(first))
    staged = (own & (before_own > 1)) | np.isin(cell[first], read)
    stage = SlotPlace(np.full(len(first), STAGE), np.cumsum(staged) - 1)
    target = SlotPlace(*(np.where(staged, *both) for both in zip(stage, rows.home.take(first), strict=True)))
    # The receiver's own value gets a turn of its own only if it must wait; else the sum is built in its place.
    own_turn = np.where(staged & own, before_own, _LAST)
    turn = turn + (turn >= own_turn[group])
    begins = (turn == 0) & (own & ~staged)[group]
    added_to = SlotPlace(*(np.where(begins, *both) for both in zip(rows.own, target.take(group), strict=True)))
    ends = rows.dst, rows.written, rows.src, rows.slot
    arrivals = CellMoves(rows.round, turn, begins | (turn > 0), *ends, target.take(group), added_to, rows.source)
    return _concatenate(arrivals, *_stage_moves(rows.take(first), target, own_turn, staged)) if staged.any() else arrivals


def _stage_moves(cells: CellRows, stage: SlotPlace, own_turn: I64, staged: Bool) -> tuple[CellMoves, CellMoves]:
    """Return the moves of the receivers' own values into the stage, and of the sums home; each cell is given by one row."""
    joins, back = np.flatnonzero(staged & (own_turn < _LAST)), np.flatnonzero(staged)
    c, at, turn = cells.take(joins), stage.take(joins), own_turn[joins]
    own = CellMoves(c.round, turn, turn > 0, c.dst, c.written, c.dst, c.written, at, at, c.own)
    c, late = cells.take(back), np.full(len(back), _LAST)
    return own, CellMoves(c.round, late, late < 0, c.dst, c.written, c.dst, c.written, c.home, c.home, stage.take(back))


def _concatenate(*parts: CellMoves) -> CellMoves:
    columns = (np.concatenate(c) for c in zip(*(part[:-3] for part in parts), strict=True))
    places = (SlotPlace(*map(np.concatenate, zip(*p, strict=True))) for p in zip(*(part[-3:] for part in parts), strict=True))
    return CellMoves._make((*columns, *places))


def _within_rounds(rows: CellRows) -> tuple[I64, I64]:
    """Return the numbers of the cells written and read, distinct in every round."""
    span = 1 + max(int(rows.read.max(initial=0)), int(rows.write.max(initial=0)))
    return rows.round * span + rows.write, rows.round * span + rows.read
