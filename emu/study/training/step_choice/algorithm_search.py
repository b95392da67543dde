"""The search for the algorithms that make a whole step the fastest, not each request alone.

Steps are composed to compare them (`emu.study.training.composed`). The descent has several starts: the fastest algorithm of
each request alone, the choices of libraries of collectives, and the fastest algorithm where all groups of a request ask at
once.

A choice for a step is searched once, and kept in a cache between commands. Each choice lists how it differs from the one that
takes the fastest algorithm for each request alone.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from emu.arrays import digest
from emu.collective.choice import AlgorithmOnDims, Choice, Chooser
from emu.collective.chooser_names import SYNTHESIZED
from emu.errors import InputError
from emu.memo import kept_by
from emu.study.choice.algorithm_cache import keep_entry, recall_entry
from emu.study.choice.chooser import made_beside, made_where_faster
from emu.study.choice.site import canonical_group
from emu.study.training.composed.bodies import Sharing, bodies_of
from emu.study.training.composed.composed_graph import composed_and_run
from emu.study.training.composed.links_left import LinksLeft
from emu.study.training.composed.requests_by_place import DistinctRequest
from emu.study.training.composed.step_on_fabric import StepOnFabric
from emu.study.training.step.choices import AlgorithmChange, StepChoice
from emu.study.training.step.step import TimedTrace
from emu.study.training.step_choice.descent import LEAST_GAIN, NEVER, Descent, OptionByCoordinate, StepTime
from emu.study.training.step_choice.free_requests import FreeRequests
from emu.study.training.step_choice.options import FEW, MANY, Coordinate, Option, ServedFabric, other_choosers, step_chooser
from emu.trace.report.report import report

LEAST = 4  # steps that are composed to choose for one
_EVENTS = 2**23  # limit of events of these steps together, unless LEAST asks for more
EACH_FASTEST = "each alone"  # name of the option that chooses the fastest for each request
BESIDE = "synthesized beside other axes"  # name of the option of schedules that are made on what other axes leave of links
_ENOUGH = 0.005  # share by which a step may be longer than one without shared links, and is good enough
_HEAVY = 0.05  # share of the step from which on more algorithms are tried for a coordinate
_NOTHING = 1e-3  # share of the step below which a coordinate is negligible


class TimingEffort(NamedTuple):
    """The limits of the work that is spent on the time of one step."""

    most_events: int = 2**21  # events of all ranks, up to which the whole graph is timed; a step with more is composed
    most_steps: int = 160  # steps that are composed to choose algorithms for one
    within: float = 1.03  # times the best composed time: choices up to it are timed, too, as a whole graph may order them anew
    error_range: bool = True  # whether the range is estimated in which the whole graph of a composed step would end


ALWAYS_COMPOSED = TimingEffort(most_events=0)


# The result of a search: the name of the option of each coordinate that gets another than EACH_FASTEST, the time of the step,
# and the times of the step where one chooser serves all requests.
SearchResult = tuple[Mapping[Coordinate, str], float, Mapping[str, float]]


class ServedStep(NamedTuple):
    """One choice of algorithms for a step, the seconds of the composed step with it, and what it changes."""

    choice: Choice
    time_s: float  # seconds of the composed step
    changed: tuple[AlgorithmChange, ...]


@dataclass(frozen=True, eq=False)
class AlgorithmSearch:
    """The search for the algorithms of one training step.

    Args:
        step: The step by the choice where nothing is changed; its chooser takes the fastest algorithm for each request alone.
        most_steps: The most steps that are composed to choose.
        ran: The chooser of the recorded run; None if there is none, or if it is not known.
    """

    step: StepOnFabric
    most_steps: int = TimingEffort().most_steps
    ran: Chooser | None = None

    def choices(self, *key: object) -> list[ServedStep]:
        """Return the best choice for the step, then those with the fastest algorithms alone and by other choosers.

        Equal choices are returned once. They are read from the cache if the step was searched before.

        Args:
            key: Everything that decides the choice, besides the topology and the code.

        Raises:
            InputError: the step cannot be composed.
        """
        name = digest(("step", self.most_steps, *key))
        found = _read(recall_entry(self.step.topology, name))
        if found is None:
            found = self.find()
            named, time_s, times_s = found
            names = [[*coordinate, option] for coordinate, option in named.items()]
            keep_entry(self.step.topology, name, [names, time_s, dict(times_s)])
        return self._served_steps(found)

    def timed_by_best(
        self,
        choices: Sequence[ServedStep],
        within: float = TimingEffort().within,
        timed: Callable[[Choice], TimedTrace] | None = None,
    ) -> TimedTrace:
        """Return the step timed by the choice with the shortest step; of equal ones by the choice that changes least.

        Args:
            choices: The result of `choices`.
            within: Times the best composed time, up to which choices are timed.
            timed: A function that times what is reported by a choice; None: the step itself.
        """
        close = [each for each in choices if each.time_s <= choices[0].time_s * within]
        found = [(each, timed(each.choice) if timed else self.step.by(each.choice).timed()) for each in close]
        times_s = {each.changed: each.time_s for each in choices}
        times_s |= {each.changed: step.report.step_time_s for each, step in found}
        chosen, step = min(found, key=lambda each: (each[1].report.step_time_s, len(each[0].changed)))
        free = dict.fromkeys(f"{of.axis} {of.operation}".strip() for of in self.free_requests.by_coordinate)
        auto = StepChoice(alone_step_time_s=times_s[()], changed=chosen.changed, free=tuple(free))
        return replace(step, auto=auto)

    def find(self) -> SearchResult:
        """Search for the best options of the step and return them with the times of the step.

        Raises:
            InputError: the step cannot be composed.
        """
        alone_s = self._alone_step.time_s
        # The time of the step if its requests shared no link, each with the fastest algorithm for it.
        factors = self.free_requests.least_shares(self.coordinates, [*self.others.values()])
        floor_s = _unshared_step_s(self.step, factors)
        if alone_s <= floor_s * (1 + LEAST_GAIN):
            return {}, alone_s, {EACH_FASTEST: alone_s}
        names, time_s = ({}, alone_s) if alone_s <= floor_s * (1 + _ENOUGH) else self._descent_result(floor_s * (1 + _ENOUGH))
        times_s = {name: self.composed_s(dict.fromkeys(self.free_requests.by_coordinate, name)) for name in self._choosers}
        first = min(times_s, key=lambda name: times_s[name])
        if times_s[first] < time_s:  # it also serves the requests of negligible coordinates
            return {c: first for c in self.free_requests.by_coordinate if first != EACH_FASTEST}, times_s[first], times_s
        return names, time_s, times_s

    def _descent_result(self, good_enough_s: float) -> tuple[dict[Coordinate, str], float]:
        """Return the options by coordinate that a descent changes, and the time of the step with them."""
        known = self._algorithms()
        every = {c: self._distinct_options(c, [*self._choosers.values(), *of]) for c, of in known.items()}
        starts = [{c: by_name[chooser] for c, by_name in every.items()} for chooser in self._choosers]
        together = {c: every[c][of[0].name] if of else every[c][EACH_FASTEST] for c, of in known.items()}
        options = {c: list(dict.fromkeys(by_name.values())) for c, by_name in every.items()}
        weights = {c: self.free_requests.weights_s[c] for c in options}
        most = min(self.most_steps, max(LEAST, _EVENTS // len(self.step.asked.place_of_event)))

        def judge(served: OptionByCoordinate) -> StepTime:
            return self._time_of({c: option.name for c, option in served.items()})

        best, time_s = Descent(options, weights, judge, most, good_enough_s).best([*starts, together])
        return {c: option.name for c, option in best.items() if option.name != EACH_FASTEST}, time_s

    @cached_property
    def free_requests(self) -> FreeRequests:
        """The requests of the step whose algorithm may be chosen."""
        step = self.step
        fabric = ServedFabric(step.choice, step.topology, step.npus, step.device.request_overhead_fs)
        return FreeRequests(step.asked, fabric)

    @cached_property
    def coordinates(self) -> list[Coordinate]:
        """Coordinates whose requests take more than a negligible share of the step."""
        least_s = _NOTHING * self._alone_step.time_s
        return [c for c in self.free_requests.by_coordinate if self.free_requests.weights_s[c] >= least_s]

    @cached_property
    def others(self) -> Mapping[str, Chooser]:
        """Other choosers by name, such as libraries of collectives, from which the descent starts as well."""
        on = self.step.topology, self.step.asked.representatives.dtype, self.step.npus
        own, others = self.step.choice.chooser, other_choosers(*on, self.ran)
        made = {SYNTHESIZED: made_where_faster(own), BESIDE: made_beside(own, LinksLeft(self.step).of)}
        return {**others, **{name: each for name, each in made.items() if each is not None}}

    @cached_property
    def _choosers(self) -> Mapping[str, Option]:
        """Choosers by name, as options that can serve the requests of any coordinate."""
        every = {EACH_FASTEST: self.step.choice.chooser, **self.others}
        return {name: Option(name, chooser) for name, chooser in every.items() if chooser}

    def _algorithms(self) -> dict[Coordinate, list[Option]]:
        """Return the algorithms to try for each coordinate; coordinates with a large share of the step get more."""
        heavy_s = _HEAVY * self._alone_step.time_s
        fastest = {c: MANY if self.free_requests.weights_s[c] >= heavy_s else FEW for c in self.coordinates}
        return {c: self.free_requests.fabric.options(self.free_requests.heaviest(c), n) for c, n in fastest.items()}

    def _distinct_options(self, coordinate: Coordinate, options: Sequence[Option]) -> dict[str, Option]:
        """Return, for the name of every option, the first option that gives the coordinate's requests the same algorithms."""
        first = dict[tuple[AlgorithmOnDims, ...], Option]()
        return {
            each.name: first.setdefault(self.served(coordinate, self.choice_of({coordinate: each.name})), each)
            for each in options
        }

    def composed_s(self, names: Mapping[Coordinate, str]) -> float:
        """Return the time of the composed step with options of these names; `NEVER` if it cannot be timed."""
        return self._time_of(names).time_s

    def _time_of(self, names: Mapping[Coordinate, str]) -> StepTime:
        """Return the time of the step with options of these names; `NEVER` where a request cannot be timed."""
        if set(names.values()) <= {EACH_FASTEST}:
            return self._alone_step
        try:
            return _step_time(self.step.by(self.choice_of(names)))
        except InputError:
            return StepTime(NEVER, {})

    @cached_property
    def _alone_step(self) -> StepTime:
        """The time of the step with the fastest algorithm for each request alone."""
        return _step_time(self.step)

    def choice_of(self, names: Mapping[Coordinate, str]) -> Choice:
        """Return the choice that gives coordinates the options of these names."""
        own = {c: name for c, name in names.items() if name != EACH_FASTEST}
        options = {c: self._choosers.get(name) or self.free_requests.fabric.algorithm(name) for c, name in own.items()}
        alone = self.step.choice
        return replace(alone, chooser=step_chooser(alone.chooser, options)) if options else alone

    def served(self, coordinate: Coordinate, choice: Choice) -> tuple[AlgorithmOnDims, ...]:
        """Return the algorithms by which a choice serves the requests of a coordinate, group by group."""
        return tuple(served for q in self.free_requests.by_coordinate[coordinate] for served in self.algorithms_of(q, choice))

    def algorithms_of(self, asked: DistinctRequest, choice: Choice) -> list[AlgorithmOnDims]:
        """Return the algorithm of a request in each group that chooses; groups equal by symmetry count once."""
        request = asked.of_group(0)
        return [choice.algorithm_for(request._replace(ranks=ranks)) for ranks in self._groups(asked)]

    @kept_by(lambda _, asked: asked.kind)
    def _groups(self, asked: DistinctRequest) -> list[tuple[int, ...]]:
        """Return the ranks of groups for which a request's algorithm is chosen, without those equal to another by symmetry."""
        first: dict[tuple[int, ...], tuple[int, ...]] = {}
        for group in map(tuple, asked.choosing.tolist()):
            npus = tuple(self.step.npus[list(group)].tolist())
            first.setdefault(canonical_group(self.step.topology, npus), group)
        return list(first.values())

    def _served_steps(self, found: SearchResult) -> list[ServedStep]:
        """Return the choice that a descent found, then the other choices, without duplicates."""
        every, (names, found_s, times_s) = self.free_requests.by_coordinate, found
        by_names = [(names, found_s), *((dict.fromkeys(every, name), each_s) for name, each_s in times_s.items())]
        choices = [(self.choice_of(names), time_s) for names, time_s in by_names if time_s < NEVER]
        first = dict[tuple[tuple[AlgorithmOnDims, ...], ...], tuple[Choice, float]]()  # by the algorithms of all requests
        for choice, time_s in choices:
            served = tuple(self.served(coordinate, choice) for coordinate in every)
            first.setdefault(served, (choice, time_s))
        return [ServedStep(choice, time_s, self.changes(choice)) for choice, time_s in first.values()]

    def changes(self, choice: Choice) -> tuple[AlgorithmChange, ...]:
        """Return how a choice differs from the fastest algorithm for each request alone, coordinate by coordinate."""
        found = (self._change(coordinate, choice) for coordinate in self.free_requests.by_coordinate)
        return tuple(each for each in found if each is not None)

    def _change(self, coordinate: Coordinate, choice: Choice) -> AlgorithmChange | None:
        """Return the change of algorithms that a choice makes for one coordinate; None if it makes none."""
        pairs = [
            (q.size_bytes, str(now), str(before))
            for q in self.free_requests.by_coordinate[coordinate]
            for now, before in zip(self.algorithms_of(q, choice), self.algorithms_of(q, self.step.choice), strict=True)
            if now != before
        ]
        if not pairs:
            return None
        sizes, *names = zip(*pairs, strict=True)
        now, before = (" or ".join(dict.fromkeys(each)) for each in names)
        return AlgorithmChange(
            axis=coordinate.axis,
            operation=coordinate.operation,
            least_bytes=min(sizes),
            most_bytes=max(sizes),
            algorithm=now,
            instead_of=before,
        )


def _step_time(step: StepOnFabric) -> StepTime:
    """Return the time of the quickly composed step, for comparisons."""
    found = step.coarse_report()
    return StepTime(found.step_time_s, found.exposed_comm_by_axis_s)


def _unshared_step_s(step: StepOnFabric, time_factors: Mapping[int, float]) -> float:
    """Return the seconds of the composed step if its requests shared no link; errors as in `StepOnFabric.composed`.

    Args:
        step: The step.
        time_factors: The share of its time that a request takes, by its number among the distinct requests; 1 where none is
            given.
    """
    isolated = [each._replace(apart_mean=0) for each in step.isolated]
    for number, factor in time_factors.items():
        ticks = round(isolated[number].ticks * factor)
        isolated[number] = isolated[number]._replace(ticks=ticks, tail=min(ticks, isolated[number].tail))
    bandwidth_Bps = step.topology.links.bandwidth_Bps
    bodies = bodies_of(isolated, [0] * len(isolated), step.asked.counts, bandwidth_Bps, Sharing.NOTHING)
    composed, timeline = composed_and_run(step.frame(), bodies)
    return report(step.asked.trace, composed.replayed(timeline, (), ()), timeline).step_time_s


def _read(kept: Any) -> SearchResult | None:
    """Return the result of a descent from a cache entry; None if there is none or it is unreadable."""
    with suppress(ValueError, TypeError, AttributeError):
        named, time_s, times_s = kept
        names = {Coordinate(*coordinate): option for *coordinate, option in named}
        return names, float(time_s), {name: float(each_s) for name, each_s in times_s.items()}
    return None
