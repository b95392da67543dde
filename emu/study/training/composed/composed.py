"""A composed training step: each distinct request is timed once on the fabric, and one rank of each place has these times.

A request is timed with all groups of its axis in one stage at the same time, and is one body, which shares links as `bodies`
says. In some stretches of the step bodies are too coarse: requests share links, or ranks leave a request at different times.
There each rank has its own tasks and sends message by message. Once ranks have drifted apart, groups of one request do not use
shared links at one time either, and no body shows that. So everything from the first stretch to the last is laid, if there
is room. With less room some stretches are laid alone, and their ranks wait for one another at both ends.

P places, Q distinct requests, M calls, X events, L links, T stretches.
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
from emu.study.training.composed.bodies import Bodies, Sharing, bodies_of, busy_s, crossing_codes, undominated
from emu.study.training.composed.composed_graph import ComposedGraph, StepFrame, composed_and_run
from emu.study.training.composed.isolated_request import HEAVY, LIGHT, ROUNDS, WITHIN, IsolatedRequest, time_requests
from emu.study.training.composed.place_requests import PlaceRequests, place_requests
from emu.study.training.composed.representatives import Representatives
from emu.study.training.composed.request_parts import RequestMessages, parts_by_algorithm
from emu.study.training.step.step import TimedTrace
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.replay.replay import Service, services_of
from emu.trace.report.report import StepReport, report
from emu.trace.report.spans import Spans, covered, joined
from emu.units import format_time

WORTH = 1e-3  # share of a step: what costs less time in all is left as it is
MOST_TASKS = 2**20  # limit of the messages and computations of all stretches
_GAPS = (1.0, 1 / 16, 1 / 64, 0.0)  # of a step, between stretches that are taken as one: the first that leaves few enough tasks
_SETS = 256  # of links that are told apart, those that most requests cross


@dataclass(frozen=True, eq=False, slots=True)
class StretchChoice:
    """The choice of the stretches of a composed step in which every rank has its own messages."""

    place_requests: PlaceRequests
    crossed: Bool  # [sets of links, Q] which requests cross each set; no set's requests are all in another's
    apart_fs: I64  # [Q] ticks from when the first rank leaves a request until the last does
    messages: I64  # [Q] the messages of all groups
    rank_count: I64  # [X] the number of ranks of the event's place

    @staticmethod
    def of(asked: PlaceRequests, once: Sequence[IsolatedRequest], n_links: int) -> "StretchChoice":
        """Return the choice for the requests of a step, given the time of each alone (`once` [Q])."""
        events = [len(each) for each in asked.trace.events]
        count = np.repeat(np.bincount(asked.representatives.place_of_rank, minlength=len(events)), events)
        apart, messages = (np.array(c, dtype=np.int64) for c in ([o.apart for o in once], [o.messages for o in once]))
        return StretchChoice(asked, _crossed(once, n_links), apart, messages, column(count, np.int64))

    def shared(self, composed: ComposedGraph, timeline: Timeline) -> Spans:
        """Return the spans in which bodies share links with other requests."""
        began, ended = composed.spans(timeline)
        body = self._bodies(composed.by_rank)
        runs = [_runs(began, ended, body, np.flatnonzero(of[self.place_requests.request_of_call])) for of in self.crossed]
        return covered(_NONE, *runs)

    def uneven(self, composed: ComposedGraph, timeline: Timeline, but_fs: float = 0.0) -> Spans:
        """Return the spans of the bodies that ranks leave at the most different times.

        The others cost `but_fs` ticks at most in all.
        """
        apart = np.where(self._bodies(composed.by_rank), self.apart_fs[self.place_requests.request_of_call], 0)
        order = np.argsort(apart, kind="stable")
        most = order[np.cumsum(apart[order]) > but_fs]
        began, ended = composed.spans(timeline)
        return Spans(began[most], ended[most])

    def unsure_fs(self, composed: ComposedGraph, timeline: Timeline) -> int:
        """Return the ticks in which bodies share links, plus the ticks by which ranks leave bodies at different times."""
        bodies = self._bodies(composed.by_rank)
        return self.shared(composed, timeline).ticks + int(self.apart_fs[self.place_requests.request_of_call[bodies]].sum())

    def worth(self, composed: ComposedGraph, timeline: Timeline) -> Spans:
        """Return the spans of `shared` and `uneven` that cost enough time to be laid with all ranks."""
        worth_fs = WORTH * int(timeline.end_fs.max(initial=0))
        shared, uneven = self.shared(composed, timeline), self.uneven(composed, timeline, worth_fs)
        parts = [uneven] + [shared] * (shared.ticks > worth_fs)
        return joined(*parts)

    def closer(self, composed: ComposedGraph, timeline: Timeline, most_tasks: int = MOST_TASKS) -> Bool | None:
        """Return [X] whether each rank should have its own task of an event.

        None: no more than now, or there is no room for more.

        Args:
            composed: The step so far.
            timeline: The times of its tasks.
            most_tasks: The largest number of messages and computations of single ranks.
        """
        step_fs, began = int(timeline.end_fs.max(initial=0)), composed.began(timeline)
        spans = self.worth(composed, timeline)
        for gap in _GAPS:
            by_rank = composed.by_rank | (covered(spans, gap=round(gap * step_fs)).holding(began) >= 0)
            if self._tasks(by_rank) <= most_tasks:
                return by_rank if (by_rank & ~composed.by_rank).any() else None
        return self._some(composed, covered(spans), began, most_tasks)

    def _some(self, composed: ComposedGraph, spans: Spans, began: I64, most_tasks: int) -> Bool | None:
        """Return [X] whether each rank has its own task of an event, in those stretches that fit into `most_tasks`.

        None if none fits.

        Stretches that last longest for their number of tasks are chosen first.

        Args:
            composed: The step so far.
            spans: The spans of the stretches.
            began: [X] the tick at which each event began.
            most_tasks: The largest number of messages and computations of single ranks.
        """
        of = np.where(composed.by_rank, -1, spans.holding(began))
        tasks = [self._tasks(of == i) for i in range(len(spans.start))]
        order = np.argsort((spans.start - spans.end) / np.maximum(tasks, 1), kind="stable")
        room = most_tasks - self._tasks(composed.by_rank)
        taken = order[np.cumsum(np.array(tasks)[order]) <= room]
        return composed.by_rank | np.isin(of, taken) if len(taken) else None

    def _bodies(self, by_rank: Bool) -> Bool:
        """Return [M] whether one body stands for all messages of a call; `by_rank` [X] as in `ComposedGraph`."""
        body = np.ones(len(self.place_requests.request_of_call), np.bool_)
        body[self.place_requests.call[by_rank[self.place_requests.event]]] = False
        return body

    def _tasks(self, by_rank: Bool) -> int:
        """Return about how many tasks the events have that have one for each rank."""
        met = self.place_requests.request_of_call[~self._bodies(by_rank)]
        return int(self.messages[met].sum() + self.rank_count[by_rank].sum())


_NONE = Spans(np.empty(0, np.int64), np.empty(0, np.int64))


def _runs(began: I64, ended: I64, body: Bool, own: I64) -> Spans:
    """Return the spans in which several of some calls are under way at once, and one of them is a body.

    Args:
        began: [M] the tick at which each call begins.
        ended: [M] the tick at which each call ends.
        body: [M] whether one body stands for the call.
        own: The numbers of the calls that are looked at.
    """
    own = own[ended[own] > began[own]]
    own = own[np.argsort(began[own], kind="stable")]
    if not len(own):
        return _NONE
    until = np.maximum.accumulate(ended[own])
    first = np.flatnonzero(np.append(True, began[own][1:] >= until[:-1]))
    size = np.diff(np.append(first, len(own)))
    several = (size > 1) & np.logical_or.reduceat(body[own], first)
    return Spans(began[own][first[several]], until[(first + size - 1)[several]])


def _crossed(once: Sequence[IsolatedRequest], n_links: int) -> Bool:
    """Return [sets of links, Q] which requests cross each set; a set is left out if another has all its requests."""
    _, first = np.unique(crossing_codes((each.link for each in once), n_links), return_index=True)
    crossed = np.zeros((len(first), len(once)), np.bool_)
    at = np.full(n_links, -1)
    at[first] = np.arange(len(first))
    for number, each in enumerate(once):
        known = at[each.link]
        crossed[known[known >= 0], number] = True
    most = crossed[np.argsort(-crossed.sum(axis=1), kind="stable")[:_SETS]]
    most = most[most.any(axis=1)]
    return most[undominated(most)]


_CLOSER = 2  # times at most that more of a step is looked at closely
COMPOSED_ASSUMED = (
    "the step is composed: each different request is timed once, with all groups of its axis in one stage at the same time, "
    "and one rank a stage carries these times. Where requests share links, or ranks leave one at different times, the step is "
    f"laid with every rank and message instead, as far as {MOST_TASKS} tasks go; what is not shares links by how long each "
    f"keeps them busy. A request of more than {LIGHT} messages in one round, or of more than {HEAVY} in {ROUNDS} rounds at "
    "most, takes the middle between what its busiest link needs and what it would take with a barrier after each round, if "
    f"neither is more than {WITHIN:.0%} away"
)


def representative_tapes(of_places: Sequence[Sequence[Role]]) -> list[Tape]:
    """Return [P] the tape of the rank that represents each place, given the roles of each place.

    Ranks of a place may differ in their optimizers: the rank with most work is taken. The first rank of a ring of cp represents
    all of the ring.
    """
    return [max((role.tape for role in roles if not role.at), key=Tape.own_bytes) for roles in of_places]


@dataclass(frozen=True, eq=False, slots=True)
class Composition:
    """A composed step of which everything is known but the times of its computations: it can be timed with any device."""

    place_requests: PlaceRequests
    services: tuple[Service, ...]
    bodies: Callable[[Sharing], Bodies]  # a function of how links are shared; it computes once
    busy_s: F64  # [L] seconds that each link of the topology needs in the step at full rate
    sending: RequestMessages
    stretches: Callable[[], StretchChoice]  # a function that computes once
    most_tasks: int  # the most tasks of stretches that are laid with all ranks
    choice: Choice
    topology: Topology
    wall_s: float  # seconds that it took to make this

    def timed(self, device: Device) -> TimedTrace:
        """Return the step timed on a device.

        The time to launch a request was given to `composition` and is not taken from the device.

        Raises:
            InputError: The step ends beyond the clock.
        """
        began, representatives = time.perf_counter(), self.place_requests.representatives
        device = device.over(len(representatives.place_of_rank))
        frame = StepFrame.of(self.place_requests, device)
        composed, timeline, first = self._closest(frame)
        replayed = composed.replayed(timeline, self.services, device.assumptions)
        found = report(self.place_requests.trace, replayed, timeline)
        shares = self.busy_s / (found.step_time_s or 1.0)
        low, high = self._between(frame, composed, timeline, first)
        between_s = found.step_time_s * low, found.step_time_s * high
        return TimedTrace(
            self.place_requests.trace, self.topology, device, representatives.dtype, self.choice, replayed, timeline, found,
            shares, None,
            wall_fabric_s=self.wall_s + time.perf_counter() - began,
            place_requests=self.place_requests,
            between_s=between_s,
            composing=(COMPOSED_ASSUMED, _between_text(*between_s)),
        )  # fmt: skip

    def judged(self, frame: StepFrame) -> StepReport:
        """Return the figures without any laid stretch: a quick way to compare choices of algorithms.

        Args:
            frame: The frame of this step, which is the same for all choices of algorithms.

        Raises:
            InputError: As `timed`.
        """
        composed, timeline = self._composed(frame, Sharing.FLOWS)
        return report(self.place_requests.trace, composed.replayed(timeline, self.services, ()), timeline)

    def _closest(self, frame: StepFrame) -> tuple[ComposedGraph, Timeline, Timeline]:
        """Return the step with those stretches laid with all ranks that need it.

        Returns:
            The graph, the times of its tasks, and the times of the graph before, in which no stretch is laid.
        """
        composed, timeline = self._composed(frame, Sharing.FLOWS)
        first = timeline
        for _ in range(_CLOSER):
            by_rank = self.stretches().closer(composed, timeline, self.most_tasks) if self.most_tasks else None
            if by_rank is None:
                break
            composed, timeline = self._composed(frame, Sharing.FLOWS, by_rank)
        return composed, timeline, first

    def _between(self, frame: StepFrame, composed: ComposedGraph, timeline: Timeline, first: Timeline) -> tuple[float, float]:
        """Return the least and the most that the step may take, as shares of its time.

        If no stretch is left that is worth laying, both bounds allow for the full length of all that is left. Else bodies that
        need less of links and bodies that need more are timed too, and the times with bodies alone count as well.

        Args:
            frame: The frame of the step.
            composed: The graph of the step.
            timeline: The times of its tasks.
            first: The times of the tasks of the graph in which no stretch is laid.
        """
        if not self.stretches().worth(composed, timeline).ticks:
            left = self.stretches().unsure_fs(composed, timeline) / max(1, int(timeline.end_fs.max(initial=0)))
            return (1 - left) * (1 - WORTH), (1 + left) * (1 + WORTH)
        others = [self._composed(frame, sharing, composed.by_rank)[1] for sharing in (Sharing.NOTHING, Sharing.ALL)]
        shares = [1.0, *(other.end_s / timeline.end_s for other in (*others, first))]
        return min(shares) * (1 - WORTH), max(shares) * (1 + WORTH)

    def _composed(self, frame: StepFrame, sharing: Sharing, by_rank: Bool | None = None) -> tuple[ComposedGraph, Timeline]:
        """Return the graph of the step and the times of its tasks.

        Args:
            frame: The frame of the step.
            sharing: The share of links that bodies need.
            by_rank: [X] whether each rank has its own task of an event; None: no rank.
        """
        return composed_and_run(frame, self.bodies(sharing), by_rank, self.sending)


def _between_text(least_s: float, most_s: float) -> str:
    """Return in words the estimated range of the time of the whole graph."""
    return (
        f"all ranks and messages would take between {format_time(least_s)} and {format_time(most_s)}: least, where requests "
        "that are not laid cost one another nothing, and end when their ranks leave on average; most, where each needs every "
        "link that it crosses all the time"
    )


def composition(
    representatives: Representatives,
    choice: Choice,
    topology: Topology,
    launch_fs: int,
    npus: I64 | None = None,
    most_tasks: int = MOST_TASKS,
) -> Composition:
    """Return a step with each distinct request timed on the fabric.

    Args:
        representatives: The representatives of all places.
        choice: The choice of algorithms.
        topology: The topology on which the step runs.
        launch_fs: Ticks that each rank takes to enter a request.
        npus: [ranks] the NPU of each rank; None: the first NPUs, in the topology's own order.
        most_tasks: The most messages and computations of stretches in which every rank has its own messages; 0: there is none.

    Raises:
        InputError: The places do not make matching requests, or a request cannot be timed.
    """
    began = time.perf_counter()
    asked = place_requests(representatives)
    parts = parts_by_algorithm(asked.requests, choice, topology)
    placement = column(place(topology, len(representatives.place_of_rank)) if npus is None else npus, np.int64)
    once = time_requests(asked.requests, parts, topology, placement, launch_fs)
    services = services_of((part.what, part.request) for of_request in parts for part in of_request)
    times, kinds = np.bincount(asked.request_of_call, minlength=len(once)), [each.kind for each in asked.requests]
    bodies = cache(partial(bodies_of, once, kinds, times, topology.links.bandwidth_Bps))
    laid = bodies, busy_s(once, times, len(topology.links)), RequestMessages(parts, topology, placement, launch_fs)
    most_tasks = 0 if topology.circuits else most_tasks  # groups wait for one another there, where a switch turns
    close = cache(partial(StretchChoice.of, asked, once, len(topology.links))), most_tasks
    return Composition(asked, services, *laid, *close, choice, topology, time.perf_counter() - began)
