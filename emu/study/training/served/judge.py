"""The time of a composed step by a choice of algorithms, or as if its requests shared no link."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import Choice
from emu.errors import InputError
from emu.fabric.graph import name_tasks
from emu.fabric.run import run
from emu.study.training.composed.bodies import Sharing, bodies_of
from emu.study.training.composed.composed import composition
from emu.study.training.composed.composed_graph import StepFrame, compose
from emu.study.training.composed.isolated_request import time_requests
from emu.study.training.composed.place_requests import Representatives, place_requests
from emu.study.training.composed.request_parts import parts_by_algorithm
from emu.study.training.served.descent import NEVER, StepTime
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.report.report import report


@dataclass(frozen=True, eq=False)
class StepJudge:
    """An object that composes and times one step by different choices of algorithms.

    Args:
        standing: The ranks that represent their places of the pipeline.
        topology: The topology on which the step runs.
        npus: [ranks] the NPU of each rank.
        device: The device that computes.
    """

    standing: Representatives
    topology: Topology
    npus: I64
    device: Device

    def time_if_possible(self, choice: Choice) -> StepTime:
        """Return the time of the composed step; `NEVER` where a request cannot be timed."""
        try:
            return self.step_time(choice)
        except InputError:
            return StepTime(NEVER, {})

    def step_time(self, choice: Choice) -> StepTime:
        """Return the time of the composed step.

        Raises:
            InputError: a request cannot be timed, as in `composition`.
        """
        launch_fs = self.device.request_overhead_fs
        found = composition(self.standing, choice, self.topology, launch_fs, self.npus, most_tasks=0).judged(self._frame)
        return StepTime(found.step_time_s, found.exposed_comm_by_axis_s)

    def unshared_s(self, choice: Choice, shares: Mapping[int, float]) -> float:
        """Return the time of the step in seconds if its requests shared no link.

        Args:
            choice: The choice of algorithms.
            shares: The share of its time that a request takes, by its number among the different requests; 1 if it has none.

        Raises:
            InputError: a request cannot be timed, as in `composition`.
        """
        asked = self._frame.asked
        parts = parts_by_algorithm(asked.requests, choice, self.topology)
        once = time_requests(asked.requests, parts, self.topology, self.npus, self.device.request_overhead_fs)
        for number, share in shares.items():
            ticks = round(once[number].ticks * share)
            once[number] = once[number]._replace(ticks=ticks, tail=min(ticks, once[number].tail))
        times, together = np.bincount(asked.different, minlength=len(once)), [each._replace(apart_mean=0) for each in once]
        bodies = bodies_of(together, [0] * len(once), times, self.topology.links.bandwidth_Bps, Sharing.NOTHING)
        composed = compose(self._frame, bodies)
        with name_tasks("compose", composed.event_name):
            timeline = run(composed.graph)
        return report(asked.trace, composed.replayed(timeline, (), ()), timeline).step_time_s

    @cached_property
    def _frame(self) -> StepFrame:
        """The part of the step that no choice of algorithms changes."""
        return StepFrame.of(place_requests(self.standing), self.device.over(len(self.standing.place_of_rank)))
