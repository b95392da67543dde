"""The cells that a schedule uses: the round of the first write of each, and its memory before and after that round.

A cell is a slot of a participant. If translations give the rows of all ranks from those of rank 0, all cells that they map to
one another have one number, because they are treated alike. A rank's data is read from its input until the schedule first
writes it. A written slot lives in the output if the rank wants it, else in scratch. So no input is overwritten, and nothing is
copied without need. P participants, B blocks, K slots.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64, Bool
from emu.collective.operation import Operation, divide_blocks
from emu.collective.proof import ScheduleFault, empty_add_error, empty_send_error
from emu.collective.proof_cells import number_cells
from emu.collective.schedule import Schedule, Translations

REGIONS = 6
INPUT, OUTPUT, SCRATCH, STAGE, *INBOXES = range(REGIONS)
NOWHERE = -1
MEMORY = 2**44  # an address is MEMORY times the number of its memory, plus the elements before it there


class SlotPlace(NamedTuple):
    """The memory of slots: the region (input, output, scratch, stage or inbox) of each slot, and its offset there.

    The offset is in elements, from the slot's usual start in the region, see `SlotLayout.in_region`.
    """

    region: I64
    offset: I64

    def take(self, index: I64 | Bool) -> "SlotPlace":
        """Return the entries that `index` selects."""
        return SlotPlace(self.region[index], self.offset[index])


@dataclass(frozen=True, eq=False, slots=True)
class BufferSide:
    """The blocks that ranks have (or want), laid out one after another in each rank's buffer.

    A pair of a rank and a block is found by its `key`; `start` is the offset of the block in that rank's buffer, in elements.
    """

    key: I64  # rank * (B + 1) + block of each pair, ascending
    start: I64  # the start of each block, in elements of its rank's buffer
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
        return self._index_of_pairs(rank, block)[1]

    def offset(self, rank: I64, block: I64) -> I64:
        """Return the offset of each block in its rank's buffer, in elements; 0 if all ranks share one layout."""
        return np.zeros(len(rank), np.int64) if self.alike is not None else self.start[self._index_of_pairs(rank, block)[0]]

    def _index_of_pairs(self, rank: I64, block: I64) -> tuple[I64, Bool]:
        key = rank * (self.n_blocks + 1) + block
        at = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return at, self.key[at] == key if len(self.key) else np.zeros(len(key), np.bool_)


@dataclass(frozen=True, eq=False, slots=True)
class SlotLayout:
    """The number of elements of each slot, and where its block is in each rank's input and output.

    A temp is a slot for intermediate values that belongs to no block; temps come after the K slots. `count` is in elements.
    `in_region` is the offset, in elements, at which a slot is in most ranks' inputs, in most ranks' outputs, and in scratch.
    """

    block: I64  # [K + temps] the block of each slot; B for a temp
    count: I64  # [K + temps] elements
    have: BufferSide
    want: BufferSide
    in_region: I64  # [3, K + temps] the usual offset of a slot in an input, in an output, and elsewhere

    @staticmethod
    def of(schedule: Schedule, operation: Operation, block_counts: I64) -> "SlotLayout":
        """Return the layout of a schedule whose operation has blocks of `block_counts` elements."""
        slots = divide_blocks(block_counts, schedule.n_slots, schedule.shares)
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
        """Return, for each pair of a rank and a slot, whether the rank has data for the slot at the start."""
        return self.have.holds(rank, self.block[slot])

    def wants(self, rank: I64, slot: I64) -> Bool:
        """Return, for each pair of a rank and a slot, whether the slot belongs to the rank's output."""
        return self.want.holds(rank, self.block[slot])

    def input_places(self, rank: I64, slot: I64) -> SlotPlace:
        """Return where slots lie in the inputs of their ranks."""
        return SlotPlace(np.full(len(rank), INPUT), self.have.offset(rank, self.block[slot]))

    def output_places(self, rank: I64, slot: I64) -> SlotPlace:
        """Return where slots lie in the outputs of their ranks."""
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


class CellRows(NamedTuple):
    """Rows of a schedule, with the memory of the cells (a slot of a participant) that each reads and writes."""

    round: I64
    src: I64
    dst: I64
    slot: I64
    written: I64
    channel: I64
    adds: Bool
    read: I64  # the number of the cell that is read
    write: I64  # the number of the cell that is written
    source: SlotPlace  # the place of the sent value
    own: SlotPlace  # the place of the receiver's own value; NOWHERE if nothing is added to it
    home: SlotPlace  # the place of the receiver's value after the row

    def take(self, index: I64 | Bool) -> "CellRows":
        """Return the rows that `index` selects."""
        return CellRows._make(x.take(index) if isinstance(x, SlotPlace) else x[index] for x in self)

    def for_all_ranks(self, carry: Translations) -> "CellRows":
        """Return the rows of all ranks, made from rows of rank 0 by translation."""
        rows = self.take(np.repeat(np.arange(len(self.src)), carry.n_ranks))
        by = np.tile(np.arange(carry.n_ranks), len(self.src))
        src, dst, slot = carry.rank(rows.src, by), carry.rank(rows.dst, by), carry.slot(rows.slot, by)
        read, write = rows.read * carry.n_ranks + src, rows.write * carry.n_ranks + dst
        return rows._replace(src=src, dst=dst, slot=slot, written=slot, read=read, write=write)


@dataclass(frozen=True, eq=False, slots=True)
class Cells:
    """The cells of a schedule, each a slot of a participant, and the rows that read and write them.

    They are those of all participants, or those of rank 0 with the translations that give the others.
    """

    schedule: Schedule
    layout: SlotLayout
    round: I32  # [S] the round of each row
    read: I64  # [S] the number of the cell
    write: I64  # [S] the number of the cell
    first: I64  # [cells] the round that first writes each cell; the number of rounds: none does
    home: SlotPlace  # [cells] the place of the written value
    stay: tuple[I64, I64]  # rank and slot of the cells that are had, wanted and never written
    scratch: I64  # [P] elements that each participant needs
    here: Bool  # [P] the participants that are in this process
    name: str  # the operation's name

    @staticmethod
    def of(schedule: Schedule, operation: Operation, layout: SlotLayout, carry: Translations | None, here: Bool) -> "Cells":
        """Return the cells of this process's participants, or those of rank 0 if translations give the rows of the others."""
        counted = here if carry is None else np.arange(len(here)) == 0
        stay = _cells_to_copy(operation, schedule.n_slots // max(1, operation.n_blocks), counted)
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

    def rows(self, at: slice) -> CellRows:
        """Return the rows between two indices.

        Raises:
            ProofError: a row reads an empty slot, or adds to an empty slot of a rank.
        """
        s = self.schedule
        names = (s.src, s.dst, s.slot, s.written_slot, s.channel)
        src, dst, slot, written, channel = (c[at].astype(np.int64) for c in names)
        read, write, now = self.read[at], self.write[at], self.round[at].astype(np.int64)
        before, after = self.first[write] < now, self.first[read] < now
        adds, own = s.reduce[at], self._memory_read(write, before, dst, written)
        holds = before | self.layout.has(dst, written)
        own = SlotPlace(np.where(adds & holds, own.region, NOWHERE), own.offset)
        source = self._memory_read(read, after, src, slot)
        home = SlotPlace(self.home.region[write], self.home.offset[write])
        rows = CellRows(now, src, dst, slot, written, channel, adds, read, write, source, own, home)
        self._refuse_nothing(rows, np.flatnonzero(~after & self.here[src]), adds & ~holds & self.here[dst])
        return rows

    def _refuse_nothing(self, rows: CellRows, unwritten: I64, alone: Bool) -> None:
        """Raise an error if a row reads a slot that is empty, or adds to a slot that is empty on a rank.

        A helper may add to an empty slot, because it has no data at the start.

        Args:
            rows: The rows to check.
            unwritten: The indices of rows that read a cell which no earlier row has written; it is empty unless the rank has
                that slot from the start.
            alone: [rows] True for rows that add to an empty cell.

        Raises:
            ProofError: There is such a row.
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

    def _memory_read(self, cell: I64, written: Bool, rank: I64, slot: I64) -> SlotPlace:
        """Return the memory from which cells are read: where the slot stays once it is written, else the input."""
        given = self.layout.input_places(rank, slot)
        return SlotPlace(
            np.where(written, self.home.region[cell], INPUT), np.where(written, self.home.offset[cell], given.offset)
        )


def _key(rank: I32 | I64, slot: I32 | I64, n_names: int, carry: Translations | None) -> I64:
    """Return a key for each cell, equal for cells that translations map to one another: the slot, with the rank mapped to 0."""
    if carry is None:
        return rank.astype(np.int64) * n_names + slot
    return carry.slot(slot, carry.opposite(rank))


def _cells_to_copy(operation: Operation, parts: int, counted: Bool) -> tuple[I64, I64]:
    """Return the rank and slot of the cells that their rank both has at the start and wants at the end."""
    sides = (pairs[counted[pairs[:, 0]]].astype(np.int64) for pairs in (operation.have, operation.want))
    has, wants = (pairs[:, 0] * operation.n_blocks + pairs[:, 1] for pairs in sides)
    rank, block = np.divmod(np.intersect1d(has, wants, assume_unique=True), operation.n_blocks)
    return np.repeat(rank, parts), (block[:, None] * parts + np.arange(parts)).ravel()


def _homes(
    schedule: Schedule, layout: SlotLayout, carry: Translations | None, here: Bool, write: I64, n_cells: int
) -> tuple[SlotPlace, I64]:
    """Return where each written cell stays (output or scratch), and [P] the scratch elements of each participant."""
    dst, slot = schedule.dst.astype(np.int64), schedule.written_slot.astype(np.int64)
    home = SlotPlace(np.full(n_cells, OUTPUT), np.zeros(n_cells, np.int64))
    home.offset[write] = layout.output_places(dst, slot).offset
    spare = np.flatnonzero(here[dst] & ~layout.wants(dst, slot))
    cell, row = np.unique(write[spare], return_index=True)
    owner, size = dst[spare][row], layout.count[slot[spare][row]]
    if carry is not None:  # rank 0 stands for all ranks, and each needs the most that any of them does
        rest = carry.n_slots // carry.n_ranks**carry.slot_digits
        owner, size = owner * 0, layout.count.reshape(-1, rest).max(axis=0)[slot[spare][row] % rest]
    width = np.bincount(owner, size, schedule.n_participants).astype(np.int64)
    home.region[cell] = SCRATCH
    home.offset[cell] = np.cumsum(size) - size - (np.cumsum(width) - width)[owner]
    return home, width if carry is None else np.full_like(width, width[0])
