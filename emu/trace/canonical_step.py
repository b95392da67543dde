"""One step of a role in a canonical form, in which two traces are compared: requests, computations, and their order.

Marks are dropped. Consecutive computations of a stream are one piece of work if nothing else begins or ends between them. Waits
are reduced to counts: how many requests of each queue, and how many pieces of work of each stream, come before.
E events of a role, C requests and W pieces of work of the step, Q queues and streams.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I32, I64
from emu.equivalence import occurrence_numbers
from emu.trace.steps import computes, order_of, queues_of
from emu.trace.timed_dtype import TF32
from emu.trace.trace import Events, Kind


class Queue(NamedTuple):
    """A queue of requests that run in order or, if `group` is -1, the computations of the stream with number `kind`."""

    group: int  # the number that the role gives it
    kind: int
    peer: int
    tag: int


class CanonicalRequest(NamedTuple):
    """One request of a canonical step: its event, operation, sizes, root and splits."""

    row: int  # the request's place among the E events
    name: str
    dtype: str
    bytes: int
    elements: int
    group: int  # the number that the role gives it
    root: int
    tag: int
    turn: int  # the number of a collective call on its group, from the role's first of the step; 0 for a message
    splits: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class CanonicalStep:
    """One step of a role in canonical form, by which the steps of two traces are compared.

    It has C requests in the order of issue, then W pieces of work, stream by stream. A piece of work is the computations of a
    stream between two waits.
    """

    requests: tuple[CanonicalRequest, ...]  # [C]
    row: I64  # [W] the first event of each piece of work, among the E
    stream: I64  # [W] the number of its stream; streams are numbered by their first computation
    flops: F64  # [W]
    bytes: I64  # [W]
    count: I64  # [W] elements of floating-point dtypes
    queues: tuple[Queue, ...]  # [Q] the queues that the step uses
    before: I64  # [C + W, Q] how many entries of each queue come before a node


def canonical_step(events: Events, step: int) -> CanonicalStep:
    """Return one step of a role in the form in which traces are compared."""
    return _Step(events, step).canonical()


class _Step:
    """The builder of one `CanonicalStep` from the events of a role."""

    def __init__(self, events: Events, step: int) -> None:
        self.events = events
        self.there = (events.step == step) & (events.kind != Kind.MARK)
        self.works = self.there & computes(events)
        self.asks = np.flatnonzero(self.there & ~computes(events))

    @cached_property
    def queues(self) -> tuple[list[Queue], I64, I64]:
        """All queues of the role, [E] the queue of each event, and [E] the position of each event in its queue."""
        tag, peer, kind, group = queues_of(self.events)
        own = computes(self.events)
        keys = np.where(own, np.stack((own * -1, self.events.stream, own * 0, own * 0)), np.stack((group, kind, peer, tag)))
        found, queue = np.unique(keys, axis=1, return_inverse=True)
        return [Queue(*key) for key in found.T.tolist()], queue.reshape(-1), occurrence_numbers(queue.reshape(-1))

    @cached_property
    def clock(self) -> I32:
        """[E, Q] the index of the last entry of each queue that has ended when each event ends; -1: none of this step."""
        queues, queue, place = self.queues
        event, earlier = order_of(self.events)
        in_turn = np.argsort(event, kind="stable")
        first = np.searchsorted(event[in_turn], np.arange(len(self.events) + 1)).tolist()
        earlier = earlier[in_turn]
        clock = np.full((len(self.events), len(queues)), -1, np.int32)
        for e, (own, at) in enumerate(zip(queue.tolist(), place.tolist(), strict=True)):
            waited = earlier[first[e] : first[e + 1]]
            if len(waited):
                clock[e] = clock[waited].max(axis=0)
            clock[e, own] = at
        begins = np.full(len(queues), np.iinfo(np.int32).max)
        np.minimum.at(begins, queue[self.there], place[self.there])
        return np.where(clock < begins, np.int32(-1), clock)

    @cached_property
    def runs(self) -> list[list[I64]]:
        """The pieces of work of each stream; a piece is the numbers of its events.

        Streams are in the order in which they are first used.
        """
        _, queue, _ = self.queues
        return [self._runs(own) for own in dict.fromkeys(queue[self.works].tolist())]

    def _runs(self, own: int) -> list[I64]:
        """Return the pieces of work of one queue, each as the rows of its events.

        A piece begins where its stream has waited for more, and ends where something else waits for it.
        """
        _, queue, place = self.queues
        rows = np.flatnonzero(self.works & (queue == own))
        others = np.delete(self.clock[rows], own, axis=1)
        waited_for = np.unique(self.clock[self.there & (queue != own), own])
        begins = (others[1:] != others[:-1]).any(axis=1) | np.isin(place[rows[:-1]], waited_for)
        return np.split(rows, np.flatnonzero(begins) + 1)

    def canonical(self) -> CanonicalStep:
        queues, queue, place = self.queues
        runs = [run for of_stream in self.runs for run in of_stream]
        starts = np.array([run[0] for run in runs], dtype=np.int64)
        streams = np.repeat(np.arange(len(self.runs)), [len(of_stream) for of_stream in self.runs])
        number = {int(queue[of_stream[0][0]]): i for i, of_stream in enumerate(self.runs)}
        used = [*number, *np.unique(queue[self.asks]).tolist()]
        heads = np.concatenate((self.asks, starts))
        clock = self.clock[heads].astype(np.int64)
        clock[np.arange(len(heads)), queue[heads]] = place[heads] - 1
        ends = [self._ends(q, number) for q in used]
        before = [np.searchsorted(end, clock[:, q], side="right") for q, end in zip(used, ends, strict=True)]
        e = self.events
        floats = np.where(["float" in dtype or dtype == TF32 for dtype in e.dtype], e.count, 0)
        return CanonicalStep(
            tuple(self._requests()),
            starts,
            streams,
            np.array([e.flops[run].sum() for run in runs], dtype=np.float64),
            np.array([e.bytes[run].sum() for run in runs], dtype=np.int64),
            np.array([floats[run].sum() for run in runs], dtype=np.int64),
            tuple(Queue(-1, number[q], 0, 0) if q in number else queues[q] for q in used),
            np.stack(before, axis=1) if used else np.zeros((0, 0), np.int64),
        )

    def _ends(self, own: int, streams: dict[int, int]) -> I64:
        """Return the indices in a queue at which its requests or pieces of work of the step end, ascending."""
        _, queue, place = self.queues
        if own in streams:
            return np.asarray(place[[run[-1] for run in self.runs[streams[own]]]])
        return np.asarray(place[self.asks[queue[self.asks] == own]])

    def _requests(self) -> list[CanonicalRequest]:
        e, asks = self.events, self.asks
        first: dict[int, int] = {}
        found = []
        for row in asks.tolist():
            group, turn = int(e.group[row]), int(e.instance[row])
            splits = tuple(e.split[e.split_start[row] : e.split_start[row + 1]].tolist())
            amounts = (int(e.bytes[row]), int(e.count[row]))
            turn -= first.setdefault(group, turn) if e.kind[row] == Kind.COLLECTIVE else turn
            ends = (group, int(e.root[row]), int(e.tag[row]), turn)
            found.append(CanonicalRequest(row, e.name[row], e.dtype[row], *amounts, *ends, splits))
        return found
