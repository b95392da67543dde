"""The pace of a run: how fast the clock of a fabric goes on this host, and which fabric it is."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from emu.cluster.pace.kept import Kept, Paced
from emu.cluster.pace.traffic import Traffic
from emu.errors import must_be
from emu.topology.fault_injection.fault import Fault
from emu.topology.fault_injection.history import MachineHistory as Course
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.device.dtypes import AS_RAN, check_dtype
from emu.units import TICKS_PER_S


@dataclass(frozen=True, eq=False, slots=True)
class Tempo:
    """The pace of one run: how many seconds of this host each second of virtual time takes, and how far that was so.

    Args:
        factor: Above 0.
        device: What computations take.
        dtype: What float32 is timed as, or `AS_RAN`.
        computes: Whether computations take the device's time; else the host's own.

    Raises:
        InputError: a factor that is none, or an unknown dtype.
    """

    factor: float
    device: Device
    dtype: str = AS_RAN
    computes: bool = True
    kept: Kept = field(default_factory=Kept)

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        if not 0 < self.factor < math.inf:
            mend = "such as 1000: a microsecond of the fabric then takes a millisecond here"
            raise must_be("pace", "--pace", "above 0, and finite", self.factor, mend)

    def told(self) -> Paced:
        """Return how far this host has kept up."""
        return self.kept.told(self.factor, self.computes)

    def real_s(self, virtual_fs: int) -> float:
        """Return how many seconds of this host some ticks take."""
        return virtual_fs / TICKS_PER_S * self.factor

    def virtual_fs(self, real_s: float) -> int:
        """Return how many ticks there are in some seconds of this host."""
        return int(real_s / self.factor * TICKS_PER_S)


@dataclass(frozen=True, eq=False, slots=True)
class Pace:
    """The fabric that the messages of a run meet, its faults, and how fast its clock goes.

    Args:
        tempo: Of the clock.
        topology: Whose links they share.
        faults: Of it: at times of virtual time since the first request, or at steps.
        under: Makes of a topology what the software leaves of it.
    """

    tempo: Tempo
    topology: Topology
    faults: tuple[Fault, ...] = ()
    under: Callable[[Topology], Topology] = lambda as_is: as_is

    def told(self) -> Paced:
        """Return how far this host has kept up, and which faults the ranks have met."""
        return replace(self.tempo.told(), faults=tuple(map(str, self.faults)))

    def traffic(self, n_ranks: int) -> Traffic:
        """Return the empty fabric, its ranks on the first NPUs.

        Raises:
            InputError: more ranks than NPUs.
        """
        return Traffic(Course(self.topology, self.faults, n_ranks), self.tempo.device.request_overhead_fs, self.under)
