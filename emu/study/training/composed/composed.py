"""A training step composed: each different request timed once on the fabric, and one rank a place that carries these times.

A request is timed with all groups of its axis in one stage at the same time. Requests under way at one time share links as
`emu.study.training.composed.shared` says.
P places, Q different requests, M meetings, X events of the P ranks, L links.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from emu.arrays import F64, I64, Bool, column
from emu.collective.algorithm import Choice
from emu.collective.operation import ROOTED
from emu.fabric.build import Builder
from emu.fabric.named import named
from emu.fabric.run import run
from emu.model.generate.generate import Role
from emu.model.generate.tape import Tape
from emu.study.training.composed.asked import Asked, Standing, asked_by
from emu.study.training.composed.once import HEAVY, LIGHT, ROUNDS, WITHIN, time_each
from emu.study.training.composed.parts import parts_of
from emu.study.training.composed.shared import Bodies, bodies_of, busy_s
from emu.study.training.step.step import Step, TimedTrace
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.order import computes, queue_order, told_order
from emu.trace.replay.delay import NO_ENTRIES, Entries
from emu.trace.replay.replay import Instance, Replayed, Service, event_name
from emu.trace.report.report import report
from emu.trace.report.requests import Coming, requests_of
from emu.trace.trace import Trace

COMPOSED = (
    "the step is composed: each different request is timed once, with all groups of its axis in one stage at the same time, "
    "and one rank a stage carries these times; requests under way at one time share the links that both cross. A request of "
    f"more than {LIGHT} messages in one round, or of more than {HEAVY} in {ROUNDS} rounds at most, takes the middle between "
    "what its busiest link needs and what it would take with a barrier after each round, if neither is more than "
    f"{WITHIN:.0%} away. 37 small "
    "steps were within 0.01 % of the whole graph's time at the median, and 5 % at the worst (benchmarks/README.md)"
)


def compose(asked: Asked, bodies: Bodies, services: tuple[Service, ...], device: Device) -> Replayed:
    """The graph of the ranks that stand for their places, a task for each computation and each meeting.

    Args:
        asked: What they ask for.
        bodies: [Q] the task of each different request.
        services: What serves them.
        device: What their computations take.
    """
    trace = asked.trace
    first_event = np.cumsum([0, *map(len, trace.events)]).astype(np.int64)
    begins, ends = (np.full(first_event[-1], -1, np.int64) for _ in range(2))
    builder = Builder(bodies.capacity_Bps)
    for number, events in enumerate(trace.events):
        timed = np.flatnonzero(computes(events))
        own = timed + first_event[number]
        begins[own] = ends[own] = builder.tasks(device.ticks(events, asked.of.dtype)[timed], number, timed)
    begins[asked.event], ends[asked.event], meetings = _meet(builder, asked, bodies)
    leaves = np.where(_rooted(trace), begins, ends)
    waits = [(NO_ENTRIES.event, NO_ENTRIES.pred)]
    for first, events in zip(first_event.tolist(), trace.events, strict=False):
        for (event, waited), until in ((told_order(events), ends), (queue_order(events), leaves)):
            builder.wait(begins[event + first], until[waited + first])
            waits.append((event + first, until[waited + first]))
    meeting = np.full(len(begins), -1, np.int32)
    meeting[asked.event] = asked.meeting
    moments = column(begins, np.int32), column(ends, np.int32)
    instances = tuple(Instance(None, first) for first in meetings.tolist())
    laid = first_event, *moments, meeting, meeting, instances
    told = services, device.assumptions, trace.n_ranks, column([], np.int64)
    return Replayed(builder.graph(), *laid, *told, Entries.of(asked.event, *map(np.concatenate, zip(*waits, strict=True))))


def _rooted(trace: Trace) -> Bool:
    """[X] whether an event is of an operation that some ranks leave before others: the next of their queue begins then."""
    return np.array([name in ROOTED for events in trace.events for name in events.name], dtype=np.bool_)


def _meet(builder: Builder, asked: Asked, bodies: Bodies) -> tuple[I64, I64, I64]:
    """[C] the tasks with which each request begins and ends; [M] the first of each meeting.

    A message is a task until its sender has left, then one until it is delivered; a rooted operation likewise.
    """
    n_requests, tail = len(asked.requests), bodies.has_tail[asked.different].astype(np.int64)
    first = np.concatenate(([0], np.cumsum(1 + tail)))
    of_task = np.repeat(np.arange(len(tail)), 1 + tail)
    later = np.arange(first[-1]) - first[of_task]
    tasks = builder.messages(*bodies.of(asked.different[of_task] + later * n_requests))
    ends = np.flatnonzero(later)
    builder.wait(tasks[ends], tasks[ends - 1])
    met = first[asked.meeting]
    return tasks[met], tasks[met + tail[asked.meeting] * ~asked.sends], tasks[first[:-1]]


@dataclass(frozen=True, eq=False, slots=True)
class ComposedStep(TimedTrace):
    """A step by one rank of each place."""

    asked: Asked

    @property
    def ranks(self) -> int:
        """Of the run."""
        return len(self.asked.of.place_of_rank)

    def members(self, number: int) -> tuple[int, ...]:
        """The ranks of the first group that a group of the trace stands for."""
        of = self.asked.of
        first = int((of.place_of_rank == self.trace.groups[number].ranks[0]).argmax())
        groups = of.axes[self.asked.axis_of_group[number]].ranks
        return tuple(groups[(groups == first).any(axis=1).argmax()].tolist())

    @property
    def how(self) -> str:
        """Each different request timed by itself."""
        return "composed"

    def step(self, *, briefly: bool = False) -> Step:
        """The figures; ranks are those of the run."""
        told = TimedTrace.step(self, briefly=briefly)
        rank = int((self.asked.of.place_of_rank == told.rank).argmax())
        waited = self._waited(told.rank) if told.straggling_by_rank_s else {}
        straggling = {
            self.asked.of.beside(rank, place, waited.get(place, ())): time_s
            for place, time_s in told.straggling_by_rank_s.items()
        }
        return replace(told, rank=rank, straggling_by_rank_s=straggling)

    def _waited(self, place: int) -> Mapping[int, Sequence[str]]:
        """By place, the axes on which the rank of another one waits for it, that on which it waits longest first."""
        coming = Coming.of(self.replayed, self.timeline)
        asked = requests_of(self.trace, self.replayed, self.timeline, coming, place)
        waits, found = np.maximum(0, asked.met - np.maximum(asked.came, asked.since)), dict[int, Counter[str]]()
        for last, axis, ticks in zip(asked.last.tolist(), asked.axes.tolist(), waits.tolist(), strict=True):
            found.setdefault(last, Counter())[axis] += ticks
        return {last: [axis for axis, _ in of.most_common()] for last, of in found.items()}

    def assumptions(self) -> tuple[str, ...]:
        """A sentence for each thing that no source says, and what composing leaves out."""
        return (*TimedTrace.assumptions(self), COMPOSED)


def standing(of_places: Sequence[Sequence[Role]]) -> list[Tape]:
    """[P] what the rank does that stands for all of its place: of ranks whose optimizers differ, the one that does most.

    Of those in a ring of cp it is the first, as `asked_by` has it.
    """
    return [max((role.tape for role in roles if not role.at), key=Tape.own_bytes) for roles in of_places]


@dataclass(frozen=True, eq=False, slots=True)
class Composition:
    """A step of which all is known but what its computations take: it can be timed with one device after another."""

    asked: Asked
    services: tuple[Service, ...]
    bodies: Bodies
    busy_s: F64  # [L] of each link of the topology at full rate
    choice: Choice
    topology: Topology
    wall_s: float  # that it took to learn this

    def timed(self, device: Device) -> ComposedStep:
        """With a device; what it takes to launch a request was asked before, and counts no more.

        Raises:
            InputError: a step that ends beyond the clock.
        """
        began, of = time.perf_counter(), self.asked.of
        device = device.over(len(of.place_of_rank))
        replayed = compose(self.asked, self.bodies, self.services, device)
        with named("compose", partial(event_name, self.asked.trace, replayed)):
            timeline = run(replayed.graph)
        found = report(self.asked.trace, replayed, timeline)
        shares = self.busy_s / (found.step_time_s or 1.0)
        timed = self.asked.trace, self.topology, device, of.dtype, self.choice, replayed, timeline, found, shares
        return ComposedStep(*timed, None, self.wall_s + time.perf_counter() - began, self.asked)


def composition(standing: Standing, choice: Choice, topology: Topology, launch_fs: int, npus: I64 | None = None) -> Composition:
    """Each different request of a step timed on the fabric.

    Args:
        standing: The ranks that stand for their places.
        choice: What serves their requests.
        topology: Where they run.
        launch_fs: Ticks that each rank takes to enter a request.
        npus: [ranks] where they are; None: on the first NPUs, in the topology's own order.

    Raises:
        InputError: places that do not meet, or a request that cannot be timed.
    """
    began = time.perf_counter()
    asked = asked_by(standing)
    parts = parts_of(asked.requests, choice, topology)
    placement = column(place(topology, len(standing.place_of_rank)) if npus is None else npus, np.int64)
    once = time_each(asked.requests, parts, topology, placement, launch_fs)
    met = [(part.request, part.what) for of_request in parts for part in of_request]
    services = dict.fromkeys(Service(request, what.size_bytes, what.served) for request, what in met if what.served is not None)
    times = np.bincount(asked.different, minlength=len(once))
    bodies = bodies_of(once, [each.kind for each in asked.requests], times, topology.links.bandwidth_Bps)
    busy = busy_s(once, times, len(topology.links))
    return Composition(asked, tuple(services), bodies, busy, choice, topology, time.perf_counter() - began)
