"""Where each slot of each rank lives while a schedule runs.

What a rank has is read from its input until the schedule first writes it. What is written lives in the output where the rank
wants it, else in scratch: so no input is clobbered, and nothing is copied that need not be. P participants, B blocks, K slots.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64, Bool
from emu.collective.operation import Operation, cut
from emu.collective.schedule import Schedule

REGIONS = 6
INPUT, OUTPUT, SCRATCH, STAGE, *INBOXES = range(REGIONS)
NOWHERE = -1
MEMORY = 2**44  # an address: so many times the number of its memory, and the elements before it there


class Place(NamedTuple):
    """Regions, and offsets in elements beyond those of the slot there (see `Layout.in_region`)."""

    region: I64
    offset: I64

    def take(self, index: I64 | Bool) -> "Place":
        """Some of them."""
        return Place(self.region[index], self.offset[index])


@dataclass(frozen=True, eq=False, slots=True)
class Side:
    """What ranks have or want: their blocks, one after another."""

    key: I64  # of each (rank, block), ascending: rank * (B + 1) + block
    start: I64  # of each, in elements of its rank's buffer
    alike: I64 | None  # [B + 1] the start of each block, if it is the same on every rank that holds it
    full: int  # this many ranks, the first, hold every block; 0 if some do not
    n_blocks: int

    @staticmethod
    def of(pairs: I32, counts: I64, n_ranks: int) -> "Side":
        """Of [rows, 2] (rank, block), and the elements of each block."""
        n_blocks = len(counts)
        rank, block = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
        sizes = counts[block]
        before = np.cumsum(sizes) - sizes
        start = before - np.append(before, 0)[np.searchsorted(rank, np.arange(n_ranks))][rank]
        alike = np.zeros(n_blocks + 1, np.int64)
        alike[block] = start
        same = np.array_equal(alike[block], start)
        full = n_ranks if len(pairs) == n_ranks * n_blocks else 0
        return Side(rank * (n_blocks + 1) + block, start, alike if same else None, full, n_blocks)

    def holds(self, rank: I64, block: I64) -> Bool:
        """Which ranks hold which blocks."""
        if self.full:
            return (rank < self.full) & (block < self.n_blocks)
        return self._at(rank, block)[1]

    def beyond(self, rank: I64, block: I64) -> I64:
        """Where a block begins that its rank holds, less what `alike` says of it."""
        return np.zeros(len(rank), np.int64) if self.alike is not None else self.start[self._at(rank, block)[0]]

    def _at(self, rank: I64, block: I64) -> tuple[I64, Bool]:
        key = rank * (self.n_blocks + 1) + block
        at = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return at, self.key[at] == key if len(self.key) else np.zeros(len(key), np.bool_)


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """The sizes of slots, and how blocks lie in the buffers; a temp is a part of no block."""

    block: I64  # [K + temps] B for a temp
    count: I64  # [K + temps] elements
    have: Side
    want: Side
    in_region: I64  # [3, K + temps] where a slot lies in an input, in an output and anywhere else, if on all ranks alike

    @staticmethod
    def of(schedule: Schedule, operation: Operation, block_counts: I64) -> "Layout":
        """Cut blocks of so many elements into the slots of a schedule."""
        slots = cut(block_counts, schedule.n_slots, schedule.shares)
        temps = np.array(schedule.temps, dtype=np.int64)
        block = np.concatenate((slots.block, np.full(len(temps), operation.n_blocks))).astype(np.int64)
        start = np.concatenate((slots.start, np.zeros(len(temps), np.int64)))
        have, want = (Side.of(pairs, block_counts, operation.n_ranks) for pairs in (operation.have, operation.want))
        starts = [start + (0 if side.alike is None else side.alike[block]) for side in (have, want)]
        in_region = np.stack((*starts, np.zeros_like(start)))
        return Layout(block, np.concatenate((slots.count, slots.count[temps])), have, want, in_region)

    @property
    def n_names(self) -> int:
        """Slots and temps."""
        return len(self.count)

    def has(self, rank: I64, slot: I64) -> Bool:
        """Which (rank, slot)s hold something from the start."""
        return self.have.holds(rank, self.block[slot])

    def wants(self, rank: I64, slot: I64) -> Bool:
        """Which (rank, slot)s are part of an output."""
        return self.want.holds(rank, self.block[slot])

    def given(self, rank: I64, slot: I64) -> Place:
        """Where what ranks have lies in their inputs."""
        return Place(np.full(len(rank), INPUT), self.have.beyond(rank, self.block[slot]))

    def made(self, rank: I64, slot: I64) -> Place:
        """Where what ranks want lies in their outputs."""
        return Place(np.full(len(rank), OUTPUT), self.want.beyond(rank, self.block[slot]))

    def address(self, where: I64, place: Place, rank: I64, slot: I64) -> I64:
        """The addresses of slots of ranks that are in some places.

        Args:
            where: [regions, P] the address of each participant's region.
            place: Of each.
            rank: Of each.
            slot: Of each.
        """
        begins: I64 = np.take(where, place.region * where.shape[1] + rank)
        within: I64 = np.take(self.in_region, np.minimum(place.region, SCRATCH) * self.n_names + slot)
        return begins + place.offset + within
