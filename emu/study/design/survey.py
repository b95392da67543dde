"""The jobs of a design: what points cost and how fast they may be at most, tighter bounds of a point, and its best plan."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf, isinf
from typing import NamedTuple

from emu.errors import InputError, must_be
from emu.model.model import find_model
from emu.study.design.link_rates import LinkRates, link_rates
from emu.study.design.point import DesignPoint, DesignRequest
from emu.study.design.price_list import Amounts, amounts_of
from emu.study.planning.find import BestPlan, find_best_plan
from emu.study.planning.least_step import least_anywhere_s, least_step_s
from emu.study.planning.plan_row import PlanRow
from emu.study.planning.prepared_search import prepare_search
from emu.study.planning.search.frontier import PLACED, READY
from emu.study.planning.search.result_cache import ResultCache, search_name
from emu.study.planning.search.search_state import quiet
from emu.topology.placement import place
from emu.topology.topology import Topology

SURVEYED, NEARER, NEAREST, TIMED = range(4)  # how far a point is worked out
_RUNGS = {NEARER: PLACED, NEAREST: READY}


class Surveyed(NamedTuple):
    """A point before its step is timed; `refused` says why it can have none, where that is known already."""

    refused: str
    least_s: float  # no plan's step takes less
    amounts: Amounts
    availability: float | None
    rates: LinkRates | None = None  # None: they are not compared with those of other points


class ReachedPoint(NamedTuple):
    """A point that was worked out further: a tighter bound of its step, or the best plan; or why it has no step."""

    least_s: float
    best: BestPlan | None = None
    refused: str = ""


class SurveyJob(NamedTuple):
    """A job that surveys points of one device and one number of NPUs."""

    points: tuple[int, ...]


class ReachJob(NamedTuple):
    """A job that works one point out further: to `NEARER`, `NEAREST` or `TIMED`."""

    point: int
    to: int


@dataclass(frozen=True, eq=False)
class DesignWorker:
    """A function that does the jobs of one design; it runs in the processes of the job pool."""

    request: DesignRequest
    points: tuple[DesignPoint, ...]
    kept: ResultCache

    def __call__(self, job: SurveyJob | ReachJob) -> list[Surveyed] | ReachedPoint:
        """Return the result of a job."""
        if isinstance(job, SurveyJob):
            return self._survey([self.points[number] for number in job.points])
        try:
            return self._reach(self.points[job.point], job.to)
        except InputError as error:
            return ReachedPoint(inf, refused=str(error))

    def _survey(self, points: Sequence[DesignPoint]) -> list[Surveyed]:
        """Return the points with their bounds in any placement; outlines of plans are computed once for all of them."""
        found = [self._priced(point) for point in points]
        known = [topology for topology, _ in found if topology is not None]
        if not known:
            return [surveyed for _, surveyed in found]
        try:
            least_s = iter(self._least_anywhere(points[0], known))
        except InputError as error:  # there is no plan of so many NPUs
            return [surveyed._replace(refused=surveyed.refused or str(error)) for _, surveyed in found]
        return [each if topology is None else each._replace(least_s=next(least_s)) for topology, each in found]

    def _priced(self, point: DesignPoint) -> tuple[Topology | None, Surveyed]:
        """Return the topology of a point, and what it takes; no topology if it has no place for the job or its groups."""
        try:
            topology = point.build()
            if topology.n_npus < point.npus:
                raise must_be(topology.name, "NPUs", f"{point.npus} or more", topology.n_npus)
            place(topology, point.npus)
            share = None if self.request.availability is None else self.request.availability(topology)
        except InputError as error:
            return None, Surveyed(str(error), inf, {}, None)
        request, terms = self.request, self.request.devices[point.device].terms
        amounts = amounts_of(topology, point.npus, point.device, request.book, terms)
        rates = link_rates(topology, point.settings) if isinstance(point.topology, str) else None
        return topology, Surveyed("", inf, amounts, share, rates)

    def _least_anywhere(self, point: DesignPoint, topologies: Sequence[Topology]) -> Sequence[float]:
        """Return the bounds of topologies in any placement; if no plan fits the memory, the search says by how much."""
        device, request = self.request.devices[point.device].device, self.request.plans_at(point)
        least_s = least_anywhere_s(prepare_search(request, topologies, device, quiet))
        if all(map(isinf, least_s)):
            find_best_plan(request, topologies[0], device, self.kept)
        return least_s

    def recall(self, job: ReachJob) -> ReachedPoint | None:
        """Return the result of a job from the cache; None if it is not there."""
        point = self.points[job.point]
        stored = self.kept.read(self._name(point, point.build(), job.to))
        if stored is None:
            return None
        best = BestPlan(PlanRow.stored(stored["best"]), stored["steps"]) if "best" in stored else None
        return ReachedPoint(stored["least_s"], best)

    def _reach(self, point: DesignPoint, to: int) -> ReachedPoint:
        """Return a point that is worked out as far as `to`; the result is kept."""
        request, device, topology = self.request.plans_at(point), self.request.devices[point.device].device, point.build()
        least_s = least_step_s(request, topology, device, self.kept, _RUNGS[to]) if to in _RUNGS else inf
        found, stored = ReachedPoint(least_s), dict[str, object](least_s=least_s)
        if isinf(least_s):  # it is to be timed, or the search says why no plan fits
            best = find_best_plan(request, topology, device, self.kept)
            found = ReachedPoint(best.row.step_time_s, best)
            stored = {"least_s": found.least_s, "best": asdict(best.row), "steps": best.steps}
        self.kept.write(self._name(point, topology, to), stored)
        return found

    def _name(self, point: DesignPoint, topology: Topology, to: int) -> str:
        """Return the name under which the cache has a point as far as it is worked out."""
        request, device = self.request.plans_at(point), self.request.devices[point.device].device
        return f"design {to} {search_name(request, find_model(request.model), device, (topology,))}"
