"""A search over candidates that looks at the least bound first.

Bounds are those of `emu.study.planning.bound`. A plan is bounded in any placement, first quickly, then by its tape; then in
each of its placements by the times of its own requests, as far as is needed (`candidate_bounds`). Then it is timed as a
composed step. The search always looks at the least bound, until this is above the time of the last plan of the table. So it
finds the plans that timing every candidate finds, unless it ends before, after a number of steps or requests (the table then
says so).
"""

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import islice

from emu.errors import InputError
from emu.model.generate.generate import holds
from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import spell
from emu.model.stack.stack import Stack
from emu.study.job_pool import LocalJob, PendingResult, results_of
from emu.study.planning.bound.candidate_bounds import CandidateBounds, MemoryFloors
from emu.study.planning.bound.rates import RequestTime
from emu.study.planning.search.requests import PlacedRequest
from emu.study.planning.search.row import ANYWHERE, PLACED, PLAN, READY, REDUCED, WORKS, Candidate, Entry, Frontier, PlanRow
from emu.study.planning.search.timer import (
    COMPOSED,
    FULL,
    QUICK,
    REFUSED,
    Job,
    JobResult,
    RequestJob,
    ResultCache,
    StepJob,
    Submit,
)
from emu.study.planning.space import placements
from emu.units import format_time

Progress = Callable[[str, int | None], AbstractContextManager[Callable[[], None]]]
_NO_TIME = float("inf")
STEPS, REQUESTS = 1_000, 6_000  # that a search times at most, so that it ends where bounds say little
PLANS = 5_000  # of PyTorch's pieces whose passes are generated at most: each takes milliseconds
_NEAR = 0.01  # share by which a quickly timed plan may be slower than the last of the table, and is timed once more
_FIRST = 2  # places of a pipeline: the first may have fewer layers beside the embedding


def quiet(label: str, total: int | None) -> AbstractContextManager[Callable[[], None]]:
    """Return a context for progress that is not shown."""
    return nullcontext(lambda: None)


PlanBound = tuple[float, int]  # the bound of a plan's time in any placement, and the number of candidates that it is of


@dataclass
class Search:
    """A search, with all that is known so far."""

    model: Model
    stack: Stack
    has: int  # bytes of the device's memory; 0: not known
    most: int  # plans that are wanted
    chooses: bool  # whether algorithms are chosen for a step: no word names all of them
    name_of: Callable[[Job], str]  # the name of a job's result in the cache
    kept: ResultCache
    placed: CandidateBounds
    floors: MemoryFloors
    progress: Progress = quiet
    submit: Submit = field(init=False)  # starts a job and returns its pending result; it is set once processes are there
    side_by_side: int = 2  # jobs that may run at one time
    best: dict[tuple[int, Plan], tuple[float, Candidate]] = field(default_factory=dict)  # of each plan its best placement
    rows: dict[Candidate, PlanRow] = field(default_factory=dict)
    bounds_s: dict[Candidate, float] = field(default_factory=dict)  # bounds by the times of requests, of those that came so far
    anywhere: list[PlanBound] = field(default_factory=list)  # of plans that may fit
    without: list[PlanBound] = field(default_factory=list)  # of plans that do not, or that cannot be generated
    large: list[PlanBound] = field(default_factory=list)  # of those that may, and do not when all that they hold is counted
    fits: dict[Plan, bool] = field(default_factory=dict)  # those of which a candidate was to be timed
    worst_s: float = _NO_TIME  # of the plans that are wanted, once there are as many
    requests: int = 0  # of which times were asked for
    generated: int = 0  # plans whose passes were
    left: list[Entry] = field(default_factory=list)  # what was not looked at, after so many, and may be among the best

    def time(self, plans: Sequence[Plan]) -> None:
        """Time the candidates that may be among the best, and keep their rows.

        A candidate is left out if the lower bound of its time is above the time of the slowest plan of the table.

        Args:
            plans: The plans to search; each may be placed in several ways.
        """
        frontier, left = Frontier(), len(plans)
        with self.progress(f"bounding {left:,} plans", left) as advance:
            for plan in plans:
                frontier.add(self.placed.quick.quickly_s(plan), PLAN, Candidate(-1, plan, ()))
                advance()
        try:
            with self.progress(f"searching {left:,} plans for the best", left) as advance:
                self._search(frontier, advance)
                self.left = [entry for entry in (*self.left, *frontier.entries) if entry.bound_s <= self.worst_s]
                for _ in range(sum(entry.known in (PLAN, WORKS) for entry in frontier.entries)):
                    advance()
        except KeyboardInterrupt as stopped:
            stopped.add_note(self._so_far(frontier))
            raise

    def _search(self, frontier: Frontier, advance: Callable[[], None]) -> None:
        """Look at entries and time candidates until none that is left may be among the best."""
        under_way = deque[tuple[Candidate, PendingResult[JobResult]]]()
        while under_way or self._goes_on(frontier):
            full = len(under_way) == self.side_by_side or not self._goes_on(frontier)
            if full or (under_way and under_way[0][1].ready()):
                candidate, waiting = under_way.popleft()
                self._take(candidate, waiting.get())
                continue
            entries = frontier.first(self.worst_s)
            if entries[0].known == READY:
                under_way.extend(self._timed(entries[0]))
                continue
            self._look(entries, frontier)
            for _ in (entry for entry in entries if entry.known == WORKS):
                advance()

    def _goes_on(self, frontier: Frontier) -> bool:
        """Return whether an entry that may be among the best is left, and the limit of steps is not reached."""
        return frontier.has(self.worst_s) and len(self.bounds_s) < STEPS

    def _so_far(self, frontier: Frontier) -> str:
        """Return in words the state of a search that was interrupted."""
        under_way = (least_s for each, least_s in self.bounds_s.items() if each not in self.rows)
        least_s = min((frontier.least_s, *under_way))
        told = f"no plan that is left takes less than {format_time(least_s)}"
        if self.best:
            time_s, first = min(self.best.values(), key=lambda each: (each[0], each[1].words))
            told += f"; of those timed {spell(first.plan)} is the fastest, {format_time(time_s)}"
        return f"{told}; started again, the search goes on from here"

    def _timed(self, ready: Entry) -> list[tuple[Candidate, PendingResult[JobResult]]]:
        """Return a candidate with its pending step; an empty list if it does not fit the memory."""
        plan = ready.candidate.plan
        if plan not in self.fits:
            self.fits[plan] = not self.has or holds(self.model, plan, self.stack, self.has, range(_FIRST, plan.pp))
        if not self.fits[plan]:
            self.large.append((ready.bound_s, 1))
            return []
        self.bounds_s[ready.candidate] = ready.bound_s
        return [(ready.candidate, self._asked(StepJob(ready.candidate, QUICK)))]

    def _look(self, entries: Sequence[Entry], frontier: Frontier) -> None:
        """Compute the next, better bounds of some entries and add these to the frontier again."""
        self.left += (entry for entry in entries if self._leaves(entry))
        entries = [entry for entry in entries if not self._leaves(entry)]
        for entry in entries:
            if entry.known == PLAN:
                works_s = self.placed.quick.seconds(entry.candidate.plan)
                frontier.add(max(entry.bound_s, works_s), WORKS, entry.candidate)
            if entry.known == REDUCED or (entry.known == WORKS and not self.placed.reduces):
                self._bound(entry, frontier)
        self._reduce([entry for entry in entries if entry.known == WORKS and self.placed.reduces], frontier)
        together = [(entry.bound_s, each) for entry in entries for each in self._placed(entry)]
        found = self.placed.nearer([candidate for _, candidate in together], self._times)
        for (bound_s, candidate), (least_s, is_told) in zip(together, found, strict=True):
            frontier.add(max(bound_s, least_s), READY if is_told else PLACED, candidate)

    def _leaves(self, entry: Entry) -> bool:
        """Return whether a plan is left out because a limit of the search is reached."""
        if not self.placed.reduces or entry.known not in (PLAN, WORKS, REDUCED):
            return False
        return self.generated >= PLANS or (self.requests >= REQUESTS and entry.known != REDUCED)

    def _reduce(self, entries: Sequence[Entry], frontier: Frontier) -> None:
        """Bound the plans that may fit by the times of their reductions of gradients."""
        fit = [entry for entry in entries if not self.has or self.floors.bytes(entry.candidate.plan) <= self.has]
        found = dict(zip(fit, self.placed.reduced([entry.candidate.plan for entry in fit], self._times), strict=True))
        for entry in entries:
            frontier.add(max(entry.bound_s, found.get(entry, 0.0)), REDUCED, entry.candidate)

    def _placed(self, entry: Entry) -> list[Candidate]:
        """Return the candidates of an entry to be bounded by their own requests: itself, or all placements of its plan."""
        candidate = entry.candidate
        if entry.known != ANYWHERE:
            return [candidate] * (entry.known == PLACED)
        if self._may_fit(candidate.plan):
            return [candidate._replace(axes=axes) for axes in placements(candidate.plan)]
        self.large.append((entry.bound_s, len(placements(candidate.plan))))
        return []

    def _bound(self, entry: Entry, frontier: Frontier) -> None:
        """Bound a plan in any placement on each topology, unless it does not fit the memory."""
        plan, bounds = entry.candidate.plan, list[float]()
        self.generated += 1
        if not self.has or self.floors.bytes(plan) <= self.has:
            with suppress(InputError):  # it cannot be generated
                bounds = [max(entry.bound_s, each) for each in self.placed.anywhere_s(plan)]
        for number, bound_s in enumerate(bounds):
            frontier.add(bound_s, ANYWHERE, Candidate(number, plan, ()))
        places = len(placements(plan))
        self.anywhere += [(bound_s, places) for bound_s in bounds]
        self.without += [(entry.bound_s, places)] * (len(self.placed.topologies) - len(bounds))

    def _times(self, topology: int, wanted: Mapping[Hashable, PlacedRequest]) -> dict[Hashable, RequestTime]:
        """Return times of requests by name; 0 for one that cannot be timed or is beyond the limit of requests."""
        asked = dict(islice(wanted.items(), REQUESTS - self.requests))
        found = {name: RequestTime(0.0, 0.0) for name in wanted if name not in asked}
        self.requests += len(asked)
        jobs = ((name, RequestJob(topology, request)) for name, request in asked.items())
        for name, took in results_of(((name, self._asked(job)) for name, job in jobs), 16 * self.side_by_side):
            self.kept.write(self.name_of(RequestJob(topology, wanted[name])), took)
            found[name] = RequestTime(0.0, 0.0) if REFUSED in took else RequestTime(**took)
        return found

    def undecided(self) -> tuple[int, int, float]:
        """Return what is left undecided.

        Returns:
            The number of undecided candidates that have no placement yet, the number of those that have one, and the least
            bound of all of them, in seconds.
        """
        places = [(entry.known, len(placements(entry.candidate.plan))) for entry in self.left]
        of_plans = len(self.placed.topologies) * sum(n for known, n in places if known > ANYWHERE)
        placed = sum(n if known == ANYWHERE else 1 for known, n in places if known <= ANYWHERE)
        return of_plans, placed, min((entry.bound_s for entry in self.left), default=_NO_TIME)

    def needed(self) -> list[Candidate]:
        """Return the candidates that had to be timed; more may have been, by the number of processes."""
        return [each for each, least_s in self.bounds_s.items() if least_s <= self.worst_s]

    def seen(self) -> list[PlanRow]:
        """Return the rows of candidates that had to be timed, each plan in its best placement."""
        best: dict[tuple[int, Plan], PlanRow] = {}
        for each in (each for each in self.needed() if each in self.rows):
            row, key = self.rows[each], (each.topology, each.plan)
            best[key] = min(row, best.get(key, row), key=lambda one: (one.step_time_s, one.axes))
        return list(best.values())

    def _may_fit(self, plan: Plan) -> bool:
        """Return whether the first places of a plan's pipelines fit the memory, one of which mostly holds the most."""
        return not self.has or holds(self.model, plan, self.stack, self.has, range(min(_FIRST, plan.pp)))

    def _asked(self, job: StepJob | RequestJob) -> PendingResult[JobResult]:
        """Return the pending result of a job, which may be in the cache."""
        known = self.kept.read(self.name_of(job))
        return self.submit(job) if known is None else LocalJob(lambda _: known, job)

    def time_all(self, candidates: Sequence[Candidate], how: str) -> list[Candidate]:
        """Time more candidates in one of the ways of `timer`, and return those that could be timed, the fastest first."""
        timed = list[Candidate]()
        label = f"timing {len(candidates)} of them {'in full' if how == FULL else 'by more algorithms'}"
        with self.progress(label, len(candidates)) as advance:
            for candidate, found in results_of(((c, self._asked(StepJob(c, how))) for c in candidates), self.side_by_side):
                self.kept.write(self.name_of(StepJob(candidate, how)), found)
                if REFUSED not in found:
                    self.rows[candidate] = PlanRow.stored(found)
                    timed.append(candidate)
                advance()
        return sorted(timed, key=lambda each: (self.rows[each].step_time_s, each.words))

    def time_near(self) -> None:
        """Time all that may be among the best once more, with as many choices of algorithms as a step may have."""
        near = [each for each, row in self.rows.items() if row.step_time_s <= (1 + _NEAR) * self.worst_s]
        self.best.clear()
        for candidate in self.time_all(near, COMPOSED):
            key = candidate.topology, candidate.plan
            self.best.setdefault(key, (self.rows[candidate].step_time_s, candidate))

    def ranked(self) -> list[Candidate]:
        """Return the best candidates that are known, each plan in its best placement."""
        every = sorted(self.best.values(), key=lambda each: (each[0], each[1].words))
        return [candidate for _, candidate in every[: self.most]]

    def _take(self, candidate: Candidate, found: JobResult) -> None:
        """Keep the result of a candidate's step, and update the best plans."""
        self.kept.write(self.name_of(StepJob(candidate, QUICK)), found)
        if REFUSED in found:
            return
        row = self.rows[candidate] = PlanRow.stored(found)
        key, mine = (candidate.topology, candidate.plan), (row.step_time_s, candidate)
        self.best[key] = min(mine, self.best.get(key, mine), key=lambda each: (each[0], each[1].words))
        if len(self.best) >= self.most:
            self.worst_s = sorted(time_s for time_s, _ in self.best.values())[self.most - 1]
