"""The jobs of a search, the object that does them, the cache of results, and the state of the search.

Jobs are steps and requests to be timed. The cache is in SQLite, so that an interrupted search goes on where it stopped. A row
is named by a digest of all inputs of its figures, with the code of Emu and of users. So an entry never goes stale. The fastest
plans, and the least time that a plan may take that was not timed, are kept there too. So neither goes back when a search is
started again, and an interrupted search has a table.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from emu.arrays import digest
from emu.errors import InputError
from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import spell
from emu.model.stack.stack import Stack
from emu.sources import code_digest
from emu.store import ValueTable
from emu.study.job_pool import OpenPool, PendingResult, known_result
from emu.study.planning.bound.least_times import BoundedRequest, least_request_time
from emu.study.planning.search.row import Candidate, PlanRequest, PlanRow
from emu.study.training.composed.software_costs import costed_device, costed_topology
from emu.study.training.estimate import DEFAULT_EFFORT, EstimateRequest, prepare
from emu.study.training.step_choice.algorithm_search import ALWAYS_COMPOSED, TimingEffort
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.units import format_time

QUICK, THOROUGH, FULL = "quick", "thorough", "full"  # ways to time a step
_EFFORTS = {
    QUICK: TimingEffort(0, most_steps=32, within=1.0),  # composed, by algorithms that mostly give less than 0.1 % more time
    THOROUGH: ALWAYS_COMPOSED,
    FULL: DEFAULT_EFFORT,  # as `emu estimate` does
}
JobResult = dict[str, Any]  # fields of a `PlanRow`, or the fields of a `LeastTime`; or why there is none under REFUSED
REFUSED = "refused"
_FILE = "plans.sqlite"


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


def do_and_store(worker: JobWorker, kept: ResultCache, name_of: Callable[[Job], str], job: Job) -> JobResult:
    """Do a job, and return its result after writing it to the cache: no interruption loses a result that was reported.

    Args:
        worker: The object that does the job.
        kept: The cache.
        name_of: A function that gives the name of a job's result in the cache.
        job: The job.
    """
    found = worker(job)
    kept.write(name_of(job), found)
    return found


def search_name(request: PlanRequest, model: Model, device: Device, topologies: tuple[Topology, ...]) -> str:
    """Return the name under which the cache stores the state of a search."""
    asked, machines = replace(request, model=model.digest(), beside=()), [each.digest() for each in topologies]
    return "search " + digest((code_digest(), asked, device, machines))


def result_namer(
    model: Model, stack: Stack, device: Device, algorithms: tuple[str, ...], topologies: tuple[Topology, ...]
) -> Callable[[Job], str]:
    """Return a function that gives the cache name of a job's result; requests have equal names in all searches."""
    steps = digest((code_digest(), model.digest(), stack, device, algorithms))
    requests = digest((code_digest(), costed_device(stack, device).request_overhead_fs, algorithms))
    plain, under = [each.digest() for each in topologies], [costed_topology(stack, each).digest() for each in topologies]

    def name_of(job: Job) -> str:
        if isinstance(job, RequestJob):
            return "request " + digest((requests, under[job.topology], *job.request.name))
        topology, plan, axes = job.candidate
        return "step " + digest((steps, plain[topology], repr(plan), axes, job.effort))

    return name_of


Advance = Callable[..., None]  # counts one thing as done, and shows a line if one is given


# A function that shows the progress of one part of a search while a context lasts. It is given the name of the part, the number
# of advances (None: it is not known), and a function that says in words what is done and left (None: the number says it).
Progress = Callable[[str, int | None, Callable[[], str] | None], AbstractContextManager[Advance]]


def _hidden(told: str = "") -> None:
    """Do nothing with a text on the progress of a search that nobody watches."""


def quiet(label: str, total: int | None, state: Callable[[], str] | None) -> AbstractContextManager[Advance]:
    """Return a context for progress that is not shown."""
    return nullcontext(_hidden)


@dataclass
class SearchState:
    """The state of a search in the cache: its fastest plans and its lower bound, also from earlier interrupted runs."""

    kept: ResultCache
    name: str  # of the search in the cache
    name_of: Callable[[Job], str]  # the name of a job's result there
    advance: Advance = _hidden
    least_s: float = 0.0  # no candidate that is not timed takes less
    best: tuple[float, Candidate] | None = None  # seconds of the fastest by the quick way, and the candidate
    before: dict[Candidate, PlanRow] = field(default_factory=dict)  # the fastest of an interrupted search
    _shown_s: float = inf  # the time of the best that was last shown

    @staticmethod
    def of(
        request: PlanRequest, model: Model, device: Device, topologies: tuple[Topology, ...], kept: ResultCache
    ) -> "SearchState":
        """Return the state of a search at its start; it continues that of an interrupted run if the cache has all results."""
        name_of = result_namer(model, request.stack, device, request.algorithms, topologies)
        state = SearchState(kept, search_name(request, model, device, topologies), name_of)
        state.load()
        return state

    def recall(self, job: Job) -> JobResult | None:
        """Return the result of a job from the cache; None if it is not there."""
        found: JobResult | None = self.kept.read(self.name_of(job))
        return found

    def load(self) -> None:
        """Read the bound and the fastest plans of an interrupted search from the cache, unless a result of them is lost."""
        found = self.kept.read(self.name)
        rows = {candidate: self._rows(candidate) for candidate in map(_candidate, found["best"])} if found else {}
        if not found or not all(rows.values()):
            return
        self.least_s = inf if found["least_s"] is None else found["least_s"]
        for candidate, own in rows.items():
            self.before[candidate] = own[0]
            self._improve(own[-1].step_time_s, candidate)

    def save(self, best: Sequence[Candidate]) -> None:
        """Write the bound and these candidates, the fastest of the search, to the cache."""
        least_s = None if self.least_s == inf else self.least_s
        words = [{"topology": number, "plan": asdict(plan), "axes": axes} for number, plan, axes in best]
        self.kept.write(self.name, {"least_s": least_s, "best": words})

    def note_time(self, time_s: float, candidate: Candidate) -> None:
        """Note the time of a candidate, and report it if it is the best so far."""
        self._improve(time_s, candidate)
        self._tell()

    def note_bound(self, least_s: float) -> None:
        """Note that every candidate without a time takes at least `least_s`; report it if this proves the best plan."""
        was_proved, self.least_s = self.is_proved, max(self.least_s, least_s)
        if self.is_proved and not was_proved:
            self._shown_s = inf
        self._tell()

    @property
    def is_proved(self) -> bool:
        """True if no plan that was not timed can be as fast as the best."""
        return self.best is not None and self.best[0] < self.least_s

    def text(self) -> str:
        """Return a text with the best plan so far, and the lower bound of the remaining plans."""
        least = "" if self.least_s == inf else f" takes less than {format_time(self.least_s)}"
        rest = f"no plan that is left{least}" if least else "no plan is left"
        if self.best is None:
            return rest
        time_s, (_, plan, axes) = self.best
        placed = f"{spell(plan)} in placement {','.join(axes)}" if axes else spell(plan)
        return f"{'proved' if self.is_proved else 'so far'} the fastest: {placed}: {format_time(time_s)}; {rest}"

    def _improve(self, time_s: float, candidate: Candidate) -> None:
        """Store a candidate as the best if it is faster than the best so far, or as fast with a smaller `tie_key`."""
        if self.best is None or (time_s, candidate.tie_key) < (self.best[0], self.best[1].tie_key):
            self.best = time_s, candidate

    def _tell(self) -> None:
        """Show the best plan as a progress line if it has changed or is newly proved."""
        if self.best is not None and self.best[0] < self._shown_s:
            self._shown_s = self.best[0]
            self.advance(self.text())

    def _rows(self, candidate: Candidate) -> list[PlanRow]:
        """Return the rows of a candidate from the cache, that of the best way of timing first.

        The list is empty if the quick one is lost.
        """
        *better, quick = (self.recall(StepJob(candidate, effort)) for effort in (FULL, THOROUGH, QUICK))
        return [PlanRow.stored(row) for row in (*better, quick) if row and REFUSED not in row] if quick else []


@dataclass
class SearchJobs:
    """The jobs of a search; a result comes from the cache if possible, else from the job pool."""

    state: SearchState
    pool: OpenPool[Job, JobResult]
    steps: int = 0  # steps that were asked for, known ones too

    @property
    def side_by_side(self) -> int:
        """The number of jobs that run at one time."""
        return self.pool.side_by_side

    def submit(self, job: Job) -> PendingResult[JobResult]:
        """Return the pending result of a job."""
        self.steps += isinstance(job, StepJob)
        known = self.state.recall(job)
        return self.pool.submit(job) if known is None else known_result(known)


def _candidate(found: Mapping[str, Any]) -> Candidate:
    """Return the candidate that an entry of the cache names."""
    plan = Plan(**{**found["plan"], "layers": tuple(found["plan"]["layers"])})
    return Candidate(found["topology"], plan, tuple(found["axes"]))
