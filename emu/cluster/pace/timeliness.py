"""The record of how late this host was in a paced run, in which virtual time passes at a fixed pace."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

SHARE_IN_TIME = 0.99  # below it a report says so first
_TOLERANCE, _LEAST_S = 0.02, 1e-4  # of what a message took, or so much: that it may be late and in time


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceFigures:
    """The figures of one paced run; all but the first three are of this host."""

    pace: float  # seconds of this host for each of virtual time
    computes: bool  # whether computation was paced, too
    faults: tuple[str, ...] = ()  # that there were to be
    wall_messages: int  # answers that a rank has waited for or has got meanwhile, one of each request that it made
    wall_in_time: int
    wall_in_time_share: float  # 1 where there was no message
    wall_worst_late_s: float
    wall_compute_late_s: float  # by which the host took longer than the devices, over all ranks
    wall_met: tuple[str, ...]  # what failed, slowed down or came back while ranks ran, and when in virtual time


class Lateness(NamedTuple):
    """The lateness of the answers and computations of one process, which it reports to the others."""

    messages: int = 0  # answers that its ranks got
    in_time: int = 0  # those of them that were not late
    worst_s: float = 0.0  # by which the latest answer was late
    compute_s: float = 0.0  # by which the host took longer than the devices, over all computations


NOT_LATE = Lateness()


class TimelinessRecord:
    """A count of late answers while ranks run; any thread adds to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.late = NOT_LATE
        self._met = list[str]()

    def __reduce__(self) -> tuple[type["TimelinessRecord"], tuple[()]]:
        """Return a count that begins at 0, for another process."""
        return TimelinessRecord, ()

    def message(self, took_s: float, late_s: float) -> None:
        """Count an answer, given how long after the request it was due, and how much later it came."""
        in_time = late_s <= max(_TOLERANCE * took_s, _LEAST_S)
        self.add((Lateness(1, int(in_time), late_s),))

    def computation(self, late_s: float) -> None:
        """Count the seconds that the host took longer than the device."""
        self.add((Lateness(compute_s=late_s),))

    def met(self, events: Iterable[str]) -> None:
        """Record events of the fabric."""
        self._met += events

    def add(self, each: Iterable[Lateness]) -> None:
        """Add the counts of others."""
        with self._lock:
            messages, in_time, worst_s, compute_s = zip(self.late, *each, strict=True)
            self.late = Lateness(sum(messages), sum(in_time), max(worst_s), sum(compute_s))

    def figures(self, pace: float, computes: bool) -> PaceFigures:
        """Return the figures of the run, given its pace and whether computations were paced too."""
        late = self.late
        return PaceFigures(
            pace=pace,
            computes=computes,
            wall_messages=late.messages,
            wall_in_time=late.in_time,
            wall_in_time_share=late.in_time / late.messages if late.messages else 1.0,
            wall_worst_late_s=late.worst_s,
            wall_compute_late_s=late.compute_s,
            wall_met=tuple(self._met),
        )
