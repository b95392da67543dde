"""The cells that a proof checks, in batches of a few slots, so that memory stays bounded.

A *cell* is one slot at one participant. A *contribution* is the value that one rank has of one slot at the start. Slots do not
depend on one another unless a row renames one. A *group* is the slots that renaming joins, and it is never divided between
batches. Letters: K slots and spare slots, P participants.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from emu.arrays import I32, I64, ramps, slices
from emu.collective.operation import Operation
from emu.collective.schedule import Schedule
from emu.equivalence import components

_STATE_BYTES = 2**24  # state of one batch, about: a larger batch misses the cache, a smaller one means more passes
_DENSE = 4  # up to this many cells for each access, every (slot, participant) gets a cell, whether it is used or not


@dataclass(frozen=True, eq=False, slots=True)
class CellValues:
    """The cells in which given slots have values at given ranks, in ascending order of slot."""

    cell: I64
    slot: I64  # index within the batch
    rank: I64


@dataclass(frozen=True, eq=False, slots=True)
class SlotBatch:
    """One batch of a schedule's slots, with all their rows, contributions and wanted values.

    A cell is a slot of a participant; the cells of a batch are numbered from 0. `given` are the cells that have a value at the
    start.
    """

    slots: I64  # [k] their numbers in the schedule
    group: I64  # [k] equal for slots that renaming ties together
    n_cells: int
    given: CellValues
    bit: I64  # [given] number of each contribution within its group
    wanted: CellValues
    rows: I64  # [s] indices into the schedule's rows, ascending
    round_end: I64  # end of each round that touches the batch, as an index into `rows`
    source: I64  # [s] cell that each row reads
    target: I64  # [s] cell that each row writes


def slot_batches(schedule: Schedule, operation: Operation) -> Iterator[SlotBatch]:
    """Yield the batches of slots of a schedule that has every row stored."""
    cutter = _Cutter.of(schedule, operation)
    edges = cutter.edges()
    for (low, high), rows in zip(pairwise(edges.tolist()), cutter.rows_between(edges), strict=True):
        yield cutter.piece(low, high, rows)


_Holders = tuple[I64, I64]  # [B + 2] where the ranks of each block begin, the last standing for the spare slots; the ranks


def _holders(pairs: I32, n_blocks: int) -> _Holders:
    """Return the ranks that have (or want) each block, in compressed rows, from pairs (rank, block)."""
    counts = np.bincount(pairs[:, 1], minlength=n_blocks + 1)
    order = np.argsort(pairs[:, 1], kind="stable")
    return np.concatenate(([0], np.cumsum(counts))), pairs[order, 0].astype(np.int64)


def _ranks_of(block: I64, holders: _Holders) -> tuple[I64, I64]:
    """Return the holders of the given blocks.

    Returns:
        For every holder of every block, the index of the block in `block`, and the rank of the holder.
    """
    start, rank = holders
    count = np.diff(start)[block]
    return np.repeat(np.arange(len(block)), count), rank[ramps(start[block], count)]


@dataclass(frozen=True, eq=False, slots=True)
class _Cutter:
    """A schedule whose slots are sorted by group, from which batches are cut."""

    schedule: Schedule
    order: I64  # [K] the slots in that order
    position: I64  # [K] position of each slot in that order
    group: I64  # [K] group of each slot, in that order
    block: I64  # [K] block of each slot, in that order
    have: _Holders
    want: _Holders

    @staticmethod
    def of(schedule: Schedule, operation: Operation) -> "_Cutter":
        """Return the object that cuts the slots of a schedule into batches of cells."""
        tied = schedule.slot[:0] if schedule.dst_slot is None else schedule.slot
        group = components(schedule.n_slots + len(schedule.temps), tied, schedule.written_slot[: len(tied)])
        order = np.argsort(group, kind="stable")
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        parts = max(1, schedule.n_slots // operation.n_blocks)
        block = np.minimum(order // parts, operation.n_blocks)
        have, want = (_holders(p, operation.n_blocks) for p in (operation.have, operation.want))
        return _Cutter(schedule, order, position, group[order], block, have, want)

    def edges(self) -> I64:
        """Return the positions in the order of slots at which batches begin and end."""
        border = np.flatnonzero(np.diff(self.group, prepend=-1))
        holders = int(np.diff(self.have[0]).max(initial=0))
        touched = min(self.schedule.n_participants, holders + 1 + 2 * self.schedule.n_rows // max(1, len(self.order)))
        words = 2 + holders * int(np.diff(border, append=len(self.order)).max(initial=1)) // 64
        most = max(1, _STATE_BYTES // (8 * words * touched))
        return np.append(border[np.flatnonzero(np.diff(border // most, prepend=-1))], len(self.order))

    def rows_between(self, edges: I64) -> Iterator[I64]:
        """Return an iterator over the rows of each batch, in ascending order.

        Args:
            edges: The positions at which batches begin and end.
        """
        number = (np.searchsorted(edges, self.position, "right") - 1).astype(np.min_scalar_type(len(edges)))
        of_row = number[self.schedule.slot]
        order = np.argsort(of_row, kind="stable")
        return (order[rows] for rows in slices(np.cumsum(np.bincount(of_row, minlength=len(edges) - 1))))

    def piece(self, low: int, high: int, rows: I64) -> SlotBatch:
        """Return the batch of the slots from position `low` to before `high`.

        Args:
            low: The position of its first slot.
            high: The position after its last slot.
            rows: Its rows.
        """
        people = self.schedule.n_participants
        (given_slot, given_rank), (want_slot, want_rank) = (
            _ranks_of(self.block[low:high], holders) for holders in (self.have, self.want)
        )
        keys = (
            given_slot * people + given_rank,
            want_slot * people + want_rank,
            (self.position[self.schedule.slot[rows]] - low) * people + self.schedule.src[rows],
            (self.position[self.schedule.written_slot[rows]] - low) * people + self.schedule.dst[rows],
        )
        n_cells, (given, wanted, source, target) = number_cells(keys, (high - low) * people)
        ends = np.searchsorted(rows, self.schedule.round_end)
        return SlotBatch(
            self.order[low:high],
            self.group[low:high],
            n_cells,
            CellValues(given, given_slot, given_rank),
            count_within(self.group[low:high][given_slot]),
            CellValues(wanted, want_slot, want_rank),
            rows,
            ends[np.diff(ends, prepend=0) > 0],
            source,
            target,
        )


def count_within(group: I64) -> I64:
    """Return the number of each member within its run of equal groups, counted from 0."""
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    return np.arange(len(group)) - np.repeat(starts, np.diff(starts, append=len(group)))


def number_cells(keys: tuple[I64, ...], dense: int) -> tuple[int, list[I64]]:
    """Return the number of cells, and the cell of each key.

    The cell is the key itself, unless most of the possible keys would be unused. Cells ascend as keys do.

    Args:
        keys: Arrays of keys (slot times participants, plus participant).
        dense: The number of possible keys.
    """
    if dense <= _DENSE * sum(map(len, keys)):
        return dense, list(keys)
    found, cell = np.unique(np.concatenate(keys), return_inverse=True)
    return len(found), np.split(cell, np.cumsum([len(k) for k in keys[:-1]]))
