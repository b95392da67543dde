"""A generated step on a topology: its algorithms are chosen for the step, and any device can time it."""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from emu.arrays import F64, I64
from emu.collective.algorithm import Choice
from emu.errors import must_be
from emu.model.generate.generate import meta_of, roles_by_place, trace_of
from emu.model.generate.states import Role
from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import Stack
from emu.study.choice.chooser import choice_on, is_automatic
from emu.study.training.axes import npus_of, with_axes
from emu.study.training.composed.composed import composition, representative_tapes
from emu.study.training.composed.place_requests import Representatives, representatives_of_plan
from emu.study.training.step.rate import with_work, work_of
from emu.study.training.step.step import TimedTrace, time_trace, time_whole_or_composed
from emu.study.training.step_choice.options import other_choosers
from emu.study.training.step_choice.served_steps import choices_for, fastest_step
from emu.study.training.step_choice.step_to_serve import StepToServe, TimingEffort
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.replay.replay import TraceLayout
from emu.trace.trace import Trace


@lru_cache(maxsize=1)  # the placements of one plan are asked for one after another
def roles_of(model: Model, plan: Plan, stack: Stack) -> list[list[Role]]:
    """Return the roles at each place of a pipeline, from a cache of the last plan."""
    return roles_by_place(model, plan, stack)


@lru_cache(maxsize=1)
def standing_of(model: Model, plan: Plan, stack: Stack) -> Representatives:
    """Return one rank of each place with its events, from a cache of the last plan."""
    return representatives_of_plan(
        representative_tapes(roles_of(model, plan, stack)), plan, (*meta_of(model, plan, stack), *work_of(model, plan))
    )


@dataclass(frozen=True, eq=False)
class GeneratedStep:
    """A step on a topology; its trace has the dtypes of its precision, and none of them is timed as another.

    Args:
        model: The model that is trained.
        plan: The plan.
        stack: The software.
        algorithms: Words of --algorithm.
        axes: Axes of the plan, the one with neighbouring NPUs first.
        topology: The topology, with the changes of the software.
        effort: How much work is put into its time.
        speed: [ranks] the share of the device's speed at which each rank computes; None: all ranks have full speed.
    """

    model: Model
    plan: Plan
    stack: Stack
    algorithms: tuple[str, ...]
    axes: tuple[str, ...]
    topology: Topology
    effort: TimingEffort
    speed: F64 | None

    def timed(self, device: Device) -> TimedTrace:
        """Return the step timed with a device; algorithms that no word names are chosen for the whole step.

        Raises:
            InputError: A request cannot be timed, or a step is composed while ranks compute at several speeds.
        """
        step = self.to_serve(device)
        if step is None:
            return self._timed(self.choice, device)
        key = self.model.digest(), repr(self.plan), self.stack, replace(device, memory_bytes=0), self.algorithms, self._npus
        return fastest_step(choices_for(step, *key), lambda choice: self._timed(choice, device), self.effort.near)

    def to_serve(self, device: Device) -> StepToServe | None:
        """Return the step as the search for its algorithms takes it; None: words name all algorithms."""
        alone = self.choice.chooser
        if alone is None or not is_automatic(alone):
            return None
        by = other_choosers(self.topology, "float32", self._npus)
        return StepToServe(self._standing, self.choice, alone, by, self.topology, self._npus, device, self.effort.most_steps)

    @cached_property
    def choice(self) -> Choice:
        """The algorithms that words name; for all other requests, the fastest algorithm of each alone."""
        return choice_on(self.topology, self.algorithms, "float32", npus=self._npus)

    @cached_property
    def _npus(self) -> I64:
        """The NPU of each rank, [ranks]."""
        return npus_of(self.topology, self.plan, self.axes)

    @property
    def _standing(self) -> Representatives:
        """One rank of each place of a pipeline, with its events."""
        return standing_of(self.model, self.plan, self.stack)

    @cached_property
    def _trace(self) -> Trace:
        """The trace of all ranks."""
        roles = roles_of(self.model, self.plan, self.stack)
        return with_work(trace_of(roles, self.model, self.plan, self.stack), self.model, self.plan)

    def _timed(self, choice: Choice, device: Device) -> TimedTrace:
        """Return the step by the whole graph of its ranks, or of those that stand for all; if that is too large, composed."""

        def whole() -> TimedTrace:
            placed = with_axes(self.topology, self.plan, self.axes)
            return time_trace(TraceLayout(self._trace, choice, placed, device, "float32", self.speed), delays=True)

        roles = roles_of(self.model, self.plan, self.stack)
        events = self.plan.stage_ranks * sum(len(of_place[0].tape) for of_place in roles)
        return time_whole_or_composed(events, self.effort.most_events, whole, lambda: self._composed(choice, device))

    def _composed(self, choice: Choice, device: Device) -> TimedTrace:
        """Return the composed step; refuse several speeds."""
        if self.speed is not None and (self.speed != 1).any():
            what = "one, as the step is composed of one rank a stage"
            raise must_be("estimate", "speeds of NPUs", what, len(np.unique(self.speed)), "take fewer ranks, or no slow NPU")
        return composition(self._standing, choice, self.topology, device.request_overhead_fs, self._npus).timed(device)
