"""Bounds of candidates by the times of their own requests, timed as far as is needed to show that a candidate loses."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from cachetools import LRUCache

from emu.model.plan.plan import Plan
from emu.study.planning.bound.aside import Charts
from emu.study.planning.bound.bound import ROUNDED, Outline, Outlines
from emu.study.planning.bound.rates import Anywhere, Rates, Taken
from emu.study.planning.bound.work import Works
from emu.study.planning.search.groups import Where
from emu.study.planning.search.requests import Known, Missing, Request, There
from emu.study.planning.search.row import Candidate
from emu.study.planning.space import placements
from emu.topology.topology import Topology

_PLACEMENTS = 256  # that are kept: of 16,384 NPUs one takes a megabyte
Times = Callable[[int, Mapping[Hashable, Request]], Mapping[Hashable, Taken]]  # of requests on one of the topologies


class Near(NamedTuple):
    """A bound by the times of a candidate's own requests."""

    least_s: float
    is_told: bool  # whether all of them are known


@dataclass(eq=False)
class Placed:
    """Of the candidates of one search."""

    outlines: Outlines
    topologies: Sequence[Topology]  # as the software has them
    axes: frozenset[str] = frozenset()  # for which what serves them is named
    charts: Charts = field(init=False)
    _works: Works = field(init=False)
    _rates: list[Rates] = field(init=False)
    _known: list[Known] = field(init=False)
    _where: LRUCache[Hashable, Where] = field(default_factory=lambda: LRUCache(_PLACEMENTS))
    _timed: set[Candidate] = field(default_factory=set)  # whose own requests are
    _outline: dict[Plan, Outline] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.charts = Charts(self.outlines.ways)
        self._rates = [Rates.of(topology) for topology in self.topologies]
        self._works = Works(self.outlines, self._rates)
        self._known = [Known() for _ in self.topologies]

    def quickly_s(self, plan: Plan) -> float:
        """No step of a plan takes less on any of the topologies; for very many plans."""
        return self._works.quickly_s(plan)

    def works_s(self, plan: Plan) -> float:
        """The same, for many."""
        return self._works.seconds(plan)

    def anywhere_s(self, plan: Plan) -> list[float]:
        """No step of a plan takes less on each of the topologies, in any placement.

        Raises:
            InputError: it cannot be generated.
        """
        return [self._outlined(plan).seconds(Anywhere(rates, plan)) for rates in self._rates]

    @property
    def reduces(self) -> bool:
        """Whether ranks reduce gradients beside their passes, so that `reduced` says more than their passes."""
        return not self.outlines.ways.is_megatron

    def reduced(self, plans: Sequence[Plan], times: Times) -> list[float]:
        """[plans] no step takes less, by what its gradients take, on any of the topologies, wherever it is placed."""
        numbers = range(len(self.topologies))
        every = [[Candidate(number, plan, axes) for number in numbers for axes in placements(plan)] for plan in plans]
        missing: list[dict[Hashable, Missing]] = [{} for _ in numbers]
        for candidate in chain(*every):
            self._reduced_s(candidate)
            known = self._known[candidate.topology]
            missing[candidate.topology] |= known.missing
            known.missing = {}
        self._time(missing, times)
        return [min(map(self._reduced_s, candidates)) for candidates in every]

    def _reduced_s(self, candidate: Candidate) -> float:
        """As far as times are known; what is not is noted down."""
        plan, there = candidate.plan, self._there(candidate)
        ways = [self.outlines.ways.of_reductions(plan, place, last=False) for place in range(plan.pp)] if self.reduces else []
        return max((way.seconds(there, place) for place, way in enumerate(ways)), default=0.0) * (1 - ROUNDED)

    def _there(self, candidate: Candidate) -> There:
        number, plan, axes = candidate
        key = (number, Where.key(plan, axes))
        if key not in self._where:
            self._where[key] = Where.of(self.topologies[number], plan, axes)
        return There(Anywhere(self._rates[number], plan), self._where[key], self._known[number], self.axes)

    def nearer(self, candidates: Sequence[Candidate], times: Times) -> list[Near]:
        """Know more of each: some requests are timed whose times were not known, until all are."""
        missing: list[dict[Hashable, Missing]] = [{} for _ in self.topologies]
        found = [self._bound(each) for each in candidates]
        for each, (_, untold, _) in zip(candidates, found, strict=True):
            missing[each.topology] |= untold
        self._time(missing, times)
        later = {i: self._bound(each) for i, each in enumerate(candidates) if found[i][1]}
        return [Near(least_s, is_told) for least_s, _, is_told in (later.get(i, each) for i, each in enumerate(found))]

    def _bound(self, candidate: Candidate) -> tuple[float, Mapping[Hashable, Missing], bool]:
        """As far as times are known, what is not, and whether that is all: the chart, which takes longer, is asked for last."""
        known, there = self._known[candidate.topology], self._there(candidate)
        outline = self._outlined(candidate.plan)
        least_s = max(outline.seconds(there), self._reduced_s(candidate))
        charted = candidate in self._timed
        if charted:
            least_s = max(least_s, self.charts.seconds(outline, there))
        missing, known.missing = known.missing, {}
        self._timed.update([candidate] * (not missing))
        return least_s, missing, charted and not missing

    def _time(self, missing: Sequence[Mapping[Hashable, Missing]], times: Times) -> None:
        """Those that are to be timed first."""
        first = min((each.after for of in missing for each in of.values()), default=0)
        for number, of in enumerate(missing):
            wanted = {name: each.request for name, each in of.items() if each.after == first}
            self._known[number].times.update(times(number, wanted))

    def _outlined(self, plan: Plan) -> Outline:
        if plan not in self._outline:
            self._outline[plan] = self.outlines.of(plan)
        return self._outline[plan]
