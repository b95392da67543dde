"""What serves a whole step: not what is the fastest for each request alone, but what makes the step the shortest.

Steps are composed to be judged (`emu.study.training.composed`). The descent begins from what is the fastest alone, from what a
library of collectives chooses by itself, and from what is the fastest where all groups of a request ask at once.
Q different requests of a step.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import AlgorithmOnDims as Served
from emu.collective.algorithm import Choice, Chooser
from emu.errors import InputError
from emu.study.training.composed.asked import Asked, Different, Standing, asked_by
from emu.study.training.composed.composed import composition
from emu.study.training.served.coordinates import Coordinate, Option, StepChooser
from emu.study.training.served.descent import Descent, Judged, ServedBy
from emu.study.training.served.options import by_name, first_request, is_open, once_of, options_of
from emu.study.training.served.unshared import unshared_s
from emu.study.training.step.changed import Changed
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.units import seconds

MOST, LEAST = 48, 4  # steps that are composed to choose for one
_EVENTS = 2**22  # that these have together at most, but for the least number of them
ALONE = "each alone"  # an option that is no algorithm, as those of others are none
_ENOUGH = 0.005  # of a step that shares no link, by which one may be longer and is good enough
_NOTHING = 1e-3  # of the step, below which the requests of a coordinate take too little together to be chosen for


class ServedStep(NamedTuple):
    """What serves a step."""

    choice: Choice
    time_s: float  # of the step as it is composed
    changed: tuple[Changed, ...]


class Found(NamedTuple):
    """What a descent found: by coordinate the name of its option, and times of steps as they are composed."""

    names: Mapping[Coordinate, str]  # of those that are not served by what is the fastest alone
    time_s: float
    times_s: Mapping[str, float]  # where one chooser serves all requests


@dataclass(frozen=True, eq=False)
class StepToServe:
    """A step whose requests are to be chosen for.

    Args:
        standing: The ranks that stand for their places.
        choice: What serves it where nothing is changed.
        alone: The chooser of that, whose choices may be changed.
        others: Choosers by name from whose choices the descent begins, too, such as a library of collectives.
        topology: Where it runs.
        npus: [ranks] where they are.
        device: What computes.
    """

    standing: Standing
    choice: Choice
    alone: Chooser
    others: Mapping[str, Chooser]
    topology: Topology
    npus: I64
    device: Device

    def find(self) -> Found:
        """Look for what serves the step best.

        Raises:
            InputError: the step cannot be composed.
        """
        known = self._options()
        every = {c: self._different(c, [*self._choosers, *of]) for c, of in known.items()}
        options = {c: list(dict.fromkeys(by_name.values())) for c, by_name in every.items()}
        weights, floor_s = {c: self.weight_s(c) for c in options}, self._unshared_s(options) * (1 + _ENOUGH)
        most = min(MOST, max(LEAST, _EVENTS // sum(map(len, self._asked.trace.events))))
        starts = [{c: by_name[chooser] for c, by_name in every.items()} for chooser in self._by]
        together = {c: every[c][of[0].name] if of else options[c][0] for c, of in known.items()}
        best, time_s = Descent(options, weights, self._judged, most, floor_s).best([*starts, together])
        names = {c: option.name for c, option in best.items() if option.name != ALONE}
        times_s = {name: self.composed_s(dict.fromkeys(self._requests, name)) for name in self._by}
        first = min(times_s, key=lambda name: times_s[name])
        if times_s[first] < time_s:  # by what it chooses for requests, too, for which it is not worth to choose
            return Found({c: first for c in self._requests if first != ALONE}, times_s[first], times_s)
        return Found(names, time_s, times_s)

    def _different(self, coordinate: Coordinate, options: Sequence[Option]) -> dict[str, Option]:
        """By the name of each option the first that serves all requests of a coordinate alike."""
        requests, first = [first_request(q) for q in self._requests[coordinate]], dict[tuple[Served | None, ...], Option]()
        return {
            each.name: first.setdefault(tuple(map(self._named({coordinate: each.name}).served, requests)), each)
            for each in options
        }

    def served(self, found: Found) -> list[ServedStep]:
        """What serves the step best, then what is the fastest alone, then what others choose; each different one once."""
        by_names = [
            (found.names, found.time_s),
            *((dict.fromkeys(self._requests, name), s) for name, s in found.times_s.items()),
        ]
        choices = [(self._named(names), time_s) for names, time_s in by_names]
        steps = [ServedStep(choice, time_s, self.changed(choice)) for choice, time_s in choices if time_s < float("inf")]
        return list({each.changed: each for each in reversed(steps)}.values())[::-1]

    def changed(self, choice: Choice) -> tuple[Changed, ...]:
        """What is served otherwise than alone."""
        found = list[Changed]()
        for (axis, operation, _), requests in self._requests.items():
            by = [(str(choice.served(first_request(q))), str(self.choice.served(first_request(q)))) for q in requests]
            sizes = [q.size_bytes for q, (now, before) in zip(requests, by, strict=True) if now != before]
            if sizes:
                now, before = (
                    " or ".join(dict.fromkeys(names)) for names in zip(*(b for b in by if b[0] != b[1]), strict=True)
                )
                found.append(
                    Changed(
                        axis=axis,
                        operation=operation,
                        least_bytes=min(sizes),
                        most_bytes=max(sizes),
                        algorithm=now,
                        instead_of=before,
                    )
                )
        return tuple(found)

    @cached_property
    def _asked(self) -> Asked:
        return asked_by(self.standing)

    @cached_property
    def _requests(self) -> Mapping[Coordinate, list[Different]]:
        """Those of each coordinate, of which none is named."""
        found: dict[Coordinate, list[Different]] = {}
        for asked in self._asked.requests:
            if is_open(asked, self.choice):
                found.setdefault(Coordinate.of(first_request(asked)), []).append(asked)
        return found

    @cached_property
    def _times(self) -> Mapping[int, int]:
        """How often each of the Q requests is asked, by its identity."""
        counts = np.bincount(self._asked.different, minlength=len(self._asked.requests)).tolist()
        return {id(request): n for request, n in zip(self._asked.requests, counts, strict=True)}

    @cached_property
    def _alone_step(self) -> Judged:
        return self._timed(self.choice)

    def _unshared_s(self, options: Mapping[Coordinate, Sequence[Option]]) -> float:
        """No choice makes the step shorter, as far as the requests of a coordinate are alike that one place asks for."""
        number = {id(q): i for i, q in enumerate(self._asked.requests)}
        shares = dict[int, float]()
        for coordinate, of in options.items():
            by_place = {place: self._share(coordinate, place, of) for place in {q.kind[1] for q in self._requests[coordinate]}}
            shares |= {number[id(q)]: by_place[q.kind[1]] for q in self._requests[coordinate]}
        return unshared_s(self.standing, self.choice, shares, self.topology, self.npus, self.device)

    def _share(self, coordinate: Coordinate, place: int, options: Sequence[Option]) -> float:
        """Of the time of what serves the heaviest request of a place alone, that the fastest of several options takes."""
        asked = max((q for q in self._requests[coordinate] if q.kind[1] == place), key=lambda q: q.size_bytes)
        where = self.topology, self.npus, self.device.request_overhead_fs
        alone = least = once_of(asked, self.choice, *where).ticks
        for option in options:
            with suppress(InputError):  # what served a run may not be had on another topology
                least = min(least, once_of(asked, self._named({coordinate: option.name}), *where).ticks)
        return least / max(1, alone)

    def composed_s(self, names: Mapping[Coordinate, str]) -> float:
        """The time of the step where options of these names serve some coordinates; never where one cannot be timed."""
        return self._judged_by(names).time_s

    @cached_property
    def coordinates(self) -> list[Coordinate]:
        """Those that take more than next to nothing."""
        least_s = _NOTHING * self._alone_step.time_s
        return [c for c in self._requests if self.weight_s(c) >= least_s]

    def _options(self) -> dict[Coordinate, list[Option]]:
        where = self.topology, self.npus, self.device.request_overhead_fs
        return {c: options_of(self.heaviest(c), self.choice, *where) for c in self.coordinates}

    @cached_property
    def _choosers(self) -> list[Option]:
        """Each serves requests of any coordinate."""
        return [Option(ALONE, self.alone), *(Option(name, chooser) for name, chooser in self.others.items())]

    @cached_property
    def _by(self) -> Mapping[str, Option]:
        return {option.name: option for option in self._choosers}

    def heaviest(self, coordinate: Coordinate) -> Different:
        """The request of a coordinate that moves most in all."""
        return max(self._requests[coordinate], key=lambda q: q.size_bytes * self._times[id(q)])

    def weight_s(self, coordinate: Coordinate) -> float:
        """What the requests of the busiest place take together, as if each byte took as long as in the heaviest."""
        heaviest, of_place = self.heaviest(coordinate), dict[int, int]()
        for q in self._requests[coordinate]:
            of_place[q.kind[1]] = of_place.get(q.kind[1], 0) + max(1, q.size_bytes) * self._times[id(q)]
        once = once_of(heaviest, self.choice, self.topology, self.npus, self.device.request_overhead_fs)
        return seconds(once.ticks) * max(of_place.values()) / max(1, heaviest.size_bytes)

    def _judged(self, served: ServedBy) -> Judged:
        """A step served so; one that cannot be timed takes for ever."""
        return self._judged_by({c: option.name for c, option in served.items()})

    def _judged_by(self, names: Mapping[Coordinate, str]) -> Judged:
        if set(names.values()) <= {ALONE}:
            return self._alone_step
        try:
            return self._timed(self._named(names))
        except InputError:
            return Judged(float("inf"), {})

    def _named(self, names: Mapping[Coordinate, str]) -> Choice:
        """The choice where some coordinates have options of these names."""
        own = {c: name for c, name in names.items() if name != ALONE}
        options = {c: self._by.get(name) or by_name(name, self.topology, self.npus) for c, name in own.items()}
        return replace(self.choice, chooser=StepChooser(self.alone, options)) if options else self.choice

    def _timed(self, choice: Choice) -> Judged:
        launch_fs = self.device.request_overhead_fs
        report = composition(self.standing, choice, self.topology, launch_fs, self.npus, most_tasks=0).judged(self.device)
        return Judged(report.step_time_s, report.exposed_comm_by_axis_s)
