"""Where each slot of each rank lives while a schedule runs.

A wanted slot lives in the rank's output, one that is had and never written in its input, any other in scratch: so no input
is clobbered, and nothing is copied that need not be. P participants, B blocks, K slots.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64, Bool
from emu.collective.operation import Operation, cut
from emu.collective.schedule import Schedule

REGIONS = 6
INPUT, OUTPUT, SCRATCH, STAGE, *INBOXES = range(REGIONS)


class Place(NamedTuple):
    """Region and element offset of some (rank, slot)s, and their sizes in elements."""

    region: I64
    offset: I64
    width: I64


@dataclass(frozen=True, eq=False, slots=True)
class Addressing:
    """Which memory each rank's region is in, and where it begins there."""

    memory: I64  # [regions, P]
    base: I64  # [regions, P]

    def at(self, rank: I64, place: Place) -> tuple[I64, I64]:
        """Memory and address of each place."""
        return self.memory[place.region, rank], self.base[place.region, rank] + place.offset


@dataclass(frozen=True, eq=False, slots=True)
class Cells:
    """Keys in ascending order, the offset of each in its rank's buffer, and the widths of those buffers."""

    key: I64
    offset: I64
    width: I64  # [P] elements

    @staticmethod
    def lay(rank: I64, key: I64, size: I64, n_participants: int) -> "Cells":
        """One after another within each rank; the keys ascend, and with them the ranks."""
        ends = np.cumsum(size)
        width = np.bincount(rank, weights=size, minlength=n_participants).astype(np.int64)
        first = np.cumsum(width) - width
        return Cells(key, ends - size - first[rank], width)

    def find(self, key: I64) -> tuple[Bool, I64]:
        """Which keys are among the cells, and the offset of each that is."""
        if len(self.key) == 0:
            return np.zeros(len(key), np.bool_), np.zeros(len(key), np.int64)
        at = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return self.key[at] == key, self.offset[at]


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """The place of every (participant, slot) that a schedule touches; a temp is part of no block."""

    block: I64  # [K + temps] B for a temp
    start: I64  # [K + temps] first element within the block
    count: I64  # [K + temps] elements
    n_blocks: int  # B + 1
    have: Cells  # by rank * n_blocks + block
    want: Cells
    scratch: Cells  # by rank * n_names + slot

    @property
    def n_names(self) -> int:
        """Slots and temps."""
        return len(self.count)

    def had(self, rank: I64, slot: I64) -> Bool:
        """Which (rank, slot)s hold something from the start."""
        return self.have.find(rank * self.n_blocks + self.block[slot])[0]

    def place(self, rank: I64, slot: I64) -> Place:
        """Where each (rank, slot) lives."""
        block_key, within = rank * self.n_blocks + self.block[slot], self.start[slot]
        wanted, offset = self.want.find(block_key)
        region, offset = np.full(len(rank), OUTPUT), offset + within
        rest = np.flatnonzero(~wanted)
        if len(rest):
            spare, at = self.scratch.find(rank[rest] * self.n_names + slot[rest])
            _, given = self.have.find(block_key[rest])
            region[rest] = np.where(spare, SCRATCH, INPUT)
            offset[rest] = np.where(spare, at, given + within[rest])
        return Place(region, offset, self.count[slot])


def lay_out(schedule: Schedule, operation: Operation, block_counts: I64) -> Layout:
    """Give every slot that the schedule touches its place.

    Args:
        schedule: With every row stored.
        operation: What it is for.
        block_counts: [B] elements of each block.
    """
    slots = cut(block_counts, schedule.n_slots, schedule.shares)
    temps = np.array(schedule.temps, dtype=np.int64)
    block = np.concatenate((slots.block, np.full(len(temps), operation.n_blocks))).astype(np.int64)
    start = np.concatenate((slots.start, np.zeros(len(temps), np.int64)))
    count = np.concatenate((slots.count, slots.count[temps]))
    people, n_blocks = schedule.n_participants, operation.n_blocks + 1
    have, want = (_block_cells(rows, block_counts, people) for rows in (operation.have, operation.want))
    scratch = _scratch(schedule, want, block, count, n_blocks)
    return Layout(block, start, count, n_blocks, have, want, scratch)


def _block_cells(rows: I32, block_counts: I64, n_participants: int) -> Cells:
    rank, block = rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64)
    return Cells.lay(rank, rank * (len(block_counts) + 1) + block, block_counts[block], n_participants)


def _scratch(schedule: Schedule, want: Cells, block: I64, count: I64, n_blocks: int) -> Cells:
    """The written cells that their rank does not want."""
    dst, slot = schedule.dst.astype(np.int64), schedule.written_slot.astype(np.int64)
    wanted, _ = want.find(dst * n_blocks + block[slot])
    return Cells.lay(*_unique_cells(dst[~wanted], slot[~wanted], count), schedule.n_participants)


def _unique_cells(rank: I64, slot: I64, count: I64) -> tuple[I64, I64, I64]:
    key = np.unique(rank * len(count) + slot)
    return key // len(count), key, count[key % len(count)]
