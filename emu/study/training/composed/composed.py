"""A composed training step: each distinct request is timed once on the fabric, and one rank of each place has these times.

A request is timed with all groups of its axis in one stage at the same time. In some stretches of the step requests share
links, or ranks leave a request at different times. There every rank is laid on the fabric with all its messages, as far as the
limit of tasks allows (`stretches`). Elsewhere a request is one body, which shares links as `bodies` says. P places, L links.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from emu.arrays import F64, I64, Bool, column
from emu.collective.algorithm import Choice
from emu.fabric.graph import Timeline
from emu.model.generate.states import Role
from emu.model.generate.tape import Tape
from emu.study.training.composed.bodies import Bodies, Sharing, bodies_of, busy_s
from emu.study.training.composed.composed_graph import ComposedGraph, StepFrame, composed_and_run
from emu.study.training.composed.isolated_request import HEAVY, LIGHT, ROUNDS, WITHIN, time_requests
from emu.study.training.composed.place_requests import PlaceRequests, Representatives, place_requests
from emu.study.training.composed.request_parts import RequestMessages, parts_by_algorithm
from emu.study.training.composed.stretches import MOST_TASKS, WORTH, Stretches
from emu.study.training.step.step import TimedTrace
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.replay.replay import Service, services_of
from emu.trace.report.report import StepReport, report
from emu.units import format_time

_CLOSER = 2  # times at most that more of a step is looked at closely
COMPOSED = (
    "the step is composed: each different request is timed once, with all groups of its axis in one stage at the same time, "
    "and one rank a stage carries these times. Where requests share links, or ranks leave one at different times, the step is "
    f"laid with every rank and message instead, as far as {MOST_TASKS} tasks go; what is not shares links by how long each "
    f"keeps them busy. A request of more than {LIGHT} messages in one round, or of more than {HEAVY} in {ROUNDS} rounds at "
    "most, takes the middle between what its busiest link needs and what it would take with a barrier after each round, if "
    f"neither is more than {WITHIN:.0%} away"
)


def representative_tapes(of_places: Sequence[Sequence[Role]]) -> list[Tape]:
    """Return [P] the tape of the rank that stands for each place.

    Ranks of a place may differ in their optimizers: the rank with most work stands for them. The first rank of a ring of cp
    stands for all of the ring.
    """
    return [max((role.tape for role in roles if not role.at), key=Tape.own_bytes) for roles in of_places]


@dataclass(frozen=True, eq=False, slots=True)
class Composition:
    """A step of which everything is known but the times of its computations: any device can time it."""

    asked: PlaceRequests
    services: tuple[Service, ...]
    bodies: Callable[[Sharing], Bodies]  # by what they ask of links; each is worked out once it is asked for
    busy_s: F64  # [L] of each link of the topology at full rate
    sending: RequestMessages
    stretches: Callable[[], Stretches]  # worked out once they are asked for
    most_tasks: int  # of stretches that are laid with all ranks
    choice: Choice
    topology: Topology
    wall_s: float  # that it took to learn this

    def timed(self, device: Device) -> TimedTrace:
        """Return the step on a device; its time to launch a request is part of the composition already.

        Raises:
            InputError: The step ends beyond the clock.
        """
        began, standing = time.perf_counter(), self.asked.representatives
        device = device.over(len(standing.place_of_rank))
        frame = StepFrame.of(self.asked, device)
        composed, timeline, first = self._closest(frame)
        replayed = composed.replayed(timeline, self.services, device.assumptions)
        found = report(self.asked.trace, replayed, timeline)
        shares = self.busy_s / (found.step_time_s or 1.0)
        low, high = self._between(frame, composed, timeline, first)
        between_s = found.step_time_s * low, found.step_time_s * high
        return TimedTrace(
            self.asked.trace, self.topology, device, standing.dtype, self.choice, replayed, timeline, found, shares, None,
            wall_fabric_s=self.wall_s + time.perf_counter() - began,
            asked=self.asked,
            between_s=between_s,
            composing=(COMPOSED, _between_told(*between_s)),
        )  # fmt: skip

    def judged(self, frame: StepFrame) -> StepReport:
        """Return the figures without any laid stretch: a quick way to compare choices of algorithms.

        Args:
            frame: The frame of this step, which is the same for all choices of algorithms.

        Raises:
            InputError: As `timed`.
        """
        composed, timeline = self._composed(frame, Sharing.FLOWS)
        return report(self.asked.trace, composed.replayed(timeline, self.services, ()), timeline)

    def _closest(self, frame: StepFrame) -> tuple[ComposedGraph, Timeline, Timeline]:
        """Return the step with the stretches laid that need it, the times of its tasks, and the times with bodies alone."""
        composed, timeline = self._composed(frame, Sharing.FLOWS)
        first = timeline
        for _ in range(_CLOSER):
            each = self.stretches().closer(composed, timeline, self.most_tasks) if self.most_tasks else None
            if each is None:
                break
            composed, timeline = self._composed(frame, Sharing.FLOWS, each)
        return composed, timeline, first

    def _between(self, frame: StepFrame, composed: ComposedGraph, timeline: Timeline, first: Timeline) -> tuple[float, float]:
        """Return the least and the most that the step takes, as shares of its time.

        If no stretch is left that is worth laying, both bounds allow for the full length of all that is left. Else bodies that
        need less of links and bodies that need more are timed too, and the times with bodies alone count as well.
        """
        if not self.stretches().worth(composed, timeline).ticks:
            left = self.stretches().unsure_fs(composed, timeline) / max(1, int(timeline.end_fs.max(initial=0)))
            return (1 - left) * (1 - WORTH), (1 + left) * (1 + WORTH)
        others = [self._composed(frame, sharing, composed.each)[1] for sharing in (Sharing.NOTHING, Sharing.ALL)]
        shares = [1.0, *(other.end_s / timeline.end_s for other in (*others, first))]
        return min(shares) * (1 - WORTH), max(shares) * (1 + WORTH)

    def _composed(self, frame: StepFrame, sharing: Sharing, each: Bool | None = None) -> tuple[ComposedGraph, Timeline]:
        """Return the graph of the step with bodies of a kind of sharing, and its times."""
        return composed_and_run(frame, self.bodies(sharing), each, self.sending)


def _between_told(least_s: float, most_s: float) -> str:
    """Return what the whole graph is estimated to take, in words."""
    return (
        f"all ranks and messages would take between {format_time(least_s)} and {format_time(most_s)}: least, where requests "
        "that are not laid cost one another nothing, and end when their ranks leave on average; most, where each needs every "
        "link that it crosses all the time"
    )


def composition(
    standing: Representatives,
    choice: Choice,
    topology: Topology,
    launch_fs: int,
    npus: I64 | None = None,
    most_tasks: int = MOST_TASKS,
) -> Composition:
    """Return a step with each distinct request timed on the fabric.

    Args:
        standing: The representatives of all places.
        choice: The choice of algorithms.
        topology: The topology on which the step runs.
        launch_fs: Ticks that each rank takes to enter a request.
        npus: [ranks] the NPU of each rank; None: the first NPUs, in the topology's own order.
        most_tasks: The most messages and computations of stretches in which every rank has its own messages; 0: there is none.

    Raises:
        InputError: The places do not make matching requests, or a request cannot be timed.
    """
    began = time.perf_counter()
    asked = place_requests(standing)
    parts = parts_by_algorithm(asked.requests, choice, topology)
    placement = column(place(topology, len(standing.place_of_rank)) if npus is None else npus, np.int64)
    once = time_requests(asked.requests, parts, topology, placement, launch_fs)
    services = services_of((part.what, part.request) for of_request in parts for part in of_request)
    times, kinds = np.bincount(asked.request_of_call, minlength=len(once)), [each.kind for each in asked.requests]
    bodies = cache(partial(bodies_of, once, kinds, times, topology.links.bandwidth_Bps))
    laid = bodies, busy_s(once, times, len(topology.links)), RequestMessages(parts, topology, placement, launch_fs)
    most_tasks = 0 if topology.circuits else most_tasks  # groups wait for one another there, where a switch turns
    close = cache(partial(Stretches.of, asked, once, len(topology.links))), most_tasks
    return Composition(asked, services, *laid, *close, choice, topology, time.perf_counter() - began)
