"""The pace of a run, in which virtual time passes at a fixed speed on this host, and the record of this host's lateness."""

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from emu.cluster.pace.traffic import Traffic
from emu.errors import must_be
from emu.topology.fault_injection.fault import Fault
from emu.topology.fault_injection.machine_history import MachineHistory
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.timed_dtype import AS_RAN, check_dtype
from emu.units import TICKS_PER_S

SHARE_IN_TIME = 0.99  # below it a report says so first
_TOLERANCE, _LEAST_S = 0.02, 1e-4  # of what a message took, or so much: that it may be late and in time


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceFigures:
    """The results of a paced run: the pace (seconds of this host for a virtual second), and how late this host was.

    Fields that begin with `wall_` count answers that came in time and the seconds by which others were late.
    """

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
    """How late the answers and computations of one process were; processes send it to one another."""

    messages: int = 0  # answers that its ranks got
    in_time: int = 0  # those of them that were not late
    worst_s: float = 0.0  # by which the latest answer was late
    compute_s: float = 0.0  # by which the host took longer than the devices, over all computations


NOT_LATE = Lateness()


class TimelinessRecord:
    """A count of answers and of late answers while ranks run, to which any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.late = NOT_LATE
        self._met = list[str]()

    def __reduce__(self) -> tuple[type["TimelinessRecord"], tuple[()]]:
        """Return the arguments for a copy in another process, whose counts start at 0."""
        return TimelinessRecord, ()

    def message(self, took_s: float, late_s: float) -> None:
        """Count one answer to a request: whether it came in time, and by how many seconds it was late.

        Args:
            took_s: The seconds from the request until its answer was due.
            late_s: The seconds from then until the answer came.
        """
        in_time = late_s <= max(_TOLERANCE * took_s, _LEAST_S)
        self.add((Lateness(1, int(in_time), late_s),))

    def computation(self, late_s: float) -> None:
        """Count the seconds that the host took longer than the device."""
        self.add((Lateness(compute_s=late_s),))

    def met(self, events: Iterable[str]) -> None:
        """Record events of the fabric that the ranks have met."""
        self._met += events

    def add(self, each: Iterable[Lateness]) -> None:
        """Add the counts of answers and late answers that other processes have sent."""
        with self._lock:
            messages, in_time, worst_s, compute_s = zip(self.late, *each, strict=True)
            self.late = Lateness(sum(messages), sum(in_time), max(worst_s), sum(compute_s))

    def figures(self, pace: float, computes: bool) -> PaceFigures:
        """Return what a report says of the pace: which shares of answers came in time, and how late others were.

        Args:
            pace: The seconds of this host for a second of virtual time.
            computes: Whether computations were paced, too.
        """
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


@dataclass(frozen=True, eq=False, slots=True)
class Tempo:
    """The pace of one run: the seconds of this host for each second of virtual time, and the record of how late it was.

    Args:
        factor: The pace; above 0.
        device: The device that times computations.
        dtype: The dtype that float32 is timed as, or `AS_RAN`.
        computes: Whether computations take the device's time; else they take the host's.
        events: Whether the events of a script are recorded in virtual time; else in the host's.

    Raises:
        InputError: The factor is not above 0 and finite, or the dtype is unknown.
    """

    factor: float
    device: Device
    dtype: str = AS_RAN
    computes: bool = True
    events: bool = True
    kept: TimelinessRecord = field(default_factory=TimelinessRecord)

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        if not 0 < self.factor < math.inf:
            mend = "such as 1000: a microsecond of the fabric then takes a millisecond here"
            raise must_be("pace", "--pace", "above 0, and finite", self.factor, mend)

    def real_s(self, virtual_fs: int) -> float:
        """Return the host seconds that a number of ticks takes at this pace."""
        return virtual_fs / TICKS_PER_S * self.factor

    def virtual_fs(self, real_s: float) -> int:
        """Return the virtual time, in ticks, that passes in some seconds of this host."""
        return int(real_s / self.factor * TICKS_PER_S)


@dataclass(frozen=True, eq=False, slots=True)
class Pace:
    """The fabric of a paced run, its faults, and the speed of its clock.

    Args:
        tempo: The speed of the clock.
        topology: The topology whose links messages share.
        faults: Its faults, at times of virtual time since the first request, or at steps.
        under: A function that returns a topology with the changes of the software.
    """

    tempo: Tempo
    topology: Topology
    faults: tuple[Fault, ...] = ()
    under: Callable[[Topology], Topology] = lambda as_is: as_is

    def figures(self) -> PaceFigures:
        """Return the figures of a run: how late this host was, and which faults the ranks have met."""
        figures = self.tempo.kept.figures(self.tempo.factor, self.tempo.computes)
        return replace(figures, faults=tuple(map(str, self.faults)))

    def traffic(self, n_ranks: int) -> Traffic:
        """Return the traffic on the fabric before the first request, with the ranks on the first NPUs.

        Raises:
            InputError: There are more ranks than NPUs.
        """
        return Traffic(MachineHistory(self.topology, self.faults, n_ranks), self.tempo.device.request_overhead_fs, self.under)
