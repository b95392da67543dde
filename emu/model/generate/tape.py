"""The tape: the events of one role in the order in which they are issued, with repeated segments stored once.

Each kernel is a computation of its own, because its time is the longer of that of its FLOPs and that of its bytes: several
kernels counted as one would take too little time.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from emu.arrays import I64, column
from emu.dtypes import item_bytes
from emu.equivalence import Orbits, occurrence_numbers
from emu.model.generate.item import Ask, Computation
from emu.model.memory.layer_memory import Ledger
from emu.trace.kernel_shape import MOVES, Shape
from emu.trace.steps import computes, queues_of
from emu.trace.trace import Events, Kind, typed_events

_STEP = 1


class _Row(NamedTuple):
    """One event of a tape, without its instance number; texts and shapes are replaced by their numbers in tables."""

    kind: int
    stream: int
    name: int  # words by their number
    dtype: int
    flops: int
    bytes: int
    elements: int
    shape: int  # of a computation, by its number
    group: int
    root: int
    split: int  # split sizes by their number


class _Segment(NamedTuple):
    """A sequence of events whose numbers are relative, so that it can be repeated anywhere in the step."""

    rows: I64  # [E, fields of a row]
    waits: I64  # [E] how many each waits for
    wait: I64  # [W] which, counted from the first of the segment


KnownSegments = dict[Hashable, tuple[_Segment, Ledger, Hashable, Hashable]]  # segments by how they begin, and how they end


@dataclass(slots=True)
class Tape:
    """The events of one role in a step, and the bytes that live on its ranks.

    A silent tape has no events: it records only the bytes.
    """

    dtype: str  # of computations
    segments: list[tuple[int, _Segment]] = field(default_factory=list)  # and the number of its first event
    rows: list[_Row] = field(default_factory=list)  # after them
    waits: list[tuple[int, ...]] = field(default_factory=list)
    words: dict[str, int] = field(default_factory=dict)
    axes: dict[str, int] = field(default_factory=dict)  # the number of each group that the role talks to
    last: dict[int, int] = field(default_factory=dict)  # by stream, its last computation
    joined: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by stream, what its next computation waits for
    splits: dict[tuple[int, ...], int] = field(default_factory=lambda: {(): 0})
    shapes: dict[Shape, int] = field(default_factory=lambda: {MOVES: 0})
    held: dict[str, tuple[int, ...]] = field(default_factory=dict)  # requests that nothing waits for yet, by what will
    begins: int = 0  # the number of the first of the rows
    shared: int = 0  # segments that the tape has in common with the one that it is a copy of
    ledger: Ledger = field(default_factory=Ledger)  # what lives on the role's ranks, until now
    known: KnownSegments = field(default_factory=dict)
    silent: bool = False

    def __len__(self) -> int:
        return self.begins + len(self.rows)

    def write_or_copy(
        self,
        what: Hashable,
        do: Callable[[], None],
        state: Callable[[int], Hashable] = lambda _: (),
        restore: Callable[[Any, int], None] = lambda *_: None,
    ) -> None:
        """Run a function that writes events, or copy the events of an earlier run that began in the same state.

        Args:
            what: A key of what the function writes.
            do: The function.
            state: A function that returns further state of the caller, with its events counted from event `at`.
            restore: A function that sets this state.
        """
        self._close()
        at = len(self)
        begun = (what, self._state(at), state(at))
        if begun in self.known:
            segment, ledger, own, kept = self.known[begun]
            self._add_segment(segment)
            self._restore(own, at)
            restore(kept, at)
            self.ledger.append(ledger)
            return
        before, self.ledger = self.ledger, Ledger()
        do()
        ledger, self.ledger = self.ledger, before
        before.append(ledger)
        self.known[begun] = (self._close(), ledger, self._state(at), state(at))

    def compute(self, work: Computation, stream: int = 0) -> None:
        """Add a computation to a stream, unless it has neither FLOPs nor bytes."""
        if self.silent or not (work.bytes or work.flops):
            return
        dtype = self._word(work.dtype or self.dtype)
        what = (self._word(work.name), dtype, work.flops, work.bytes, work.elements, _number(self.shapes, work.shape))
        self._compute(_Row(Kind.COMPUTE, stream, *what, -1, 0, 0))

    def mark(self, name: str) -> None:
        """Record a mark: a moment with a name between the events of the rank."""
        if not self.silent:
            self._compute(_Row(Kind.MARK, 0, self._word(name), self._word(""), 0, 0, 0, 0, -1, 0, 0))

    def ask(self, ask: Ask, stream: int = 0, root: int = 0) -> int:
        """Add a request for a collective, and return the number of its event."""
        if self.silent:
            return 0
        what = (self._word(ask.operation), self._word(ask.dtype), 0, ask.elements * item_bytes(ask.dtype), ask.elements, 0)
        group, split = _number(self.axes, ask.axis), _number(self.splits, ask.splits)
        return self._request(_Row(Kind.COLLECTIVE, stream, *what, group, root, split))

    def message(self, kind: Kind, axis: str, peer: int, elements: int, dtype: str) -> int:
        """Add a send to a member of a group, or a receive from one, and return the number of its event."""
        if self.silent:
            return 0
        what = (self._word(kind.name.lower()), self._word(dtype), 0, elements * item_bytes(dtype), elements, 0)
        return self._request(_Row(kind, 0, *what, _number(self.axes, axis), peer, 0))

    def _compute(self, row: _Row) -> None:
        self._add(row, self.joined.pop(row.stream, ()))
        self.last[row.stream] = len(self) - 1

    def _request(self, row: _Row) -> int:
        self._add(row, self.now(row.stream))
        return len(self) - 1

    def join(self, *events: int, stream: int = 0) -> None:
        """Make the next event of a stream wait for the given events."""
        if events and not self.silent:
            self.joined[stream] = tuple(dict.fromkeys((*self.joined.get(stream, ()), *events)))

    def follow(self, request: int, stream: int) -> None:
        """Make the next event of a stream wait only for the request that was made last on that stream.

        The request itself waits for all that the stream has waited for. So the lists of waits stay short, and passes alike.
        """
        if not self.silent:
            self.joined[stream] = (request,)

    def now(self, stream: int = 0) -> tuple[int, ...]:
        """Return the events after whose ends all work so far on a stream is done, for another stream that waits."""
        joined = self.joined.get(stream, ())
        return (self.last[stream], *joined) if stream in self.last else joined

    def own_bytes(self) -> int:
        """Return the bytes of memory traffic of the computations that were added after this tape was copied."""
        kind, size = _Row._fields.index("kind"), _Row._fields.index("bytes")
        own = [segment.rows for _, segment in self.segments[self.shared :]]
        written = sum(int(rows[rows[:, kind] == Kind.COMPUTE, size].sum()) for rows in own)
        return written + sum(row.bytes for row in self.rows if row.kind == Kind.COMPUTE)

    def copy(self) -> "Tape":
        """Return a copy of the tape that can be continued independently of this one."""
        self._close()
        own: dict[str, Any] = {n: {**getattr(self, n)} for n in ("words", "axes", "splits", "shapes", "last", "joined")}
        own |= {"segments": [*self.segments], "rows": [], "waits": [], "known": {}, "ledger": replace(self.ledger)}
        return replace(self, shared=len(self.segments), **own)

    def events(self) -> Events:
        """Return the events as columns, ending with the mark of the step's end."""
        whole = self.copy()
        whole.mark("step")
        whole._close()
        rows = np.concatenate([segment.rows for _, segment in whole.segments])
        kind, stream, name, dtype, flops, size, count, shape, group, root, split = rows.T
        words, none = list(whole.words), np.zeros_like(kind)
        named = [tuple(map(words.__getitem__, of.tolist())) for of in (name, dtype)]
        sizes = np.array(list(whole.shapes), np.int64)[shape].T
        splits = [*map(list(whole.splits).__getitem__, split.tolist())]
        waits = np.cumsum(np.concatenate([[0], *(segment.waits for _, segment in whole.segments)]))
        wait = np.concatenate([segment.wait + begins for begins, segment in whole.segments])
        starts, given = np.cumsum([0, *map(len, splits)]), [size for several in splits for size in several]
        columns = [none + _STEP, kind, stream, *named, flops, size, count, *sizes, group, none, root, none]
        return _with_instances(typed_events([*columns, waits, wait, starts, given]))

    def _add(self, row: _Row, waits: Sequence[int]) -> None:
        self.rows.append(row)
        self.waits.append(tuple(waits))

    def _close(self) -> _Segment:
        """Close the segment of events that were added one by one, and return it."""
        rows = np.array(self.rows, np.int64).reshape(-1, len(_Row._fields))
        wait = np.array([w for several in self.waits for w in several], np.int64)
        segment = _Segment(rows, np.array([*map(len, self.waits)], np.int64), wait - self.begins)
        self.rows, self.waits = [], []
        self._add_segment(segment)
        return segment

    def _add_segment(self, segment: _Segment) -> None:
        if len(segment.rows):
            self.segments.append((self.begins, segment))
            self.begins += len(segment.rows)

    def _state(self, at: int) -> Hashable:
        """Return the events that the next events of each stream wait for, counted from event `at`."""
        last = frozenset((stream, event - at) for stream, event in self.last.items())
        return last, *(
            frozenset((name, shifted(events, -at)) for name, events in of.items()) for of in (self.joined, self.held)
        )

    def _restore(self, state: Any, at: int) -> None:
        last, joined, held = state
        self.last = {stream: event + at for stream, event in last}
        self.joined, self.held = ({name: shifted(events, at) for name, events in of} for of in (joined, held))

    def _word(self, word: str) -> int:
        return _number(self.words, word)


def _number(of: dict[Any, int], what: Hashable) -> int:
    """Return the number of an entry in a table; a new entry gets the next number."""
    return of.setdefault(what, len(of))


def shifted(events: Iterable[int], by: int) -> tuple[int, ...]:
    """Return the numbers of events, each increased by `by`."""
    return tuple(event + by for event in events)


def _with_instances(events: Events) -> Events:
    """Return the events with the number of each request in its queue."""
    asks = np.flatnonzero(~computes(events))
    instance: I64 = np.zeros(len(events), np.int64)
    instance[asks] = occurrence_numbers(Orbits.by_value(*queues_of(events)[:, asks]).number)
    return replace(events, instance=column(instance, np.int32))
