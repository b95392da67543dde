"""A composed training step: each distinct request is timed once on the fabric, and one rank of each place has these times.

A request is timed with all groups of its axis in one stage at the same time, and is one body, which shares links as `bodies`
says. In some stretches of the step bodies are too coarse: requests share links, or ranks leave a request at different times.
There each rank has its own tasks and sends message by message. Once ranks have drifted apart, groups of one request do not use
shared links at one time either, and no body shows that. So everything from the first stretch to the last is modelled with
all ranks, if there is room. With less room only some stretches are, and their ranks wait for one another at both ends.

N ranks, X events, Q distinct requests.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from emu.arrays import F64, I64, Bool
from emu.collective.choice import Choice
from emu.errors import must_be
from emu.fabric.graph import Timeline
from emu.fabric.lower import LoweredSchedule
from emu.fabric.packet_fabric import FLUID_ASSUMED
from emu.memo import kept_by
from emu.study.isolated_request import HEAVY, LIGHT, ROUNDS, WITHIN, IsolatedRequest, RequestPart
from emu.study.training.composed.bodies import Bodies, Sharing, bodies_of, busy_s
from emu.study.training.composed.call_turns import call_turns
from emu.study.training.composed.composed_graph import ComposedGraph, composed_and_run
from emu.study.training.composed.distinct_times import time_requests
from emu.study.training.composed.request_parts import RequestMessages, parts_by_algorithm
from emu.study.training.composed.requests_by_place import PlaceRequests
from emu.study.training.composed.step_frame import StepFrame
from emu.study.training.composed.stretch_choice import MOST_TASKS, NEGLIGIBLE, StretchChoice
from emu.study.training.step.step import TimedTrace, time_trace
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.replay.replay import SizeError, TraceLayout
from emu.trace.replay.replay_graph import services_of
from emu.trace.report.report import StepReport, report
from emu.units import format_time

_REFINEMENTS = 2  # times at most that more of a step is modelled with all ranks
COMPOSED_ASSUMED = (
    "the step is composed: each different request is timed once, with all groups of its axis in one stage at the same time, "
    "and one rank a stage carries these times. Where requests share links, or ranks leave one at different times, the step is "
    f"modelled with every rank and message instead, as far as {MOST_TASKS} tasks go; what is not shares links by how long each "
    f"keeps them busy. A request of more than {LIGHT} messages in one round, or of more than {HEAVY} in {ROUNDS} rounds at "
    "most, takes the middle between what its busiest link needs and what it would take with a barrier after each round, if "
    f"neither is more than {WITHIN:.0%} away"
)
# On the range of a composed step's time.
_SHARING = (
    "least, where requests that are not modelled so cost one another nothing, and end when their ranks leave on average; most, "
    "where each needs every link that it crosses all the time"
)
_TURNS = (
    "requests take turns on optical switches in the order in which they begin; least, where no switch turns between two "
    "requests; most, where these turns delay the step twice as long"
)


@dataclass(frozen=True, eq=False)
class StepOnFabric:
    """A training step on a fabric with a device and a choice of algorithms, which can be timed in several ways.

    `timed` is the step as it is reported: by its whole graph, or `composed` where that is too large. `coarse_report` compares
    choices of algorithms; none of them takes less than one whose requests share no link.
    """

    frame: Callable[[], StepFrame]  # a function that computes once; its result is equal for all choices
    choice: Choice
    topology: Topology
    npus: I64  # [N] the NPU of each rank
    device: Device  # with the costs of the software, over the ranks of the step
    whole: TraceLayout | None = None  # the trace of all ranks on the fabric; None: it has too many events to be timed
    speed: F64 | None = None  # [N] the share of the device's speed at which each rank computes; None: all ranks have full speed
    most_tasks: int = MOST_TASKS  # limit of the tasks of stretches; 0: no stretch is modelled with all ranks
    error_range: bool = True  # whether `composed` estimates the range in which the whole graph would end

    @staticmethod
    def of(
        requests: Callable[[], PlaceRequests], choice: Choice, topology: Topology, npus: I64, device: Device, **other: Any
    ) -> "StepOnFabric":
        """Return a step on a fabric; the speeds of the device are spread over all ranks.

        Args:
            requests: A function that gives the requests of the representatives, when they are first needed.
            choice: The choice of algorithms.
            topology: The topology on which the step runs.
            npus: [N] the NPU of each rank.
            device: The device that computes.
            other: Other fields, by their names.
        """
        over = device.for_ranks(len(npus))
        return StepOnFabric(cache(lambda: StepFrame.of(requests(), over)), choice, topology, npus, over, **other)

    def by(self, choice: Choice) -> "StepOnFabric":
        """Return the same step with another choice of algorithms."""
        return replace(self, choice=choice)

    def timed(self) -> TimedTrace:
        """Return the timed step: by the graph of all its ranks or, if that is too large, composed.

        Raises:
            InputError: As `time_trace` and `composed`.
        """
        if self.whole is not None:
            with suppress(SizeError):
                return time_trace(replace(self.whole, choice=self.choice), delays=True)
        return self.composed()

    def composed(self) -> TimedTrace:
        """Return the composed step.

        Raises:
            InputError: The places do not make matching requests, a request cannot be timed, ranks compute at several speeds, or
                the step ends beyond the clock.
        """
        if self.speed is not None and (self.speed != 1).any():
            what = "one, as the step is composed of one rank a stage"
            raise must_be("estimate", "speeds of NPUs", what, len(np.unique(self.speed)), "take fewer ranks, or no slow NPU")
        began, isolated = time.perf_counter(), self.isolated
        composed, timeline, first = self._refined()
        services = services_of((part.what, part.request) for of_request in self._parts for part in of_request)
        replayed = composed.replayed(timeline, services, self.device.assumptions)
        found = report(self.asked.trace, replayed, timeline)
        link_busy = busy_s(isolated, self.asked.counts, len(self.topology.links)) / (found.step_time_s or 1.0)
        shares = self._between(composed, timeline, first) if self.error_range else None
        between_s = None if shares is None else (found.step_time_s * shares[0], found.step_time_s * shares[1])
        dtype = self.asked.representatives.dtype
        return TimedTrace(
            self.asked.trace, self.topology, self.device, dtype, self.choice, replayed, timeline, found, link_busy, None,
            wall_fabric_s=time.perf_counter() - began,
            requests_by_place=self.asked,
            between_s=between_s,
            engine_assumed=(*FLUID_ASSUMED, COMPOSED_ASSUMED, *([self._between_text(*between_s)] if between_s else [])),
        )  # fmt: skip

    def coarse_report(self) -> StepReport:
        """Return the report of the composed step with bodies only, which is quick to compute; errors as in `composed`."""
        composed, timeline = self._composed(Sharing.FLOWS)
        return report(self.asked.trace, composed.replayed(timeline, (), ()), timeline)

    def coarse_spans(self) -> tuple[I64, I64]:
        """Return [M] the ticks at which calls begin, and at which they end, in the composed step with bodies only."""
        composed, timeline = self._composed(Sharing.FLOWS)
        return composed.spans(timeline)

    def busiest_request(self) -> tuple[int, float]:
        """Return the number of the request with the largest product of its time and of the time that it needs of one link.

        Returns:
            The number among the distinct requests, and the share of the step's bytes times links that one such request has.
        """
        isolated, bandwidth_Bps = self.isolated, self.topology.links.bandwidth_Bps
        number = int(np.argmax([each.ticks * each.busy_s.max(initial=0.0) for each in isolated]))
        carried = np.array([float(each.busy_s @ bandwidth_Bps[each.link]) for each in isolated])
        return number, float(carried[number] / ((carried @ self.asked.counts) or 1.0))

    def messages_of(self, request: int) -> list[tuple[I64, LoweredSchedule]]:
        """Return the ranks and the messages of a request, by its number; arguments and errors as in `RequestMessages.of`."""
        return self.sending.of(request)

    @property
    def asked(self) -> PlaceRequests:
        """The requests of the step, made by its representatives."""
        return self.frame().requests_by_place

    @cached_property
    def _parts(self) -> list[list[RequestPart]]:
        """[Q] for each request, the groups that each algorithm serves."""
        return parts_by_algorithm(self.asked.requests, self.choice, self.topology)

    @cached_property
    def isolated(self) -> list[IsolatedRequest]:
        """[Q] the time of each request if nothing else runs."""
        launch_fs = self.device.request_overhead_fs
        return time_requests(self.asked.requests, self._parts, self.topology, self.npus, launch_fs)

    @kept_by(lambda _, sharing: sharing)
    def _bodies(self, sharing: Sharing) -> Bodies:
        """Return the bodies of all requests, for an assumption on the share of links that they need."""
        kinds, bandwidth_Bps = [each.kind for each in self.asked.requests], self.topology.links.bandwidth_Bps
        return bodies_of(self.isolated, kinds, self.asked.counts, bandwidth_Bps, sharing)

    @cached_property
    def sending(self) -> RequestMessages:
        """The messages of all requests, which are lowered when they are first needed."""
        return RequestMessages(self._parts, self.topology, self.npus, self.device.request_overhead_fs)

    @cached_property
    def _stretches(self) -> StretchChoice:
        """The choice of the stretches that are modelled with all ranks."""
        return StretchChoice.of(self.asked, self.isolated, len(self.topology.links))

    def _refined(self) -> tuple[ComposedGraph, Timeline, Timeline]:
        """Return the composed step in which each rank has its own messages in those stretches that need it.

        If optical switches turn, no stretch is modelled with all ranks, because groups wait for one another.

        Returns:
            The graph, the times of its tasks, and the times of the graph with bodies only.
        """
        composed, timeline = self._composed(Sharing.FLOWS)
        first = timeline
        for _ in range(0 if self.topology.circuits or not self.most_tasks else _REFINEMENTS):
            by_rank = self._stretches.refined(composed, timeline, self.most_tasks)
            if by_rank is None:
                break
            composed, timeline = self._composed(Sharing.FLOWS, by_rank)
        return composed, timeline, first

    def _between(self, composed: ComposedGraph, timeline: Timeline, first: Timeline) -> tuple[float, float]:
        """Return the error range of the composed step: its least and its largest time as shares of its time.

        If optical switches turn, their order is unsure: the turns between requests may take nothing, or twice as long.
        If no stretch is left that is worth modelling with all ranks, both bounds allow for the full length of all that is left.
        Else bodies that need less of links and bodies that need more are timed too, and the times with bodies alone count as
        well.

        Args:
            composed: The graph of the step.
            timeline: The times of its tasks.
            first: The times of the tasks of the graph with bodies only.
        """
        if self.topology.circuits is not None:
            still = self._without_turns(Sharing.FLOWS)[1].end_s / timeline.end_s
            return still * (1 - NEGLIGIBLE), (2 - still) * (1 + NEGLIGIBLE)
        if not self._stretches.costly_spans(composed, timeline).ticks:
            left = self._stretches.unsure_fs(composed, timeline) / max(1, int(timeline.end_fs.max(initial=0)))
            return (1 - left) * (1 - NEGLIGIBLE), (1 + left) * (1 + NEGLIGIBLE)
        others = [self._composed(sharing, composed.by_rank)[1] for sharing in (Sharing.NOTHING, Sharing.ALL)]
        shares = [1.0, *(other.end_s / timeline.end_s for other in (*others, first))]
        return min(shares) * (1 - NEGLIGIBLE), max(shares) * (1 + NEGLIGIBLE)

    def _between_text(self, least_s: float, most_s: float) -> str:
        """Return a phrase on the range in which the time of the whole graph is estimated to be."""
        found = f"all ranks and messages would take between {format_time(least_s)} and {format_time(most_s)}: "
        return found + (_SHARING if self.topology.circuits is None else _TURNS)

    def _composed(self, sharing: Sharing, by_rank: Bool | None = None) -> tuple[ComposedGraph, Timeline]:
        """Return the graph of the step and the times of its tasks.

        Args:
            sharing: The share of links that bodies need.
            by_rank: [X] whether each rank has its own task of an event; None: no rank.
        """
        if self.topology.circuits is None:
            return composed_and_run(self.frame(), self._bodies(sharing), by_rank, self.sending)
        composed, timeline = self._without_turns(sharing)
        states = [each.switches for each in self.isolated if each.switches is not None]
        turn_fs, request = self.topology.circuits.switching_fs, self.asked.request_of_call
        turns = call_turns(turn_fs, states, request, *composed.spans(timeline))
        return composed_and_run(self.frame(), self._bodies(sharing), turns=turns)

    @kept_by(lambda _, sharing: sharing)
    def _without_turns(self, sharing: Sharing) -> tuple[ComposedGraph, Timeline]:
        """Return the graph of bodies and its times, as if optical switches took no time to turn between requests."""
        return composed_and_run(self.frame(), self._bodies(sharing))
