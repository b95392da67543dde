"""What a proof walks over: the (slot, participant) cells that a schedule touches, some slots at a time.

Slots are independent of one another unless a row renames one, so that a few of them at a time bound the memory. A
*contribution* is the value that one rank has of one slot at the start. K slots and spare slots, P participants.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from emu.arrays import I32, I64
from emu.collective.operation import Operation
from emu.collective.schedule import Schedule

_STATE_BYTES = 2**24  # of one piece, about; more is slower (cache), less has more passes over the rounds
_DENSE = 4  # cells an access, up to which every (slot, participant) gets one, touched or not


@dataclass(frozen=True, eq=False, slots=True)
class Values:
    """Values of some slots at some ranks, in ascending order of slot."""

    cell: I64
    slot: I64  # within the piece
    rank: I64


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """Some slots of a schedule, with every row, every contribution and every wanted value of theirs."""

    slots: I64  # [k] their names
    group: I64  # [k] equal for those that renaming ties together
    n_cells: int
    given: Values
    bit: I64  # [given] of each contribution: its number among those of its group
    wanted: Values
    rows: I64  # [s] which of the schedule's, ascending
    round_end: I64  # of the rounds that touch the piece, as indices into `rows`
    source: I64  # [s] cell
    target: I64  # [s] cell

    def rounds(self) -> list[slice]:
        """The rows of each round, as indices into `rows`."""
        return [slice(low, high) for low, high in pairwise([0, *self.round_end.tolist()])]


def pieces(schedule: Schedule, operation: Operation) -> Iterator[Piece]:
    """Cut a schedule, with every row stored, into pieces of few enough slots."""
    cutter = _Cutter.of(schedule, operation)
    edges = cutter.edges()
    for (low, high), rows in zip(pairwise(edges.tolist()), cutter.rows_between(edges), strict=True):
        yield cutter.piece(low, high, rows)


@dataclass(frozen=True, eq=False, slots=True)
class _Holders:
    """The ranks that have (or want) each block, as CSR."""

    start: I64  # [B + 2] the last block is that of the spare slots, which nobody has or wants
    rank: I64

    @staticmethod
    def of(pairs: I32, n_blocks: int) -> "_Holders":
        counts = np.bincount(pairs[:, 1], minlength=n_blocks + 1)
        order = np.argsort(pairs[:, 1], kind="stable")
        return _Holders(np.concatenate(([0], np.cumsum(counts))), pairs[order, 0].astype(np.int64))

    def of_blocks(self, block: I64) -> tuple[I64, I64]:
        """Index into `block` and rank of each holder of each."""
        start, count = self.start[block], np.diff(self.start)[block]
        index = np.repeat(np.arange(len(block)), count)
        return index, self.rank[np.arange(len(index)) + (start - np.cumsum(count) + count)[index]]


@dataclass(frozen=True, eq=False, slots=True)
class _Cutter:
    """A schedule with its slots in an order in which those that renaming ties together are neighbours."""

    schedule: Schedule
    order: I64  # [K] slots
    position: I64  # [K] of each slot in that order
    group: I64  # [K] in that order
    block: I64  # [K] in that order
    have: _Holders
    want: _Holders

    @staticmethod
    def of(schedule: Schedule, operation: Operation) -> "_Cutter":
        group = _groups(schedule)
        order = np.argsort(group, kind="stable")
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        parts = max(1, schedule.n_slots // operation.n_blocks)
        block = np.minimum(order // parts, operation.n_blocks)
        have, want = (_Holders.of(p, operation.n_blocks) for p in (operation.have, operation.want))
        return _Cutter(schedule, order, position, group[order], block, have, want)

    def edges(self) -> I64:
        """Positions at which to cut; groups stay whole."""
        border = np.flatnonzero(np.diff(self.group, prepend=-1))
        holders = int(np.diff(self.have.start).max(initial=0))
        touched = min(self.schedule.n_participants, holders + 1 + 2 * self.schedule.n_rows // max(1, len(self.order)))
        words = 2 + holders * int(np.diff(border, append=len(self.order)).max(initial=1)) // 64
        most = max(1, _STATE_BYTES // (8 * words * touched))
        return np.append(border[np.flatnonzero(np.diff(border // most, prepend=-1))], len(self.order))

    def rows_between(self, edges: I64) -> Iterator[I64]:
        """The rows of each piece, ascending."""
        number = (np.searchsorted(edges, self.position, "right") - 1).astype(np.min_scalar_type(len(edges)))
        of_row = number[self.schedule.slot]
        order = np.argsort(of_row, kind="stable")
        ends = np.cumsum(np.bincount(of_row, minlength=len(edges) - 1))
        return (order[low:high] for low, high in pairwise([0, *ends.tolist()]))

    def piece(self, low: int, high: int, rows: I64) -> Piece:
        """The slots at those positions, with these rows."""
        people = self.schedule.n_participants
        (given_slot, given_rank), (want_slot, want_rank) = (
            holders.of_blocks(self.block[low:high]) for holders in (self.have, self.want)
        )
        keys = (
            given_slot * people + given_rank,
            want_slot * people + want_rank,
            (self.position[self.schedule.slot[rows]] - low) * people + self.schedule.src[rows],
            (self.position[self.schedule.written_slot[rows]] - low) * people + self.schedule.dst[rows],
        )
        n_cells, (given, wanted, source, target) = numbered(keys, (high - low) * people)
        ends = np.searchsorted(rows, self.schedule.round_end)
        return Piece(
            self.order[low:high],
            self.group[low:high],
            n_cells,
            Values(given, given_slot, given_rank),
            count_within(self.group[low:high][given_slot]),
            Values(wanted, want_slot, want_rank),
            rows,
            ends[np.diff(ends, prepend=0) > 0],
            source,
            target,
        )


def _groups(schedule: Schedule) -> I64:
    """[K] the least slot that each one's value may come from or go to: itself, where nothing is renamed."""
    group = np.arange(schedule.n_slots + len(schedule.temps))
    while schedule.dst_slot is not None:
        low = np.minimum(group[schedule.slot], group[schedule.dst_slot])
        if np.array_equal(low, group[schedule.slot]) and np.array_equal(low, group[schedule.dst_slot]):
            break
        np.minimum.at(group, schedule.slot, low)
        np.minimum.at(group, schedule.dst_slot, low)
        group = group[group]
    return group


def count_within(group: I64) -> I64:
    """0, 1, 2, ... within each run of equal groups."""
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    return np.arange(len(group)) - np.repeat(starts, np.diff(starts, append=len(group)))


def numbered(keys: tuple[I64, ...], dense: int) -> tuple[int, list[I64]]:
    """How many cells, and the number of each key's: the key itself, unless most of the `dense` ones would lie idle.

    Numbers ascend as keys do.
    """
    if dense <= _DENSE * sum(map(len, keys)):
        return dense, list(keys)
    found, cell = np.unique(np.concatenate(keys), return_inverse=True)
    return len(found), np.split(cell, np.cumsum([len(k) for k in keys[:-1]]))
