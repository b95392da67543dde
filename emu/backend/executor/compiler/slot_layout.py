"""The place of each slot of each rank while a schedule runs.

A rank's data is read from its input until the schedule first writes it. A written slot lives in the output if the rank wants
it, else in scratch. So no input is overwritten, and nothing is copied without need. P participants, B blocks, K slots.
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
MEMORY = 2**44  # an address is MEMORY times the number of its memory, plus the elements before it there


class SlotPlace(NamedTuple):
    """Regions, and offsets in elements relative to the slot's usual offset there (see `SlotLayout.in_region`)."""

    region: I64
    offset: I64

    def take(self, index: I64 | Bool) -> "SlotPlace":
        """Return the places that `index` selects."""
        return SlotPlace(self.region[index], self.offset[index])


@dataclass(frozen=True, eq=False, slots=True)
class BufferSide:
    """The blocks that ranks have, or those that they want, one after another in each rank's buffer."""

    key: I64  # rank * (B + 1) + block of each pair, ascending
    start: I64  # the start of each, in elements of its rank's buffer
    alike: I64 | None  # [B + 1] the start of each block, if it is equal on all ranks that hold it; else None
    full: int  # the number of ranks if each holds every block, else 0
    n_blocks: int

    @staticmethod
    def of(pairs: I32, counts: I64, n_ranks: int) -> "BufferSide":
        """Return the side of [rows, 2] (rank, block) pairs, with the elements of each block."""
        n_blocks = len(counts)
        rank, block = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
        sizes = counts[block]
        before = np.cumsum(sizes) - sizes
        start = before - np.append(before, 0)[np.searchsorted(rank, np.arange(n_ranks))][rank]
        alike = np.zeros(n_blocks + 1, np.int64)
        alike[block] = start
        same = np.array_equal(alike[block], start)
        full = n_ranks if len(pairs) == n_ranks * n_blocks else 0
        return BufferSide(rank * (n_blocks + 1) + block, start, alike if same else None, full, n_blocks)

    def holds(self, rank: I64, block: I64) -> Bool:
        """Return which of the ranks hold which of the blocks, pair by pair."""
        if self.full:
            return (rank < self.full) & (block < self.n_blocks)
        return self._at(rank, block)[1]

    def offset(self, rank: I64, block: I64) -> I64:
        """Return the start of a block in its rank's buffer, minus the start that `alike` gives."""
        return np.zeros(len(rank), np.int64) if self.alike is not None else self.start[self._at(rank, block)[0]]

    def _at(self, rank: I64, block: I64) -> tuple[I64, Bool]:
        key = rank * (self.n_blocks + 1) + block
        at = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return at, self.key[at] == key if len(self.key) else np.zeros(len(key), np.bool_)


@dataclass(frozen=True, eq=False, slots=True)
class SlotLayout:
    """The sizes of slots, and the places of blocks in the buffers; a temp is a part of no block."""

    block: I64  # [K + temps] B for a temp
    count: I64  # [K + temps] elements
    have: BufferSide
    want: BufferSide
    in_region: I64  # [3, K + temps] the usual offset of a slot in an input, in an output, and elsewhere

    @staticmethod
    def of(schedule: Schedule, operation: Operation, block_counts: I64) -> "SlotLayout":
        """Return the layout of a schedule whose operation has blocks of `block_counts` elements."""
        slots = cut(block_counts, schedule.n_slots, schedule.shares)
        temps = np.array(schedule.temps, dtype=np.int64)
        block = np.concatenate((slots.block, np.full(len(temps), operation.n_blocks))).astype(np.int64)
        start = np.concatenate((slots.start, np.zeros(len(temps), np.int64)))
        have, want = (BufferSide.of(pairs, block_counts, operation.n_ranks) for pairs in (operation.have, operation.want))
        starts = [start + (0 if side.alike is None else side.alike[block]) for side in (have, want)]
        in_region = np.stack((*starts, np.zeros_like(start)))
        return SlotLayout(block, np.concatenate((slots.count, slots.count[temps])), have, want, in_region)

    @property
    def n_names(self) -> int:
        """The number of slots and temps."""
        return len(self.count)

    def has(self, rank: I64, slot: I64) -> Bool:
        """Return which (rank, slot) pairs hold something from the start."""
        return self.have.holds(rank, self.block[slot])

    def wants(self, rank: I64, slot: I64) -> Bool:
        """Return which (rank, slot) pairs are part of an output."""
        return self.want.holds(rank, self.block[slot])

    def input_places(self, rank: I64, slot: I64) -> SlotPlace:
        """Return the places in the inputs."""
        return SlotPlace(np.full(len(rank), INPUT), self.have.offset(rank, self.block[slot]))

    def output_places(self, rank: I64, slot: I64) -> SlotPlace:
        """Return the places in the outputs."""
        return SlotPlace(np.full(len(rank), OUTPUT), self.want.offset(rank, self.block[slot]))

    def address(self, where: I64, place: SlotPlace, rank: I64, slot: I64) -> I64:
        """Return the addresses of slots.

        Args:
            where: [regions, P] the address of each participant's region.
            place: The place of each slot.
            rank: The rank of each slot.
            slot: The number of each slot.
        """
        begins: I64 = np.take(where, place.region * where.shape[1] + rank)
        within: I64 = np.take(self.in_region, np.minimum(place.region, SCRATCH) * self.n_names + slot)
        return begins + place.offset + within
