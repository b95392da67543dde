"""The cells that a schedule touches: when it first writes each, and where each is to be found before and after.

A cell is a slot of a participant. Where translations give the rows of all ranks from those of rank 0, the cells that they bring
to one another have one number, for the same befalls them all.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64, Bool
from emu.backend.executor.compile.layout import INPUT, NOWHERE, OUTPUT, SCRATCH, Layout, Place
from emu.collective.operation import Operation
from emu.collective.proof import ScheduleFault, empty_add_error, empty_send_error
from emu.collective.proof_cells import number_cells
from emu.collective.schedule import Schedule
from emu.collective.translation import Translations


class Rows(NamedTuple):
    """Some rows, with what becomes of the cells that they read and write."""

    round: I64
    src: I64
    dst: I64
    slot: I64
    written: I64
    channel: I64
    adds: Bool
    read: I64  # the number of the cell
    write: I64  # the number of the cell
    source: Place  # of what is sent
    own: Place  # of what the receiver has of it before; nowhere if nothing is added to that
    home: Place  # of what it has of it after

    def take(self, index: I64 | Bool) -> "Rows":
        """Some of them."""
        return Rows._make(x.take(index) if isinstance(x, Place) else x[index] for x in self)

    def everywhere(self, carry: Translations) -> "Rows":
        """Those of all ranks, where these are those of rank 0."""
        rows = self.take(np.repeat(np.arange(len(self.src)), carry.n_ranks))
        by = np.tile(np.arange(carry.n_ranks), len(self.src))
        src, dst, slot = carry.rank(rows.src, by), carry.rank(rows.dst, by), carry.slot(rows.slot, by)
        read, write = rows.read * carry.n_ranks + src, rows.write * carry.n_ranks + dst
        return rows._replace(src=src, dst=dst, slot=slot, written=slot, read=read, write=write)


@dataclass(frozen=True, eq=False, slots=True)
class Cells:
    """Of a schedule with every row stored, or with those of rank 0 and the translations that give the others."""

    schedule: Schedule
    layout: Layout
    round: I32  # [S]
    read: I64  # [S] the number of the cell
    write: I64  # [S] the number of the cell
    first: I64  # [cells] the round that first writes it; T: none
    home: Place  # [cells] of what is written
    stay: tuple[I64, I64]  # rank and slot of what is had, wanted and never written
    scratch: I64  # [P] elements that each participant needs
    here: Bool  # [P] the participants that are in this process
    name: str  # of the operation

    @staticmethod
    def of(schedule: Schedule, operation: Operation, layout: Layout, carry: Translations | None, here: Bool) -> "Cells":
        """Of the participants that are here, or of rank 0 where translations carry it to the others."""
        counted = here if carry is None else np.arange(len(here)) == 0
        stay = _had_and_wanted(operation, schedule.n_slots // max(1, operation.n_blocks), counted)
        ends = ((schedule.src, schedule.slot), (schedule.dst, schedule.written_slot), stay)
        dense = layout.n_names * (schedule.n_participants if carry is None else 1)
        keys = tuple(_key(rank, slot, layout.n_names, carry) for rank, slot in ends)
        n_cells, (read, write, staying) = number_cells(keys, dense)
        now, first = schedule.round_column(), np.full(n_cells, schedule.n_rounds)
        first[write[::-1]] = now[::-1]
        never = first[staying] == schedule.n_rounds
        home, scratch = _homes(schedule, layout, carry, here, write, n_cells)
        stay = stay[0][never], stay[1][never]
        return Cells(schedule, layout, now, read, write, first, home, stay, scratch, here, operation.name)

    def rows(self, at: slice) -> Rows:
        """The rows between two indices.

        Raises:
            ProofError: one reads a slot that holds nothing, or adds to one of a rank, where memory holds whatever was there.
        """
        s = self.schedule
        names = (s.src, s.dst, s.slot, s.written_slot, s.channel)
        src, dst, slot, written, channel = (c[at].astype(np.int64) for c in names)
        read, write, now = self.read[at], self.write[at], self.round[at].astype(np.int64)
        before, after = self.first[write] < now, self.first[read] < now
        adds, own = s.reduce[at], self._found(write, before, dst, written)
        holds = before | self.layout.has(dst, written)
        own = Place(np.where(adds & holds, own.region, NOWHERE), own.offset)
        source = self._found(read, after, src, slot)
        home = Place(self.home.region[write], self.home.offset[write])
        rows = Rows(now, src, dst, slot, written, channel, adds, read, write, source, own, home)
        self._refuse_nothing(rows, np.flatnonzero(~after & self.here[src]), adds & ~holds & self.here[dst])
        return rows

    def _refuse_nothing(self, rows: Rows, unwritten: I64, alone: Bool) -> None:
        """Refuse rows that read a slot which holds nothing, or add to one of a rank.

        Args:
            rows: All of them.
            unwritten: Those that read what no row has written yet.
            alone: [rows] Which add where nothing is.
        """
        n_ranks = self.schedule.n_ranks
        empty = unwritten[~self.layout.has(rows.src[unwritten], rows.slot[unwritten])]
        if len(empty):
            row = empty[0]
            fault = ScheduleFault(int(rows.round[row]), int(rows.src[row]), int(rows.slot[row]))
            raise empty_send_error(self.name, fault, int(rows.dst[row]), n_ranks)
        added = np.flatnonzero(alone & (rows.dst < n_ranks))
        if len(added):
            row = added[0]
            senders = rows.src[added[(rows.write[added] == rows.write[row]) & (rows.round[added] == rows.round[row])]]
            raise empty_add_error(
                self.name, ScheduleFault(int(rows.round[row]), int(rows.dst[row]), int(rows.written[row])), senders
            )

    def _found(self, cell: I64, written: Bool, rank: I64, slot: I64) -> Place:
        """Where cells are read: at home if they have been written, else in the input."""
        given = self.layout.given(rank, slot)
        return Place(np.where(written, self.home.region[cell], INPUT), np.where(written, self.home.offset[cell], given.offset))


def _key(rank: I32 | I64, slot: I32 | I64, n_names: int, carry: Translations | None) -> I64:
    """Equal for cells that translations bring to one another: the slot, where they bring the rank to 0."""
    if carry is None:
        return rank.astype(np.int64) * n_names + slot
    return carry.slot(slot, carry.opposite(rank))


def _had_and_wanted(operation: Operation, parts: int, counted: Bool) -> tuple[I64, I64]:
    """Rank and slot of what the ranks that count both have and want."""
    sides = (pairs[counted[pairs[:, 0]]].astype(np.int64) for pairs in (operation.have, operation.want))
    has, wants = (pairs[:, 0] * operation.n_blocks + pairs[:, 1] for pairs in sides)
    rank, block = np.divmod(np.intersect1d(has, wants, assume_unique=True), operation.n_blocks)
    return np.repeat(rank, parts), (block[:, None] * parts + np.arange(parts)).ravel()


def _homes(
    schedule: Schedule, layout: Layout, carry: Translations | None, here: Bool, write: I64, n_cells: int
) -> tuple[Place, I64]:
    """Where each cell lives that is written, and the scratch that each participant needs."""
    dst, slot = schedule.dst.astype(np.int64), schedule.written_slot.astype(np.int64)
    home = Place(np.full(n_cells, OUTPUT), np.zeros(n_cells, np.int64))
    home.offset[write] = layout.made(dst, slot).offset
    spare = np.flatnonzero(here[dst] & ~layout.wants(dst, slot))
    cell, row = np.unique(write[spare], return_index=True)
    owner, size = dst[spare][row], layout.count[slot[spare][row]]
    if carry is not None:  # rank 0's stand for those of all, of which each needs the most that one of them does
        rest = carry.n_slots // carry.n_ranks**carry.slot_digits
        owner, size = owner * 0, layout.count.reshape(-1, rest).max(axis=0)[slot[spare][row] % rest]
    width = np.bincount(owner, size, schedule.n_participants).astype(np.int64)
    home.region[cell] = SCRATCH
    home.offset[cell] = np.cumsum(size) - size - (np.cumsum(width) - width)[owner]
    return home, width if carry is None else np.full_like(width, width[0])
