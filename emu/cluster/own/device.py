"""The device as PyTorch sees it: what it says of a CPU does nothing, and a rank should have it as on an accelerator.

Streams and events tell a recorder what waits for what, and a storage that changes its size tells the counter.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch.jit import _builtins

from emu.backend.rank import streams
from emu.backend.rank.count import report_resize
from emu.backend.rank.streams import DEFAULT, NEVER, RankStreams
from emu.errors import RunError

_torchscript: Any = _builtins


@contextmanager
def replaced(where: Any, name: str, value: object) -> Iterator[None]:
    """Another value for an attribute, until the end; TorchScript compiles the value as what it stands for."""
    own, original = name in vars(where), getattr(where, name)
    builtins: dict[int, str] = _torchscript._get_builtin_table()  # the operators that functions are, by a function's identity
    is_operator = id(original) in builtins and id(value) not in builtins
    if is_operator:
        builtins[id(value)] = builtins[id(original)]
    setattr(where, name, value)
    try:
        yield
    finally:
        if own:
            setattr(where, name, original)
        else:
            delattr(where, name)
        if is_operator:  # another function may have the value's identity later
            del builtins[id(value)]


class Event(torch.cpu.Event):
    """In place of `torch.cpu.Event`: a moment of a stream, and when the host asked for it."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.at = NEVER
        self._wall_s: float | None = None

    def record(self, stream: "Stream | None" = None) -> None:
        """Take the moment when all that the stream was asked for has ended; none: of the current stream."""
        of = stream or current_stream()
        self.at = of.streams.now(of.number) if of.streams else NEVER
        self._wall_s = time.perf_counter()

    def query(self) -> bool:
        """All before it is done: a CPU has computed before it goes on."""
        return True

    def synchronize(self) -> None:
        """Do nothing: that the host waits is no order between streams."""

    def elapsed_time(self, end_event: "Event") -> float:
        """Milliseconds of the host to another event; the fabric is timed after the program.

        Raises:
            RunError: one of them was not recorded.
        """
        if self._wall_s is None or end_event._wall_s is None:
            raise RunError("event: elapsed_time is between two events that were recorded; record both first")
        return 1e3 * (end_event._wall_s - self._wall_s)

    def wait(self, stream: "Stream | None" = None) -> None:
        """Let a stream wait for the moment; none: the current one."""
        (stream or current_stream()).wait_event(self)


class Stream(torch.cpu.Stream):
    """In place of `torch.cpu.Stream`: a stream of the rank that makes it; one that does nothing where no rank does."""

    priority, cuda_stream = 0, 0
    device, device_type, device_index, stream_id = torch.device("cpu"), 0, 0, 0

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.streams = streams.current_streams()
        self.number = self.streams.add() if self.streams else DEFAULT

    @classmethod
    def of(cls, found: RankStreams | None, number: int) -> "Stream":
        """One that is there."""
        made = cls.__new__(cls)
        made.streams, made.number = found, number
        return made

    @classmethod
    def default(cls) -> "Stream":
        """The first of the thread that is here."""
        found = streams.current_streams()
        return cls.of(found, found.default if found else DEFAULT)

    @classmethod
    def priority_range(cls) -> tuple[int, int]:
        """Of the one priority that there is."""
        return 0, 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream) or self.number != other.number:
            return False
        return self.streams is other.streams or bool(self.streams and other.streams and self.streams.is_beside(other.streams))

    def __hash__(self) -> int:
        return hash(self.number)

    def record_event(self, event: Event | None = None) -> Event:  # type: ignore[override]
        """Take the moment when all that was asked of it has ended."""
        made = event or Event()
        made.record(self)
        return made

    def wait_event(self, event: Event) -> None:
        """What comes next here waits for an event."""
        if self.streams:
            self.streams.wait(self.number, event.at)

    def wait_stream(self, stream: "Stream") -> None:
        """What comes next here waits for all that was asked of another stream."""
        self.wait_event(stream.record_event())

    def is_capturing(self) -> bool:
        """No graph is being captured."""
        return False

    def query(self) -> bool:
        """All is done: a CPU has computed before it goes on."""
        return True

    def synchronize(self) -> None:
        """Do nothing: that the host waits is no order between streams."""


class On(AbstractContextManager[None]):
    """In place of `torch.cpu.StreamContext`; of the thread that enters it alone."""

    def __init__(self, stream: Stream | None) -> None:
        self._stream, self._before = stream, DEFAULT

    def __enter__(self) -> None:
        if (found := self._streams()) is not None and self._stream is not None:
            self._before, found.current = found.current, self._stream.number

    def __exit__(self, *error: object) -> None:
        if (found := self._streams()) is not None:
            found.current = self._before

    def _streams(self) -> RankStreams | None:
        """Return the streams of this thread, if the one that is entered is of the same rank."""
        found, of = streams.current_streams(), self._stream.streams if self._stream else None
        return found if found is not None and of is not None and found.is_beside(of) else None


def current_stream(device: object = None) -> Stream:
    """In place of `torch.cpu.current_stream`."""
    found = streams.current_streams()
    return Stream.of(found, found.current if found else DEFAULT)


@contextmanager
def as_device() -> Iterator[None]:
    """Streams, events and freed storage as on an accelerator, for ranks that are recorded."""
    resize = torch.UntypedStorage.resize_

    def resize_(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        found: torch.UntypedStorage = resize(storage, size)
        report_resize(storage)
        return found

    new = {"Stream": Stream, "Event": Event, "StreamContext": On, "stream": On, "current_stream": current_stream}
    with ExitStack() as changes:
        for name, value in new.items():
            changes.enter_context(replaced(torch.cpu, name, value))
        changes.enter_context(replaced(torch.accelerator, "current_stream", current_stream))
        changes.enter_context(replaced(torch.UntypedStorage, "resize_", resize_))
        yield
