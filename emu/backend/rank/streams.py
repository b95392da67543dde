"""The order of work on one rank's streams: work on one stream runs in order, and streams run in parallel.

An event is a number: its place among all events that the rank issued. Events of one queue end in their order: the computations
of a stream, the collectives of a group. So a clock, which is the last event of each queue, describes all events that have ended
at a moment.
"""

import threading
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

DEFAULT = 0
_thread = threading.local()


class StreamPosition(NamedTuple):
    """A position in the order of a rank's events: after the end of certain events and of all events that they wait for."""

    events: Mapping[int, Hashable]
    clock: Mapping[Hashable, int]


NEVER = StreamPosition({}, {})  # the position of no event


@dataclass(slots=True)
class _Stream:
    last: int = -1  # the last computation of the stream
    joined: dict[int, Hashable] = field(default_factory=dict)  # the queue of each event that its next computation waits for
    clock: dict[Hashable, int] = field(default_factory=dict)  # last event of each queue before its next computation


class RankStreams:
    """The streams of one rank, for one thread of that rank.

    All threads of a rank share the streams; each thread has an object of its own, with the thread's default and current stream.
    Number 0 is the default stream of the thread that runs the program.
    """

    def __init__(self) -> None:
        self.default = self.current = DEFAULT
        self._streams = [_Stream()]
        self._requests: dict[int, StreamPosition] = {}

    def fork(self) -> "RankStreams":
        """Return the streams of the rank for a new thread, with a default stream of its own.

        Work on the new default stream comes after all work so far on the current stream of this thread.
        """
        forked = RankStreams()
        forked._streams, forked._requests = self._streams, self._requests
        forked.default = forked.current = self.add()
        forked.wait(forked.default, self.now(self.current))
        return forked

    def is_beside(self, other: "RankStreams") -> bool:
        """Return whether `other` has the streams of the same rank."""
        return self._streams is other._streams

    def add(self) -> int:
        """Create a new stream of the rank, and return its number."""
        self._streams.append(_Stream())
        return len(self._streams) - 1

    def compute(self, event: int) -> tuple[int, ...]:
        """Add a computation to the current stream, and return the events for which it waits.

        The computation before it on the stream is not among them.
        """
        stream = self._streams[self.current]
        waits, stream.last, stream.joined = tuple(sorted(stream.joined)), event, {}
        stream.clock[self.current] = event
        return waits

    def request(self, event: int, queue: Hashable) -> tuple[int, ...]:
        """Add a request from the current stream, and return the events for which it waits.

        The request before it in its queue is not among them.
        """
        stream = self._streams[self.current]
        # With one stream the order alone says everything; a copy of the clock would only take time.
        clock = {**stream.clock, queue: event} if len(self._streams) > 1 else {}
        self._requests[event] = StreamPosition({event: queue}, clock)
        return (*([stream.last] if stream.last >= 0 else []), *sorted(stream.joined))

    def done(self, request: int) -> StreamPosition:
        """Return the position in the order of events at which a request of this rank has ended."""
        return self._requests[request]

    def now(self, stream: int) -> StreamPosition:
        """Return the position after all work so far on a stream."""
        of = self._streams[stream]
        latest = {queue: event for event, queue in of.joined.items()}
        own = {of.last: stream} if of.last >= 0 else {}
        return StreamPosition({**own, **{event: queue for queue, event in latest.items()}}, dict(of.clock))

    def wait(self, stream: int, moment: StreamPosition) -> None:
        """Let the next work on a stream begin only after a position."""
        of = self._streams[stream]
        new = {event: queue for event, queue in moment.events.items() if of.clock.get(queue, -1) < event}
        if not new:
            return
        # Events that the moment itself comes after need no wait, and of a queue only the last does.
        later = new.values()
        kept = {e: q for e, q in of.joined.items() if q not in later and (moment.clock.get(q, -1) < e or e in moment.events)}
        of.joined = {**kept, **new}
        for queue, event in (*moment.clock.items(), *((q, e) for e, q in new.items())):
            of.clock[queue] = max(event, of.clock.get(queue, -1))

    @contextmanager
    def on_thread(self) -> Iterator[None]:
        """Let `current_streams` return these streams on this thread."""
        before, _thread.streams = current_streams(), self
        try:
            yield
        finally:
            _thread.streams = before


def current_streams() -> RankStreams | None:
    """Return the streams of the calling thread; None if it is not recorded."""
    found: RankStreams | None = getattr(_thread, "streams", None)
    return found
