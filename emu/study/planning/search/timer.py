"""The jobs of a search, which are steps and requests to be timed, the object that times them, and the cache of their results.

The cache is in SQLite, so that an interrupted search goes on where it stopped. A row is named by a digest of all inputs of its
figures, with the code of Emu and of users. So an entry never goes stale.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from emu.arrays import digest
from emu.errors import InputError
from emu.model.model import Model
from emu.model.stack.stack import Stack
from emu.sources import code_digest
from emu.store import ValueTable
from emu.study.planning.search.requests import PlacedRequest, time_request
from emu.study.planning.search.row import Candidate, PlanRequest, PlanRow
from emu.study.training.composed.software_costs import device_under, topology_under
from emu.study.training.estimate import DEFAULT_EFFORT, EstimateRequest, prepare
from emu.study.training.step_choice.step_to_serve import ALWAYS_COMPOSED, TimingEffort
from emu.topology.topology import Topology
from emu.trace.device.device import Device

QUICK, COMPOSED, FULL = "quick", "composed", "full"  # ways to time a step
_EFFORTS = {
    QUICK: TimingEffort(0, most_steps=32, near=1.0),  # composed, by algorithms that mostly give less than 0.1 % more time
    COMPOSED: ALWAYS_COMPOSED,
    FULL: DEFAULT_EFFORT,  # as `emu estimate` does
}
JobResult = dict[str, Any]  # fields of a `PlanRow`, or the fields of a `RequestTime`; or why there is none under REFUSED
REFUSED = "refused"
_FILE = "plans.sqlite"


class StepJob(NamedTuple):
    """A job that times a step of a candidate."""

    candidate: Candidate
    how: str


class RequestJob(NamedTuple):
    """A job that times a request by itself."""

    topology: int  # which of those of the search
    request: PlacedRequest


Job = StepJob | RequestJob


@dataclass(frozen=True, eq=False)
class Timer:
    """An object that times the jobs of one search."""

    request: PlanRequest
    model: Model
    topologies: tuple[Topology, ...]
    device: Device

    def __call__(self, job: Job) -> JobResult:
        """Return the result of a job; if it cannot be timed, the reason under `REFUSED`."""
        try:
            return self._step(*job) if isinstance(job, StepJob) else self._lone(*job)
        except InputError as error:
            return {REFUSED: str(error)}

    def _step(self, candidate: Candidate, how: str) -> JobResult:
        """Return the row of a candidate's step."""
        request, topology = self.request, self.topologies[candidate.topology]
        asked = EstimateRequest(self.model, candidate.plan, request.stack, request.algorithms, candidate.axes)
        return asdict(PlanRow.of(*prepare(asked, topology, self.device, _EFFORTS[how]).moments(self.device, briefly=True)))

    def _lone(self, number: int, request: PlacedRequest) -> JobResult:
        """Return the least time of a request on the topology of a number."""
        stack, algorithms = self.request.stack, self.request.algorithms
        topology, device = topology_under(stack, self.topologies[number]), device_under(stack, self.device)
        return time_request(request, topology, algorithms, device.request_overhead_fs)._asdict()


class ResultCache(ValueTable):
    """A cache of results by name, in a folder or in memory."""

    def __init__(self, folder: Path | None) -> None:
        """Open the cache.

        Raises:
            InputError: the folder cannot be written, or its file is no database.
        """
        super().__init__(None if folder is None else folder / _FILE)
        try:
            self.open()
        except (OSError, sqlite3.Error) as error:
            where = f"a folder that can be written, without another {_FILE}"
            raise InputError(f"plan: cache must be {where}, got {str(folder)!r} ({error}); take another --cache") from None


@dataclass(frozen=True, eq=False)
class KeptTimer:
    """A timer whose results are kept at once, by the process that times them, so that no interruption loses one."""

    timer: Timer
    kept: ResultCache
    name_of: Callable[[Job], str]  # the name of a job's result in the cache

    def __call__(self, job: Job) -> JobResult:
        """Return the result of a job."""
        found = self.timer(job)
        self.kept.write(self.name_of(job), found)
        return found


def search_name(request: PlanRequest, model: Model, device: Device, topologies: tuple[Topology, ...]) -> str:
    """Return the name of what a search knows; plans beside those that are searched do not matter."""
    asked, machines = replace(request, model=model.digest(), beside=()), [each.digest() for each in topologies]
    return "search " + digest((code_digest(), asked, device, machines))


def result_namer(
    model: Model, stack: Stack, device: Device, algorithms: tuple[str, ...], topologies: tuple[Topology, ...]
) -> Callable[[Job], str]:
    """Return a function that gives the name of a job's result; the name of a request is equal in all searches."""
    steps = digest((code_digest(), model.digest(), stack, device, algorithms))
    requests = digest((code_digest(), device_under(stack, device).request_overhead_fs, algorithms))
    plain, under = [each.digest() for each in topologies], [topology_under(stack, each).digest() for each in topologies]

    def name_of(job: Job) -> str:
        if isinstance(job, RequestJob):
            return "request " + digest((requests, under[job.topology], *job.request.name))
        topology, plan, axes = job.candidate
        return "step " + digest((steps, plain[topology], repr(plan), axes, job.how))

    return name_of
