"""The pace of a run: the speed of a fabric's clock on this host, and the fabric."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from emu.cluster.pace.timeliness import PaceFigures, TimelinessRecord
from emu.cluster.pace.traffic import Traffic
from emu.errors import must_be
from emu.topology.fault_injection.fault import Fault
from emu.topology.fault_injection.machine_state import MachineHistory
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.timed_dtype import AS_RAN, check_dtype
from emu.units import TICKS_PER_S


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
        """Return the seconds of this host that some ticks take."""
        return virtual_fs / TICKS_PER_S * self.factor

    def virtual_fs(self, real_s: float) -> int:
        """Return the ticks in some seconds of this host."""
        return int(real_s / self.factor * TICKS_PER_S)


@dataclass(frozen=True, eq=False, slots=True)
class Pace:
    """The fabric that carries the messages of a run, its faults, and the speed of its clock.

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
        """Return the figures of how late this host was, and the faults that the ranks have met."""
        figures = self.tempo.kept.figures(self.tempo.factor, self.tempo.computes)
        return replace(figures, faults=tuple(map(str, self.faults)))

    def traffic(self, n_ranks: int) -> Traffic:
        """Return the empty fabric, with its ranks on the first NPUs.

        Raises:
            InputError: There are more ranks than NPUs.
        """
        return Traffic(MachineHistory(self.topology, self.faults, n_ranks), self.tempo.device.request_overhead_fs, self.under)
