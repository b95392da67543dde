"""The ladder of bounds: a search computes one tighter lower bound of a plan after another, as far as needed.

A plan is bounded in any placement: quickly, by its own passes, by reductions of gradients, and by all parts of the model; then
in each of its placements by the links that serve its groups, and by the least times of its own requests. Bounds are those of
`emu.study.planning.bound`; `frontier` lists the rungs.
"""

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from emu.errors import InputError
from emu.memo import kept_by
from emu.model.generate.generate import holds
from emu.model.plan.plan import Plan
from emu.study.job_pool import results_of
from emu.study.planning.plan_request import Candidate, Work
from emu.study.planning.prepared_search import PreparedSearch
from emu.study.planning.request_times.rates import LeastTime
from emu.study.planning.request_times.request_floor import BoundedRequest
from emu.study.planning.search.frontier import ALL_PARTS, OWN_PASSES, PLACED, READY, REDUCED, SEQUENCE, Entry, Frontier
from emu.study.planning.search.search_jobs import REFUSED, RequestJob
from emu.study.planning.search.search_state import Progress, SearchJobs
from emu.study.planning.space import placements

# Places of a pipeline whose memory is computed before placements are bounded: one of the first two mostly holds the most, as
# the very first may have fewer layers beside the embedding. The other places are computed before the step is timed.
PLACES_TESTED_FIRST = 2

PlanBound = tuple[float, int]  # the bound of a plan's time in any placement, and the number of candidates that it is of


@dataclass
class BoundLadder:
    """The plans and candidates of a search that are not timed yet, with their bounds, and the work spent on bounds.

    A bound climbs from that of a plan in any placement to that of a candidate whose requests are all timed.
    """

    prepared: PreparedSearch
    jobs: SearchJobs
    most: Work  # limits of the work
    frontier: Frontier = field(default_factory=Frontier)
    requests: int = 0  # how many least times of requests were asked for
    generated: int = 0  # plans whose passes were generated
    anywhere: list[PlanBound] = field(default_factory=list)  # of plans whose memory floor fits
    refused: list[PlanBound] = field(default_factory=list)  # of plans whose floor does not, or that cannot be generated
    too_large: list[PlanBound] = field(default_factory=list)  # of plans whose floor fits, and that do not fit
    dropped: list[Entry] = field(default_factory=list)  # entries that a limit of the work leaves out
    dropped_least_s: float = inf  # the least bound of the entries in `dropped`

    def add_plans(self, progress: Progress) -> None:
        """Add all plans that may fit the memory to the frontier, with the bounds that take least time to compute."""
        plans, quick, n_topologies = self.prepared.plans, self.prepared.bounds.quick, len(self.prepared.topologies)
        with progress(f"bounding {len(plans):,} plan{'s' * (len(plans) > 1)}", len(plans), None) as advance:
            for plan in plans:
                if self.prepared.may_fit(plan):
                    self.frontier.add(quick.by_sequence_s(plan), SEQUENCE, Candidate(-1, plan, ()))
                else:
                    self.refused.append((0.0, n_topologies * len(placements(plan))))
                advance()

    def climb(self, entries: Sequence[Entry]) -> None:
        """Compute the next, better bound of each entry, and add the entries to the frontier again."""
        dropped, kept = list[Entry](), list[Entry]()
        for entry in entries:
            (dropped if self._drops(entry) else kept).append(entry)
        self.dropped += dropped
        self.dropped_least_s = min((self.dropped_least_s, *(entry.bound_s for entry in dropped)))
        for entry in kept:
            if entry.rung != PLACED:
                self._bound_plan(entry)
        self._time_requests([entry for entry in kept if entry.rung == PLACED])

    @kept_by(lambda _, *asked: asked)
    def fits(self, plan: Plan, places: range) -> bool:
        """Return whether ranks at all the given places of a plan's pipelines fit the memory; True if its size is unknown."""
        model, stack, has = self.prepared.model, self.prepared.request.stack, self.prepared.memory_bytes
        return not has or holds(model, plan, stack, has, places)

    def _drops(self, entry: Entry) -> bool:
        """Return whether a limit of the work leaves out an entry.

        That is so only for a plan that is not generated yet, and where the next bounds need to generate it.
        """
        if not self.prepared.bounds.reduces or entry.rung not in (SEQUENCE, OWN_PASSES, REDUCED):
            return False
        return self.generated >= self.most.plans or self.requests >= self.most.requests

    def _bound_plan(self, entry: Entry) -> None:
        """Compute the next bound of a plan that has no placement yet."""
        plan, bounds = entry.candidate.plan, self.prepared.bounds
        if entry.rung == SEQUENCE:
            self.frontier.add(max(entry.bound_s, bounds.quick.by_own_passes_s(plan)), OWN_PASSES, entry.candidate)
        elif entry.rung == OWN_PASSES and bounds.reduces:
            self.frontier.add(max(entry.bound_s, bounds.reduced_s(plan)), REDUCED, entry.candidate)
        elif entry.rung == ALL_PARTS:
            self._bound_placements(entry)
        else:
            self._generate(entry)

    def _generate(self, entry: Entry) -> None:
        """Compute a bound of a plan for any placement on each topology, from all parts of the model."""
        plan, found = entry.candidate.plan, list[float]()
        self.generated += 1
        with suppress(InputError):  # it cannot be generated
            found = [max(entry.bound_s, each) for each in self.prepared.bounds.anywhere_s(plan)]
        for number, bound_s in enumerate(found):
            self.frontier.add(bound_s, ALL_PARTS, Candidate(number, plan, ()))
        n_placements = len(placements(plan))
        self.anywhere += [(bound_s, n_placements) for bound_s in found]
        self.refused += [(entry.bound_s, n_placements)] * (len(self.prepared.topologies) - len(found))

    def _bound_placements(self, entry: Entry) -> None:
        """Compute a bound for each placement of a plan on one topology, if the first places of its pipeline fit the memory."""
        candidate, every = entry.candidate, placements(entry.candidate.plan)
        if not self.fits(candidate.plan, range(min(PLACES_TESTED_FIRST, candidate.plan.pp))):
            self.too_large.append((entry.bound_s, len(every)))
            return
        for each in (candidate._replace(axes=axes) for axes in every):
            self.frontier.add(max(entry.bound_s, self.prepared.bounds.by_ports_s(each)), PLACED, each)

    def _time_requests(self, entries: Sequence[Entry]) -> None:
        """Tighten the bounds of candidates by timing more of their own requests."""
        found = self.prepared.bounds.tighter([entry.candidate for entry in entries], self._least_times)
        for entry, (least_s, is_final) in zip(entries, found, strict=True):
            self.frontier.add(max(entry.bound_s, least_s), READY if is_final else PLACED, entry.candidate)

    def _least_times(self, topology: int, wanted: Mapping[Hashable, BoundedRequest]) -> dict[Hashable, LeastTime]:
        """Return the least times of requests by name; 0 for a request that cannot be timed, or beyond the work limit."""
        asked = dict(islice(wanted.items(), self.most.requests - self.requests))
        found = {name: LeastTime(0.0, 0.0) for name in wanted if name not in asked}
        self.requests += len(asked)
        pending = (self.jobs.submit(RequestJob(topology, request)) for request in asked.values())
        for name, took in zip(asked, results_of(pending, 32 * self.jobs.side_by_side), strict=True):
            found[name] = LeastTime(0.0, 0.0) if REFUSED in took else LeastTime(**took)
        return found
