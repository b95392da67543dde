"""The messages of each round that cross the wire: the memory that each leaves from, and the memory in which it arrives.

A message is received while the round before runs. It goes straight to its home if all of it is copied to one range of memory
that nothing in progress needs; else it goes to an inbox, of which there are two, used in turn.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.backend.executor.schedule_cells import INBOXES, MEMORY, CellRows, SlotLayout, SlotPlace


class WireMessage(NamedTuple):
    """A message between a rank of this process and one of another: pieces of memory, one after another on the wire."""

    here: int
    peer: int
    channel: int
    pieces: tuple[tuple[int, int, int], ...]  # (memory, address, count); a received message has one piece


Messages = tuple[WireMessage, ...]


class Crossing:
    """The planner of messages over the wire; `cross` takes the rounds in order.

    Args:
        layout: The layout of slots in their regions.
        where: [regions, P] the address of each participant's region.
        is_here: [P] the participants of this process.
    """

    def __init__(self, layout: SlotLayout, where: I64, is_here: Bool) -> None:
        self.layout, self.where, self.is_here = layout, where, is_here
        self.inbox_counts = [0] * len(INBOXES)
        self._turn = 0
        nothing = np.empty(0, np.int64)
        self._read, self._written = deque([nothing], maxlen=2), nothing  # cells that the rounds before read and wrote

    def cross(self, rows: CellRows) -> tuple[Messages, Messages, CellRows, bool]:
        """Return the messages that the next round sends and receives, the rows that remain to be executed, and a flag.

        These rows write in this process and did not arrive at home; their sources may be in an inbox. The flag is True if they
        write memory that the sends read.

        Args:
            rows: The rows of the round, sorted so that the rows of one message are neighbours.
        """
        if len(rows.src) == 0:
            return (), (), rows, False
        coming, leaving = ~self.is_here[rows.src], ~self.is_here[rows.dst]
        sends = self._transfers(rows.take(leaving), rows.source.take(leaving), outgoing=True)
        lands = self._lands(rows, rows.read[~coming])
        boxed = coming & ~lands
        rows.source.region[boxed], rows.source.offset[boxed] = INBOXES[self._turn], self._box(rows.slot[boxed])
        into = SlotPlace(*(np.where(lands, *both) for both in zip(rows.home, rows.source, strict=True)))
        receives = self._transfers(rows.take(coming), into.take(coming), outgoing=False)
        overwrites = bool(np.isin(rows.write[~leaving & ~lands], rows.read[leaving]).any())
        self._read.append(rows.read[~coming])
        self._written, self._turn = rows.write[~leaving], 1 - self._turn
        return sends, receives, rows.take(~leaving & ~lands), overwrites

    def _lands(self, rows: CellRows, read: I64) -> Bool:
        """Return [rows] whether a row comes in a message that can be written straight to its home while the round before runs.

        Args:
            rows: The rows of a round.
            read: The cells that the round itself reads.
        """
        _, which, times = np.unique(rows.write, return_inverse=True, return_counts=True)
        busy = np.concatenate((read, *self._read, self._written))
        fit = ~self.is_here[rows.src] & ~rows.adds & (times[which] == 1) & ~np.isin(rows.write, busy)
        changes = np.stack((rows.src, rows.dst, rows.channel))
        first = np.append(True, (changes[:, 1:] != changes[:, :-1]).any(axis=0))
        address = self.layout.address(self.where, rows.home, rows.dst, rows.written)
        follows = np.append(True, np.diff(address) == self.layout.count[rows.slot][:-1])
        message = np.cumsum(first) - 1
        lands: Bool = np.logical_and.reduceat(fit & (first | follows), np.flatnonzero(first))[message]
        return lands

    def _box(self, slot: I64) -> I64:
        """Return offsets in the inbox, one after another."""
        counts = self.layout.count[slot]
        self.inbox_counts[self._turn] = max(self.inbox_counts[self._turn], int(counts.sum()))
        return np.cumsum(counts) - counts

    def _transfers(self, t: CellRows, place: SlotPlace, *, outgoing: bool) -> Messages:
        """Return the messages of these rows, from or into these places; neighbours in memory are one piece."""
        ends, named = ((t.src, t.dst), t.slot) if outgoing else ((t.dst, t.src), t.written)
        memory, address = np.divmod(self.layout.address(self.where, place, ends[0], named), MEMORY)
        found: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}
        table = np.stack((*ends, t.channel, memory, address, self.layout.count[t.slot]), axis=-1)
        for *key, where, at, count in table.tolist():
            pieces = found.setdefault(tuple(key), [])
            if pieces and pieces[-1][0] == where and pieces[-1][1] + pieces[-1][2] == at:
                pieces[-1] = (where, pieces[-1][1], pieces[-1][2] + count)
            else:
                pieces.append((where, at, count))
        return tuple(WireMessage(here, peer, lane, tuple(pieces)) for (here, peer, lane), pieces in found.items())
