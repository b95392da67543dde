"""Steps and requests of one search timed, by several processes where there are cores for them; results are those of one."""

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from emu.errors import InputError
from emu.model.model import Model
from emu.study.planning.search.requests import Request, time_request
from emu.study.planning.search.row import Candidate, PlanRequest, PlanRow
from emu.study.training.composed.calls import device_under, topology_under
from emu.study.training.estimate import MOST_EVENTS, EstimateRequest, prepare
from emu.topology.topology import Topology
from emu.trace.device.device import Device

COMPOSED, FULL = "composed", "full"  # ways to time: each request once, and as `emu estimate` does
_EVENTS = {COMPOSED: 0, FULL: MOST_EVENTS}
Found = dict[str, Any]  # a `PlanRow`, or a `Taken`; or why there is none under REFUSED
REFUSED = "refused"
K = TypeVar("K")


class Step(NamedTuple):
    """To be timed: a step of a candidate."""

    candidate: Candidate
    how: str


class Lone(NamedTuple):
    """To be timed: a request by itself."""

    topology: int  # which of those of the search
    request: Request


Job = Step | Lone


@dataclass(frozen=True, eq=False)
class Timer:
    """Times jobs of one search."""

    request: PlanRequest
    model: Model
    topologies: tuple[Topology, ...]
    device: Device

    def __call__(self, job: Job) -> Found:
        """What one takes."""
        try:
            return self._step(*job) if isinstance(job, Step) else self._lone(*job)
        except InputError as error:
            return {REFUSED: str(error)}

    def _step(self, candidate: Candidate, how: str) -> Found:
        request, topology = self.request, self.topologies[candidate.topology]
        asked = EstimateRequest(self.model, candidate.plan, request.stack, request.algorithms, candidate.axes)
        return PlanRow.of(prepare(asked, topology, self.device, _EVENTS[how]).moments(self.device, briefly=True)[0]).as_dict()

    def _lone(self, number: int, request: Request) -> Found:
        stack, algorithms = self.request.stack, self.request.algorithms
        topology, device = topology_under(stack, self.topologies[number]), device_under(stack, self.device)
        return time_request(request, topology, algorithms, device.request_overhead_fs)._asdict()


class Waiting(Protocol):
    """What is being timed."""

    def ready(self) -> bool:
        """Whether nobody waits for it any more."""

    def get(self) -> Found:
        """Wait for it."""


Submit = Callable[[Job], Waiting]


@dataclass(frozen=True)
class _Now:
    """Timed in this process, once it is waited for."""

    timer: Timer
    job: Job

    def ready(self) -> bool:
        return True

    def get(self) -> Found:
        return self.timer(self.job)


_TIMERS: list[Timer] = []  # of a process that was forked


def _time(job: Job) -> Found:
    return _TIMERS[0](job)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process says when it ends


@contextmanager
def timing(timer: Timer, processes: int) -> Iterator[Submit]:
    """What takes jobs to be done, by so many processes; what these do is given up when the context ends."""
    served = multiprocessing.current_process().daemon  # by another's pool: it may start no processes of its own
    if processes == 1 or served or "fork" not in multiprocessing.get_all_start_methods():
        yield lambda job: _Now(timer, job)
        return
    _TIMERS[:] = [timer]
    try:
        with multiprocessing.get_context("fork").Pool(processes, _begin) as pool:
            yield lambda job: pool.apply_async(_time, (job,))
    finally:
        _TIMERS.clear()


def ahead(asked: Iterator[tuple[K, Waiting]], most: int) -> Iterator[tuple[K, Found]]:
    """The results in the order in which they were asked for, a few being under way at a time."""
    under_way: deque[tuple[K, Waiting]] = deque()
    for each in asked:
        under_way.append(each)
        if len(under_way) >= most:
            name, waiting = under_way.popleft()
            yield name, waiting.get()
    for name, waiting in under_way:
        yield name, waiting.get()
