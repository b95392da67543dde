"""The rules of a round as copies and adds in phases: reads before writes, and sums in ascending rank.

The receiver's own value takes its own rank's place. A cell that is read in the round that writes it, and a sum that must begin
with others than the receiver's own value, grow in a stage and go home last.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.backend.executor.compile.cells import Rows
from emu.backend.executor.compile.layout import NOWHERE, STAGE, Layout, Place

_LAST = 2**31  # the phase of what was staged: after every other


class Moves(NamedTuple):
    """Single copies and adds; those of a round in phases, within which none waits for another."""

    round: I64
    phase: I64
    adds: Bool
    rank: I64
    slot: I64
    sender: I64
    sent: I64  # the slot there
    target: Place
    own: Place  # what is added to; of a copy the target
    source: Place

    def take(self, index: I64 | Bool) -> "Moves":
        """Some of them."""
        return Moves._make(x.take(index) if isinstance(x, Place) else x[index] for x in self)


def copies(layout: Layout, rank: I64, slot: I64) -> Moves:
    """From inputs to outputs, before the first round."""
    zero, made = np.zeros(len(rank), np.int64), layout.made(rank, slot)
    return Moves(zero, zero, zero > 0, rank, slot, rank, slot, made, made, layout.given(rank, slot))


def in_any_order(rows: Rows) -> bool:
    """Whether no sum of these rows depends on which of its ranks is lower: of one receiver and one sender it does not."""
    cell, read = _within_rounds(rows)
    return len(np.unique(cell)) == len(cell) and not np.isin(cell[rows.own.region != NOWHERE], read).any()


def moves_of(rows: Rows) -> Moves:
    """What rows of some rounds come to."""
    rows = rows.take(np.lexsort((rows.src, rows.write, rows.round)))
    cell, read = _within_rounds(rows)
    first = np.flatnonzero(np.diff(cell, prepend=-1))
    group = np.repeat(np.arange(len(first)), np.diff(first, append=len(cell)))
    turn = np.arange(len(cell)) - first[group]  # which of the cell's senders, ascending
    own = rows.own.region[first] != NOWHERE
    before_own = np.bincount(group[rows.src < rows.dst], minlength=len(first))
    staged = (own & (before_own > 1)) | np.isin(cell[first], read)
    stage = Place(np.full(len(first), STAGE), np.cumsum(staged) - 1)
    target = Place(*(np.where(staged, *both) for both in zip(stage, rows.home.take(first), strict=True)))
    # The receiver's own value takes a turn of its own only where it must wait for it; else it is where the sum grows.
    own_turn = np.where(staged & own, before_own, _LAST)
    turn = turn + (turn >= own_turn[group])
    begins = (turn == 0) & (own & ~staged)[group]
    added_to = Place(*(np.where(begins, *both) for both in zip(rows.own, target.take(group), strict=True)))
    ends = rows.dst, rows.written, rows.src, rows.slot
    arrivals = Moves(rows.round, turn, begins | (turn > 0), *ends, target.take(group), added_to, rows.source)
    return _joined(arrivals, *_staged(rows.take(first), target, own_turn, staged)) if staged.any() else arrivals


def _staged(cells: Rows, stage: Place, own_turn: I64, staged: Bool) -> tuple[Moves, Moves]:
    """The receivers' own values into the stage in their turn, and the sums home; of one row a cell."""
    joins, back = np.flatnonzero(staged & (own_turn < _LAST)), np.flatnonzero(staged)
    c, at, turn = cells.take(joins), stage.take(joins), own_turn[joins]
    own = Moves(c.round, turn, turn > 0, c.dst, c.written, c.dst, c.written, at, at, c.own)
    c, late = cells.take(back), np.full(len(back), _LAST)
    return own, Moves(c.round, late, late < 0, c.dst, c.written, c.dst, c.written, c.home, c.home, stage.take(back))


def _joined(*parts: Moves) -> Moves:
    columns = (np.concatenate(c) for c in zip(*(part[:-3] for part in parts), strict=True))
    places = (Place(*map(np.concatenate, zip(*p, strict=True))) for p in zip(*(part[-3:] for part in parts), strict=True))
    return Moves._make((*columns, *places))


def _within_rounds(rows: Rows) -> tuple[I64, I64]:
    """The cells written and read, numbered apart in every round."""
    span = 1 + max(int(rows.read.max(initial=0)), int(rows.write.max(initial=0)))
    return rows.round * span + rows.write, rows.round * span + rows.read
