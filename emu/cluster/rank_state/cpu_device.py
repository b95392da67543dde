"""The CPU as a device with streams and events, so that a rank can use them as on an accelerator.

Streams and events report the order of events to the recorder; storage that changes its size reports it to the counter.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

import torch

from emu.backend.rank import streams
from emu.backend.rank.operator_counter import report_resize
from emu.backend.rank.streams import DEFAULT, NEVER, RankStreams
from emu.cluster.rank_state.rank_state import replace_attributes
from emu.errors import RunError

_log = logging.getLogger("emu")
THE_HOSTS = "elapsed_time of events is the time of this host, as virtual time is known once the script has ended"


class Event(torch.cpu.Event):
    """The replacement of `torch.cpu.Event`: a position of a stream, and the time at which it was recorded."""

    now_s: ClassVar[Callable[[], float]] = time.perf_counter  # the time of the calling rank by the clock of events
    device = torch.device("cpu")
    notices: ClassVar[list[str]] = [THE_HOSTS]  # logged when a rank first asks for the time between two events

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.at = NEVER
        self._at_s: float | None = None

    def record(self, stream: "Stream | None" = None) -> None:
        """Record the position after all work so far on a stream; None: the current stream."""
        of = stream or current_stream()
        self.at = of.streams.now(of.number) if of.streams else NEVER
        self._at_s = Event.now_s()

    def elapsed_time(self, end_event: "Event") -> float:
        """Return the milliseconds to another event, by the clock of events.

        Raises:
            RunError: one of the events was not recorded.
        """
        if self._at_s is None or end_event._at_s is None:
            raise RunError("event: elapsed_time needs two recorded events; record both first")
        while Event.notices:
            _log.info("%s", Event.notices.pop())
        return 1e3 * (end_event._at_s - self._at_s)

    def wait(self, stream: "Stream | None" = None) -> None:
        """Make a stream wait for the recorded position; None: the current stream."""
        (stream or current_stream()).wait_event(self)


class Stream(torch.cpu.Stream):
    """The replacement of `torch.cpu.Stream`: a stream of the rank that creates it; without effect in a thread of no rank."""

    await_requests: ClassVar[Callable[[], None]] = lambda: None  # returns once the calling rank has no open request
    priority, cuda_stream = 0, 0
    device, device_type, device_index, stream_id = torch.device("cpu"), 0, 0, 0

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.streams = streams.current_streams()
        self.number = self.streams.add() if self.streams else DEFAULT
        self._entered: list[StreamContext] = []

    @classmethod
    def of(cls, found: RankStreams | None, number: int) -> "Stream":
        """Return an existing stream of a rank."""
        made = cls.__new__(cls)
        made.streams, made.number, made._entered = found, number, []
        return made

    @classmethod
    def default(cls) -> "Stream":
        """Return the default stream of this thread."""
        found = streams.current_streams()
        return cls.of(found, found.default if found else DEFAULT)

    @classmethod
    def priority_range(cls) -> tuple[int, int]:
        """Return the range of stream priorities (0, 0), as there is only one priority."""
        return 0, 0

    def __enter__(self) -> "Stream":
        context = StreamContext(self)
        context.__enter__()
        self._entered.append(context)
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.pop().__exit__(*error)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream) or self.number != other.number:
            return False
        return self.streams is other.streams or bool(self.streams and other.streams and self.streams.is_beside(other.streams))

    def __hash__(self) -> int:
        return hash(self.number)

    def record_event(self, event: Event | None = None) -> Event:  # type: ignore[override]
        """Return an event at the position after all work so far on this stream."""
        made = event or Event()
        made.record(self)
        return made

    def wait_event(self, event: Event) -> None:
        """Make the next work on this stream wait for an event."""
        if self.streams:
            self.streams.wait(self.number, event.at)

    def wait_stream(self, stream: "Stream") -> None:
        """Make the next work on this stream wait for all work so far on another stream."""
        self.wait_event(stream.record_event())

    def is_capturing(self) -> bool:
        """Return False: no graph is captured."""
        return False

    def query(self) -> bool:
        """Return True, because the CPU has finished all work when a call returns."""
        return True

    def synchronize(self) -> None:
        """Do nothing: a wait of the host orders no streams, and a stream's collectives are done before its next work."""


class StreamContext(AbstractContextManager[None]):
    """The replacement of `torch.cpu.StreamContext`, for the thread that enters it."""

    def __init__(self, stream: Stream | None) -> None:
        self._stream, self._before = stream, DEFAULT

    def __enter__(self) -> None:
        if (found := self._streams()) is not None and self._stream is not None:
            self._before, found.current = found.current, self._stream.number

    def __exit__(self, *error: object) -> None:
        if (found := self._streams()) is not None:
            found.current = self._before

    def _streams(self) -> RankStreams | None:
        """Return the streams of this thread if they belong to the rank of the entered stream, else None."""
        found, of = streams.current_streams(), self._stream.streams if self._stream else None
        return found if found is not None and of is not None and found.is_beside(of) else None


def current_stream(device: object = None) -> Stream:
    """Return the current stream of this thread, in place of `torch.cpu.current_stream`."""
    found = streams.current_streams()
    return Stream.of(found, found.current if found else DEFAULT)


@contextmanager
def emulate_device(
    now_s: Callable[[], float] = time.perf_counter,
    notices: list[str] = Event.notices,
    await_requests: Callable[[], None] = Stream.await_requests,
) -> Iterator[None]:
    """Give recorded ranks streams and events on the CPU while the context lasts.

    Args:
        now_s: A function that returns the time of the calling rank in seconds, by which events measure.
        notices: Lines that are logged when a rank first asks for the time between two events; the list is then empty.
        await_requests: A function that returns once all requests of the calling rank are done.
    """
    new = {
        "Stream": Stream,
        "Event": Event,
        "StreamContext": StreamContext,
        "stream": StreamContext,
        "current_stream": current_stream,
    }
    with replace_attributes(
        *((torch.cpu, name, value) for name, value in new.items()),
        (Event, "now_s", staticmethod(now_s)),
        (Event, "notices", notices),
        (Stream, "await_requests", staticmethod(await_requests)),
        (torch.accelerator, "current_stream", current_stream),
        (torch.UntypedStorage, "resize_", _reported_resize(torch.UntypedStorage.resize_)),
    ):
        yield


def _reported_resize(resize: Callable[[torch.UntypedStorage, int], torch.UntypedStorage]) -> Callable[..., object]:
    """Return the replacement of the storage's `resize_`, which reports the new size to the counter."""

    def resize_(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        found = resize(storage, size)
        report_resize(storage)
        return found

    return resize_
