"""The jobs of a search, which are steps and requests to be timed, and the object that times them.

Also here: the entries that a search has still to look at, the least bound first.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from emu.errors import InputError
from emu.model.model import Model
from emu.study.job_pool import PendingResult
from emu.study.planning.search.requests import PlacedRequest, time_request
from emu.study.planning.search.row import Candidate, PlanRequest, PlanRow
from emu.study.training.composed.software_costs import device_under, topology_under
from emu.study.training.estimate import DEFAULT_EFFORT, EstimateRequest, prepare
from emu.study.training.served.step_to_serve import ALWAYS_COMPOSED, TimingEffort
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
        return PlanRow.of(prepare(asked, topology, self.device, _EFFORTS[how]).moments(self.device, briefly=True)[0]).as_dict()

    def _lone(self, number: int, request: PlacedRequest) -> JobResult:
        """Return the least time of a request on the topology of a number."""
        stack, algorithms = self.request.stack, self.request.algorithms
        topology, device = topology_under(stack, self.topologies[number]), device_under(stack, self.device)
        return time_request(request, topology, algorithms, device.request_overhead_fs)._asdict()


Submit = Callable[[Job], PendingResult[JobResult]]


READY, PLACED, ANYWHERE, REDUCED, WORKS, PLAN = range(6)  # the kind of a bound; of equal bounds the best known comes first
_TOGETHER = 64  # limit of entries that are looked at together
_NEAR = 1.005  # times the least bound: limit of their bounds


class Entry(NamedTuple):
    """A candidate, or a plan in any placement, with the bound of its time."""

    bound_s: float
    known: int  # the kind of the bound: READY, PLACED and so on
    number: int  # unique
    candidate: Candidate


@dataclass
class Frontier:
    """A heap of entries."""

    entries: list[Entry] = field(default_factory=list)
    added: int = 0
    least_s: float = 0.0  # the last bound that was taken off; no entry left is below

    def add(self, bound_s: float, known: int, candidate: Candidate) -> None:
        """Add an entry while the search runs."""
        heappush(self.entries, self._entry(bound_s, known, candidate))

    def append(self, bound_s: float, plan: Candidate) -> None:
        """Append a plan before the search begins."""
        self.entries.append(self._entry(bound_s, PLAN, plan))

    def begin(self) -> None:
        """Make a heap of all plans that were appended."""
        heapify(self.entries)

    def has(self, most_s: float) -> bool:
        """Return whether there is an entry whose bound is at most `most_s`."""
        return bool(self.entries) and self.entries[0].bound_s <= most_s

    def first(self, most_s: float) -> list[Entry]:
        """Take off and return the first entry if it is ready to be timed, or else the entries near its bound that are not."""
        found, ready = [heappop(self.entries)], list[Entry]()
        self.least_s = found[0].bound_s
        most_s = min(most_s, found[0].bound_s * _NEAR)
        while found[0].known != READY and self.has(most_s) and len(found) < _TOGETHER:
            entry = heappop(self.entries)
            (ready if entry.known == READY else found).append(entry)
        for entry in ready:
            heappush(self.entries, entry)
        return found

    def _entry(self, bound_s: float, known: int, candidate: Candidate) -> Entry:
        """Return the entry of a candidate, numbered after all entries before it.

        Args:
            bound_s: The lower bound of its time.
            known: The kind of this bound: READY, PLACED and so on.
            candidate: The candidate, or a plan in any placement.
        """
        self.added += 1
        return Entry(bound_s, known, self.added, candidate)
