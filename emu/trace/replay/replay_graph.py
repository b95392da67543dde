"""The graph of a replay, with the events and the requests that its tasks come from."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64
from emu.collective.choice import AlgorithmOnDims, Request
from emu.fabric.graph import Graph
from emu.fabric.lower import LoweredSchedule
from emu.trace.matching.call_batch import BatchKey
from emu.trace.replay.delay import Delay, Entries
from emu.trace.trace import Trace


class Service(NamedTuple):
    """A request of a replay with the bytes with which it was timed and the algorithm that served it."""

    request: Request
    size_bytes: int
    by: AlgorithmOnDims


def services_of(asked: Iterable[tuple[BatchKey, Request]]) -> tuple[Service, ...]:
    """Return the requests of batches with their sizes and the algorithms that serve them; each different one once."""
    served = (Service(request, what.size_bytes, what.served) for what, request in asked if what.served is not None)
    return tuple(dict.fromkeys(served))


@dataclass(frozen=True, eq=False, slots=True)
class ReplayGraph:
    """A trace as a graph, with the tasks of each event; a task's origin is the row of its event.

    I instances: one collective on some groups, or one message between each of some pairs of ranks.
    """

    graph: Graph
    first_event: I64  # [N + 1] where the events of each rank begin among the X
    begins: I32  # [X] the task of a computation, the join with which a rank enters a request; -1: set-up
    ends: I32  # [X] the task of a computation, the join with which a rank leaves a request; -1: set-up
    instance: I32  # [X] the number of the instance; -1: no request
    call: I32  # [X] the number of the call that the event's request belongs to; -1: none
    pieces: tuple[LoweredSchedule | Delay | None, ...]  # [I] the messages of each instance; None: one task stands for all
    firsts: I64  # [I] the first task of each instance
    services: tuple[Service, ...]  # each different service once
    assumptions: tuple[str, ...]
    timed_ranks: int  # the ranks whose tasks the graph has: one of those that a symmetry makes equal
    link: I64  # [L] the link of the graph that stands for each link of the topology
    entries: Entries  # of members into calls that all enter by one task, such as delays


def event_name(trace: Trace, replayed: ReplayGraph, task: int) -> str:
    """Return the name of the event of a task, such as `a message of event 12 of rank 3 (all_reduce of step 2)`."""
    of = int(np.searchsorted(replayed.firsts, task, side="right")) - 1
    events = np.flatnonzero(replayed.begins == task) if of < 0 else np.flatnonzero(replayed.instance == of)
    event, owner = int(events[0]), int(replayed.graph.owner[task])
    if owner >= 0:
        event = int(replayed.first_event[owner]) + int(replayed.graph.origin[task])
    rank = bisect_right(replayed.first_event.tolist(), event) - 1
    row = event - int(replayed.first_event[rank])
    ran = trace.events_of(rank)
    message = "a message of " if of >= 0 and owner >= 0 else ""
    return f"{message}event {row} of rank {rank} ({ran.name[row]} of step {ran.step[row]})"
