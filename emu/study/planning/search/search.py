"""The search over candidate plans, best bound first.

The search takes the entry with the least bound, and has it climb the ladder of bounds (`ladder`) or, where its bound is final,
has its step timed, until the least bound is above the time of the last plan of the table. So it finds the plans that timing
every candidate finds, unless it ends before. A few promising plans are timed earlier, so that a best is known soon. The first
plan is *proved* when no bound is left below its time. The search goes on to prove the others until it has done a fixed amount
of work, which the request can lift. What is done depends neither on the number of processes nor on how fast they are.
"""

import sys
from collections import Counter, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import inf

from emu.study.job_pool import PendingResult, results_of
from emu.study.planning.plan_request import Candidate, Work
from emu.study.planning.plan_row import PlanRow
from emu.study.planning.prepared_search import PreparedSearch
from emu.study.planning.search.best_plans import BestPlans
from emu.study.planning.search.frontier import ALL_PARTS, PLACED, READY, Entry
from emu.study.planning.search.ladder import PLACES_TESTED_FIRST, BoundLadder
from emu.study.planning.search.search_jobs import FULL, REFUSED, THOROUGH, JobResult, StepJob
from emu.study.planning.search.search_state import Progress, SearchJobs, SearchState
from emu.study.planning.space import placements

# The limits of the work of a search, so that it ends where bounds say little. Beyond the limit of steps nothing is timed.
# Beyond that of requests, a request without a known time counts as 0 s. Beyond that of requests or of plans, plans that are
# not generated yet are dropped; this is for software that reduces gradients during the passes: its plans generate slowly.
MOST_WORK = Work(1_000, 6_000, 20_000)
MOST_AFTER_FIRST = Work(40, 1_000, 2_000)  # what may be added once the first plan is proved
_ALL = Work(*[sys.maxsize] * 3)
_AHEAD = 4  # steps that are asked for before the first of them is looked at, whatever the number of processes
_NEAR = 0.01  # share by which a quickly timed plan may be slower than the last of the table, and is timed once more
_EVERY = 16  # requests and generated plans after which promising plans are tried again; then twice as many each time
_LOOKS = 16  # limit of plans whose passes are generated to find a promising one
_SPLITS = 64  # limit of how often a promising plan is looked for at a time

PendingStep = tuple[Candidate, PendingResult[JobResult]]


@dataclass
class Search:
    """A search that is running: its candidates, its rows, and the limits of its work."""

    prepared: PreparedSearch
    jobs: SearchJobs
    progress: Progress
    ladder: BoundLadder = field(init=False)  # candidates that are not timed
    plans: BestPlans = field(init=False)  # candidates that are
    under_way: deque[PendingStep] = field(default_factory=deque)  # steps that were asked for
    step_bounds_s: dict[Candidate, float] = field(default_factory=dict)  # bounds of candidates whose step was asked for
    tried: Counter[Hashable] = field(default_factory=Counter)  # how often a promising plan was looked for in each split
    tries_at: int = 0  # requests and generated plans after which promising plans are tried next
    proof_limit_s: float = 0.0  # the time in full of a plan to be proved; plans with a smaller bound must be timed too
    least_s: float = 0.0  # no candidate that is not timed takes less
    work_when_first_proved: Work | None = None  # MOST_AFTER_FIRST counts from it; None: the first plan is not proved yet

    def __post_init__(self) -> None:
        self.ladder = BoundLadder(self.prepared, self.jobs, self._most_work)
        self.plans = BestPlans(self.prepared.request.top, self.state)

    @property
    def state(self) -> SearchState:
        """The state of the search that the cache stores."""
        return self.jobs.state

    @property
    def limit_s(self) -> float:
        """The seconds of the slowest plan of the table; the search may leave out what has a larger bound."""
        return max(self.plans.worst_s, self.proof_limit_s)

    def find_best(self) -> list[Candidate]:
        """Return the best candidates, ranked by their time in full; none if no plan fits the memory."""
        self.ladder.add_plans(self.progress)
        while True:
            self.run()
            if not self.plans.best:
                return []
            if self.prepared.chooses:
                self.plans.rank_anew(self.time_all(self.plans.within(_NEAR), THOROUGH))
            found = self.time_all(self.plans.ranked(), FULL)
            if self._ends(found):
                return found

    def time_named(self) -> list[Candidate]:
        """Time the plans that the user names, and return their fastest placement on each topology."""
        found = list[Candidate]()
        for topology, plan in product(range(len(self.prepared.topologies)), self.prepared.request.beside):
            named = [Candidate(topology, plan, axes) for axes in placements(plan)]
            found += self.time_all(self.time_all(named, THOROUGH)[:1], FULL)
        return found

    def run(self) -> None:
        """Process entries in the order of their bounds, and time the candidates that may be among the best.

        A candidate is left out if the lower bound of its time is above the time of the slowest plan of the table.
        """
        may_fit = len({entry.candidate.plan for entry in self.ladder.frontier.entries})
        label = f"searching {may_fit:,} of {len(self.prepared.plans):,} plans, those that may fit the memory, for the best"
        self._note_bound()
        with self.progress(label, None, self._progress_text) as advance:
            self.state.advance = advance
            while self._goes_on() or self._waits():
                if self._goes_on() and self._is_time_to_try():
                    self._try_promising()
                elif len(self.under_way) == _AHEAD or not self._goes_on():
                    self._take_next()
                else:
                    self._advance_entries(self.ladder.frontier.take_batch(self.limit_s))
                    self._note_bound()
        for candidate, _ in self.under_way:  # these are not among the best
            self.ladder.frontier.add(self.step_bounds_s.pop(candidate), READY, candidate)
        self.under_way.clear()

    def time_all(self, candidates: Sequence[Candidate], effort: str) -> list[Candidate]:
        """Time candidates in one degree of detail, such as FULL, and return those with a time, fastest first."""
        timed, rows = list[Candidate](), self.plans.rows
        label = f"timing {len(candidates)} of them {'in full' if effort == FULL else 'by more algorithms'}"
        pending = (self.jobs.submit(StepJob(each, effort)) for each in candidates)
        with self.progress(label, len(candidates), None) as advance:
            for candidate, found in zip(candidates, results_of(pending, 2 * self.jobs.side_by_side), strict=True):
                if REFUSED not in found:
                    rows[candidate] = PlanRow.stored(found)
                    timed.append(candidate)
                advance()
        return sorted(timed, key=lambda each: (rows[each].step_time_s, each.tie_key))

    def needed(self) -> list[Candidate]:
        """Return the timed candidates whose bound is not above the limit, so that they had to be timed."""
        under_way = {candidate for candidate, _ in self.under_way}
        return [each for each, bound_s in self.step_bounds_s.items() if bound_s <= self.limit_s and each not in under_way]

    def adopt_known(self) -> list[Candidate]:
        """Take over the rows and the bound of earlier, interrupted runs, and return the best candidates, fastest first.

        The cache keeps these candidates and the bound for the next run.
        """
        best = self.plans.known()
        self.plans.rows, self.least_s = {**best, **self.plans.rows}, self.state.least_s
        self.state.save([*best])
        return [*best]

    @property
    def _first_limit_s(self) -> float:
        """The time of the first plan in seconds; candidates with a larger bound are slower."""
        return max(self.plans.first_s, self.proof_limit_s)

    @property
    def _most_work(self) -> Work:
        """The limits of the work of the search."""
        return _ALL if self.prepared.request.prove_all else MOST_WORK

    def _goes_on(self) -> bool:
        """Return whether an entry that may be among the best is left, and the limits of work are not reached."""
        if not self.ladder.frontier.has(self.limit_s) or len(self.step_bounds_s) >= self._most_work.steps:
            return False
        if self.prepared.request.prove_all or self.work_when_first_proved is None:
            return True
        return all(
            now - first < most
            for now, first, most in zip(self._work(), self.work_when_first_proved, MOST_AFTER_FIRST, strict=True)
        )

    def _waits(self) -> bool:
        """Return whether a step that is being timed may be among the best."""
        return any(self.step_bounds_s[candidate] <= self.limit_s for candidate, _ in self.under_way)

    def _work(self) -> Work:
        """Return the amount of work done so far."""
        return Work(len(self.step_bounds_s), self.ladder.requests, self.ladder.generated)

    def _note_bound(self) -> None:
        """Compute the lower bound of all remaining plans, and note if none can be as fast as the first plan."""
        under_way_s = (self.step_bounds_s[candidate] for candidate, _ in self.under_way)
        first = self.ladder.frontier.least()
        least_s = min((*under_way_s, first.bound_s if first else inf))
        self.least_s = min(least_s, self.ladder.dropped_least_s)
        if self.work_when_first_proved is None and least_s > self._first_limit_s:
            self.work_when_first_proved = self._work()
        self.state.note_bound(self.least_s)

    def _progress_text(self) -> str:
        """Return a progress text with what is done and what is left; the progress thread calls it."""
        entries = [entry for entry in self.ladder.frontier.entries if entry.bound_s <= self.limit_s]
        placed = {entry.candidate.plan for entry in entries if entry.rung <= ALL_PARTS}
        left = len(placed) + sum(entry.rung > ALL_PARTS for entry in entries)
        done = f"{len(self.plans.rows):,} steps and {self.ladder.requests:,} requests timed"
        return f"{self.state.text()}; {done}; {left:,} plans left that may be among the best {self.prepared.request.top}"

    def _is_time_to_try(self) -> bool:
        """Return whether some promising plans are to be timed now, before more bounds are computed."""
        return self.ladder.requests + self.ladder.generated >= self.tries_at

    def _try_promising(self) -> None:
        """Time the steps of promising plans: enough to fill the table, or one more if it is full.

        So good plans are known early, and slower ones are dropped before their requests are timed. The bounds of all other
        plans stay.
        """
        self.tries_at = max(_EVERY, 2 * (self.ladder.requests + self.ladder.generated))
        wanted = len(self.step_bounds_s) + max(1, self.plans.lacking)
        for _ in range(_SPLITS):
            if len(self.step_bounds_s) == wanted:
                break
            if len(self.under_way) == (_AHEAD if self.plans.best else 1):  # a first best comes as soon as can be
                self._take_next()
            self.under_way.extend(self._promising())
        while self.under_way:
            self._take_next()

    def _promising(self) -> list[PendingStep]:
        """Return the most promising plan with its pending step, as a list; empty if none is found.

        It is the plan with the least bound of the most promising split; for it, a limited number of plans are generated.
        """
        ladder, frontier = self.ladder, self.ladder.frontier
        limit_s = self.limit_s if self.plans.worst_s == inf else self._first_limit_s
        split = frontier.promising(limit_s, self.tried)
        if split is None:
            return []
        self.tried[split] += 1
        most = ladder.generated + _LOOKS
        while ladder.generated < most and frontier.has_in(split, limit_s):
            first = frontier.pop(split)
            if first.rung > PLACED:
                ladder.climb([first])
            elif asked := self._ask_for_step(first):
                return asked
        return []

    def _take_next(self) -> None:
        """Wait for the oldest pending step, and store its result."""
        candidate, waiting = self.under_way[0]
        self.plans.store(candidate, waiting())
        self.under_way.popleft()
        self._note_bound()
        self.state.save([*self.plans.known()])

    def _advance_entries(self, entries: Sequence[Entry]) -> None:
        """Start timing the first entry if its bound is final, else compute tighter bounds of all entries."""
        if entries[0].rung == READY:
            self.under_way.extend(self._ask_for_step(entries[0]))
        else:
            self.ladder.climb(entries)

    def _ask_for_step(self, ready: Entry) -> list[PendingStep]:
        """Return a candidate with its pending step, as a list; empty if it does not fit the memory."""
        plan = ready.candidate.plan
        if not self.ladder.fits(plan, range(PLACES_TESTED_FIRST, plan.pp)):
            self.ladder.too_large.append((ready.bound_s, 1))
            return []
        self.step_bounds_s[ready.candidate] = ready.bound_s
        return [(ready.candidate, self.jobs.submit(StepJob(ready.candidate)))]

    def _ends(self, found: Sequence[Candidate]) -> bool:
        """Set the time below which a plan must be timed, and return whether the search ends.

        It ends when the plans to be proved are proved (no remaining plan can be faster than they are in full), or at a limit
        of work. A step in full may take longer than the composed one. Then the search goes on until its bound is above that.
        """
        proved = found if self.prepared.request.prove_all else found[:1]
        self.proof_limit_s = max((self.plans.rows[each].step_time_s for each in proved), default=0.0)
        if self.proof_limit_s < self.least_s:
            return True
        self.work_when_first_proved = None
        return not self._goes_on()
