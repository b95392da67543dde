"""The search over a design space: only points that can matter are worked out further.

Each point has money, watts and availability that are known, and a lower bound of its step. A point is *open* while its step is
not timed. The search asks which points are best as far as is known: an open one counts with its bound. No other point can take
its place, as all others can only get worse. So exactly these are worked out further, the least worked out first, until none of
those that are best is open. What is done depends neither on the number of processes nor on how fast they are.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import inf

import numpy as np

from emu.arrays import F64, I64
from emu.errors import InputError
from emu.study.design.link_rates import LinkRates, MachineGroups
from emu.study.design.pareto import pareto_front
from emu.study.design.point import DesignPoint, DesignRequest
from emu.study.design.price_list import PriceList
from emu.study.design.survey import SURVEYED, TIMED, DesignWorker, ReachedPoint, ReachJob, Surveyed, SurveyJob
from emu.study.job_pool import OpenPool, PendingResult, known_result, results_of
from emu.study.planning.find import BestPlan
from emu.study.planning.search.search_state import Progress

_TOGETHER = 64  # points that are surveyed by one job
_AHEAD = 2  # jobs that are asked for beyond those that run


@dataclass
class DesignSearch:
    """A search that is running: what is known of each point. P points."""

    worker: DesignWorker
    pool: OpenPool[SurveyJob | ReachJob, list[Surveyed] | ReachedPoint]
    progress: Progress
    least_s: F64 = field(init=False)  # [P] bound of the step, or its time where it is timed; infinite: it has none
    reached: I64 = field(init=False)  # [P] how far a point is worked out
    refused: dict[int, str] = field(default_factory=dict)  # why a point has no step
    best: dict[int, BestPlan] = field(default_factory=dict)  # of each timed point
    too_dear: I64 = field(init=False)  # numbers of the points beyond the budget or the power
    no_better: I64 = field(init=False)  # numbers of the points whose links and costs are nowhere better than those of another
    groups: MachineGroups = field(init=False)  # of points that differ only in the rates of their links and in their costs
    prices: PriceList = field(init=False)
    measures: F64 = field(init=False)  # [P, 2 or 3] dollars and watts, negative, and availability where it is asked for
    dollars: F64 = field(init=False)  # [P] at the prices in the middle

    @property
    def points(self) -> tuple[DesignPoint, ...]:
        """The points of the space."""
        return self.worker.points

    @property
    def request(self) -> DesignRequest:
        """The request for the design."""
        return self.worker.request

    @property
    def alive(self) -> I64:
        """The numbers of the points that may have a step, within the budget and the power."""
        return np.flatnonzero(np.isfinite(self.least_s))

    def tokens_per_s(self, points: I64) -> F64:
        """Return [P] tokens per second of points; the most that they may have, where they are not timed."""
        plans = self.request.plans
        found: F64 = plans.global_batch * plans.seq / self.least_s[points]
        return found

    def survey(self) -> None:
        """Compute what all points take, and a first bound of each.

        Raises:
            InputError: a part has no price, no point has a step, or the budget or the power is below the least.
        """
        jobs = [*_survey_jobs(self.points)]
        found: list[Surveyed] = []
        with self.progress(f"pricing {len(self.points):,} points", len(jobs), None) as advance:
            for some in results_of((self.pool.submit(job) for job in jobs), self.pool.side_by_side + _AHEAD):
                assert isinstance(some, list)
                found += some
                advance()
        self.least_s, self.reached = np.array([each.least_s for each in found]), np.full(len(found), SURVEYED)
        self.refused = {number: each.refused for number, each in enumerate(found) if each.refused}
        if len(self.refused) == len(found):
            raise InputError(f"design: no point has a step; the first: {self.refused[0]}")
        self.prices = PriceList.of([each.amounts for each in found])
        self.dollars = self.prices.dollars("middle")
        self._check_prices()
        money = [-self.dollars, -self.prices.watts()]
        shares = [] if self.request.availability is None else [np.array([each.availability or 0.0 for each in found])]
        self.measures = np.stack([*money, *shares], axis=1)
        self._leave_out_dear_ones()
        self._leave_out_slow_ones([each.rates for each in found])

    def settle(self, best: Callable[[], I64]) -> I64:
        """Work out points until those that are best are all timed, and return these.

        Args:
            best: A function that returns the numbers of the points that are best as far as is known.

        Raises:
            InputError: no point has a step.
        """
        while True:
            found = best()
            if not len(found):
                raise InputError(f"design: no point has a step; the first: {next(iter(self.refused.values()))}")
            still = found[self.reached[found] < TIMED]
            if not len(still):
                return found
            now = self.reached[still].min()
            self._work_out(still[self.reached[still] == now], int(now) + 1)

    def front(self) -> I64:
        """Return the numbers of the points that no other beats, as far as is known."""
        alive = self.alive
        values = np.column_stack([self.tokens_per_s(alive), self.measures[alive]])
        return alive[pareto_front(values)] if len(alive) else alive

    def _work_out(self, points: I64, to: int) -> None:
        """Work some points out as far as `to`."""
        count = f"{len(points):,} {'point' if len(points) == 1 else 'points'}"
        label = f"timing the best plan of {count}" if to == TIMED else f"bounding {count}"
        asked = (self._submit(ReachJob(int(number), to)) for number in points)
        with self.progress(f"{label} that may be best", len(points), self.text) as advance:
            for number, found in zip(points.tolist(), results_of(asked, self.pool.side_by_side + _AHEAD), strict=True):
                assert isinstance(found, ReachedPoint)
                self._store(number, to, found)
                advance()

    def _submit(self, job: ReachJob) -> PendingResult[list[Surveyed] | ReachedPoint]:
        """Return the pending result of a job, from the cache if it is there."""
        known = self.worker.recall(job)
        return self.pool.submit(job) if known is None else known_result(known)

    def _store(self, number: int, to: int, found: ReachedPoint) -> None:
        """Store what is known of a point; a bound never gets looser."""
        self.reached[number] = to if found.best is None else TIMED
        if found.refused:
            self.refused[number], self.least_s[number] = found.refused, inf
        elif found.best is None:
            self.least_s[number] = max(self.least_s[number], found.least_s)
        else:
            self.best[number], self.least_s[number] = found.best, found.least_s
        if not found.refused:
            self._raise_bounds(self.groups.slower_than(number), self.least_s[number])

    def _raise_bounds(self, points: I64, least_s: float) -> None:
        """Raise the bounds of points that are not timed to a bound of faster links; what is left out stays so."""
        still = points[self.reached[points] < TIMED]
        self.least_s[still] = np.maximum(self.least_s[still], least_s)

    def text(self) -> str:
        """Return a text with what is done; the progress thread calls it."""
        return f"{len(self.best)} of {len(self.points):,} points timed"

    def _check_prices(self) -> None:
        """Refuse a point that costs nothing, as nothing can be said of what it does for its money.

        Raises:
            InputError: a point costs nothing.
        """
        alive = self.alive
        free = alive[self.dollars[alive] <= 0]
        if len(free):
            told = f"prices must be above 0 $ for each point, got 0 $ for {self.name_of(int(free[0]))}"
            raise InputError(f"design: {told}; give --npu dollars=30000, or a book with more prices")

    def _leave_out_dear_ones(self) -> None:
        """Leave out points beyond the budget or the power.

        Raises:
            InputError: all are; the message names the cheapest.
        """
        fits, alive = np.isfinite(self.least_s), self.alive
        limits = (
            ("budget", self.request.budget_dollars, self.dollars, "$", "the cheapest point"),
            ("power", self.request.power_watts, -self.measures[:, 1], "W", "the point of the least power"),
        )
        for name, limit, takes, unit, least in limits:
            if limit is None:
                continue
            first = int(alive[np.argmin(takes[alive])])
            if takes[first] > limit:
                told = f"{takes[first]:,.0f} {unit} or more, as {least}, {self.name_of(first)}, takes"
                raise InputError(f"design: --{name} must be {told}, got {limit:,.0f} {unit}; raise it or widen the space")
            fits &= takes <= limit
        if not fits.any():
            raise InputError("design: no point is within both --budget and --power; raise one of them or widen the space")
        self.too_dear = alive[~fits[alive]]
        self.least_s[self.too_dear] = inf

    def _leave_out_slow_ones(self, rates: Sequence[LinkRates | None]) -> None:
        """Leave out each point beside which another one has links nowhere slower, at no more of anything that is paid for."""
        alive = {*self.alive.tolist()}
        self.groups = MachineGroups(
            [
                (each, (point.device, point.npus)) if each is not None and number in alive else None
                for number, (each, point) in enumerate(zip(rates, self.points, strict=True))
            ]
        )
        self.no_better = self.groups.no_better(np.column_stack([self.prices.amounts, -self.measures[:, 2:]]))
        self.least_s[self.no_better] = inf

    def name_of(self, number: int) -> str:
        """Return the name of a point: its topology, and device and NPUs where points differ in them."""
        point = self.points[number]
        topology = point.topology if isinstance(point.topology, str) else point.topology.name
        also = [f"{point.npus} NPUs"] * (len({each.npus for each in self.points}) > 1)
        return ", ".join([topology, *also, *[point.device] * (len(self.request.devices) > 1)])


def _survey_jobs(points: Iterable[DesignPoint]) -> Iterable[SurveyJob]:
    """Yield the jobs that survey points: neighbours of one device and one number of NPUs together."""
    for _, alike in groupby(enumerate(points), key=lambda each: (each[1].device, each[1].npus)):
        numbers = [number for number, _ in alike]
        yield from (SurveyJob(tuple(numbers[at : at + _TOGETHER])) for at in range(0, len(numbers), _TOGETHER))
