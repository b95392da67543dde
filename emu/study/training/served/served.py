"""The choice for a whole step: not what is the fastest for each request alone, but what makes the step the shortest.

Steps are composed to be judged (`emu.study.training.composed`). The descent begins from what is the fastest alone, from what a
library of collectives chooses by itself, and from what is the fastest where all groups of a request ask at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from emu.arrays import I64
from emu.collective.algorithm import AlgorithmOnDims as Served
from emu.collective.algorithm import Choice, Chooser
from emu.study.training.composed.place_requests import Representatives, place_requests
from emu.study.training.served.coordinates import Coordinate, Option, StepChooser
from emu.study.training.served.descent import WORTH, Descent, Judged, ServedBy
from emu.study.training.served.judge import StepJudge
from emu.study.training.served.options import FEW, MANY, by_name, options_of
from emu.study.training.served.requests import OpenRequests
from emu.topology.topology import Topology
from emu.trace.device.device import Device

MOST, LEAST = 160, 4  # steps that are composed to choose for one
_EVENTS = 2**23  # that these have together at most, but for the least number of them
ALONE = "each alone"  # an option that is no algorithm, as those of others are none
_ENOUGH = 0.005  # of a step that shares no link, by which one may be longer and is good enough
_HEAVY = 0.05  # of the step, from which on more algorithms are tried for the requests of a coordinate
_NOTHING = 1e-3  # of the step, below which the requests of a coordinate take too little together to be chosen for


class Found(NamedTuple):
    """The result of a descent: by coordinate the name of its option, and times of steps as they are composed."""

    names: Mapping[Coordinate, str]  # of those that are not served by what is the fastest alone
    time_s: float
    times_s: Mapping[str, float]  # where one chooser serves all requests


@dataclass(frozen=True, eq=False)
class StepToServe:
    """A step whose requests are to be chosen for.

    Args:
        standing: The ranks that stand for their places.
        choice: What serves the step where nothing is changed.
        alone: The chooser of that, whose choices may be changed.
        others: Choosers by name from whose choices the descent begins, too, such as a library of collectives.
        topology: Where the step runs.
        npus: [ranks] where the ranks are.
        device: What computes.
    """

    standing: Representatives
    choice: Choice
    alone: Chooser
    others: Mapping[str, Chooser]
    topology: Topology
    npus: I64
    device: Device

    def find(self) -> Found:
        """Look for what serves the step best, and return it.

        Raises:
            InputError: the step cannot be composed.
        """
        alone_s, floor_s = self._alone_step.time_s, self._floor_s()
        if alone_s <= floor_s * (1 + WORTH):
            return Found({}, alone_s, {ALONE: alone_s})
        names, time_s = ({}, alone_s) if alone_s <= floor_s * (1 + _ENOUGH) else self._descended(floor_s * (1 + _ENOUGH))
        times_s = {name: self.composed_s(dict.fromkeys(self.requests.by_coordinate, name)) for name in self._by}
        first = min(times_s, key=lambda name: times_s[name])
        if times_s[first] < time_s:  # by what it chooses for requests, too, for which it is not worth to choose
            return Found({c: first for c in self.requests.by_coordinate if first != ALONE}, times_s[first], times_s)
        return Found(names, time_s, times_s)

    def _descended(self, floor_s: float) -> tuple[dict[Coordinate, str], float]:
        """Return what a descent finds: by coordinate the option that does not serve alone, and the time of the step."""
        known = self._algorithms()
        every = {c: self._different(c, [*self._choosers, *of]) for c, of in known.items()}
        starts = [{c: by_name[chooser] for c, by_name in every.items()} for chooser in self._by]
        together = {c: every[c][of[0].name] if of else every[c][ALONE] for c, of in known.items()}
        best, time_s = self._descent(every, floor_s).best([*starts, together])
        return {c: option.name for c, option in best.items() if option.name != ALONE}, time_s

    def composed_s(self, names: Mapping[Coordinate, str]) -> float:
        """Return the time of the step where options of these names serve some coordinates; never if it cannot be timed."""
        return self._judged(names).time_s

    def named(self, names: Mapping[Coordinate, str]) -> Choice:
        """Return the choice where some coordinates have options of these names."""
        own = {c: name for c, name in names.items() if name != ALONE}
        options = {c: self._by.get(name) or by_name(name, self.topology, self.npus) for c, name in own.items()}
        return replace(self.choice, chooser=StepChooser(self.alone, options)) if options else self.choice

    @cached_property
    def requests(self) -> OpenRequests:
        """Return the requests that are to be chosen for."""
        where = self.topology, self.npus, self.device.request_overhead_fs
        return OpenRequests(place_requests(self.standing), self.choice, *where)

    @cached_property
    def coordinates(self) -> list[Coordinate]:
        """Return those that take more than next to nothing."""
        least_s = _NOTHING * self._alone_step.time_s
        return [c for c in self.requests.by_coordinate if self.requests.weight_s(c) >= least_s]

    def _algorithms(self) -> dict[Coordinate, list[Option]]:
        where = self.topology, self.npus, self.device.request_overhead_fs
        heavy_s = _HEAVY * self._alone_step.time_s
        fastest = {c: MANY if self.requests.weight_s(c) >= heavy_s else FEW for c in self.coordinates}
        return {c: options_of(self.requests.heaviest(c), self.choice, *where, n) for c, n in fastest.items()}

    def _different(self, coordinate: Coordinate, options: Sequence[Option]) -> dict[str, Option]:
        """By the name of each option the first that serves all requests of a coordinate alike."""
        first = dict[tuple[Served, ...], Option]()
        return {
            each.name: first.setdefault(self.requests.served(coordinate, self.named({coordinate: each.name})), each)
            for each in options
        }

    def _floor_s(self) -> float:
        """Return the time of the step if its requests shared no link, each served by what is the fastest for it."""
        return self._judge.unshared_s(self.choice, self.requests.shares(self.coordinates, self.others.values()))

    def _descent(self, every: Mapping[Coordinate, Mapping[str, Option]], floor_s: float) -> Descent:
        options = {c: list(dict.fromkeys(by_name.values())) for c, by_name in every.items()}
        weights = {c: self.requests.weight_s(c) for c in options}
        most = min(MOST, max(LEAST, _EVENTS // sum(map(len, self.standing.events))))
        return Descent(options, weights, self._served_by, most, floor_s)

    def _served_by(self, served: ServedBy) -> Judged:
        return self._judged({c: option.name for c, option in served.items()})

    def _judged(self, names: Mapping[Coordinate, str]) -> Judged:
        return self._alone_step if set(names.values()) <= {ALONE} else self._judge.composed(self.named(names))

    @cached_property
    def _alone_step(self) -> Judged:
        return self._judge.timed(self.choice)

    @cached_property
    def _judge(self) -> StepJudge:
        return StepJudge(self.standing, self.topology, self.npus, self.device)

    @cached_property
    def _choosers(self) -> list[Option]:
        """Each serves requests of any coordinate."""
        return [Option(ALONE, self.alone), *(Option(name, chooser) for name, chooser in self.others.items())]

    @cached_property
    def _by(self) -> Mapping[str, Option]:
        return {option.name: option for option in self._choosers}
