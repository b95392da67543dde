"""The jobs of a search, and the object that does them: a job times a step, or computes the least time of a request."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from emu.errors import InputError
from emu.model.model import Model
from emu.study.planning.plan_request import Candidate, PlanRequest
from emu.study.planning.plan_row import PlanRow
from emu.study.planning.request_times.request_floor import BoundedRequest, least_request_time
from emu.study.training.composed.software_costs import costed_device, costed_topology
from emu.study.training.estimate import DEFAULT_EFFORT, EstimateRequest, prepare
from emu.topology.topology import Topology
from emu.trace.device.device import Device

QUICK, THOROUGH, FULL = "quick", "thorough", "full"  # ways to time a step
_FULL = DEFAULT_EFFORT._replace(error_range=False)  # as `emu estimate` does; a row of a search has no error range
_EFFORTS = {
    QUICK: _FULL._replace(most_events=0, most_steps=32, within=1.0),  # composed; mostly less than 0.1 % above THOROUGH
    THOROUGH: _FULL._replace(most_events=0),
    FULL: _FULL,
}
JobResult = dict[str, Any]  # fields of a `PlanRow`, or the fields of a `LeastTime`; or why there is none under REFUSED
REFUSED = "refused"


class StepJob(NamedTuple):
    """A job that times the step of a candidate, in one of three degrees of detail: QUICK, THOROUGH, FULL."""

    candidate: Candidate
    effort: str = QUICK


class RequestJob(NamedTuple):
    """A job that computes the least time of a request on a topology."""

    topology: int  # its number among the topologies of the search
    request: BoundedRequest


Job = StepJob | RequestJob


@dataclass(frozen=True, eq=False)
class JobWorker:
    """A function that does the jobs of one search, steps and requests; it runs in the processes of the job pool."""

    request: PlanRequest
    model: Model
    topologies: tuple[Topology, ...]
    device: Device

    def __call__(self, job: Job) -> JobResult:
        """Return the result of a job; if it cannot be timed, the reason under `REFUSED`."""
        try:
            return self._step(*job) if isinstance(job, StepJob) else self._least_time(*job)
        except InputError as error:
            return {REFUSED: str(error)}

    def _step(self, candidate: Candidate, effort: str) -> JobResult:
        """Time the step of a candidate, and return its row as fields by name; `effort` is QUICK, THOROUGH or FULL."""
        request, topology = self.request, self.topologies[candidate.topology]
        asked = EstimateRequest(self.model, candidate.plan, request.stack, request.algorithms, candidate.axes)
        return asdict(PlanRow.of(*prepare(asked, topology, self.device, _EFFORTS[effort]).estimate(self.device, briefly=True)))

    def _least_time(self, number: int, request: BoundedRequest) -> JobResult:
        """Return the least time of a request on the topology of this number, as fields by name."""
        stack, algorithms = self.request.stack, self.request.algorithms
        topology, device = costed_topology(stack, self.topologies[number]), costed_device(stack, self.device)
        return least_request_time(request, topology, algorithms, device.request_overhead_fs)._asdict()
