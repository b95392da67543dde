"""What the streams of one rank wait for, as those of a device would: what is asked of one runs in order, streams side by side.

An event is a number: its place among all that the rank issued. Events of one queue end in their order: the computations of a
stream, the collectives of a group. So a clock, the last event of each queue, says all that has ended by a moment.
"""

import threading
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

DEFAULT = 0
_thread = threading.local()


class Moment(NamedTuple):
    """The end of some events, by event its queue, and of all that these wait for."""

    events: Mapping[int, Hashable]
    clock: Mapping[Hashable, int]


NEVER = Moment({}, {})  # nothing is waited for


@dataclass(slots=True)
class _Stream:
    last: int = -1  # its last computation
    joined: dict[int, Hashable] = field(default_factory=dict)  # what its next computation waits for, and the queue of each
    clock: dict[Hashable, int] = field(default_factory=dict)  # all that its next computation comes after


class Streams:
    """The streams of a rank, as one of its threads uses them; number 0 is the default one of its program's thread."""

    def __init__(self) -> None:
        self.default = self.current = DEFAULT
        self._streams = [_Stream()]
        self._requests: dict[int, Moment] = {}

    def fork(self) -> "Streams":
        """Return the streams of the rank as a thread uses them that this one starts: with a default one of its own.

        What is asked of that comes after all that was asked of the current stream of this thread.
        """
        forked = Streams()
        forked._streams, forked._requests = self._streams, self._requests
        forked.default = forked.current = self.add()
        forked.wait(forked.default, self.now(self.current))
        return forked

    def is_beside(self, other: "Streams") -> bool:
        """Return whether both are of one rank."""
        return self._streams is other._streams

    def add(self) -> int:
        """Make a stream; its number."""
        self._streams.append(_Stream())
        return len(self._streams) - 1

    def compute(self, event: int) -> tuple[int, ...]:
        """Put a computation on the current stream; what it waits for, besides the one before it there."""
        here = self._streams[self.current]
        waits, here.last, here.joined = tuple(sorted(here.joined)), event, {}
        here.clock[self.current] = event
        return waits

    def request(self, event: int, queue: Hashable) -> tuple[int, ...]:
        """Make a request from the current stream; what it waits for, besides the one before it in its queue."""
        here = self._streams[self.current]
        # On one stream everything is said by its order; to copy the clock would only take time.
        clock = {**here.clock, queue: event} if len(self._streams) > 1 else {}
        self._requests[event] = Moment({event: queue}, clock)
        return (*([here.last] if here.last >= 0 else []), *sorted(here.joined))

    def done(self, request: int) -> Moment:
        """The end of a request."""
        return self._requests[request]

    def now(self, stream: int) -> Moment:
        """The end of all that a stream was asked for."""
        of = self._streams[stream]
        latest = {queue: event for event, queue in of.joined.items()}
        own = {of.last: stream} if of.last >= 0 else {}
        return Moment({**own, **{event: queue for queue, event in latest.items()}}, dict(of.clock))

    def wait(self, stream: int, moment: Moment) -> None:
        """Let what comes next on a stream come after a moment."""
        of = self._streams[stream]
        new = {event: queue for event, queue in moment.events.items() if of.clock.get(queue, -1) < event}
        if not new:
            return
        # What the moment comes after itself need not be waited for, and of a queue only its last.
        later = new.values()
        kept = {e: q for e, q in of.joined.items() if q not in later and (moment.clock.get(q, -1) < e or e in moment.events)}
        of.joined = {**kept, **new}
        for queue, event in (*moment.clock.items(), *((q, e) for e, q in new.items())):
            of.clock[queue] = max(event, of.clock.get(queue, -1))

    @contextmanager
    def on_thread(self) -> Iterator[None]:
        """Let this thread find these by `here`."""
        before, _thread.streams = here(), self
        try:
            yield
        finally:
            _thread.streams = before


def here() -> Streams | None:
    """The streams of the rank that this thread is recorded as."""
    found: Streams | None = getattr(_thread, "streams", None)
    return found
