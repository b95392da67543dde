"""The devices of paced ranks, on which each computation takes the device's time by this host's clock.

A rank continues when its operator would have ended on a device that runs operators one after another. Short operators are
awaited together, but no request is made and no answer is taken before the operators ahead of it would have ended.
"""

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from emu.backend.rank.operator_counter import Operator
from emu.backend.rank.record import Recorder
from emu.cluster.pace.alarm import now_s
from emu.cluster.pace.timeliness import Tempo

_TOGETHER_S = 1e-3  # of this host


class DeviceQueues:
    """The emulated devices of all ranks: the time until which each has work, and how far its rank is behind.

    Lateness of this host with one computation counts only once, not again in everything that follows.

    Args:
        tempo: The pace of virtual time, with the device, and whether computations take the device's time.
        n_ranks: The number of ranks of the job.
        park_until: A function that lets other ranks run until a time.
    """

    def __init__(self, tempo: Tempo, n_ranks: int, park_until: Callable[[int, float], None]) -> None:
        self._tempo, self._device = tempo, tempo.device.for_ranks(n_ranks)
        self._park_until = park_until
        self._takes_s: dict[Operator, float] = {}
        self.speed = np.ones(n_ranks)  # the share of its device's that each rank has
        self._ends_s: dict[int, float] = {}  # by rank, when the device will have done all that it was given
        self._behind_s: defaultdict[int, float] = defaultdict(float)  # by rank

    def computed(self, rank: int, operator: Operator) -> None:
        """Add an operator that this host has computed for a rank to the work of the rank's device."""
        takes_s = self._takes_s.get(operator)
        if takes_s is None:
            takes_s = self._takes_s[operator] = self._seconds(operator)
        if rank not in self._ends_s:
            self.goes_on(rank)
        self._ends_s[rank] += takes_s / self.speed[rank]
        if self._ends_s[rank] - now_s() > _TOGETHER_S:
            self._park_until(rank, self._ends_s[rank])

    def settle(self, rank: int, time_s: float) -> float:
        """Wait until the device of a rank has done all its work.

        Args:
            rank: The rank.
            time_s: The time at which this host is done with the rank's work.

        Returns:
            The time at which the rank goes on, without the seconds by which this host was late with earlier work.
        """
        reached_s = time_s - self._behind_s[rank]
        ends_s = self._ends_s.pop(rank, None)
        if ends_s is None:
            return reached_s
        if ends_s <= reached_s:
            self._tempo.kept.computation(reached_s - ends_s)
            return reached_s
        self._park_until(rank, ends_s)
        self.set_late(rank, ends_s)
        return ends_s

    def set_late(self, rank: int, time_s: float) -> None:
        """Set how late a rank is that continues now, although it should have continued at `time_s`."""
        self._behind_s[rank] = max(0.0, now_s() - time_s)

    def goes_on(self, rank: int) -> None:
        """Drop the remaining work of a rank's device, so that its next computation begins now or later."""
        if self._tempo.computes:
            self._ends_s[rank] = now_s() - self._behind_s[rank]

    def _seconds(self, operator: Operator) -> float:
        """Return the seconds of this host that an operator takes on a device."""
        alone = Recorder()
        alone.operator(operator)
        return float(self._device.seconds(alone.recorded_events().columns(), self._tempo.dtype)[0]) * self._tempo.factor
