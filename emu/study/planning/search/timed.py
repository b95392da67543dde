"""Steps and requests of one search timed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from emu.errors import InputError
from emu.model.model import Model
from emu.study.job_pool import PendingResult
from emu.study.planning.search.requests import Request, time_request
from emu.study.planning.search.row import Candidate, PlanRequest, PlanRow
from emu.study.training.composed.software_costs import device_under, topology_under
from emu.study.training.estimate import MOST_EVENTS, EstimateRequest, prepare
from emu.topology.topology import Topology
from emu.trace.device.device import Device

COMPOSED, FULL = "composed", "full"  # ways to time: each request once, and as `emu estimate` does
_EVENTS = {COMPOSED: 0, FULL: MOST_EVENTS}
Found = dict[str, Any]  # a `PlanRow`, or a `Taken`; or why there is none under REFUSED
REFUSED = "refused"


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


Submit = Callable[[Job], PendingResult[Found]]
