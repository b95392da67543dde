"""The events of one rank of a profile while they are built, in the order of issue."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from emu.arrays import column
from emu.trace.formats.kineto.operator_work import KernelWork
from emu.trace.formats.kineto.profiled_request import ProfiledRequest
from emu.trace.formats.measured_parts import MeasuredParts, measured_parts
from emu.trace.formats.rank_group import RankGroup
from emu.trace.kernel_shape import MOVES
from emu.trace.trace import Events, Kind, typed_events

HOST = "host"  # the mark before an event that lasts as long as the host took until it launched the event
_KINDS = {"send": Kind.SEND, "recv": Kind.RECV}
US = 1e-6  # seconds of a microsecond


class Seen(NamedTuple):
    """An event of a profile: its times in microseconds, and its number in the file."""

    start_us: float
    end_us: float
    number: int

    @property
    def lasts_s(self) -> float:
        """The duration of the event in the profile, in seconds."""
        return (self.end_us - self.start_us) * US


class Head(NamedTuple):
    """The first columns of an event, which all kinds of events have: its step, kind, stream, name and dtype."""

    step: int
    kind: Kind
    stream: int
    name: str

    @staticmethod
    def of_work(step: int, stream: int, name: str) -> "Head":
        """Return the head of a computation."""
        return Head(step, Kind.COMPUTE, stream, name)


class ProfiledEvents:
    """The builder of a rank's events; each event waits only for rows that were added before it."""

    def __init__(self) -> None:
        self.heads: list[Head] = []
        self.waits: list[tuple[int, ...]] = []
        self.requests: dict[int, ProfiledRequest] = {}
        self.lasts_s: list[float] = []
        self.seen: dict[int, Seen] = {}  # by row; marks have none
        self.works: dict[int, KernelWork] = {}  # by row, of computations whose work the profile tells
        self.groups: dict[RankGroup, int] = {}

    def compute(self, head: Head, seen: Seen, waits: Iterable[int], work: KernelWork | None = None) -> int:
        """Add a computation, and return its row; its work may be unknown."""
        if work is not None:
            self.works[len(self.heads)] = work
        self.seen[len(self.heads)] = seen
        return self._add(head, seen.lasts_s, waits)

    def mark(self, step: int, stream: int, name: str, lasts_s: float, waits: Iterable[int]) -> int:
        """Add a mark, which may have a duration, and return its row."""
        return self._add(Head(step, Kind.MARK, stream, name), lasts_s, waits)

    def request(self, step: int, stream: int, asked: ProfiledRequest, seen: Seen, waits: Iterable[int]) -> int:
        """Add a request, and return its row."""
        kind = _KINDS.get(asked.operation, Kind.COLLECTIVE)
        self.seen[len(self.heads)] = seen
        self.requests[len(self.heads)] = asked
        self.groups.setdefault(asked.group, len(self.groups))
        return self._add(Head(step, kind, stream, asked.operation), seen.lasts_s, waits)

    def _add(self, head: Head, lasts_s: float, waits: Iterable[int]) -> int:
        self.heads.append(head)
        self.lasts_s.append(lasts_s)
        self.waits.append(tuple(sorted({w for w in waits if w >= 0})))
        return len(self.heads) - 1

    def collectives(self) -> dict[RankGroup, list[int]]:
        """Return the rows of the collectives of each group, in order."""
        found: dict[RankGroup, list[int]] = {}
        for row, asked in self.requests.items():
            if not asked.is_message:
                found.setdefault(asked.group, []).append(row)
        return found

    def step_ends_us(self) -> list[float]:
        """Return the beginning of the first step, and then the end of each step, in microseconds."""
        spans: dict[int, tuple[float, float]] = {}
        for row, seen in self.seen.items():
            step = self.heads[row].step
            low, high = spans.get(step, (np.inf, -np.inf))
            spans[step] = min(low, seen.start_us), max(high, seen.end_us)
        return [spans[1][0], *(spans[step][1] for step in sorted(spans))]

    def step_parts(self, axis_of: Callable[[str], str]) -> list[MeasuredParts]:
        """Return the measured parts of each step, such as computation and exposed communication.

        A step begins where the step before it has ended.

        Args:
            axis_of: A function that returns the axis of a group's description.
        """
        asked: dict[str, list[tuple[float, float]]] = {}
        for row in sorted(self.requests, key=lambda row: self.seen[row].start_us):
            asked.setdefault(axis_of(self.requests[row].label), []).append(self.seen[row][:2])
        computed = np.array([seen[:2] for row, seen in self.seen.items() if row not in self.requests], np.float64)
        return [measured_parts(low, high, computed, asked) for low, high in pairwise(self.step_ends_us())]

    def events(self, agreed: Mapping[int, ProfiledRequest]) -> Events:
        """Return the added events as columns.

        Args:
            agreed: By row, each request with what other members know of it.
        """
        instances = {row: turn for rows in self.collectives().values() for turn, row in enumerate(rows)}
        streams, rows = self._streams(), range(len(self.heads))
        heads = [head._replace(stream=streams[head.stream]) for head in self.heads]
        table = [(*heads[row], *self._amounts(row, agreed.get(row), instances.get(row, 0))) for row in rows]
        columns: list[object] = list(zip(*table, strict=True))
        splits = [agreed[row].splits if row in agreed else () for row in rows]
        for ragged in (self.waits, splits):
            columns += [np.cumsum([0, *map(len, ragged)]), [each for several in ragged for each in several]]
        return replace(typed_events(columns), lasts_s=column(np.array(self.lasts_s), np.float64))

    def _streams(self) -> dict[int, int]:
        """Return a new number for each stream: computing streams first, in the order of first use."""
        computing = [head.stream for head in self.heads if head.kind == Kind.COMPUTE]
        return {stream: i for i, stream in enumerate(dict.fromkeys((*computing, *(head.stream for head in self.heads))))}

    def _amounts(self, row: int, asked: ProfiledRequest | None, instance: int) -> tuple[object, ...]:
        """Return the columns of an event that follow the columns of its `Head`.

        Args:
            row: The row of the event.
            asked: The request; None: the event is none.
            instance: The number of the request among those of its group.
        """
        if asked is None:
            work = self.works.get(row)
            sizes = (
                ("", 0.0, 0, 0, *MOVES) if work is None else (work.dtype, work.flops, work.bytes, work.elements, *work.shape)
            )
            return (*sizes, -1, instance, 0, 0)
        sizes = asked.dtype, 0.0, asked.size_bytes, asked.elements, *MOVES
        return (*sizes, self.groups[asked.group], instance, asked.root, asked.tag)
