"""The calls of a host that would launch the events of a role in order, for a written profile.

Each stream of computation is one of the device's, and each queue of requests has a stream of its own, as each communicator of
NCCL has. An event that waits for another stream is launched after a wait for an event of CUDA, which was recorded after the
launch of the awaited event. So the profile says the very order of the trace. E events of a role, C calls.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.trace.steps import computes, order_of, queues_of
from emu.trace.trace import Events, Kind

_FIRST = 7  # the number of the default stream, as Kineto has it


class HostCall(Enum):
    """A kind of call of CUDA's runtime, such as a launch or a wait, by its name in profiles."""

    LAUNCH = "cudaLaunchKernel"
    RECORD = "cudaEventRecord"
    WAIT = "cudaStreamWaitEvent"


class LaunchCall(NamedTuple):
    """A call by which the host launches one event of a role on its device."""

    what: HostCall
    row: int  # the event that it launches, that it records the end of, or that shall wait
    waited: int = -1  # the event that a wait is for


@dataclass(frozen=True, eq=False, slots=True)
class RoleLayout:
    """The calls that launch a role, in order, and the stream of each of its events."""

    events: Events
    stream: I64  # [E] the stream of the device; -1: the event is not launched
    calls: tuple[LaunchCall, ...]  # [C]

    @property
    def launched(self) -> I64:
        """The rows of the events that the host launches on the device."""
        return np.flatnonzero(self.stream >= 0)


def role_layout(events: Events) -> RoleLayout:
    """Return the calls by which a host would launch a role's events; set-up and instant marks are left out."""
    stream = _streams(events)
    return RoleLayout(events, stream, tuple(_calls(events, stream)))


def _streams(events: Events) -> I64:
    """Return [E] the stream of each event: computing streams first; -1 if the event is not launched."""
    lasting = events.lasts_s > 0 if len(events.lasts_s) else np.zeros(len(events), np.bool_)
    kept = (events.step > 0) & ((events.kind != Kind.MARK) | lasting)
    asks = kept & ~computes(events)
    stream = np.where(kept, _FIRST + events.stream.astype(np.int64), -1)
    if asks.any():
        queues = np.unique(queues_of(events)[:, asks], axis=1, return_inverse=True)[1]
        stream[asks] = 1 + stream.max() + queues.reshape(-1)
    return stream


def _waits(events: Events, stream: I64) -> list[list[int]]:
    """Return [E] the events that each event waits for, of those that the host launched on other streams."""
    found: list[set[int]] = [set() for _ in range(len(events))]
    event, waited = order_of(events)
    order = np.argsort(event, kind="stable")
    for row, other in zip(event[order].tolist(), waited[order].tolist(), strict=True):  # what a row waits for is complete
        found[row] |= {other} if stream[other] >= 0 else found[other]
    return [sorted(other for other in of if stream[other] != stream[row]) for row, of in enumerate(found)]


def _calls(events: Events, stream: I64) -> Iterator[LaunchCall]:
    """Yield the host's calls that launch the events, in the order of issue."""
    waits = _waits(events, stream)
    launched = np.flatnonzero(stream >= 0).tolist()
    recorded = {other for row in launched for other in waits[row]}
    for row in launched:
        yield from (LaunchCall(HostCall.WAIT, row, other) for other in waits[row])
        yield LaunchCall(HostCall.LAUNCH, row)
        if row in recorded:
            yield LaunchCall(HostCall.RECORD, row)
