"""The timeline: when each task started, left and ended, in integer ticks of 1 fs."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from emu.arrays import F64, I64
from emu.units import seconds


@dataclass(frozen=True, eq=False, slots=True)
class Timeline:
    """The result of `run`: times in ticks, from which seconds are derived."""

    start_fs: I64  # [V] when the task started
    left_fs: I64  # [V] when its last byte had left
    end_fs: I64  # [V] when it was delivered, or done
    carried_bytes: F64  # [L] bytes each link carried
    how: Literal["sweep", "quotient", "solver"]  # the method of the engine

    @property
    def end_s(self) -> float:
        """The time in seconds when the last task ended; 0 for an empty graph."""
        return seconds(int(self.end_fs.max(initial=0)))

    @property
    def rounding_s(self) -> float:
        """The most by which the clock's whole ticks can have made the time shorter than exact arithmetic would, in seconds.

        A message leaves at the nearest tick, up to half a tick too early. Messages that leave at one instant share their links,
        so that all of them together gain no more. A floating-point step for each instant comes on top.
        """
        instants = len(np.unique(self.left_fs))
        return instants * seconds(1) / 2 + (instants + 4) * float(np.spacing(self.end_s))

    def busy_s(self, capacity_Bps: F64) -> F64:
        """Return the seconds [L] that each link would have taken at full rate for what it carried."""
        return np.asarray(self.carried_bytes / capacity_Bps)
