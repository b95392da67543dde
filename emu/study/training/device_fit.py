"""A fit of a device's constants: estimated steps come as close as possible to measured ones.

The squares of log(estimated / measured) are least. Every model counts as one, however many of its runs there are. Runs of few
models leave some constants open. So each constant is drawn to its expected value, as far as the runs do not say otherwise. An
estimate is costly, so it is made for few sets of constants only. Near these sets the critical path is assumed to stay the same,
and the computations on it to take their time by the device's own rule. The found constants are then estimated anew.

How unlike the speeds of NPUs are (`Device.spread`) is fitted on ladders alone. A ladder is one model with one plan on more and
more NPUs. Only the growth of its steps counts, not how long they take.
R rows, C constants, E events of a role.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from emu.arrays import F64, I64, Bool
from emu.equivalence import Orbits
from emu.study.training.step.step import TimedTrace
from emu.trace.device.device import SPREAD, Device
from emu.trace.device.measured import beside
from emu.trace.report.critical_path import COMPUTATION, critical_path
from emu.trace.trace import Events, Kind

_TIMES = 2  # how often estimates are made anew
_OFF = 0.02  # error of a model that weighs as much as a constant one spread away from its expected value
_SAME = ("kernel", "batch", "m", "n", "k", "flops", "bytes", "count")  # with the dtype: columns on which the time depends


class Constant(NamedTuple):
    """A constant of a device that is fitted: its field, the value where the search begins, and its range.

    `spread` is how far from the expected value it may well be.
    """

    name: str
    expected: float  # value before any run was seen, where the search begins
    spread: float  # how far from the expected value it may well be
    low: float
    high: float


def _distinct(events: Events, which: Bool) -> tuple[Events, I64]:
    """Return the distinct computations among the selected events, and how often each occurs."""
    rows = np.flatnonzero(which & (events.kind == Kind.COMPUTE))
    words = np.array(events.dtype, dtype=str)[rows]
    _, first, times = Orbits.by_value(words, *(getattr(events, name)[rows] for name in _SAME))
    return _taken(events, rows[first]), times


def _taken(events: Events, rows: I64) -> Events:
    """Return the computations in the given rows, without their waits."""
    none: dict[str, Any] = {"wait_start": np.zeros(len(rows) + 1, np.int64), "split_start": np.zeros(len(rows) + 1, np.int64)}
    none |= {"wait": events.wait[:0], "split": events.split[:0], "lasts_s": events.lasts_s[:0]}
    words: dict[str, Any] = {name: tuple(getattr(events, name)[row] for row in rows.tolist()) for name in ("name", "dtype")}
    rest: dict[str, Any] = {f.name: getattr(events, f.name)[rows] for f in fields(Events) if f.name not in {*none, *words}}
    return Events(**rest, **words, **none)


@dataclass(frozen=True, eq=False, slots=True)
class StepNearDevice:
    """The time of a step as a function of the device, for devices near the one that it was estimated with.

    It counts, for each role, the share of its computation that is on the critical path.
    """

    step_s: float
    on_path: tuple[float, ...]  # for each role, the share of its computation that is on the critical path
    computed: tuple[
        tuple[tuple[Events, I64], ...], ...
    ]  # for each role, its distinct computations with their counts: alone, and beside a collective
    npus: int
    under: Callable[[Device], Device]  # adds the costs of the step's software to a device
    with_s: float = 0.0  # seconds of computation on the path with the first device

    @staticmethod
    def of(timed: TimedTrace, device: Device, under: Callable[[Device], Device] = lambda device: device) -> "StepNearDevice":
        """Return the step's time as a function of the device, from an estimated step.

        Args:
            timed: The estimated step with the times of its tasks.
            device: The device that it was estimated with.
            under: The change that the software of the step makes to a device.
        """
        trace = timed.trace
        under_way = [(events, beside(events)) for events in trace.events]
        computed = tuple((_distinct(events, ~held), _distinct(events, held)) for events, held in under_way)
        roles = range(len(computed))
        found = StepNearDevice(timed.report.step_time_s, (1.0,) * len(roles), computed, timed.device.npus, under)
        path = critical_path(trace, timed.replayed, timed.timeline, timed.report)
        spent = [sum(p.time_s for p in path if p.what == COMPUTATION and (p.stage or 0) == role) for role in roles]
        each = [found.computed_s(device, role) for role in roles]
        shares = tuple(part / whole for part, whole in zip(spent, each, strict=True))
        found = replace(found, on_path=shares)
        return replace(found, with_s=found.path_s(device))

    def estimated_s(self, device: Device) -> float:
        """Return the seconds of the step with a device."""
        return self.step_s - self.with_s + self.path_s(device)

    def path_s(self, device: Device) -> float:
        """Return the seconds of computation on the critical path of the step with a device."""
        return sum(share * self.computed_s(device, role) for role, share in enumerate(self.on_path) if share > 0)

    def computed_s(self, device: Device, role: int) -> float:
        """Return the seconds of all computations of a rank with a device, added up; `role` is the number of its role."""
        over = replace(self.under(device), npus=self.npus)
        alone, held = (
            float(over.seconds(events, "float32", contended=contended) @ times) if len(times) else 0.0
            for (events, times), contended in zip(self.computed[role], (False, True), strict=True)
        )
        return alone + held


@dataclass(frozen=True, eq=False, slots=True)
class Ladder:
    """Measured steps of one model with one plan that differ in the number of NPUs alone."""

    model: Hashable
    near: Sequence[StepNearDevice]  # each step as a function of the device
    measured_s: F64

    def errors(self, device: Device) -> F64:
        """Return log(estimated / measured) of each step minus the mean over the ladder: the error of how steps grow."""
        logs = np.log(np.array([each.estimated_s(device) for each in self.near]) / self.measured_s)
        return np.asarray(logs - logs.mean())


@dataclass(frozen=True, eq=False)
class DeviceFit:
    """The measured steps of one device, and the fit of the device's constants to them."""

    device: Device
    constants: Sequence[Constant]
    near: Sequence[Callable[[Device], StepNearDevice]]  # [R] functions that return each row's step near a device
    measured_s: F64  # [R]
    models: Sequence[Hashable]  # [R] rows of one model count as one
    ladders: Sequence[Ladder] = ()  # none: the spread of the device's speeds is not fitted

    @cached_property
    def found(self) -> tuple[dict[str, float], list[StepNearDevice]]:
        """The constants that fit all rows best, and the steps near the device with these constants."""
        best = {c.name: c.expected for c in self.constants}
        near: list[StepNearDevice] = []
        for _ in range(_TIMES):
            device = with_constants(self.device, best)
            near = [each(device) for each in self.near]
            best = self.best(near, range(len(near)))
        return best, near

    def without(self) -> dict[Hashable, dict[str, float]]:
        """Return, for each model, the constants that fit the rows of all other models best (cross-validation)."""
        models, (_, near) = self.models, self.found
        others = {model: [row for row, of in enumerate(models) if of != model] for model in dict.fromkeys(models)}
        return {model: self.best(near, rows) for model, rows in others.items() if rows}

    def blind(self, draws: int, seed: int) -> list[list[tuple[int, float]]]:
        """Return, by draw, the rows of one half of the models with estimate / measurement, by a fit on the other half.

        Args:
            draws: The number of draws. If the number of models is odd, the fit has the larger half.
            seed: The seed of the draws.
        """
        models, random = sorted(set(map(str, self.models))), np.random.default_rng(seed)
        return [self._drawn(set(random.permutation(models)[: -(-len(models) // 2)].tolist())) for _ in range(draws)]

    def _drawn(self, seen: set[str]) -> list[tuple[int, float]]:
        """Return the rows of the models that are not in `seen`, judged by a fit on the models in `seen`.

        Returns:
            The number of each row, and its estimate / measurement.
        """
        _, near = self.found
        rows = range(len(near))
        known = [row for row in rows if str(self.models[row]) in seen]
        device = with_constants(self.device, self.best(near, known))
        unseen = (row for row in rows if str(self.models[row]) not in seen)
        return [(row, near[row].estimated_s(device) / float(self.measured_s[row])) for row in unseen]

    def best(self, near: Sequence[StepNearDevice], rows: Sequence[int]) -> dict[str, float]:
        """Return the constants that fit the given rows best, after the spread of speeds is fitted to the models' ladders."""
        spread = self._spread({self.models[row] for row in rows})
        own = replace(self, device=with_constants(self.device, spread))
        return own._level(near, rows) | spread

    def _spread(self, models: Collection[Hashable]) -> dict[str, float]:
        """Return the spread of speeds that fits the ladders of the given models best; empty if they have no ladder."""
        ladders = [ladder for ladder in self.ladders if ladder.model in models]
        if not ladders:
            return {}

        def errors(values: F64) -> F64:
            device = with_constants(self.device, {"spread": float(values[0])})
            return np.concatenate([ladder.errors(device) for ladder in ladders])

        found = least_squares(errors, [SPREAD], bounds=(0, 1), x_scale=SPREAD, diff_step=1e-3).x
        return {"spread": round(float(found[0]), 4)}

    def _level(self, near: Sequence[StepNearDevice], rows: Sequence[int]) -> dict[str, float]:
        """Return the constants that fit the given rows best, with the spread of speeds unchanged."""
        weight = Counter(self.models[row] for row in rows)
        root = np.array([weight[self.models[row]] for row in rows]) ** -0.5

        def errors(values: F64) -> F64:
            device = with_constants(self.device, self._constants_by_name(values, 12))
            ratios = [near[row].estimated_s(device) / self.measured_s[row] for row in rows]
            return np.concatenate((np.log(ratios) * root, _OFF * (values - expected) / spread))

        limits = np.array([(c.low, c.high) for c in self.constants]).T
        expected, spread = (np.array([getattr(c, name) for c in self.constants]) for name in ("expected", "spread"))
        return self._constants_by_name(least_squares(errors, expected, bounds=limits, x_scale=spread, diff_step=1e-3).x)

    def _constants_by_name(self, values: F64, digits: int = 4) -> dict[str, float]:
        """Return the constants by name, from their values in order, rounded to this number of digits."""
        return {c.name: round(float(value), digits) for c, value in zip(self.constants, values, strict=True)}


def with_constants(device: Device, constants: Mapping[str, Any]) -> Device:
    """Return a device with new values for the given fields."""
    return replace(device, **constants)
