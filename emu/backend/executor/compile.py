"""From a schedule to batches: what is copied or added from where to where, in which order.

A batch is a run of rows whose source and target addresses both advance by constant strides, so that one strided tensor
operation does them all. The rules of a round (reads before writes, adds folded in ascending rank with the receiver's own
value at its own rank's place) become phases within the round. What crosses the wire: `crossing`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.backend.executor.crossing import Crossing, Rows, Transfer
from emu.backend.executor.layout import INPUT, STAGE, Addressing, Layout, Place
from emu.collective.operation import Operation
from emu.collective.schedule import Schedule

COPY, REDUCE = 0, 1
_LAST = 2**31  # the phase of what was staged: after every other


class Batch(NamedTuple):
    """`n` rows of `width` elements; addresses and strides in elements of their memory."""

    code: int
    target: int
    target_at: int
    target_step: int
    source: int
    source_at: int
    source_step: int
    n: int
    width: int


class Round(NamedTuple):
    """What the ranks here do in one round; its receives may begin once the round before the one before has ended."""

    sends: tuple[Transfer, ...]
    receives: tuple[Transfer, ...]
    batches: tuple[Batch, ...]
    overwrites: bool = False  # do batches write what its own sends read


class Moves(NamedTuple):
    """Single copies and adds, not yet batched."""

    phase: I64
    code: I64
    target: I64
    target_at: I64
    source: I64
    source_at: I64
    width: I64

    def take(self, index: I64 | Bool) -> "Moves":
        """Some of them."""
        return Moves._make(c[index] for c in self)


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """A schedule compiled for the ranks here, and how much staging and inbox it needs."""

    rounds: tuple[Round, ...]
    stage_count: int
    inbox_counts: tuple[int, ...]


class Compiler:
    """Compiles round by round; a round's arrays are small, so that its sorts stay in cache."""

    def __init__(self, schedule: Schedule, operation: Operation, layout: Layout, where: Addressing, here: I64) -> None:
        self.schedule, self.operation, self.layout, self.where = schedule, operation, layout, where
        people = np.arange(schedule.n_participants)
        self.is_here = np.isin(np.where(people < schedule.n_ranks, people, 0), here)  # helpers live with rank 0
        self.stage_count = 0
        self.filled = np.empty(0, np.int64)  # cells that were empty at the start and hold something now

    def program(self) -> Program:
        """All rounds, the first of them being the copies from inputs to where the rows work."""
        copied, copies = self._initial_copies()
        crossing = Crossing(self.layout, self.where, self.is_here, copied)
        rounds = [Round((), (), _batches(copies))]
        rounds += [self._round(rows, crossing) for rows in self.schedule.rounds()]
        return Program(tuple(r for r in rounds if any(r)), self.stage_count, tuple(crossing.inbox_counts))

    def _initial_copies(self) -> tuple[I64, Moves]:
        """The cells that are written, and how."""
        rank, block = (self.operation.have[:, i].astype(np.int64) for i in (0, 1))
        parts = self.schedule.n_slots // self.operation.n_blocks
        rank, slot = np.repeat(rank, parts), (block[:, None] * parts + np.arange(parts)).ravel()
        kept = self.is_here[rank] & (self.layout.count[slot] > 0)
        rank, slot = rank[kept], slot[kept]
        works = self.layout.place(rank, slot)
        _, given = self.layout.have.find(rank * self.layout.n_blocks + self.layout.block[slot])
        source = Place(np.full(len(rank), INPUT), given + self.layout.start[slot], works.width)
        target_at, source_at = self.where.at(rank, works), self.where.at(rank, source)
        moved = (target_at[0] != source_at[0]) | (target_at[1] != source_at[1])
        zero = np.zeros(int(moved.sum()), np.int64)
        copies = Moves._make((zero, zero + COPY, *(c[moved] for c in (*target_at, *source_at, works.width))))
        return (rank * self.layout.n_names + slot)[moved], copies

    def _round(self, rows: slice, crossing: Crossing) -> Round:
        s = self.schedule
        src, dst, slot = (c[rows].astype(np.int64) for c in (s.src, s.dst, s.slot))
        kept = (self.is_here[src] | self.is_here[dst]) & (self.layout.count[slot] > 0)
        table = Rows(src, dst, slot, s.written_slot[rows].astype(np.int64), s.reduce[rows].astype(np.int64))
        table = table.take(kept)
        channel = s.channel[rows][kept].astype(np.int64)
        crossed = crossing.cross(table, channel, *self.where.at(table.src, self.layout.place(table.src, table.slot)))
        self._fill(table.take(crossed.landed))
        moved = self.is_here[table.dst] & ~crossed.landed
        moves = self._moves(table.take(moved), crossed.memory[moved], crossed.address[moved])
        return Round(crossed.sends, crossed.receives, _batches(moves), crossed.overwrites)

    def _moves(self, rows: Rows, memory: I64, address: I64) -> Moves:
        """The copies and adds of one round, in phases."""
        order = np.lexsort((rows.src, rows.written, rows.dst))
        rows, memory, address = rows.take(order), memory[order], address[order]
        cell = rows.dst * self.layout.n_names + rows.written
        first = np.flatnonzero(np.diff(cell, prepend=-1))
        size = np.diff(first, append=len(cell))
        group = np.repeat(np.arange(len(first)), size)
        turn = np.arange(len(cell)) - first[group]  # which of the group's senders, ascending
        own = (rows.reduce[first] == 1) & self._holds(rows.dst[first], rows.written[first], cell[first])
        before_own = np.bincount(group[rows.src < rows.dst], minlength=len(first))
        staged = (own & (before_own > 1)) | np.isin(cell[first], rows.src * self.layout.n_names + rows.slot)
        home = self.where.at(rows.dst[first], self.layout.place(rows.dst[first], rows.written[first]))
        count = self.layout.count[rows.written[first]]
        target, stage_count = _with_stage(home, staged, count)
        self.stage_count = max(self.stage_count, stage_count)
        # The receiver's own value takes a turn of its own only where it must wait for it; else it is where the sum grows.
        own_turn = np.where(staged & own, before_own, _LAST)
        turn = turn + (turn >= own_turn[group])
        code = np.where((turn == 0) & ~(own & ~staged)[group], COPY, REDUCE)
        arrivals = Moves(turn, code, target[0][group], target[1][group], memory, address, count[group])
        joins = np.flatnonzero(staged & own)
        own_code = np.where(own_turn[joins] == 0, COPY, REDUCE)
        at_stage, at_home = [t[joins] for t in target], [h[joins] for h in home]
        own_moves = Moves._make((own_turn[joins], own_code, *at_stage, *at_home, count[joins]))
        back = np.flatnonzero(staged)
        late = np.full(len(back), _LAST)
        home_again = Moves._make((late, late * 0 + COPY, *(h[back] for h in home), *(t[back] for t in target), count[back]))
        return Moves._make(np.concatenate(c) for c in zip(arrivals, own_moves, home_again, strict=True))

    def _fill(self, rows: Rows) -> None:
        """Cells that hold something from now on, as `_holds` knows of those that it is asked about."""
        self._holds(rows.dst, rows.written, rows.dst * self.layout.n_names + rows.written)

    def _holds(self, dst: I64, slot: I64, cell: I64) -> Bool:
        """Which cells hold something before this round; those written in it hold something after."""
        empty = np.flatnonzero(~self.layout.had(dst, slot))
        holds = np.ones(len(cell), np.bool_)
        if len(empty):
            holds[empty] = np.isin(cell[empty], self.filled)
            self.filled = np.union1d(self.filled, cell[empty])
        return holds


def _with_stage(home: tuple[I64, I64], staged: Bool, count: I64) -> tuple[tuple[I64, I64], int]:
    """Where each group's sum grows: at home, or in the stage, one after another."""
    sizes = np.where(staged, count, 0)
    at = np.cumsum(sizes) - sizes
    return (np.where(staged, STAGE, home[0]), np.where(staged, at, home[1])), int(sizes.sum())


def _batches(moves: Moves) -> tuple[Batch, ...]:
    """Cut moves into runs of constant strides, phase by phase."""
    if len(moves.phase) == 0:
        return ()
    order = np.lexsort((moves.target_at, moves.target, moves.width, moves.source, moves.code, moves.phase))
    m = moves.take(order)
    apart = np.zeros(len(order), np.bool_)
    for c in (m.phase, m.code, m.source, m.width, m.target):
        apart[1:] |= c[1:] != c[:-1]
    table = np.stack((m.code, m.target, m.target_at, m.source, m.source_at, m.width), axis=-1)
    return tuple(_runs(table, apart))


def _runs(table: I64, apart: Bool) -> list[Batch]:
    """Greedy runs: each takes the stride of its first pair and goes on while both strides hold."""
    target_step, source_step = np.diff(table[:, 2], append=0), np.diff(table[:, 4], append=0)
    fits = (target_step >= table[:, 5]) & (source_step >= 0)
    joined = ~np.append(apart[1:], True) & fits  # may a row be followed by the next
    same = np.zeros(len(table), np.bool_)  # does the stride into a row go on out of it
    same[1:] = (target_step[1:] == target_step[:-1]) & (source_step[1:] == source_step[:-1]) & joined[1:] & joined[:-1]
    ends = np.flatnonzero(~same)  # rows at which a run can only end or turn
    batches, row = [], 0
    while row < len(table):
        last = int(row)
        if joined[row]:
            last = int(ends[np.searchsorted(ends, row + 1)])
        code, target, target_at, source, source_at, count = table[row].tolist()
        steps = (int(target_step[row]), int(source_step[row])) if last > row else (0, 0)
        batches.append(Batch(code, target, target_at, steps[0], source, source_at, steps[1], last - row + 1, count))
        row = last + 1
    return batches
