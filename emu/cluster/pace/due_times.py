"""The times at which ranks would be where they are, had this host been in time: lateness counts once, and not again."""

from collections import defaultdict

from emu.cluster.pace.alarm import now_s


class DueTimes:
    """The seconds by which each rank of a process is behind; all start in time."""

    def __init__(self) -> None:
        self._behind_s: defaultdict[int, float] = defaultdict(float)

    def at(self, rank: int, time_s: float) -> float:
        """Return when a rank would have come to where it was at a time of this host."""
        return time_s - self._behind_s[rank]

    def is_at(self, rank: int, time_s: float) -> None:
        """Record that a rank is now where it should have been at a time."""
        self._behind_s[rank] = max(0.0, now_s() - time_s)
