"""The jobs of a search, which are steps and requests to be timed, and the object that times them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from emu.errors import InputError
from emu.model.model import Model
from emu.study.job_pool import PendingResult
from emu.study.planning.search.requests import PlacedRequest, time_request
from emu.study.planning.search.row import Candidate, PlanRequest, PlanRow
from emu.study.training.composed.software_costs import device_under, topology_under
from emu.study.training.estimate import MOST_EVENTS, EstimateRequest, prepare
from emu.topology.topology import Topology
from emu.trace.device.device import Device

COMPOSED, FULL = "composed", "full"  # ways to time: each request once, and as `emu estimate` does
_EVENTS = {COMPOSED: 0, FULL: MOST_EVENTS}
JobResult = dict[str, Any]  # fields of a `PlanRow`, or the fields of a `RequestTime`; or why there is none under REFUSED
REFUSED = "refused"


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
        return PlanRow.of(prepare(asked, topology, self.device, _EVENTS[how]).moments(self.device, briefly=True)[0]).as_dict()

    def _lone(self, number: int, request: PlacedRequest) -> JobResult:
        """Return the least time of a request on the topology of a number."""
        stack, algorithms = self.request.stack, self.request.algorithms
        topology, device = topology_under(stack, self.topologies[number]), device_under(stack, self.device)
        return time_request(request, topology, algorithms, device.request_overhead_fs)._asdict()


Submit = Callable[[Job], PendingResult[JobResult]]
