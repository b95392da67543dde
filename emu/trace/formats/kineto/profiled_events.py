"""The events of one rank of a profile while they are put together, in the order of issue."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from emu.arrays import column
from emu.trace.formats.kineto.profiled_request import ProfiledGroup, ProfiledRequest
from emu.trace.trace import MOVES, Events, Kind, typed_events

HOST = "host"  # the mark before an event that lasts as long as the host took until it launched the event
_KINDS = {"send": Kind.SEND, "recv": Kind.RECV}
_STREAM, _INSTANCE = 2, 14  # columns of `Events`


class Seen(NamedTuple):
    """An event of a profile: its times in microseconds, and its number in the file."""

    start_us: float
    end_us: float
    number: int

    @property
    def lasts_s(self) -> float:
        """The seconds that it lasted."""
        return (self.end_us - self.start_us) * 1e-6


class ProfiledEvents:
    """Events that grow; each waits for rows that were added before it."""

    def __init__(self) -> None:
        self.rows: list[tuple[object, ...]] = []
        self.steps: list[int] = []
        self.waits: list[tuple[int, ...]] = []
        self.requests: dict[int, ProfiledRequest] = {}
        self.lasts_s: list[float] = []
        self.seen: dict[int, Seen] = {}  # by row; marks have none
        self.groups: dict[ProfiledGroup, int] = {}

    def compute(self, step: int, stream: int, name: str, seen: Seen, waits: Iterable[int]) -> int:
        """Add a computation, and return its row."""
        self.seen[len(self.rows)] = seen
        return self._add((step, Kind.COMPUTE, stream, name, ""), seen.lasts_s, waits)

    def mark(self, step: int, stream: int, name: str, lasts_s: float, waits: Iterable[int]) -> int:
        """Add a mark that may last, and return its row."""
        return self._add((step, Kind.MARK, stream, name, ""), lasts_s, waits)

    def request(self, step: int, stream: int, asked: ProfiledRequest, seen: Seen, waits: Iterable[int]) -> int:
        """Add a request, and return its row."""
        kind = _KINDS.get(asked.operation, Kind.COLLECTIVE)
        self.seen[len(self.rows)] = seen
        self.requests[len(self.rows)] = asked
        self.groups.setdefault(asked.group, len(self.groups))
        return self._add((step, kind, stream, asked.operation, ""), seen.lasts_s, waits)

    def _add(self, row: tuple[object, ...], lasts_s: float, waits: Iterable[int]) -> int:
        self.rows.append(row)
        self.steps.append(int(str(row[0])))
        self.lasts_s.append(lasts_s)
        self.waits.append(tuple(sorted({w for w in waits if w >= 0})))
        return len(self.rows) - 1

    def collectives(self) -> dict[ProfiledGroup, list[int]]:
        """Return the rows of the collectives of each group, in order."""
        found: dict[ProfiledGroup, list[int]] = {}
        for row, asked in self.requests.items():
            if asked.operation not in _KINDS:
                found.setdefault(asked.group, []).append(row)
        return found

    def step_spans_us(self) -> dict[int, tuple[float, float]]:
        """Return, by step, when its first event began and its last one ended."""
        found: dict[int, tuple[float, float]] = {}
        for row, seen in self.seen.items():
            low, high = found.get(self.steps[row], (np.inf, -np.inf))
            found[self.steps[row]] = min(low, seen.start_us), max(high, seen.end_us)
        return found

    def events(self, agreed: Mapping[int, ProfiledRequest]) -> Events:
        """Return the events as columns.

        Args:
            agreed: By row, each request with what other members know of it.
        """
        table = [self._row(what, agreed.get(row)) for row, what in enumerate(self.rows)]
        instances = {row: turn for rows in self.collectives().values() for turn, row in enumerate(rows)}
        columns: list[object] = list(zip(*table, strict=True))
        columns[_STREAM] = self._streams()
        columns[_INSTANCE] = [instances.get(row, 0) for row in range(len(self.rows))]
        splits = [self.requests[row].splits if row in self.requests else () for row in range(len(self.rows))]
        for ragged in (self.waits, splits):
            columns += [np.cumsum([0, *map(len, ragged)]), [each for several in ragged for each in several]]
        return replace(typed_events(columns), lasts_s=column(np.array(self.lasts_s), np.float64))

    def _streams(self) -> list[int]:
        """Return the stream of each event, numbered anew: those that compute come first, in the order of first use."""
        given = [row[_STREAM] for row in self.rows]
        computing = [row[_STREAM] for row in self.rows if row[1] == Kind.COMPUTE]
        number = {stream: i for i, stream in enumerate(dict.fromkeys((*computing, *given)))}
        return [number[stream] for stream in given]

    def _row(self, what: tuple[object, ...], asked: ProfiledRequest | None) -> tuple[object, ...]:
        if asked is None:
            return (*what, 0.0, 0, 0, *MOVES, -1, 0, 0, 0)
        group = self.groups[asked.group]
        return (*what[:-1], asked.dtype, 0.0, asked.size_bytes, asked.elements, *MOVES, group, 0, asked.root, asked.tag)
