"""Who sends which slot to whom, in which round: no bytes, no times, no tensors.

S rows, N ranks, K slots, T rounds.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I16, I32, I64, Bool, column, digest
from emu.collective.translation import Translations
from emu.errors import InputError

MAX_ROWS = 2**24
_INT16, _INT32 = 2**15, 2**31
_TRANSLATED = 2**18  # rows that are translated at a time


class RowsError(InputError):
    """A schedule that memory should not hold."""


@dataclass(frozen=True, slots=True)
class Sends:
    """Some rows of one round; every column is broadcast against the others."""

    src: ArrayLike
    dst: ArrayLike
    slot: ArrayLike
    reduce: ArrayLike = False
    channel: ArrayLike = 0
    dst_slot: ArrayLike | None = None

    def table(self) -> I64:
        """[6, rows] src, dst, slot, reduce, channel, dst_slot.

        Raises:
            InputError: a column of other than whole numbers.
        """
        renamed = self.slot if self.dst_slot is None else self.dst_slot
        given = (self.src, self.dst, self.slot, self.reduce, self.channel, renamed)
        table = np.empty((6, *np.broadcast(*given).shape), np.int64)
        for i, values in enumerate(map(np.asarray, given)):
            if values.size and values.dtype.kind not in "iub":
                raise InputError(f"schedule: rows must name whole numbers, got {values.dtype} {values.flat[0]}")
            table[i] = values
        return table.reshape(6, -1)


@dataclass(frozen=True, eq=False, slots=True)
class Schedule:
    """A collective, written once.

    Slot: a global name; the same data under the same name on every rank. Slots are independent of one another.
    Round: an order, not a barrier. All reads of a round come before all its writes.
    Write: reduce=False overwrites. reduce=True adds; the adds of one round to one slot fold in ascending rank, the
        receiver's own value at its own rank's place, so that every rank gets the same bits. Two writes to one (rank, slot)
        in one round are an error unless all add.
    Empty slot: one that its participant neither has at the start nor was sent. Reading it is an error, and so is adding to
        it on a rank, whose memory holds whatever was there: the first write is a copy. A helper's slots begin at zero.
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
    helpers: int = 0  # participants that have nothing and may add to it, such as a switch that adds
    temps: tuple[int, ...] = ()  # slot K + i is a spare one of the size of slot temps[i], empty at the start
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
            InputError: a participant, slot or channel out of range, a rank that sends a slot to itself, shares or spare
                slots that fit no slot, translations that do not map it on itself, or more than 2**24 rows (with
                translations only those of rank 0 are stored).
        """
        if n_slots + len(temps) > _INT32:
            raise InputError(f"schedule: {n_slots} slots and {len(temps)} spare ones, at most 2**31")
        tables = _gather(rounds)
        ends = np.cumsum([t.shape[1] for t in tables], dtype=np.int64)
        src, dst, slot, reduce, channel, dst_slot = _joined(tables)
        schedule = Schedule(
            n_ranks,
            n_slots,
            column(ends, np.int64),
            column(src, np.int32),
            column(dst, np.int32),
            column(slot, np.int32),
            column(reduce, np.bool_),
            column(channel, np.int16),
            None if np.array_equal(slot, dst_slot) else column(dst_slot, np.int32),
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
    def n_rows_of_all(self) -> int:
        """Rows of all ranks, as `expand` would store them."""
        return self.n_rows * (self.n_ranks if self.translate else 1)

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

        Raises:
            RowsError: it would have more than 2**24.
        """
        if not self.translate:
            return self
        rows = self.n_rows_of_all
        if rows > MAX_ROWS:
            raise RowsError(f"schedule: {rows} rows of all {self.n_ranks} ranks, at most 2**24 can be stored; take fewer ranks")
        return Schedule.build(self.n_ranks, self.n_slots, self._everywhere(), shares=self.shares, helpers=self.helpers)

    @property
    def translations(self) -> Translations:
        """Those that are declared."""
        return Translations(self.translate, self.n_slots, self.slot_digits)

    def _everywhere(self) -> Iterator[Sends]:
        """The rounds of all ranks; many small ones are translated together."""
        src, moves = np.arange(self.n_ranks)[:, None], self.translations
        low = high = 0
        for rows in self.rounds():
            if rows.stop > high:
                low, high = rows.start, max(rows.stop, rows.start + _TRANSLATED // self.n_ranks)
                dst, slot = moves.rank(self.dst[low:high], src), moves.slot(self.slot[low:high], src)
            own = np.s_[:, rows.start - low : rows.stop - low]
            yield Sends(src, dst[own], slot[own], self.reduce[rows], self.channel[rows])

    def check(self) -> None:
        """Refuse what is no schedule at all (whether it does its operation is for the proof to say).

        Raises:
            InputError: see `build`.
        """
        check_rows(self.n_rows)
        names = self.n_slots + len(self.temps)
        ranges = (
            (self.src, self.n_participants, "participant"),
            (self.dst, self.n_participants, "participant"),
            (self.slot, names, "slot"),
            (self.written_slot, names, "slot"),
            (self.channel, _INT16, "channel"),
        )
        for values, end, what in ranges:
            _check_range(values, end, what)
        to_itself = np.flatnonzero((self.src == self.dst) & (self.slot == self.written_slot))
        if len(to_itself):
            row = to_itself[0]
            raise InputError(f"schedule: row {row} sends slot {self.slot[row]} from rank {self.src[row]} to itself")
        self._check_parts()
        self._check_translation()

    def _check_parts(self) -> None:
        parts = max(1, len(self.shares))
        if any(s < 0 for s in self.shares) or (self.shares and not sum(self.shares)) or self.n_slots % parts:
            raise InputError(f"schedule: shares {self.shares} do not cut {self.n_slots} slots into parts")
        if any(not 0 <= t < self.n_slots for t in self.temps):
            raise InputError(f"schedule: spare slots {self.temps} are copies of slots that must be 0..{self.n_slots - 1}")

    def _check_translation(self) -> None:
        if not self.translate:
            return
        if prod(self.translate) != self.n_ranks or self.n_slots % self.n_ranks**self.slot_digits:
            raise InputError(f"schedule: translations {self.translate} do not map {self.n_ranks} ranks and their slots")
        if self.helpers or self.temps or self.dst_slot is not None:
            raise InputError("schedule: translations move neither helpers nor renamed slots; store every row")
        if self.src.any():
            raise InputError("schedule: with declared translations only the rows of rank 0 are stored")

    def digest(self) -> str:
        """Equal schedules have equal digests."""
        return digest(getattr(self, name) for name in self.__slots__)


def _gather(rounds: Iterable[Sends | Iterable[Sends]]) -> list[I32]:
    """The sorted table of each round that has rows."""
    tables, total = [], 0
    for sends in rounds:
        several = [s.table() for s in ((sends,) if isinstance(sends, Sends) else sends)]
        table = several[0] if len(several) == 1 else np.concatenate([np.empty((6, 0), np.int64), *several], axis=1)
        total += table.shape[1]
        check_rows(total)
        if table.size:
            tables.append(_sorted(_narrowed(table)))
    return tables


def _joined(tables: list[I32]) -> list[I32]:
    """The six columns; one after another, so that only one of them is held twice."""
    return [np.concatenate([np.empty(0, np.int32), *(t[i] for t in tables)]) for i in range(6)]


def _narrowed(table: I64) -> I32:
    """The same as int32: what does not fit would otherwise wrap into range unseen."""
    if table.min() < 0 or table.max() >= _INT32 or table[4].max() >= _INT16:
        raise InputError(
            f"schedule: rows name numbers {table.min()}..{table.max()} and channels to {table[4].max()}; participants and "
            "slots must be 0..2**31 - 1, channels 0..2**15 - 1"
        )
    return table.astype(np.int32)


def _sorted(table: I32) -> I32:
    """The columns of one round by (src, dst, channel, slot, dst_slot); most builders give them so already."""
    src, dst, slot, _, channel, dst_slot = table
    if (src[1:] > src[:-1]).all():
        return table
    pair = (src.astype(np.int64) << 31) | dst
    if (pair[1:] > pair[:-1]).all():
        return table
    item = (channel.astype(np.int64) << 31) | slot
    follows = (pair[1:] > pair[:-1]) | ((pair[1:] == pair[:-1]) & (item[1:] > item[:-1]))
    if follows.all():
        return table
    return table[:, np.lexsort((dst_slot, item, pair))]


def _check_range(values: I32 | I16, end: int, what: str) -> None:
    if len(values) and not 0 <= values.min() <= values.max() < end:
        row = int(np.flatnonzero((values < 0) | (values >= end))[0])
        raise InputError(f"schedule: row {row} names {what} {values[row]}, it must be 0..{end - 1}")


def check_rows(rows: int) -> None:
    """Refuse as many rows, before a builder makes arrays as long.

    Raises:
        RowsError: more than 2**24.
    """
    if rows > MAX_ROWS:
        raise RowsError(f"schedule: {rows} rows or more, at most 2**24; declare translations and store the rows of rank 0")
