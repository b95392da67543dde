"""Who sends which slot to whom, in which round: no bytes, no times, no tensors.

S rows, N ranks, K slots, T rounds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I16, I32, I64, Bool, column, digest
from emu.errors import InputError

MAX_ROWS = 2**24


@dataclass(frozen=True, slots=True)
class Sends:
    """Some rows of one round; every column is broadcast against the others."""

    src: ArrayLike
    dst: ArrayLike
    slot: ArrayLike
    reduce: ArrayLike = False
    channel: ArrayLike = 0
    dst_slot: ArrayLike | None = None

    def columns(self) -> list[I64]:
        """src, dst, slot, reduce, channel, dst_slot, flat and equally long."""
        given = (self.src, self.dst, self.slot, self.reduce, self.channel)
        return [a.ravel() for a in np.broadcast_arrays(*map(_int64, given), _int64(self.renamed))]

    @property
    def renamed(self) -> ArrayLike:
        """The slot under which the receiver files each row."""
        return self.slot if self.dst_slot is None else self.dst_slot


def _int64(values: ArrayLike) -> I64:
    return np.asarray(values, dtype=np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class Schedule:
    """A collective, written once.

    Slot: a global name; the same data under the same name on every rank. Slots are independent of one another.
    Round: an order, not a barrier. All reads of a round come before all its writes.
    Write: reduce=False overwrites. reduce=True adds; the adds of one round to one slot fold in ascending rank, the
        receiver's own value at its own rank's place, so that every rank gets the same bits. Adding to an empty slot
        stores; reading an empty slot is an error. Two writes to one (rank, slot) in one round are an error unless all add.
    Message: the rows of one (round, src, dst, channel). It waits for all its slots and arrives whole, in ascending slot
        order. Slots of zero bytes are dropped first; an empty message does not exist.
    Waits for: delivery of every earlier-round write of its slots at src; at dst, bodies of earlier-round reads left and
        earlier overwrites delivered (an overwrite: all earlier writes); bodies of all messages of the same (src, channel)
        in earlier rounds left. Nothing of its own round: so the graph is acyclic.
    Local row (src == dst, dst_slot != slot): a copy or add inside a rank; no message.

    Rows are ordered by (round, src, dst, channel, slot), so that messages are one `diff`.
    """

    n_ranks: int
    n_slots: int  # K = blocks of the operation x parts; slot = block * parts + part
    round_end: I64  # [T] the row index at which each round ends
    src: I32  # [S] participants; those >= n_ranks are helpers
    dst: I32  # [S]
    slot: I32  # [S]
    reduce: Bool  # [S]
    channel: I16  # [S] an in-order queue of src, independent of its others; also the hint for the route
    dst_slot: I32 | None = None  # [S] where the receiver files it; None: under the same name (only imports differ)
    shares: tuple[int, ...] = ()  # of the parts of a block; () = equal
    helpers: int = 0  # participants that start empty, such as a switch that adds
    temps: tuple[int, ...] = ()  # slot K + i is a spare copy of slot temps[i]
    translate: tuple[int, ...] = ()  # dims whose translations map it on itself: only the rows of src 0 are stored
    slot_digits: int = 1  # with translate: how many leading base-N digits of a slot are ranks (2 for all_to_all)

    @staticmethod
    def build(
        n_ranks: int,
        n_slots: int,
        rounds: Iterable[Sends | Iterable[Sends]],
        *,
        shares: Sequence[int] = (),
        helpers: int = 0,
        temps: Sequence[int] = (),
        translate: Sequence[int] = (),
        slot_digits: int = 1,
    ) -> "Schedule":
        """A schedule from its rounds in order; each is one `Sends` or several, in any row order.

        Raises:
            InputError: a participant or slot out of range, a rank that sends to itself, or too many rows (above 2**24
                only those of rank 0 may be stored, with the translations that give the rest).
        """
        tables = [_round_table(sends) for sends in rounds]
        ends = np.cumsum([len(t) for t in tables], dtype=np.int64)
        rows = np.concatenate(tables) if tables else np.empty((0, 6), np.int64)
        schedule = Schedule(
            n_ranks,
            n_slots,
            column(ends, np.int64),
            column(rows[:, 0], np.int32),
            column(rows[:, 1], np.int32),
            column(rows[:, 2], np.int32),
            column(rows[:, 3], np.bool_),
            column(rows[:, 4], np.int16),
            None if np.array_equal(rows[:, 2], rows[:, 5]) else column(rows[:, 5], np.int32),
            tuple(shares),
            helpers,
            tuple(temps),
            tuple(translate),
            slot_digits,
        )
        schedule.check()
        return schedule

    @property
    def n_rows(self) -> int:
        """S; with `translate`, the stored rows only."""
        return len(self.src)

    @property
    def n_rounds(self) -> int:
        """T."""
        return len(self.round_end)

    @property
    def n_participants(self) -> int:
        """Ranks and helpers."""
        return self.n_ranks + self.helpers

    @property
    def written_slot(self) -> I32:
        """[S] the slot that each row writes at its receiver."""
        return self.slot if self.dst_slot is None else self.dst_slot

    def rounds(self) -> list[slice]:
        """[T] the rows of each round."""
        ends = [0, *self.round_end.tolist()]
        return [slice(low, high) for low, high in pairwise(ends)]

    def round_column(self) -> I32:
        """[S] the round of each row (not stored: it would cost 4 B a row)."""
        sizes = np.diff(self.round_end, prepend=0)
        return np.repeat(np.arange(self.n_rounds, dtype=np.int32), sizes)

    def expand(self) -> "Schedule":
        """The same schedule with every row stored; itself where nothing is declared.

        A translation v of Z_dims moves rank r to r + v, digit by digit, and the rank digits of a slot likewise.
        """
        if not self.translate:
            return self
        shifts = np.stack(np.unravel_index(np.arange(self.n_ranks), self.translate), axis=-1)
        rounds = (self._translated(rows, shifts) for rows in self.rounds())
        return Schedule.build(self.n_ranks, self.n_slots, rounds, shares=self.shares, helpers=self.helpers)

    def _translated(self, rows: slice, shifts: I64) -> Sends:
        src, dst = (self._shift_rank(c[rows].astype(np.int64), shifts) for c in (self.src, self.dst))
        slot = self._shift_slot(self.slot[rows].astype(np.int64), shifts)
        return Sends(src, dst, slot, self.reduce[rows], self.channel[rows])

    def _shift_rank(self, rank: I64, shifts: I64) -> I64:
        digits = np.stack(np.unravel_index(rank, self.translate), axis=-1)
        moved = (digits[None] + shifts[:, None]) % np.array(self.translate)
        return _int64(np.ravel_multi_index(tuple(np.moveaxis(moved, -1, 0)), self.translate))

    def _shift_slot(self, slot: I64, shifts: I64) -> I64:
        rest = self.n_slots // self.n_ranks**self.slot_digits
        moved, low = _int64(slot % rest), rest
        for _ in range(self.slot_digits):
            moved = moved + self._shift_rank(slot // low % self.n_ranks, shifts) * low
            low *= self.n_ranks
        return moved

    def check(self) -> None:
        """Refuse what is no schedule at all (whether it does its operation is for the proof to say).

        Raises:
            InputError: see `build`.
        """
        ranks = _outside(self.src, self.n_participants) or _outside(self.dst, self.n_participants)
        slots = _outside(self.slot, self.n_slots + len(self.temps))
        slots = slots or _outside(self.written_slot, self.n_slots + len(self.temps))
        if ranks:
            raise InputError(f"schedule: row {ranks[0]} names participant {ranks[1]} of {self.n_participants}")
        if slots:
            raise InputError(f"schedule: row {slots[0]} names slot {slots[1]} of {self.n_slots}")
        to_itself = np.flatnonzero((self.src == self.dst) & (self.slot == self.written_slot))
        if len(to_itself):
            raise InputError(f"schedule: row {to_itself[0]} sends slot {self.slot[to_itself[0]]} from a rank to itself")
        self._check_translation()

    def _check_translation(self) -> None:
        if not self.translate:
            if self.n_rows > MAX_ROWS:
                raise InputError(f"schedule: {self.n_rows} rows, at most 2**24 without a declared translation")
            return
        if prod(self.translate) != self.n_ranks or self.n_slots % self.n_ranks**self.slot_digits or self.helpers:
            raise InputError(f"schedule: translations {self.translate} do not map {self.n_ranks} ranks and their slots")
        if self.n_rows and self.src.any():
            raise InputError("schedule: with declared translations only the rows of rank 0 are stored")

    def digest(self) -> str:
        """Equal schedules have equal digests."""
        return digest(getattr(self, name) for name in self.__slots__)


def _round_table(sends: Sends | Iterable[Sends]) -> I64:
    """[rows, 6] the rows of one round, sorted by (src, dst, channel, slot)."""
    several = (sends,) if isinstance(sends, Sends) else tuple(sends)
    if not several:
        return np.empty((0, 6), np.int64)
    src, dst, slot, reduce, channel, dst_slot = (np.concatenate(c) for c in zip(*(s.columns() for s in several), strict=True))
    order = np.lexsort((dst_slot, slot, channel, dst, src))
    return np.stack((src, dst, slot, reduce, channel, dst_slot), axis=-1)[order]


def _outside(values: I32, end: int) -> tuple[int, int] | None:
    """Index and value of the first entry outside 0..end-1."""
    if len(values) == 0 or (values.min() >= 0 and values.max() < end):
        return None
    index = int(np.flatnonzero((values < 0) | (values >= end))[0])
    return index, int(values[index])
