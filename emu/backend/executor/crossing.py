"""The rows of a round as moves of cells within this process, and as messages to and from other processes.

Moves are copies and additions in phases: reads come before writes, and sums are in ascending rank. The receiver's own value
takes the place of its rank in the sum. A cell that is read in the round that writes it, and a sum that does not begin with the
receiver's own value, are built in a stage and copied home last. A message is received while the round before runs. It goes
straight to its home if all of it is copied to one range of memory that nothing in progress needs; else it goes to an inbox, of
which there are two, used in turn.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool, ascending
from emu.backend.executor.schedule_cells import INBOXES, MEMORY, NOWHERE, STAGE, CellRows, SlotLayout, SlotPlace

_LAST = 2**31  # the phase of copies from the stage: after all others


class CellMoves(NamedTuple):
    """Copies and additions of single slots between memories.

    The moves of a round are divided into phases; those of one phase are independent.
    """

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
    """Return whether no sum of these rows depends on the order of ranks."""
    cell, read = _within_rounds(rows)
    return len(ascending(cell)) == len(cell) and not np.isin(cell[rows.own.region != NOWHERE], read).any()


def moves_of(rows: CellRows) -> CellMoves:
    """Return the rows of some rounds as moves, with each addition in its phase."""
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
    """Return cell numbers that rows write and read, made distinct between rounds."""
    span = 1 + max(int(rows.read.max(initial=0)), int(rows.write.max(initial=0)))
    return rows.round * span + rows.write, rows.round * span + rows.read


class WireMessage(NamedTuple):
    """A message between a rank of this process and one of another process: the spans of memory that it reads or writes."""

    here: int  # the participant of this process
    peer: int  # the participant of another process
    channel: int
    pieces: tuple[tuple[int, int, int], ...]  # (memory, address, count); a received message has one piece


Messages = tuple[WireMessage, ...]


class Crossing:
    """The planner of messages over the wire; `cross` takes the rounds in order.

    Args:
        layout: The layout of slots in their regions.
        where: [regions, P] the address of each participant's region.
        is_here: [P] the participants of this process.
    """

    def __init__(self, layout: SlotLayout, where: I64, is_here: Bool) -> None:
        self.layout, self.where, self.is_here = layout, where, is_here
        self.inbox_counts = [0] * len(INBOXES)
        self._turn = 0
        nothing = np.empty(0, np.int64)
        self._read, self._written = deque([nothing], maxlen=2), nothing  # cells that the rounds before read and wrote

    def plan_round(self, rows: CellRows) -> tuple[Messages, Messages, CellRows, bool]:
        """Return the messages that the next round sends and receives, the rows that remain to be executed, and a flag.

        These rows write in this process and did not arrive at home; their sources may be in an inbox. The flag is True if they
        write memory that the sends read.

        Args:
            rows: The rows of the round, sorted so that the rows of one message are neighbours.
        """
        if len(rows.src) == 0:
            return (), (), rows, False
        coming, leaving = ~self.is_here[rows.src], ~self.is_here[rows.dst]
        sends = self._transfers(rows.take(leaving), rows.source.take(leaving), outgoing=True)
        lands = self._is_written_directly(rows, rows.read[~coming])
        boxed = coming & ~lands
        rows.source.region[boxed], rows.source.offset[boxed] = INBOXES[self._turn], self._box(rows.slot[boxed])
        into = SlotPlace(*(np.where(lands, *both) for both in zip(rows.home, rows.source, strict=True)))
        receives = self._transfers(rows.take(coming), into.take(coming), outgoing=False)
        overwrites = bool(np.isin(rows.write[~leaving & ~lands], rows.read[leaving]).any())
        self._read.append(rows.read[~coming])
        self._written, self._turn = rows.write[~leaving], 1 - self._turn
        return sends, receives, rows.take(~leaving & ~lands), overwrites

    def _is_written_directly(self, rows: CellRows, read: I64) -> Bool:
        """Return [rows] whether the message of each row can be written directly to where its slot stays, without an inbox.

        Args:
            rows: The rows of a round.
            read: The cells that the round itself reads.
        """
        _, which, times = np.unique(rows.write, return_inverse=True, return_counts=True)
        busy = np.concatenate((read, *self._read, self._written))
        fit = ~self.is_here[rows.src] & ~rows.adds & (times[which] == 1) & ~np.isin(rows.write, busy)
        changes = np.stack((rows.src, rows.dst, rows.channel))
        first = np.append(True, (changes[:, 1:] != changes[:, :-1]).any(axis=0))
        address = self.layout.address(self.where, rows.home, rows.dst, rows.written)
        follows = np.append(True, np.diff(address) == self.layout.count[rows.slot][:-1])
        message = np.cumsum(first) - 1
        lands: Bool = np.logical_and.reduceat(fit & (first | follows), np.flatnonzero(first))[message]
        return lands

    def _box(self, slot: I64) -> I64:
        """Return the offsets at which slots lie in the inbox, one after another, in elements."""
        counts = self.layout.count[slot]
        self.inbox_counts[self._turn] = max(self.inbox_counts[self._turn], int(counts.sum()))
        return np.cumsum(counts) - counts

    def _transfers(self, t: CellRows, place: SlotPlace, *, outgoing: bool) -> Messages:
        """Return the messages of the given rows; neighbouring memory is merged into one piece."""
        ends, named = ((t.src, t.dst), t.slot) if outgoing else ((t.dst, t.src), t.written)
        memory, address = np.divmod(self.layout.address(self.where, place, ends[0], named), MEMORY)
        found: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}
        table = np.stack((*ends, t.channel, memory, address, self.layout.count[t.slot]), axis=-1)
        for *key, where, at, count in table.tolist():
            pieces = found.setdefault(tuple(key), [])
            if pieces and pieces[-1][0] == where and pieces[-1][1] + pieces[-1][2] == at:
                pieces[-1] = (where, pieces[-1][1], pieces[-1][2] + count)
            else:
                pieces.append((where, at, count))
        return tuple(WireMessage(here, peer, lane, tuple(pieces)) for (here, peer, lane), pieces in found.items())
