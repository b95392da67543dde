"""The choice of algorithms for a whole step: the choice that makes the step the shortest, not each request alone.

Steps are composed to compare them (`emu.study.training.composed`). The descent has several starts: the fastest algorithm of
each request alone, the choices of libraries of collectives, and the fastest algorithm where all groups of a request ask at
once.

The requests whose algorithm may be chosen, as the user names none, are grouped by coordinate.

Q is the number of different requests of a step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import AlgorithmOnDims, Choice, Chooser
from emu.errors import InputError
from emu.memo import kept_by
from emu.study.choice.site import canonical_group
from emu.study.training.composed.bodies import Sharing, bodies_of
from emu.study.training.composed.composed import composition
from emu.study.training.composed.composed_graph import StepFrame, composed_and_run
from emu.study.training.composed.place_requests import DistinctRequest, PlaceRequests, place_requests
from emu.study.training.composed.representatives import Representatives
from emu.study.training.step_choice.descent import NEVER, WORTH, Descent, OptionByCoordinate, StepTime
from emu.study.training.step_choice.options import FEW, MANY, Coordinate, Option, ServedFabric, is_open, step_chooser
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.report.report import report
from emu.units import seconds

LEAST = 4  # steps that are composed to choose for one
_EVENTS = 2**23  # limit of events of these steps together, unless LEAST asks for more
ALONE = "each alone"  # name of the option that chooses the fastest for each request
_ENOUGH = 0.005  # share by which a step may be longer than one without shared links, and is good enough
_HEAVY = 0.05  # share of the step from which on more algorithms are tried for a coordinate
_NOTHING = 1e-3  # share of the step below which a coordinate is negligible


class TimingEffort(NamedTuple):
    """The limits of the work that is put into the time of one step."""

    most_events: int = 2**21  # events of all ranks, up to which the whole graph is timed; a step with more is composed
    most_steps: int = 160  # steps that are composed to choose algorithms for one
    near: float = 1.03  # times the best composed time: choices up to it are timed, too, as a whole graph may order them anew


ALWAYS_COMPOSED = TimingEffort(most_events=0)


# The result of a descent: the name of the option of each coordinate that gets another than ALONE, the time of the step, and the
# times of the step where one chooser serves all requests.
DescentResult = tuple[Mapping[Coordinate, str], float, Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class AlgorithmSearch:
    """The search for the algorithms of one training step.

    Args:
        representatives: The ranks that represent their places of the pipeline.
        choice: The choice where nothing is changed; its chooser takes the fastest algorithm for each request alone.
        others: Other choosers by name, such as libraries of collectives, at which descents start, too.
        topology: The topology on which the step runs.
        npus: [ranks] the NPU of each rank.
        device: The device that computes, with the costs of the software.
        most_steps: The most steps that are composed to choose.
    """

    representatives: Representatives
    choice: Choice
    others: Mapping[str, Chooser]
    topology: Topology
    npus: I64
    device: Device
    most_steps: int = TimingEffort().most_steps

    def find(self) -> DescentResult:
        """Search for the best options of the step and return them with the times of the step.

        Raises:
            InputError: the step cannot be composed.
        """
        alone_s = self._alone_step.time_s
        # The time of the step if its requests shared no link, each with the fastest algorithm for it.
        floor_s = self._unshared_s(self._shares())
        if alone_s <= floor_s * (1 + WORTH):
            return {}, alone_s, {ALONE: alone_s}
        names, time_s = ({}, alone_s) if alone_s <= floor_s * (1 + _ENOUGH) else self._descent_result(floor_s * (1 + _ENOUGH))
        times_s = {name: self.composed_s(dict.fromkeys(self.by_coordinate, name)) for name in self._choosers}
        first = min(times_s, key=lambda name: times_s[name])
        if times_s[first] < time_s:  # it also serves the requests of negligible coordinates
            return {c: first for c in self.by_coordinate if first != ALONE}, times_s[first], times_s
        return names, time_s, times_s

    def _descent_result(self, floor_s: float) -> tuple[dict[Coordinate, str], float]:
        """Return the options by coordinate that a descent changes, and the time of the step with them."""
        known = self._algorithms()
        every = {c: self._distinct_options(c, [*self._choosers.values(), *of]) for c, of in known.items()}
        starts = [{c: by_name[chooser] for c, by_name in every.items()} for chooser in self._choosers]
        together = {c: every[c][of[0].name] if of else every[c][ALONE] for c, of in known.items()}
        options = {c: list(dict.fromkeys(by_name.values())) for c, by_name in every.items()}
        weights = {c: self.weight_s(c) for c in options}
        most = min(self.most_steps, max(LEAST, _EVENTS // sum(map(len, self.representatives.events))))

        def judge(served: OptionByCoordinate) -> StepTime:
            return self._time_of({c: option.name for c, option in served.items()})

        best, time_s = Descent(options, weights, judge, most, floor_s).best([*starts, together])
        return {c: option.name for c, option in best.items() if option.name != ALONE}, time_s

    def composed_s(self, names: Mapping[Coordinate, str]) -> float:
        """Return the time of the composed step with options of these names; `NEVER` if it cannot be timed."""
        return self._time_of(names).time_s

    def choice_of(self, names: Mapping[Coordinate, str]) -> Choice:
        """Return the choice that gives coordinates the options of these names."""
        own = {c: name for c, name in names.items() if name != ALONE}
        options = {c: self._choosers.get(name) or self.fabric.algorithm(name) for c, name in own.items()}
        return replace(self.choice, chooser=step_chooser(self.choice.chooser, options)) if options else self.choice

    @cached_property
    def place_requests(self) -> PlaceRequests:
        """The requests of the step, as its representatives make them."""
        return place_requests(self.representatives)

    @cached_property
    def by_coordinate(self) -> Mapping[Coordinate, list[DistinctRequest]]:
        """Requests whose algorithm may be chosen, by their coordinate."""
        found: dict[Coordinate, list[DistinctRequest]] = {}
        for asked in self.place_requests.requests:
            if is_open(asked, self.choice):
                found.setdefault(Coordinate.of(asked.of_group(0)), []).append(asked)
        return found

    def heaviest(self, coordinate: Coordinate) -> DistinctRequest:
        """Return the request of a coordinate that moves most bytes in the whole step."""
        return max(self.by_coordinate[coordinate], key=lambda q: q.size_bytes * self._times[id(q)])

    def weight_s(self, coordinate: Coordinate) -> float:
        """Return the time of a coordinate's requests at its busiest place, one after another, in seconds.

        The time of each byte is taken to be the time of a byte of the heaviest request.
        """
        heaviest, of_place = self.heaviest(coordinate), dict[int, int]()
        for q in self.by_coordinate[coordinate]:
            of_place[q.kind[1]] = of_place.get(q.kind[1], 0) + max(1, q.size_bytes) * self._times[id(q)]
        return seconds(self.fabric.isolated(heaviest).ticks) * max(of_place.values()) / max(1, heaviest.size_bytes)

    def served(self, coordinate: Coordinate, choice: Choice) -> tuple[AlgorithmOnDims, ...]:
        """Return the algorithms by which a choice serves the requests of a coordinate, group by group."""
        return tuple(served for q in self.by_coordinate[coordinate] for served in self.algorithms_of(q, choice))

    def algorithms_of(self, asked: DistinctRequest, choice: Choice) -> list[AlgorithmOnDims]:
        """Return the algorithm of a request in each group that chooses; groups equal by symmetry count once."""
        request = asked.of_group(0)
        return [choice.served(request._replace(ranks=ranks)) for ranks in self._groups(asked)]

    def _shares(self) -> dict[int, float]:
        """Return the least time that any algorithm gives each request, as a share of its present time, by its number."""
        number, found = {id(q): i for i, q in enumerate(self.place_requests.requests)}, dict[int, float]()
        for coordinate in self.coordinates:
            requests = self.by_coordinate[coordinate]
            heaviest = {q.kind[1]: q for q in sorted(requests, key=lambda q: q.size_bytes)}
            least = {place: self.fabric.least_ticks(q, self.others.values()) for place, q in heaviest.items()}
            shares = {place: ticks / max(1, self.fabric.isolated(heaviest[place]).ticks) for place, ticks in least.items()}
            found |= {number[id(q)]: shares[q.kind[1]] for q in requests}
        return found

    @cached_property
    def _times(self) -> Mapping[int, int]:
        """The number of times that each of the Q requests is asked, by its identity."""
        counts = np.bincount(self.place_requests.request_of_call, minlength=len(self.place_requests.requests)).tolist()
        return {id(request): n for request, n in zip(self.place_requests.requests, counts, strict=True)}

    @kept_by(lambda _, asked: asked.kind)
    def _groups(self, asked: DistinctRequest) -> list[tuple[int, ...]]:
        """Return the ranks of groups for which a request's algorithm is chosen, without those equal to another by symmetry."""
        first: dict[tuple[int, ...], tuple[int, ...]] = {}
        for group in map(tuple, asked.choosing.tolist()):
            first.setdefault(canonical_group(self.topology, tuple(self.npus[list(group)].tolist())), group)
        return list(first.values())

    @cached_property
    def fabric(self) -> ServedFabric:
        """The topology with the choice where nothing is changed."""
        return ServedFabric(self.choice, self.topology, self.npus, self.device.request_overhead_fs)

    @cached_property
    def coordinates(self) -> list[Coordinate]:
        """Coordinates whose requests take more than a negligible share of the step."""
        least_s = _NOTHING * self._alone_step.time_s
        return [c for c in self.by_coordinate if self.weight_s(c) >= least_s]

    def _algorithms(self) -> dict[Coordinate, list[Option]]:
        """Return the algorithms to try for each coordinate; coordinates with a large share of the step get more."""
        heavy_s = _HEAVY * self._alone_step.time_s
        fastest = {c: MANY if self.weight_s(c) >= heavy_s else FEW for c in self.coordinates}
        return {c: self.fabric.options(self.heaviest(c), n) for c, n in fastest.items()}

    def _distinct_options(self, coordinate: Coordinate, options: Sequence[Option]) -> dict[str, Option]:
        """Return by each option's name the first of the options that serve a coordinate's requests in the same way as it."""
        first = dict[tuple[AlgorithmOnDims, ...], Option]()
        return {
            each.name: first.setdefault(self.served(coordinate, self.choice_of({coordinate: each.name})), each)
            for each in options
        }

    def _time_of(self, names: Mapping[Coordinate, str]) -> StepTime:
        """Return the time of the step with options of these names; `NEVER` where a request cannot be timed."""
        if set(names.values()) <= {ALONE}:
            return self._alone_step
        try:
            return self._step_time(self.choice_of(names))
        except InputError:
            return StepTime(NEVER, {})

    @cached_property
    def _alone_step(self) -> StepTime:
        """The time of the step with the fastest algorithm for each request alone."""
        return self._step_time(self.choice)

    @cached_property
    def _choosers(self) -> Mapping[str, Option]:
        """Options that are choosers, which can serve the requests of any coordinate, by name."""
        every = {ALONE: self.choice.chooser, **self.others}
        return {name: Option(name, chooser) for name, chooser in every.items() if chooser}

    def _step_time(self, choice: Choice) -> StepTime:
        """Return the time of the composed step.

        Raises:
            InputError: a request cannot be timed, as in `composition`.
        """
        launch_fs = self.device.request_overhead_fs
        found = composition(self.representatives, choice, self.topology, launch_fs, self.npus, most_tasks=0).judged(self._frame)
        return StepTime(found.step_time_s, found.exposed_comm_by_axis_s)

    def _unshared_s(self, shares: Mapping[int, float]) -> float:
        """Return the time of the step in seconds if its requests shared no link.

        Args:
            shares: The share of its time that a request takes, by its number among the different requests; 1 if it has none.

        Raises:
            InputError: a request cannot be timed, as in `composition`.
        """
        asked = self.place_requests
        once = self.fabric.times(asked.requests)
        for number, share in shares.items():
            ticks = round(once[number].ticks * share)
            once[number] = once[number]._replace(ticks=ticks, tail=min(ticks, once[number].tail))
        times = np.bincount(asked.request_of_call, minlength=len(once))
        together = [each._replace(apart_mean=0) for each in once]
        bodies = bodies_of(together, [0] * len(once), times, self.topology.links.bandwidth_Bps, Sharing.NOTHING)
        composed, timeline = composed_and_run(self._frame, bodies)
        return report(asked.trace, composed.replayed(timeline, (), ()), timeline).step_time_s

    @cached_property
    def _frame(self) -> StepFrame:
        """The part of the step that no choice of algorithms changes."""
        return StepFrame.of(self.place_requests, self.device.over(len(self.representatives.place_of_rank)))
