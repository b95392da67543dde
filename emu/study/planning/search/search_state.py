"""The state of a search: its fastest plans, its lower bound, and its results.

The fastest plans, and the least time that a plan may take that was not timed, are kept in the cache of results. So neither goes
back when a search is started again, and an interrupted search has a table.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import spell
from emu.study.job_pool import OpenPool, PendingResult, known_result
from emu.study.planning.plan_request import Candidate, PlanRequest
from emu.study.planning.plan_row import PlanRow
from emu.study.planning.search.result_cache import ResultCache, result_namer, search_name
from emu.study.planning.search.search_jobs import FULL, QUICK, REFUSED, THOROUGH, Job, JobResult, StepJob
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.units import format_time

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
