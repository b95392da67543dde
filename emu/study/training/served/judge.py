"""A step composed to be judged: with what serves it, or as if its requests shared no link."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import Choice
from emu.errors import InputError
from emu.fabric.run import run
from emu.fabric.task_error import name_tasks as named
from emu.study.training.composed.bodies import Sharing, bodies_of
from emu.study.training.composed.composed import composition
from emu.study.training.composed.composed_graph import compose
from emu.study.training.composed.isolated_request import time_requests
from emu.study.training.composed.place_requests import Representatives, place_requests
from emu.study.training.composed.request_parts import parts_by_algorithm
from emu.study.training.served.descent import NEVER, Judged
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.report.report import report


@dataclass(frozen=True, eq=False)
class StepJudge:
    """Times one step, served in one way or another.

    Args:
        standing: The ranks that stand for their places.
        topology: Where the step runs.
        npus: [ranks] where the ranks are.
        device: What computes.
    """

    standing: Representatives
    topology: Topology
    npus: I64
    device: Device

    def composed(self, choice: Choice) -> Judged:
        """Return the time of the step as it is composed; never where a request cannot be timed."""
        try:
            return self.timed(choice)
        except InputError:
            return Judged(NEVER, {})

    def timed(self, choice: Choice) -> Judged:
        """Return the time of the step as it is composed.

        Raises:
            InputError: as `composition`.
        """
        launch_fs = self.device.request_overhead_fs
        found = composition(self.standing, choice, self.topology, launch_fs, self.npus, most_tasks=0).judged(self.device)
        return Judged(found.step_time_s, found.exposed_comm_by_axis_s)

    def unshared_s(self, choice: Choice, shares: Mapping[int, float]) -> float:
        """Return the time of the step if its requests shared no link.

        Args:
            choice: What serves the requests.
            shares: Of the time of a request, by its number among the different ones, that it takes; others take all of it.

        Raises:
            InputError: as `composition`.
        """
        asked, device = place_requests(self.standing), self.device
        parts = parts_by_algorithm(asked.requests, choice, self.topology)
        once = time_requests(asked.requests, parts, self.topology, self.npus, device.request_overhead_fs)
        for number, share in shares.items():
            ticks = round(once[number].ticks * share)
            once[number] = once[number]._replace(ticks=ticks, tail=min(ticks, once[number].tail))
        times, together = np.bincount(asked.different, minlength=len(once)), [each._replace(apart_mean=0) for each in once]
        bodies = bodies_of(together, [0] * len(once), times, self.topology.links.bandwidth_Bps, Sharing.NOTHING)
        composed = compose(asked, bodies, device.over(len(self.standing.place_of_rank)))
        with named("compose", composed.event_name):
            timeline = run(composed.graph)
        return report(asked.trace, composed.replayed(timeline, (), ()), timeline).step_time_s
