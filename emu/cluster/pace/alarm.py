"""An alarm that calls functions at moments of this host's clock, on a thread of its own."""

import ctypes
import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import Self

_SET_TIMER_SLACK, _SLACK_NS = 29, 1  # of Linux's prctl: a thread is else woken up to 50 us late
now_s = time.monotonic
Call = tuple[float, int, Callable[[], object]]


class Alarm:
    """A thread that calls functions at given times of this host's clock; it ends with the context.

    Args:
        failed: A function that is called with the error of a call; no further calls are made then.
        idle: A function that is called on that thread when no calls are left.
    """

    def __init__(self, failed: Callable[[BaseException], None], idle: Callable[[], None] = lambda: None) -> None:
        self._failed, self._idle = failed, idle
        self._calls: list[Call] = []
        self._count = itertools.count()
        self._changed = threading.Condition()
        self._calling = self._ends = False
        self._thread = threading.Thread(target=self._serve, name="alarm", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._thread.join()

    @property
    def is_set(self) -> bool:
        """True if a scheduled call has not been made yet, or is running."""
        return self._calling or bool(self._calls)

    def at(self, time_s: float, call: Callable[[], object]) -> Call:
        """Schedule a call for a time, or at once if the time has passed.

        Calls for one time are made in the order of scheduling.
        """
        asked = (time_s, next(self._count), call)
        with self._changed:
            heapq.heappush(self._calls, asked)
            if self._calls[0] is asked:
                self._changed.notify()
        return asked

    def forget(self, asked: Call) -> None:
        """Cancel a scheduled call that has not been made yet."""
        with self._changed:
            if asked in self._calls:
                self._calls.remove(asked)
                heapq.heapify(self._calls)

    def _serve(self) -> None:
        """Call the functions at their times, on the alarm's thread."""
        _wake_sharply()
        try:
            while (call := self._next()) is not None:
                call()
                del call  # nothing here may hold what a rank has done with
                self._calling = False
                if not self._calls:
                    self._idle()
        except BaseException as error:
            self._failed(error)
            self._calling = False

    def _next(self) -> Callable[[], object] | None:
        """Wait until the next call is due, and return it; None at the end of the context."""
        with self._changed:
            while not self._ends:
                left = self._calls[0][0] - now_s() if self._calls else None
                if left is not None and left <= 0:
                    self._calling = True
                    return heapq.heappop(self._calls)[2]
                self._changed.wait(left)
        return None


def _wake_sharply() -> None:
    """Make Linux wake the calling thread without timer slack."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_SET_TIMER_SLACK, _SLACK_NS, 0, 0, 0)
