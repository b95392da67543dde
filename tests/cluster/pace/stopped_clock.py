"""A clock that stands until a test moves it, and an alarm that rings as the clock is moved: no thread, nothing is timed."""

import itertools
from collections.abc import Callable

import pytest

from emu.cluster.pace import device_queues, pacer, rank_clock


class StoppedClock:
    """The time of a host that does nothing by itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, now_s: float = 100.0) -> None:
        self.now_s = now_s
        self._calls: list[tuple[float, int, Callable[[], object]]] = []
        self._count = itertools.count()
        for module in (device_queues, pacer, rank_clock):
            monkeypatch.setattr(module, "now_s", lambda: self.now_s)

    def at(self, time_s: float, call: Callable[[], object]) -> None:
        self._calls.append((time_s, next(self._count), call))

    @property
    def next_s(self) -> float | None:
        """When it rings next; None: it does not."""
        return min(self._calls)[0] if self._calls else None

    def until(self, time_s: float, late_s: float = 0.0) -> None:
        """Move the clock on, and make all calls until then in their order, each as late as that."""
        while self._calls and min(self._calls)[0] <= time_s:
            first = min(self._calls)
            self._calls.remove(first)
            self.now_s = max(self.now_s + 1e-9, first[0] + late_s)  # no clock rings twice at one moment
            first[2]()
        self.now_s = max(self.now_s, time_s)
