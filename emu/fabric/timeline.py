"""When each task started, left and ended, in integer ticks of 1 fs."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from emu.arrays import F64, I64
from emu.units import seconds


@dataclass(frozen=True, eq=False, slots=True)
class Timeline:
    """What `run` returns; seconds are derived, ticks are the truth."""

    start_fs: I64  # [V]
    left_fs: I64  # [V] the body has left
    end_fs: I64  # [V] delivered, or done
    carried_bytes: F64  # [L] bytes each link carried
    how: Literal["sweep", "quotient", "solver"]

    @property
    def end_s(self) -> float:
        """When the last task ended, seconds (0 of an empty graph)."""
        return seconds(int(self.end_fs.max(initial=0)))

    @property
    def rounding_s(self) -> float:
        """By how much the clock's whole ticks can have made the time shorter than that of exact arithmetic, at most.

        A body leaves at the nearest tick, up to half a tick too early; those that leave at one instant share their links,
        so that all of them together gain no more. A floating-point step an instant comes on top.
        """
        instants = len(np.unique(self.left_fs))
        return instants * seconds(1) / 2 + (instants + 4) * float(np.spacing(self.end_s))

    def busy_s(self, capacity_Bps: F64) -> F64:
        """[L] seconds each link would have taken at full rate for what it carried."""
        return np.asarray(self.carried_bytes / capacity_Bps)
