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

    def busy_s(self, capacity_Bps: F64) -> F64:
        """[L] seconds each link would have taken at full rate for what it carried."""
        return np.asarray(self.carried_bytes / capacity_Bps)
