"""A search over candidates that looks at the least bound first.

Bounds are those of `emu.study.planning.bound`. A plan is bounded in any placement: quickly, by its own passes, by reductions of
gradients, and by all parts of the model; then in each of its placements by the links that serve its groups, and by the least
times of its own requests, as far as is needed (`frontier` lists the kinds). Then it is timed as a composed step. The search
always looks at the least bound, until this is above the time of the last plan of the table. So it finds the plans that timing
every candidate finds, unless it ends before. A few promising plans are timed earlier, so that a best is known soon. The first
plan is *proved* when no bound is left below its time. The search goes on to prove the others until it has done a fixed amount
of work, which the request can lift. What is done depends neither on the number of processes nor on how fast they are.
"""

import sys
from collections import Counter, deque
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from emu.errors import InputError
from emu.memo import kept_by
from emu.model.generate.generate import holds
from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.study.job_pool import OpenPool, PendingResult, known_result, results_of
from emu.study.planning.bound.candidate_bounds import CandidateBounds
from emu.study.planning.bound.least_times import BoundedRequest
from emu.study.planning.bound.memory_floors import MemoryFloors
from emu.study.planning.bound.rates import LeastTime
from emu.study.planning.search.frontier import ANYWHERE, PLACED, PLAN, READY, REDUCED, WORKS, Entry, Frontier
from emu.study.planning.search.results import FULL, REFUSED, THOROUGH, JobResult, Progress, RequestJob, SearchState, StepJob
from emu.study.planning.search.row import Candidate, PlanRequest, PlanRow, Work
from emu.study.planning.space import placements
from emu.topology.topology import Topology
from emu.trace.device.device import Device

# Of a search, so that it ends where bounds say little; plans count where their passes are long.
MOST = Work(1_000, 6_000, 5_000)
AFTER_FIRST = Work(40, 1_000, 2_000)  # once the first plan is proved
_ALL = Work(*[sys.maxsize] * 3)
_AHEAD = 4  # steps that are asked for before the first of them is looked at, whatever the number of processes
_NEAR = 0.01  # share by which a quickly timed plan may be slower than the last of the table, and is timed once more
_EVERY = 16  # requests and generated plans after which promising plans are tried again; then twice as many each time
_LOOKS = 16  # limit of plans whose passes are generated to find a promising one
_SPLITS = 64  # limit of how often a promising plan is looked for at a time
_FIRST = 2  # places of a pipeline: the first may have fewer layers beside the embedding


PlanBound = tuple[float, int]  # the bound of a plan's time in any placement, and the number of candidates that it is of


@dataclass
class Search:
    """A search, with all that is known so far."""

    request: PlanRequest
    model: Model
    topologies: Sequence[Topology]
    device: Device
    chooses: bool  # whether algorithms are chosen for a step: no word names all of them
    began_s: float  # when it began, by the clock of `time.perf_counter`
    bounds: CandidateBounds
    floors: MemoryFloors
    state: SearchState
    progress: Progress
    plans: Sequence[Plan] = ()  # those that are searched
    not_searched: tuple[str, ...] = ()  # what else the words that all plans have could say
    pool: OpenPool[StepJob | RequestJob, JobResult] = field(init=False)  # it is set once processes are there
    frontier: Frontier = field(default_factory=Frontier)
    under_way: deque[tuple[Candidate, PendingResult[JobResult]]] = field(default_factory=deque)  # steps that were asked for
    tried: Counter[Hashable] = field(default_factory=Counter)  # how often a promising plan was looked for in each split
    tries_at: int = 0  # requests and generated plans after which promising plans are tried next
    best: dict[tuple[int, Plan], tuple[float, Candidate]] = field(default_factory=dict)  # of each plan its best placement
    rows: dict[Candidate, PlanRow] = field(default_factory=dict)
    quick_s: dict[Candidate, float] = field(default_factory=dict)  # times by the quick way
    step_bounds_s: dict[Candidate, float] = field(default_factory=dict)  # bounds of candidates whose step was asked for
    anywhere: list[PlanBound] = field(default_factory=list)  # of plans whose memory floor fits
    without: list[PlanBound] = field(default_factory=list)  # of plans whose floor does not, or that cannot be generated
    large: list[PlanBound] = field(default_factory=list)  # of plans whose floor fits, and that do not fit
    first_s: float = inf  # time of the best plan so far, by the quick way
    worst_s: float = inf  # time of the slowest plan of the table, once it is full
    reach_s: float = 0.0  # a time in full; plans with a smaller bound must be timed too
    least_s: float = 0.0  # no candidate that is not timed takes less
    first_took: Work | None = None  # the work until the first plan was proved, but for what was left; None: it is not
    requests: int = 0  # how many least times of requests were asked for
    generated: int = 0  # plans whose passes were generated
    left: list[Entry] = field(default_factory=list)  # entries that a limit of the work leaves out
    left_s: float = inf  # the least bound of the entries in `left`

    @property
    def has(self) -> int:
        """The bytes of the device's memory; 0: not known."""
        return self.device.memory_bytes

    def bound_plans(self) -> None:
        """Add all plans whose memory floor fits to the frontier with their quickest bounds, before any is placed."""
        with self.progress(f"bounding {len(self.plans):,} plans", len(self.plans), None) as advance:
            for plan in self.plans:
                if self._may_fit(plan):
                    self.frontier.add(self.bounds.quick.quickly_s(plan), PLAN, Candidate(-1, plan, ()))
                else:
                    self.without.append((0.0, len(self.topologies) * len(placements(plan))))
                advance()

    def run(self) -> None:
        """Look at the least bound again and again, and time the candidates that may be among the best; their rows are kept.

        A candidate is left out if the lower bound of its time is above the time of the slowest plan of the table.
        """
        label = f"searching {len(self.frontier.entries):,} plans for the best"
        self._note_bound()
        with self.progress(label, None, self._progress_text) as self.state.advance:
            while self._goes_on() or self._waits():
                if self._goes_on() and self._tries():
                    self._try_promising()
                elif len(self.under_way) == _AHEAD or not self._goes_on():
                    self._take_next()
                else:
                    self._look_at(self.frontier.together(self.limit_s))
                    self._note_bound()
        for candidate, _ in self.under_way:  # these are not among the best
            self.frontier.add(self.step_bounds_s.pop(candidate), READY, candidate)
        self.under_way.clear()

    @property
    def limit_s(self) -> float:
        """The seconds of the slowest plan of the table; the search may leave out what has a larger bound."""
        return max(self.worst_s, self.reach_s)

    @property
    def _first_limit_s(self) -> float:
        """The seconds of the first plan; what has a larger bound is slower."""
        return max(self.first_s, self.reach_s)

    @property
    def _most(self) -> Work:
        """The most work of the search."""
        return _ALL if self.request.prove_all else MOST

    def _goes_on(self) -> bool:
        """Return whether an entry that may be among the best is left, and no limit of the work is reached."""
        if not self.frontier.has(self.limit_s) or len(self.step_bounds_s) >= self._most.steps:
            return False
        if self.request.prove_all or self.first_took is None:
            return True
        return all(now - first < most for now, first, most in zip(self._work(), self.first_took, AFTER_FIRST, strict=True))

    def _waits(self) -> bool:
        """Return whether a step that was asked for and has no time yet may be among the best."""
        return any(self.step_bounds_s[candidate] <= self.limit_s for candidate, _ in self.under_way)

    def _work(self) -> Work:
        """Return the work that is done so far."""
        return Work(len(self.step_bounds_s), self.requests, self.generated)

    def _note_bound(self) -> None:
        """Compute the bound of all that is left, and note when nothing in the frontier may be as fast as the first plan."""
        asked = (self.step_bounds_s[candidate] for candidate, _ in self.under_way)
        first = self.frontier.least()
        least_s = min((*asked, first.bound_s if first else inf))
        self.least_s = min(least_s, self.left_s)
        if self.first_took is None and least_s > self._first_limit_s:
            self.first_took = self._work()
        self.state.note_bound(self.least_s)

    def _progress_text(self) -> str:
        """Return in words what is done and what is left; the thread that shows progress calls it."""
        entries = [entry for entry in self.frontier.entries if entry.bound_s <= self.limit_s]
        placed = {entry.candidate.plan for entry in entries if entry.kind <= ANYWHERE}
        left = len(placed) + sum(entry.kind > ANYWHERE for entry in entries)
        done = f"{len(self.rows):,} steps and {self.requests:,} requests timed"
        return f"{self.state.text()}; {done}; {left:,} plans left that may be among the best {self.request.best}"

    def _tries(self) -> bool:
        """Return whether promising plans are to be timed before more requests are, or more passes are generated."""
        return self.requests + self.generated >= self.tries_at

    def _try_promising(self) -> None:
        """Time the steps of promising plans: as many as fill the table, or one more once it is full.

        So good plans are known early, and what is slower is left out. Their requests are not timed. The bounds of all other
        plans stay as they are.
        """
        self.tries_at = max(_EVERY, 2 * (self.requests + self.generated))
        wanted = len(self.step_bounds_s) + max(1, self.request.best - len(self.best))
        for _ in range(_SPLITS):
            if len(self.step_bounds_s) == wanted:
                break
            if len(self.under_way) == (_AHEAD if self.best else 1):  # a first best comes as soon as can be
                self._take_next()
            self.under_way.extend(self._promising())
        while self.under_way:
            self._take_next()

    def _promising(self) -> list[tuple[Candidate, PendingResult[JobResult]]]:
        """Return a promising plan and its pending step; an empty list if none is found.

        It is the plan with the least bound of the most promising split; for it, a limited number of plans are generated.
        """
        limit_s = self.limit_s if self.worst_s == inf else self._first_limit_s
        split = self.frontier.promising(limit_s, self.tried)
        if split is None:
            return []
        self.tried[split] += 1
        most = self.generated + _LOOKS
        while self.generated < most and self.frontier.has_in(split, limit_s):
            first = self.frontier.take(split)
            if first.kind > PLACED:
                self._look([first])
            elif asked := self._ask_for_step(first):
                return asked
        return []

    def _take_next(self) -> None:
        """Take the result of the step that was asked for first."""
        candidate, waiting = self.under_way[0]
        self._take(candidate, waiting())
        self.under_way.popleft()
        self._note_bound()
        self.state.save([*self.known()])

    def _look_at(self, entries: Sequence[Entry]) -> None:
        """Ask for the step of the first entry if it is ready for that, or compute better bounds of all entries."""
        if entries[0].kind == READY:
            self.under_way.extend(self._ask_for_step(entries[0]))
        else:
            self._look(entries)

    def _ask_for_step(self, ready: Entry) -> list[tuple[Candidate, PendingResult[JobResult]]]:
        """Return a candidate with its pending step; an empty list if it does not fit the memory."""
        plan = ready.candidate.plan
        if not self._fits(plan, range(_FIRST, plan.pp)):
            self.large.append((ready.bound_s, 1))
            return []
        self.step_bounds_s[ready.candidate] = ready.bound_s
        return [(ready.candidate, self._submit(StepJob(ready.candidate)))]

    def _look(self, entries: Sequence[Entry]) -> None:
        """Compute the next, better bound of each entry, and add the entries to the frontier again."""
        leaves, goes_on = list[Entry](), list[Entry]()
        for entry in entries:
            (leaves if self._leaves(entry) else goes_on).append(entry)
        self.left += leaves
        self.left_s = min((self.left_s, *(entry.bound_s for entry in leaves)))
        for entry in goes_on:
            if entry.kind == PLAN:
                works_s = self.bounds.quick.seconds(entry.candidate.plan)
                self.frontier.add(max(entry.bound_s, works_s), WORKS, entry.candidate)
            elif entry.kind == WORKS and self.bounds.reduces:
                self.frontier.add(max(entry.bound_s, self.bounds.reduced_s(entry.candidate.plan)), REDUCED, entry.candidate)
            elif entry.kind == ANYWHERE:
                self._place(entry)
            elif entry.kind != PLACED:
                self._bound(entry)
        self._time_requests([entry for entry in goes_on if entry.kind == PLACED])

    def _leaves(self, entry: Entry) -> bool:
        """Return whether an entry without a placement is left out because a limit of the search's work is reached."""
        if not self.bounds.reduces or entry.kind not in (PLAN, WORKS, REDUCED):
            return False
        most = self._most
        return self.generated >= most.plans or self.requests >= most.requests

    def _place(self, entry: Entry) -> None:
        """Bound a plan on one topology in each of its placements, if the first places of its pipelines fit."""
        candidate, every = entry.candidate, placements(entry.candidate.plan)
        if not self._fits(candidate.plan, range(min(_FIRST, candidate.plan.pp))):  # one of which mostly holds the most
            self.large.append((entry.bound_s, len(every)))
            return
        for each in (candidate._replace(axes=axes) for axes in every):
            self.frontier.add(max(entry.bound_s, self.bounds.quickly_s(each)), PLACED, each)

    def _time_requests(self, entries: Sequence[Entry]) -> None:
        """Bound candidates by the least times of some more of their own requests."""
        found = self.bounds.nearer([entry.candidate for entry in entries], self._least_times)
        for entry, (least_s, is_final) in zip(entries, found, strict=True):
            self.frontier.add(max(entry.bound_s, least_s), READY if is_final else PLACED, entry.candidate)

    def _bound(self, entry: Entry) -> None:
        """Bound a plan in any placement on each topology."""
        plan, bounds = entry.candidate.plan, list[float]()
        self.generated += 1
        with suppress(InputError):  # it cannot be generated
            bounds = [max(entry.bound_s, each) for each in self.bounds.anywhere_s(plan)]
        for number, bound_s in enumerate(bounds):
            self.frontier.add(bound_s, ANYWHERE, Candidate(number, plan, ()))
        places = len(placements(plan))
        self.anywhere += [(bound_s, places) for bound_s in bounds]
        self.without += [(entry.bound_s, places)] * (len(self.topologies) - len(bounds))

    def _least_times(self, topology: int, wanted: Mapping[Hashable, BoundedRequest]) -> dict[Hashable, LeastTime]:
        """Return least times of requests by name; 0 for one that cannot be timed or is beyond the limit of requests."""
        asked = dict(islice(wanted.items(), self._most.requests - self.requests))
        found = {name: LeastTime(0.0, 0.0) for name in wanted if name not in asked}
        self.requests += len(asked)
        pending = (self._submit(RequestJob(topology, request)) for request in asked.values())
        for name, took in zip(asked, results_of(pending, 32 * self.pool.side_by_side), strict=True):
            found[name] = LeastTime(0.0, 0.0) if REFUSED in took else LeastTime(**took)
        return found

    def needed(self) -> list[Candidate]:
        """Return the candidates that had to be timed: their bound is not above the limit; a few more may have been timed."""
        asked = {candidate for candidate, _ in self.under_way}
        return [each for each, least_s in self.step_bounds_s.items() if least_s <= self.limit_s and each not in asked]

    def seen(self) -> list[PlanRow]:
        """Return the rows of candidates that had to be timed, each plan in its best placement."""
        best: dict[tuple[int, Plan], PlanRow] = {}
        for each in (each for each in self.needed() if each in self.rows):
            row, key = self.rows[each], each[:2]
            best[key] = min(row, best.get(key, row), key=lambda one: (one.step_time_s, one.axes))
        return list(best.values())

    def _may_fit(self, plan: Plan) -> bool:
        """Return whether the memory floor of a plan fits the device; a plan for which this is False is never timed."""
        return not self.has or self.floors.bytes(plan) <= self.has

    @kept_by(lambda _, *asked: asked)
    def _fits(self, plan: Plan, places: range) -> bool:
        """Return whether ranks at all of these places of a plan's pipelines fit the memory; True if its size is not known."""
        return not self.has or holds(self.model, plan, self.request.stack, self.has, places)

    def _submit(self, job: StepJob | RequestJob) -> PendingResult[JobResult]:
        """Return the pending result of a job, from the cache if it is there."""
        known = self.state.recall(job)
        return self.pool.submit(job) if known is None else known_result(known)

    def time_all(self, candidates: Sequence[Candidate], how: str) -> list[Candidate]:
        """Time candidates in a way such as FULL, and return those that could be timed, the fastest first."""
        timed = list[Candidate]()
        label = f"timing {len(candidates)} of them {'in full' if how == FULL else 'by more algorithms'}"
        asked = (self._submit(StepJob(each, how)) for each in candidates)
        with self.progress(label, len(candidates), None) as advance:
            for candidate, found in zip(candidates, results_of(asked, 2 * self.pool.side_by_side), strict=True):
                if REFUSED not in found:
                    self.rows[candidate] = PlanRow.stored(found)
                    timed.append(candidate)
                advance()
        return sorted(timed, key=lambda each: (self.rows[each].step_time_s, each.words))

    def time_near(self) -> None:
        """Time all candidates near the slowest plan of the table once more, by many choices of algorithms."""
        near = [each for each, time_s in self.quick_s.items() if time_s <= (1 + _NEAR) * self.worst_s]
        best: dict[tuple[int, Plan], tuple[float, Candidate]] = {}
        for candidate in self.time_all(near, THOROUGH):
            best.setdefault(candidate[:2], (self.rows[candidate].step_time_s, candidate))
        self.best = best

    def reached(self, found: Sequence[Candidate]) -> bool:
        """Return whether nothing that is left may be faster than those that are to be proved; these are now timed in full.

        A step in full may take longer than the composed one. Then the search is to go on until its bound is above it.
        """
        proved = found if self.request.prove_all else found[:1]
        self.reach_s = max((self.rows[each].step_time_s for each in proved), default=0.0)
        if self.reach_s < self.least_s:
            return True
        self.first_took = None
        return not self._goes_on()

    def ranked(self) -> list[Candidate]:
        """Return the best candidates that are known, each plan in its best placement."""
        every = sorted(self.best.values(), key=lambda each: (each[0], each[1].words))
        return [candidate for _, candidate in every[: self.request.best]]

    def known(self) -> dict[Candidate, PlanRow]:
        """Return the rows of the best candidates that are known, also from before an interruption, the fastest first."""
        rows, best = {**self.state.before, **self.rows}, dict[tuple[int, Plan], Candidate]()
        for candidate, row in rows.items():
            key = candidate[:2]
            if key not in best or row.step_time_s < rows[best[key]].step_time_s:
                best[key] = candidate
        by_time = sorted(best.values(), key=lambda each: rows[each].step_time_s)
        return {each: rows[each] for each in by_time[: self.request.best]}

    def interrupted(self) -> list[Candidate]:
        """Return the best candidates that an interrupted search knows, with those of earlier interrupted runs, fastest first.

        Their rows and the bound become those of this search; the cache keeps the candidates and the bound for the next run.
        """
        best = self.known()
        self.rows, self.least_s = {**best, **self.rows}, self.state.least_s
        self.state.save([*best])
        return [*best]

    def _take(self, candidate: Candidate, found: JobResult) -> None:
        """Take the result of a candidate's step, and update the best plans."""
        if REFUSED in found:
            return
        row = self.rows[candidate] = PlanRow.stored(found)
        key, mine = candidate[:2], (row.step_time_s, candidate)
        self.best[key] = min(mine, self.best.get(key, mine), key=lambda each: (each[0], each[1].words))
        self.quick_s[candidate] = row.step_time_s
        self.first_s = min(self.first_s, row.step_time_s)
        if len(self.best) >= self.request.best:
            self.worst_s = sorted(time_s for time_s, _ in self.best.values())[self.request.best - 1]
        self.state.note_time(row.step_time_s, candidate)
