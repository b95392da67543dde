"""What crosses the wire in each round: where each message leaves from, and where it lands.

A message is received while the round before runs: straight where it shall be, if all of it is copied to one stretch of
memory that nothing under way needs, else in an inbox, of which there are two in turn.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.backend.executor.layout import INBOXES, Addressing, Layout


class Rows(NamedTuple):
    """Rows of one round, and where they read and write."""

    src: I64
    dst: I64
    slot: I64
    written: I64
    reduce: I64

    def take(self, index: I64 | Bool) -> "Rows":
        """Some of them."""
        return Rows._make(c[index] for c in self)


class Transfer(NamedTuple):
    """A message between a rank here and one elsewhere: pieces of memory, one after another on the wire."""

    here: int
    peer: int
    channel: int
    pieces: tuple[tuple[int, int, int], ...]  # (memory, address, count); what is received fills one alone


class Crossed(NamedTuple):
    """The messages of one round, and what they are to its rows."""

    sends: tuple[Transfer, ...]
    receives: tuple[Transfer, ...]
    memory: I64  # of the source of each row, an inbox if it comes from elsewhere
    address: I64
    landed: Bool  # which rows are where they shall be as soon as they arrive
    overwrites: bool  # do the other rows write what the sends read


class Crossing:
    """Meets the rounds in order.

    Args:
        layout: Where each slot lives.
        where: The same in memory.
        is_here: [P] which participants are in this process.
        written: The cells (participant * names + slot) that are written before the first round.
    """

    def __init__(self, layout: Layout, where: Addressing, is_here: Bool, written: I64) -> None:
        self.layout, self.where, self.is_here = layout, where, is_here
        self.inbox_counts = [0] * len(INBOXES)
        self._turn = 0
        self._read, self._written = deque([written[:0]], maxlen=2), written  # of the rounds before

    def cross(self, rows: Rows, channel: I64, memory: I64, address: I64) -> Crossed:
        """The next round, whose rows read at those addresses; they come sorted, so those of one message are neighbours."""
        if len(rows.src) == 0 or self.is_here.all():
            return Crossed((), (), memory, address, np.zeros(len(rows.src), np.bool_), False)
        coming, leaving = ~self.is_here[rows.src], ~self.is_here[rows.dst]
        read, written = self._cell(rows.src, rows.slot), self._cell(rows.dst, rows.written)
        sends = self._transfers(rows.take(leaving), channel[leaving], memory[leaving], address[leaving], outgoing=True)
        home = self.where.at(rows.dst, self.layout.place(rows.dst, rows.written))
        landed = self._lands(rows, channel, home, read[~coming])
        boxed = coming & ~landed
        memory, address = np.where(landed, home[0], memory), np.where(landed, home[1], address)
        memory[boxed], address[boxed] = INBOXES[self._turn], self._box(rows.slot[boxed])
        receives = self._transfers(rows.take(coming), channel[coming], memory[coming], address[coming], outgoing=False)
        overwrites = bool(np.isin(written[~leaving & ~landed], read[leaving]).any())
        self._read.append(read[~coming])
        self._written, self._turn = written[~leaving], 1 - self._turn
        return Crossed(sends, receives, memory, address, landed, overwrites)

    def _cell(self, rank: I64, slot: I64) -> I64:
        return rank * self.layout.n_names + slot

    def _lands(self, rows: Rows, channel: I64, home: tuple[I64, I64], read: I64) -> Bool:
        """Which rows come in messages that can land at home while the round before runs."""
        cell = self._cell(rows.dst, rows.written)
        _, which, times = np.unique(cell, return_inverse=True, return_counts=True)
        busy = np.concatenate((read, *self._read, self._written))
        fit = ~self.is_here[rows.src] & (rows.reduce == 0) & (times[which] == 1) & ~np.isin(cell, busy)
        changes = np.stack((rows.src, rows.dst, channel))
        first = np.append(True, (changes[:, 1:] != changes[:, :-1]).any(axis=0))
        memory, address = home
        count = self.layout.count[rows.slot]
        follows = np.append(True, (memory[1:] == memory[:-1]) & (address[1:] == address[:-1] + count[:-1]))
        message = np.cumsum(first) - 1
        lands: Bool = np.logical_and.reduceat(fit & (first | follows), np.flatnonzero(first))[message]
        return lands

    def _box(self, slot: I64) -> I64:
        """Addresses in the inbox, one after another."""
        counts = self.layout.count[slot]
        self.inbox_counts[self._turn] = max(self.inbox_counts[self._turn], int(counts.sum()))
        return np.cumsum(counts) - counts

    def _transfers(self, t: Rows, channel: I64, memory: I64, address: I64, *, outgoing: bool) -> tuple[Transfer, ...]:
        """The messages of these rows; neighbours in memory are one piece."""
        ends = (t.src, t.dst) if outgoing else (t.dst, t.src)
        found: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}
        table = np.stack((*ends, channel, memory, address, self.layout.count[t.slot]), axis=-1)
        for *key, where, at, count in table.tolist():
            pieces = found.setdefault(tuple(key), [])
            if pieces and pieces[-1][0] == where and pieces[-1][1] + pieces[-1][2] == at:
                pieces[-1] = (where, pieces[-1][1], pieces[-1][2] + count)
            else:
                pieces.append((where, at, count))
        return tuple(Transfer(here, peer, lane, tuple(pieces)) for (here, peer, lane), pieces in found.items())
