"""The lower bounds of candidate plans, from fast and loose to slow and tight.

In its own placement a candidate is bounded by the rates of the ports that serve its groups, then by the times of its requests.
Own requests are timed only as far as is needed.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from cachetools import LRUCache

from emu.memo import kept_by
from emu.model.plan.plan import Plan
from emu.study.planning.bound.outline import ROUNDED, Outline
from emu.study.planning.bound.pipeline_chart import chart_s
from emu.study.planning.bound.quick_bounds import QuickBounds
from emu.study.planning.plan_request import Candidate
from emu.study.planning.request_times.least_times import LeastTimes, Missing, PlacedLeastTimes, PortLeastTimes
from emu.study.planning.request_times.placed_groups import PlacedGroups
from emu.study.planning.request_times.ports import ports_of
from emu.study.planning.request_times.rates import LeastTime, Rates
from emu.study.planning.request_times.request_floor import BoundedRequest
from emu.study.planning.space import placements
from emu.study.planning.step_paths.megatron_paths import MegatronPaths
from emu.study.planning.step_paths.software_paths import SoftwarePaths
from emu.study.planning.step_paths.tape_path import TapePath
from emu.topology.topology import Topology

_RANKS = 2**22  # limit of the ranks of all placements in the cache; 16,384 ranks take a megabyte
# A function that times requests on the topology of a number.
TimeRequests = Callable[[int, Mapping[Hashable, BoundedRequest]], Mapping[Hashable, LeastTime]]


@dataclass(eq=False)
class CandidateBounds:
    """The lower bounds of step times for all candidates of one search, which get tighter as requests are timed."""

    paths: SoftwarePaths
    topologies: Sequence[Topology]  # as the software has them
    axes: frozenset[str] = frozenset()  # axes for which a word names the algorithm
    names_algorithm: bool = False  # whether a word names an algorithm, which may send to switches, even where none adds
    quick: QuickBounds = field(init=False)
    _rates: list[Rates] = field(init=False)
    _known: list[dict[Hashable, LeastTime]] = field(init=False)  # times of requests by name, of each topology
    _groups: LRUCache[Hashable, PlacedGroups] = field(
        default_factory=lambda: LRUCache(_RANKS, lambda groups: min(groups.plan.world, _RANKS))
    )
    _complete: set[Candidate] = field(default_factory=set)  # candidates whose own requests all have known times

    def __post_init__(self) -> None:
        self._rates = [Rates.of(topology) for topology in self.topologies]
        self.quick = QuickBounds(self.paths, self._rates)
        self._known = [{} for _ in self.topologies]

    def anywhere_s(self, plan: Plan) -> list[float]:
        """Return the bound of a plan's step on each topology, in any placement, in seconds.

        Raises:
            InputError: the plan cannot be generated.
        """
        return [self._outlined(plan).seconds(LeastTimes(rates, plan)) for rates in self._rates]

    @property
    def reduces(self) -> bool:
        """True if gradients are reduced during the passes, so that the bound `reduced_s` may be the larger one."""
        return self.paths.reduces

    def reduced_s(self, plan: Plan) -> float:
        """Return a bound of a plan's step in seconds, by reductions of gradients alone, in the best placement anywhere."""
        paths = self.paths.reductions(plan, last=False)
        every = (Candidate(number, plan, axes) for number in range(len(self.topologies)) for axes in placements(plan))
        return min(_longest_s(paths, self._port_times(each)) for each in every)

    def by_ports_s(self, candidate: Candidate) -> float:
        """Return a fast lower bound of a candidate in its placement, in seconds, by the rates of ports."""
        least = self._port_times(candidate)
        return max(self._outlined(candidate.plan).seconds(least), self._reduced_s(least))

    def _reduced_s(self, least: PortLeastTimes) -> float:
        """Return the bound of a candidate by its reductions of gradients, in seconds."""
        return _longest_s(self.paths.reductions(least.plan, last=False), least)

    def _placed_groups(self, candidate: Candidate) -> PlacedGroups:
        """Return the groups of each axis of a candidate, on the NPUs of its placement."""
        number, plan, axes = candidate
        key = (number, *plan.sizes.values(), axes)
        if key not in self._groups:
            topology = self.topologies[number]
            ports = None if self.names_algorithm else ports_of(topology, plan.world)
            self._groups[key] = PlacedGroups.of(topology, plan, axes, self._rates[number], ports)
        return self._groups[key]

    def _port_times(self, candidate: Candidate) -> PortLeastTimes:
        """Return the least times of a candidate's requests by the rates of ports."""
        return PortLeastTimes(self._rates[candidate.topology], candidate.plan, self._placed_groups(candidate))

    def _placed_times(self, candidate: Candidate) -> PlacedLeastTimes:
        """Return the least times of a candidate's requests on the NPUs of its placement, as far as they are known."""
        number, plan, _ = candidate
        return PlacedLeastTimes(self._rates[number], plan, self._placed_groups(candidate), self._known[number], self.axes)

    def tighter(self, candidates: Sequence[Candidate], times: TimeRequests) -> list[tuple[float, bool]]:
        """Return tighter bounds of candidates, after timing some of their requests that have no known time.

        Args:
            candidates: The candidates, each with a placement.
            times: A function that times requests.

        Returns:
            For each candidate the bound in seconds, and whether it is final. It is final if all times of its requests are
            known, and it counts the bubbles of the pipeline; these are left to a second call for the candidate.
        """
        missing: list[Missing] = [{} for _ in self.topologies]
        found = [self._bound(each) for each in candidates]
        for each, (_, untold, _) in zip(candidates, found, strict=True):
            missing[each.topology] |= untold
        self._time(missing, times)
        nearest = (self._bound(each) if bound[1] else bound for each, bound in zip(candidates, found, strict=True))
        return [(least_s, is_final) for least_s, _, is_final in nearest]

    def _bound(self, candidate: Candidate) -> tuple[float, Missing, bool]:
        """Return a candidate's bound in seconds by known times, its requests without a time, and whether it is final.

        The chart of the pipeline is slow to compute. It is left to a second call for the candidate, once no time is missing.
        """
        least, outline = self._placed_times(candidate), self._outlined(candidate.plan)
        least_s = max(outline.seconds(least), self._reduced_s(least))
        charted = candidate in self._complete
        if charted and isinstance(self.paths, MegatronPaths):  # other software has no charts
            least_s = max(least_s, chart_s(self.paths, outline, least))
        self._complete.update([candidate] * (not least.missing))
        return least_s, least.missing, charted and not least.missing

    def _time(self, missing: Sequence[Missing], times: TimeRequests) -> None:
        """Time the missing requests of the lowest order, for each topology, and store their times."""
        first = min((priority for of in missing for priority, _ in of.values()), default=0)
        for number, of in enumerate(missing):
            wanted = {name: request for name, (priority, request) in of.items() if priority == first}
            self._known[number].update(times(number, wanted))

    @kept_by(lambda _, plan: plan)
    def _outlined(self, plan: Plan) -> Outline:
        """Return the outline of a plan."""
        return Outline.of(self.paths, plan)


def _longest_s(paths: Sequence[TapePath], least: LeastTimes) -> float:
    """Return the time of the longest of the paths of a plan's places, one path each, in seconds."""
    return max((path.seconds(least, place) for place, path in enumerate(paths)), default=0.0) * (1 - ROUNDED)
