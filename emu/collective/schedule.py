"""The schedule: which rank sends which slot to which rank, in which round. It has no bytes, no times and no tensors.

A schedule may be given by the rows of rank 0 and the translations of a grid: translation v of Z_dims moves rank r to r + v,
digit by digit, and the digits of slots likewise. The leading base-N digits of a slot are ranks; the rest of a slot stays.
Letters: S rows, N ranks, K slots, T rounds.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I16, I32, I64, Bool, ascending, column, digest, slices
from emu.errors import InputError
from emu.notebook_view import html_of

MAX_ROWS = 2**24
_INT16, _INT32 = 2**15, 2**31
_TRANSLATED = 2**18  # rows that are translated at one time
_ROW_COLUMNS: dict[str, type[np.generic]] = {
    "round_end": np.int64,
    "src": np.int32,
    "dst": np.int32,
    "slot": np.int32,
    "reduce": np.bool_,
    "channel": np.int16,
    "dst_slot": np.int32,
}


@dataclass(frozen=True, slots=True)
class Translations:
    """The translations of a grid of ranks, and of slots whose leading digits are ranks."""

    dims: tuple[int, ...]
    n_slots: int
    slot_digits: int  # number of leading digits of a slot that are ranks

    @property
    def n_ranks(self) -> int:
        """The number of ranks, N."""
        return prod(self.dims)

    def rank(self, rank: ArrayLike, by: ArrayLike) -> I64:
        """Return the image of each rank under the translation that maps rank 0 to rank `by`.

        The two arguments are broadcast against each other.
        """
        moved, place = np.asarray(np.add(rank, by), np.int64), self.n_ranks
        for digit, step, d in zip(self._digits(rank), self._digits(by), self.dims, strict=True):
            moved = moved - (digit + step >= d) * place  # that digit turns over
            place //= d
        return np.asarray(moved)

    def slot(self, slot: ArrayLike, by: ArrayLike) -> I64:
        """Return the image of each slot under the translation that maps rank 0 to rank `by`.

        The two arguments are broadcast against each other.
        """
        rest, n = self.n_slots // self.n_ranks**self.slot_digits, self.n_ranks
        named = np.asarray(slot, np.int64)
        moved = np.asarray(named % rest + 0 * np.asarray(by))
        for place in (rest * n**i for i in range(self.slot_digits)):
            moved = moved + self.rank(named // place % n, by) * place
        return moved

    def opposite(self, rank: ArrayLike) -> I64:
        """Return, for each rank, the translation that maps it to rank 0, as the image of rank 0."""
        back = tuple(-digit % d for digit, d in zip(self._digits(rank), self.dims, strict=True))
        return np.asarray(np.ravel_multi_index(back, self.dims))

    def _digits(self, rank: ArrayLike) -> tuple[I64, ...]:
        """Return the digits of ranks over the grid, one array for each dimension."""
        return tuple(np.asarray(digit) for digit in np.unravel_index(np.asarray(rank, np.int64), self.dims))


class RowsError(InputError):
    """The error of a schedule that has more rows than memory should hold."""


@dataclass(frozen=True, slots=True)
class Sends:
    """Rows of one round as columns: source, destination, slot, channel and more, which are broadcast against one another.

    Each is a number or an array of numbers. `reduce` says whether the receiver adds the slot to what it has; without it the
    slot is copied. `dst_slot` is the slot that the receiver writes, where it is another than the one that is sent.
    """

    # As texts, so that `help` shows names rather than the union of all that NumPy takes for an array.
    src: "ArrayLike"
    dst: "ArrayLike"
    slot: "ArrayLike"
    reduce: "ArrayLike" = False
    channel: "ArrayLike" = 0
    dst_slot: "ArrayLike | None" = None

    def table(self) -> I64:
        """Return the columns src, dst, slot, reduce, channel and dst_slot as one table [6, rows].

        Raises:
            InputError: A column has values that are no whole numbers.
        """
        renamed = self.slot if self.dst_slot is None else self.dst_slot
        given = (self.src, self.dst, self.slot, self.reduce, self.channel, renamed)
        table = np.empty((6, *np.broadcast(*given).shape), np.int64)
        for i, values in enumerate(map(np.asarray, given)):
            if values.size and values.dtype.kind not in "iub":
                raise InputError(f"schedule: rows must name whole numbers, got {values.dtype} {values.flat[0]}")
            table[i] = values
        return table.reshape(6, -1)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Schedule:
    """A collective on a given number of ranks: rows, each of which sends one slot from one participant to another in one round.

    Slot: a global number; one number means the same data on every rank. Slots do not depend on one another.
    Round: an order, not a barrier. All reads of a round come before all its writes.
    Write: reduce=False overwrites. reduce=True adds; the adds of one round to one slot fold in ascending rank, the
        receiver's own value at its own rank's place, so that every rank gets the same bits. Two writes to one (rank, slot)
        in one round are an error unless all add.
    Empty slot: one that its participant neither has at the start nor was sent. Reading it is an error. Adding to it is an error
        on a rank, whose memory holds noise: the first write is a copy. A helper's slots begin at zero.
    Message: the rows of one (round, src, dst, channel). It waits for all its slots and arrives whole, in ascending slot
        order. Slots of zero bytes are dropped first; there is no empty message.
    Waits: a message waits at src for the delivery of every write of an earlier round to its slots. It waits at dst until the
        bodies of earlier reads have left and earlier overwrites are delivered (an overwrite waits for all earlier writes). It
        waits until the bodies of all messages of the same (src, channel) in earlier rounds have left. No message waits
        for one of its own round, so the graph has no cycle.
    Local row (src == dst, dst_slot != slot): a copy or an add inside a rank; no message.

    Rows are ordered by (round, src, dst, channel, slot), so that messages are one `diff`.
    """

    n_ranks: int
    n_slots: int  # K = blocks of the operation x parts; slot = block * parts + part
    round_end: I64  # [T] the row index at which each round ends
    src: I32  # [S] participants; those >= n_ranks are helpers
    dst: I32  # [S] participants that receive
    slot: I32  # [S] the slot that is sent
    reduce: Bool  # [S] whether the receiver adds
    channel: I16  # [S] an in-order queue of src, independent of its other queues; also a hint for the route
    dst_slot: I32 | None = None  # [S] the slot that the receiver writes; None: the sent slot (only imports rename slots)
    shares: tuple[int, ...] = ()  # relative sizes of the parts of a block; () means equal parts
    helpers: int = 0  # participants that start empty and may add, such as a switch that adds
    temps: tuple[int, ...] = ()  # spare slots: slot K + i has the size of slot temps[i] and is empty at the start
    translate: tuple[int, ...] = ()  # dims of a grid whose translations make the rows of all ranks from those of rank 0
    slot_digits: int = 1  # with translate: number of leading base-N digits of a slot that are ranks (2 for all_to_all)

    def __repr__(self) -> str:
        return f"<Schedule of {self.n_ranks} ranks: {self.n_rounds} rounds, {self.n_rows} slots sent>"

    def _repr_html_(self) -> str:
        """Return a picture of the schedule for a notebook, as HTML."""
        return html_of(self)

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
        """Return a schedule from its rounds in order; each round is one `Sends` or several, with rows in any order.

        Raises:
            InputError: A participant, slot or channel is out of range; a rank sends a slot to itself; shares or spare slots fit
                no slot; translations do not fit the ranks and slots; or there are more than 2**24 rows (with translations
                only the rows of rank 0 are stored).
        """
        if n_slots + len(temps) > _INT32:
            raise InputError(f"schedule: {n_slots} slots and {len(temps)} spare ones, at most 2**31")
        tables = _gather(rounds)
        rows = typed_rows(np.cumsum([t.shape[1] for t in tables], dtype=np.int64), *_join_tables(tables))
        if np.array_equal(rows["slot"], rows["dst_slot"]):
            rows["dst_slot"] = None
        parts: dict[str, Any] = {"shares": tuple(shares), "helpers": helpers, "temps": tuple(temps)}
        schedule = Schedule(n_ranks, n_slots, **rows, **parts, translate=tuple(translate), slot_digits=slot_digits)
        schedule.check()
        return schedule

    @property
    def by_rank(self) -> bool:
        """True if only the rows of rank 0 are stored, because the translations in `translate` give those of the other ranks."""
        return bool(self.translate)

    @property
    def n_rows(self) -> int:
        """The number of stored rows, S; with `translate` these are the rows of rank 0."""
        return len(self.src)

    @property
    def n_rows_of_all(self) -> int:
        """The number of rows of all ranks, as `expand` would store them."""
        return self.n_rows * (self.n_ranks if self.by_rank else 1)

    @property
    def n_rounds(self) -> int:
        """The number of rounds, T."""
        return len(self.round_end)

    @property
    def n_participants(self) -> int:
        """The number of ranks and helpers."""
        return self.n_ranks + self.helpers

    @property
    def helped(self) -> tuple[I64, ...]:
        """For each helper, the participants that send to it or that it sends to: ranks, and helpers before it."""
        src, dst = (end.astype(np.int64) for end in (self.src, self.dst))
        pairs = ascending(np.maximum(src, dst) * self.n_participants + np.minimum(src, dst)) if self.helpers else src[:0]
        helper, other = np.divmod(pairs, self.n_participants)
        starts = np.searchsorted(helper, np.arange(self.n_ranks, self.n_participants + 1))
        return tuple(other[first:end] for first, end in pairwise(starts))

    @property
    def written_slot(self) -> I32:
        """[S] the slot that each row writes at its receiver."""
        return self.slot if self.dst_slot is None else self.dst_slot

    def rounds(self) -> list[slice]:
        """Return, for each of the T rounds, the rows of the round as a slice."""
        return slices(self.round_end)

    def round_of(self, row: int) -> int:
        """Return the round of a row."""
        return int(np.searchsorted(self.round_end, row, side="right"))

    def round_column(self) -> I32:
        """Return [S] the round of each row; it is not stored, because it would take 4 bytes for each row."""
        sizes = np.diff(self.round_end, prepend=0)
        return np.repeat(np.arange(self.n_rounds, dtype=np.int32), sizes)

    def expand(self) -> "Schedule":
        """Return the schedule with every row stored; the schedule itself if it declares no translations.

        Raises:
            RowsError: The result would have more than 2**24 rows.
        """
        if not self.by_rank:
            return self
        rows = self.n_rows_of_all
        if rows > MAX_ROWS:
            raise RowsError(f"schedule: {rows} rows of all {self.n_ranks} ranks, at most 2**24 can be stored; take fewer ranks")
        return Schedule.build(self.n_ranks, self.n_slots, self._everywhere(), shares=self.shares, helpers=self.helpers)

    @property
    def translations(self) -> Translations:
        """The translations that the schedule declares: shifts of the grid of its ranks."""
        return Translations(self.translate, self.n_slots, self.slot_digits)

    def _everywhere(self) -> Iterator[Sends]:
        """Yield the rounds of all ranks; several small rounds are translated together."""
        src, translations = np.arange(self.n_ranks)[:, None], self.translations
        low = high = 0
        for rows in self.rounds():
            if rows.stop > high:
                low, high = rows.start, max(rows.stop, rows.start + _TRANSLATED // self.n_ranks)
                dst, slot = translations.rank(self.dst[low:high], src), translations.slot(self.slot[low:high], src)
            own = np.s_[:, rows.start - low : rows.stop - low]
            yield Sends(src, dst[own], slot[own], self.reduce[rows], self.channel[rows])

    def check(self) -> None:
        """Check that rows, shares and translations are consistent; `prove` checks that they do the operation.

        Raises:
            InputError: See `build`.
        """
        check_rows(self.n_rows)
        names = self.n_slots + len(self.temps)
        ranges = (
            ("src", self.src, self.n_participants),
            ("dst", self.dst, self.n_participants),
            ("slot", self.slot, names),
            ("dst_slot", self.written_slot, names),
            ("channel", self.channel, _INT16),
        )
        for field, values, end in ranges:
            self._check_range(field, values, end)
        to_itself = np.flatnonzero((self.src == self.dst) & (self.slot == self.written_slot))
        if len(to_itself):
            row = to_itself[0]
            where = f"schedule: round {self.round_of(row)}"
            raise InputError(f"{where}: rank {self.src[row]} sends slot {self.slot[row]} to itself; leave it out")
        self._check_parts()
        self._check_translation()

    def _check_range(self, field: str, values: I32 | I16, end: int) -> None:
        """Check that a column of rows is within 0..end-1."""
        if len(values) and not 0 <= values.min() <= values.max() < end:
            row = int(np.flatnonzero((values < 0) | (values >= end))[0])
            where = f"round {self.round_of(row)}, {self.src[row]}>{self.dst[row]} of slot {self.slot[row]}"
            people = f" with {self.n_ranks} ranks{f' and {self.helpers} helpers' * bool(self.helpers)}"
            allowed = f"0..{end - 1}{people if field in ('src', 'dst') else ''}"
            raise InputError(f"schedule: {where}: {field} is {values[row]}, it must be {allowed}")

    def _check_parts(self) -> None:
        """Check that the shares cut all slots into parts, and that spare slots are copies of existing slots."""
        parts = max(1, len(self.shares))
        if any(s < 0 for s in self.shares) or (self.shares and not sum(self.shares)) or self.n_slots % parts:
            raise InputError(f"schedule: shares {self.shares} do not cut {self.n_slots} slots into parts")
        if any(not 0 <= t < self.n_slots for t in self.temps):
            raise InputError(f"schedule: spare slots {self.temps} are copies of slots that must be 0..{self.n_slots - 1}")

    def _check_translation(self) -> None:
        """Check that declared translations fit the ranks and the slots, and that only the rows of rank 0 are stored."""
        if not self.by_rank:
            return
        if prod(self.translate) != self.n_ranks or self.n_slots % self.n_ranks**self.slot_digits:
            raise InputError(f"schedule: translations {self.translate} do not map {self.n_ranks} ranks and their slots")
        if self.helpers or self.temps or self.dst_slot is not None:
            raise InputError("schedule: translations move neither helpers nor renamed slots; store every row")
        if self.src.any():
            raise InputError("schedule: with declared translations only the rows of rank 0 are stored")

    def digest(self) -> str:
        """Return a hash of all columns; schedules with equal columns have equal digests."""
        return digest(getattr(self, name) for name in self.__slots__)


def typed_rows(round_end: ArrayLike, *rows: ArrayLike | None) -> dict[str, Any]:
    """Return the columns of a schedule's rows by name, each with its type.

    Args:
        round_end: The row index at which each round ends.
        rows: The columns src, dst, slot, reduce, channel and dst_slot; None for the last where no row renames a slot.
    """
    given = zip(_ROW_COLUMNS.items(), (round_end, *rows), strict=True)
    return {name: None if values is None else column(values, dtype) for (name, dtype), values in given}


def _gather(rounds: Iterable[Sends | Iterable[Sends]]) -> list[I32]:
    """Return the sorted table of each round that has rows."""
    tables, total = [], 0
    for sends in rounds:
        several = [s.table() for s in ((sends,) if isinstance(sends, Sends) else sends)]
        table = several[0] if len(several) == 1 else np.concatenate([np.empty((6, 0), np.int64), *several], axis=1)
        total += table.shape[1]
        check_rows(total)
        if table.size:
            tables.append(_sort_round(_to_int32(table)))
    return tables


def _join_tables(tables: list[I32]) -> list[I32]:
    """Return the six columns of all tables, joined one at a time to save memory."""
    return [np.concatenate([np.empty(0, np.int32), *(t[i] for t in tables)]) for i in range(6)]


def _to_int32(table: I64) -> I32:
    """Return the table as int32, after a check that every value fits."""
    if table.min() < 0 or table.max() >= _INT32 or table[4].max() >= _INT16:
        raise InputError(
            f"schedule: rows name numbers {table.min()}..{table.max()} and channels to {table[4].max()}; participants and "
            "slots must be 0..2**31 - 1, channels 0..2**15 - 1"
        )
    return table.astype(np.int32)


def _sort_round(table: I32) -> I32:
    """Return the columns of one round sorted by (src, dst, channel, slot, dst_slot); most builders give them sorted."""
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


def check_rows(rows: int) -> None:
    """Check that a schedule of `rows` rows is allowed, before arrays of that length are allocated.

    Raises:
        RowsError: There are more than 2**24.
    """
    if rows > MAX_ROWS:
        raise RowsError(f"schedule: {rows} rows or more, at most 2**24; declare translations and store the rows of rank 0")
