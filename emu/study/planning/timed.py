"""Steps of candidates timed, by several processes where there are cores for them; results are those of one."""

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from emu.errors import InputError
from emu.model.model import Model
from emu.study.planning.row import Candidate, PlanRequest, PlanRow
from emu.study.training.estimate import MOST_EVENTS, EstimateRequest, estimate
from emu.study.training.least import least_s
from emu.topology.topology import Topology
from emu.trace.device.device import Device

COMPOSED, FULL = "composed", "full"  # ways to time: each request once, and as `emu estimate` does
_EVENTS = {COMPOSED: 0, FULL: MOST_EVENTS}
Found = dict[str, Any]  # a `PlanRow`, or why there is none under REFUSED, or under ABOVE a time that it does not beat
REFUSED, ABOVE = "refused", "above"
ANY = float("inf")  # no time is above it


@dataclass(frozen=True, eq=False)
class Timer:
    """Times candidates of one search."""

    request: PlanRequest
    model: Model
    topologies: tuple[Topology, ...]
    device: Device

    def __call__(self, candidate: Candidate, how: str, enough_s: float = ANY) -> Found:
        """The step of one; if it is to be composed, and must take more than what is enough, only so much is found."""
        request, topology, least = self.request, self.topologies[candidate.topology], None
        asked = EstimateRequest(self.model, candidate.plan, request.stack, request.algorithms, candidate.axes)
        try:
            if how == COMPOSED:
                least = least_s(asked, topology, self.device, enough_s)
                if least > enough_s:
                    return {ABOVE: least}
            step = estimate(asked, topology, self.device, _EVENTS[how])
        except InputError as error:
            return {REFUSED: str(error)}
        return replace(PlanRow.of(step), bound_s=least).as_dict()


class Waiting(Protocol):
    """What is being timed."""

    def get(self) -> Found:
        """Wait for it."""


Submit = Callable[[Candidate, str, float], Waiting]


@dataclass(frozen=True)
class _Now:
    """Timed in this process, once it is waited for."""

    timer: Timer
    candidate: Candidate
    how: str
    enough_s: float

    def get(self) -> Found:
        return self.timer(self.candidate, self.how, self.enough_s)


_TIMERS: list[Timer] = []  # of a process that was forked


def _time(candidate: Candidate, how: str, enough_s: float) -> Found:
    return _TIMERS[0](candidate, how, enough_s)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process says when it ends


@contextmanager
def timing(timer: Timer, processes: int) -> Iterator[Submit]:
    """What takes candidates to be timed, by so many processes; what these do is given up when the context ends."""
    served = multiprocessing.current_process().daemon  # by another's pool: it may start no processes of its own
    if processes == 1 or served or "fork" not in multiprocessing.get_all_start_methods():
        yield lambda candidate, how, enough_s: _Now(timer, candidate, how, enough_s)
        return
    _TIMERS[:] = [timer]
    try:
        with multiprocessing.get_context("fork").Pool(processes, _begin) as pool:
            yield lambda *asked: pool.apply_async(_time, asked)
    finally:
        _TIMERS.clear()


def ahead(asked: Iterator[tuple[Candidate, Waiting]], most: int) -> Iterator[tuple[Candidate, Found]]:
    """The results in the order in which they were asked for, a few being under way at a time."""
    under_way: deque[tuple[Candidate, Waiting]] = deque()
    for each in asked:
        under_way.append(each)
        if len(under_way) >= most:
            candidate, waiting = under_way.popleft()
            yield candidate, waiting.get()
    for candidate, waiting in under_way:
        yield candidate, waiting.get()
