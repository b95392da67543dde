"""The events of one role, written down in the order of issue as a recorder would: one by one, or a stretch of them again.

Computations are kept apart: one takes the longer of its FLOPs and bytes, so that several as one would take too little.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, column
from emu.dtypes import item_bytes
from emu.model.generate.item import Ask, Work
from emu.trace.order import queues_of
from emu.trace.trace import Events, Kind

_STEP = 1


class _Row(NamedTuple):
    """One event, but for its instance, which its place among its queue says."""

    kind: int
    stream: int
    name: str
    dtype: str
    flops: int
    bytes: int
    elements: int
    group: int
    root: int
    tag: int


@dataclass(slots=True)
class _Stream:
    last: int = -1  # its last computation
    joined: tuple[int, ...] = ()  # what its next computation waits for


@dataclass(slots=True)
class Tape:
    """What one role does in a step."""

    dtype: str  # of computations
    rows: list[_Row] = field(default_factory=list)
    waits: list[tuple[int, ...]] = field(default_factory=list)
    axes: dict[str, int] = field(default_factory=dict)  # the number of each group that the role talks to
    streams: dict[int, _Stream] = field(default_factory=dict)
    held: list[int] = field(default_factory=list)  # requests that nothing waits for yet

    def compute(self, work: Work, stream: int = 0) -> None:
        """Add a computation, of something."""
        if not (work.bytes or work.flops):
            return
        of = self._stream(stream)
        self._add(_Row(Kind.COMPUTE, stream, work.name, self.dtype, *work[1:], -1, 0, 0), of.joined)
        of.last, of.joined = len(self.rows) - 1, ()

    def ask(self, ask: Ask, stream: int = 0, root: int = 0) -> int:
        """Add a request for a collective; its number."""
        size = ask.elements * item_bytes(ask.dtype)
        what = (ask.operation, ask.dtype, 0, size, ask.elements)
        return self._request(_Row(Kind.COLLECTIVE, stream, *what, self._number(ask.axis), root, 0))

    def message(self, kind: Kind, axis: str, peer: int, elements: int, dtype: str) -> int:
        """Add a send to a member of the group, or a receive from one; its number."""
        what = (kind.name.lower(), dtype, 0, elements * item_bytes(dtype), elements)
        return self._request(_Row(kind, 0, *what, self._number(axis), peer, 0))

    def _request(self, row: _Row) -> int:
        of = self._stream(row.stream)
        self._add(row, (*([of.last] if of.last >= 0 else []), *of.joined))
        return len(self.rows) - 1

    def join(self, *events: int, stream: int = 0) -> None:
        """What comes next on the stream waits for these."""
        if not events:
            return
        of = self._stream(stream)
        of.joined = tuple(dict.fromkeys((*of.joined, *events)))

    def now(self, stream: int = 0) -> tuple[int, ...]:
        """The end of all that a stream was asked for, to be joined by another."""
        of = self._stream(stream)
        return (*([of.last] if of.last >= 0 else []), *of.joined)

    def copy(self) -> "Tape":
        """Another with the same events, to go on by itself."""
        of = {number: replace(stream) for number, stream in self.streams.items()}
        return Tape(self.dtype, [*self.rows], [*self.waits], {**self.axes}, of)

    def events(self) -> Events:
        """As columns, with the mark that ends the step."""
        mark = _Row(Kind.MARK, 0, "step", "", 0, 0, 0, -1, 0, 0)
        rows, waits = [*self.rows, mark], [*self.waits, self._stream(0).joined]
        kind, stream, name, dtype, flops, size, count, group, root, tag = zip(*rows, strict=True)
        empty = np.zeros(len(rows) + 1, np.int64)
        events = Events(
            column(np.full(len(rows), _STEP), np.int32),
            column(kind, np.int16),
            column(stream, np.int16),
            name,
            dtype,
            column(flops, np.float64),
            column(size, np.int64),
            column(count, np.int64),
            column(group, np.int32),
            column(empty[1:], np.int32),
            column(root, np.int32),
            column(tag, np.int32),
            column(np.cumsum([0, *map(len, waits)]), np.int64),
            column([w for several in waits for w in several], np.int32),
            column(empty, np.int64),
            column([], np.int64),
        )
        return _with_instances(events)

    def _add(self, row: _Row, waits: Sequence[int]) -> None:
        self.rows.append(row)
        self.waits.append(tuple(waits))

    def _stream(self, number: int) -> _Stream:
        found = self.streams.get(number)
        if found is None:
            found = self.streams[number] = _Stream()
        return found

    def _number(self, axis: str) -> int:
        return self.axes.setdefault(axis, len(self.axes))


def _with_instances(events: Events) -> Events:
    keys = queues_of(events)
    asks = np.flatnonzero((events.kind != Kind.COMPUTE) & (events.kind != Kind.MARK))
    _, queue = np.unique(keys[:, asks], axis=1, return_inverse=True)
    in_turn = np.argsort(queue.reshape(-1), kind="stable")
    ordered = queue.reshape(-1)[in_turn]
    instance: I64 = np.zeros(len(events), np.int64)
    instance[asks[in_turn]] = np.arange(len(asks)) - np.searchsorted(ordered, ordered)
    return replace(events, instance=column(instance, np.int32))
