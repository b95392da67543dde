"""The chart of a pipeline's turns: its earliest end by the times of its passes and messages.

A turn begins when the turn before it at its place has ended, and its messages have come. A message leaves when both its ends
have reached it in their turns. A stack may reduce gradients beside the last backward, and gather weights beside the first
forward. Then the first forward of a stage waits for its weights, and the end of the step for the gradients.

Charts are for software that keeps gradients in buffers. Of the requests that overlap with passes only the first weights and
the last gradients of each stage are counted, as the others come earlier.

P places, V stages of each, A axes of copies at most, M messages, X turns.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.errors import InputError
from emu.fabric.build import Builder
from emu.fabric.graph import Graph
from emu.fabric.run import run
from emu.model.generate.item import Ask
from emu.model.generate.megatron.buffers import Buffer
from emu.model.pipeline.pipeline_order import BACKWARD, FORWARD, RECEIVE, SEND, Turn, stages_of
from emu.model.pipeline.turns import all_turns, message_for
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import part_names
from emu.study.planning.bound.bound import ROUNDED, Outline
from emu.study.planning.bound.rates import Requests
from emu.study.planning.bound.tape_paths import ChartedPaths
from emu.units import TICKS_PER_S, seconds

AXES = 2  # A: what all tokens see, and experts
MOST = 2**18  # turns of a pipeline that are laid out


class PipelineTimes(NamedTuple):
    """The times of the ranks of each place, in seconds."""

    begin: F64  # [P] before the first pass
    forward: F64  # [P, V]
    backward: F64  # [P, V]
    last: F64  # [P, V] of the last microbatch
    left: F64  # [2, P] until a message to the place after, or before, has left
    there: F64  # [2, P] until it is there besides
    weights: F64  # [P, V] since the step began, until those that a stage uses first are gathered
    arrive: F64  # [P, V, A] from the beginning of the last backward until gradients are to be reduced
    reduce: F64  # [P, V, A]
    end: F64  # [P] after all

    def flat(self) -> F64:
        """Return all times in one array, field by field."""
        return np.concatenate([each.ravel() for each in self])


@dataclass(frozen=True, slots=True)
class PipelineChart:
    """The chart of a pipeline, for any times of its passes."""

    order: str
    places: int
    virtual: int
    microbatches: int
    waits: bool  # whether a rank waits until a message has left it

    def end_s(self, times: PipelineTimes) -> float:
        """Return the earliest end of the pipeline, in seconds."""
        graph, code = _chart_graph(self)
        ticks = np.floor(times.flat() * TICKS_PER_S).astype(np.int64)
        return seconds(int(run(replace(graph, alpha_fs=ticks[code])).end_fs.max()))


@lru_cache(maxsize=32)
def _chart_graph(shape: PipelineChart) -> tuple[Graph, I64]:
    """Return the graph of a pipeline, and the index in `PipelineTimes.flat` of each task's time."""
    laying = _ChartBuilder(shape.places, shape.virtual, shape.microbatches, shape.waits)
    if shape.places == 1:
        laying.place(0, [Turn(0, what, number) for number in range(shape.microbatches) for what in (FORWARD, BACKWARD)], (0,))
        return laying.graph()
    for place, own in enumerate(all_turns(shape.order, shape.places, shape.virtual, shape.microbatches)):
        laying.place(place, own, stages_of(place, shape.places, shape.virtual, shape.order))
    return laying.graph()


@dataclass(slots=True)
class _Message:
    """The tasks at both ends of a message."""

    way: int  # 0: to the place after; 1: to the one before
    src: int = 0
    after: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)  # turns that wait until it is there
    holds: list[int] = field(default_factory=list)  # ... until it has left


@dataclass(slots=True)
class _ChartBuilder:
    """A builder of the graph of a chart; it numbers tasks in the order of turns, and those of messages after them."""

    places: int
    virtual: int
    microbatches: int
    waits: bool
    code: list[int] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)  # a task and one that it waits for
    messages: dict[Turn, _Message] = field(default_factory=dict)  # by the turn that receives it
    first: dict[str, int] = field(init=False)  # of the times of each kind

    def __post_init__(self) -> None:
        of_place, of_stage = self.places, self.places * self.virtual
        sizes = (of_place, *[of_stage] * 3, *[2 * of_place] * 2, of_stage, *[of_stage * AXES] * 2, of_place)
        self.first = dict(zip(PipelineTimes._fields, np.cumsum([0, *sizes]).tolist(), strict=False))

    def place(self, place: int, own: Sequence[Turn], stages: Sequence[int]) -> None:
        """Add the turns of one place."""
        last, held, sent, reduces = self._task("begin", place), list[_Message](), list[_Message](), [-1] * AXES
        for turn in own:
            if turn.what.startswith(SEND):
                message = self._sent(turn, place, last)
                (held if self.waits else sent).append(message)
            elif turn.what.startswith(RECEIVE):
                self._message(turn).after.append(last)
            elif turn.what in (FORWARD, BACKWARD):
                at, before = place * self.virtual + stages.index(turn.stage), last
                last = self._turn(turn, at, before, held)
                if turn.what == BACKWARD and turn.microbatch == self.microbatches - 1:
                    reduces = self._reduced(turn, at, before, reduces)
                held = []
        end = self._task("end", place, last, *(each for each in reduces if each >= 0))
        for message in (*held, *sent):
            message.holds.append(end)

    def _turn(self, turn: Turn, at: int, before: int, held: Sequence[_Message]) -> int:
        """Add a turn and return its task."""
        last = turn.what == BACKWARD and turn.microbatch == self.microbatches - 1
        task = self._task("last" if last else "forward" if turn.what == FORWARD else "backward", at, before)
        if turn.what == FORWARD and not turn.microbatch:
            self.edges.append((task, self._task("weights", at)))
        if message_for(turn) in self.messages:
            self._message(message_for(turn)).before.append(task)
        for message in held:
            message.holds.append(task)
        return task

    def _reduced(self, turn: Turn, at: int, before: int, reduces: Sequence[int]) -> list[int]:
        """Add a reduction of each axis, after its gradients and the reduction before, and return the tasks."""
        found = []
        for axis, earlier in enumerate(reduces):
            arrived = self._task("arrive", at * AXES + axis, before)
            if message_for(turn) in self.messages:
                self._message(message_for(turn)).before.append(arrived)
            found.append(self._task("reduce", at * AXES + axis, arrived, *([earlier] if earlier >= 0 else [])))
        return found

    def _sent(self, turn: Turn, place: int, last: int) -> _Message:
        """Return the message that a turn sends."""
        kind = turn.what.removeprefix(SEND)
        to = turn.stage + (1 if kind == FORWARD else -1)
        message = self._message(Turn(to, RECEIVE + kind, turn.microbatch))
        message.src = place
        message.after.append(last)
        return message

    def _message(self, received: Turn) -> _Message:
        """Return the message that a turn receives."""
        return self.messages.setdefault(received, _Message(int(not received.what.endswith(FORWARD))))

    def _task(self, kind: str, at: int, *after: int) -> int:
        """Add a task that waits for others, and return its number."""
        self.code.append(self.first[kind] + at)
        self.edges += [(len(self.code) - 1, each) for each in after]
        return len(self.code) - 1

    def graph(self) -> tuple[Graph, I64]:
        """Return the graph of all tasks, and the index of each task's time."""
        for each in self.messages.values():
            at = each.way * self.places + each.src
            left = self._task("left", at, *each.after)
            there = self._task("there", at, left)
            self.edges += [(task, there) for task in each.before] + [(task, left) for task in each.holds]
        builder, edges = Builder(np.ones(1)), np.array(self.edges, np.int64)
        builder.tasks(np.zeros(len(self.code), np.int64))
        builder.wait(edges[:, 0], edges[:, 1])
        return builder.graph(), np.array(self.code)


class OverlappedRequests(NamedTuple):
    """Gradient and weight communication of one group of ranks with copies of a stage's parameters, beside the passes."""

    axis: str
    cleared_s: float  # gradients are set to 0
    gather: Ask | None  # weights that are used first
    reduce: Ask | None  # gradients that come last
    moved_s: float  # to scale all of its gradients
    names: tuple[str, ...]  # parts from that on whose gradients come last


@dataclass(eq=False)
class Charts:
    """The charts of the plans of one model by one software."""

    paths: ChartedPaths
    _asides: dict[Hashable, tuple[OverlappedRequests, ...]] = field(default_factory=dict)

    def seconds(self, outline: Outline, requests: Requests) -> float:
        """Return the bound of a step by its chart, in seconds; 0 where no chart is made."""
        plan = outline.plan
        if 2 * plan.stages * plan.passes > MOST:
            return 0.0
        shape = PipelineChart(plan.pipeline, plan.pp, plan.vp, plan.passes, outline.waits)
        try:
            return shape.end_s(self._times(outline, requests)) * (1 - ROUNDED)
        except InputError:  # longer than the clock counts
            return 0.0

    def _times(self, outline: Outline, requests: Requests) -> PipelineTimes:
        """Return the times of a plan's chart."""
        spans, plan = outline.spans(requests), outline.plan
        ends = np.array(outline.ends_s(requests))
        ways = np.zeros((2, plan.pp, 2)) if plan.pp == 1 else outline.messages(requests)
        shape = (plan.pp, plan.vp)
        weights, moved, arrive, reduce = (np.zeros((*shape, *more)) for more in ((), (), (AXES,), (AXES,)))
        if self.paths.stack.overlaps_gradients:
            for place in range(plan.pp):
                of = [self._of(plan, int(stage)) for stage in outline.cut.stages[place]]
                weights[place] = _gathered(of, requests, place)
                moved[place] = [sum(each.moved_s for each in asides) for asides in of]
                for v, asides in enumerate(of):
                    for a, each in enumerate(asides):
                        arrive[place, v, a] = self._arrives_s(outline, each, requests, place)
                        reduce[place, v, a] = 0.0 if each.reduce is None else requests.collective(place, each.reduce).there_s
        passes = spans[..., 0], spans[..., 2], spans[..., 2] + moved
        left, there = ways[..., 0], np.maximum(0.0, ways[..., 1] - ways[..., 0])
        return PipelineTimes(ends[:, 0], *passes, left, there, weights, arrive, reduce, ends[:, 2])

    def _arrives_s(self, outline: Outline, aside: OverlappedRequests, requests: Requests, place: int) -> float:
        """Return the time from the beginning of the last backward until the last gradients may be reduced, in seconds."""
        plan = outline.plan
        first, *after = aside.names
        passed = sum(self.paths.of_layer(plan, name).later.seconds(requests, place) for name in after)
        return passed + self.paths.of_arrivals(plan, first)[aside.axis].seconds(requests, place) + aside.moved_s

    def _of(self, plan: Plan, number: int) -> tuple[OverlappedRequests, ...]:
        """Return the overlapped requests of a stage."""
        names = part_names(plan, self.paths.model, number)
        key = (*plan.layer_settings, *plan.sizes.values(), plan.sharding, plan.pp > 1, names, number == 0)
        if key not in self._asides:
            self._asides[key] = tuple(self._aside(plan, buffer, names) for buffer in self.paths.buffers_of_stage(plan, number))
        return self._asides[key]

    def _aside(self, plan: Plan, buffer: Buffer, names: tuple[str, ...]) -> OverlappedRequests:
        """Return the overlapped requests of a buffer."""
        first = next(i for i, name in enumerate(names) if self.paths.elements(plan, name).get(buffer.axis))
        asks, scattered, precision = buffer.ranks > 1, buffer.scattered, buffer.precision
        last = Ask(buffer.axis, "reduce_scatter" if scattered else "all_reduce", buffer.buckets[-1], precision.gradient)
        gather = buffer.weights(buffer.buckets[-1])
        moved_s = self.paths.moved_s(2 * buffer.elements) if asks else 0.0
        cleared_s = self.paths.moved_s(buffer.elements)
        return OverlappedRequests(
            buffer.axis, cleared_s, gather if asks and scattered else None, last if asks else None, moved_s, names[first:]
        )


def _gathered(of_stages: Sequence[Sequence[OverlappedRequests]], requests: Requests, place: int) -> list[float]:
    """Return [V] the time from the step's beginning until each stage has its first weights; one axis gathers one at a time."""
    cleared, there, found = 0.0, dict[str, float](), list[float]()
    for asides in of_stages:
        for each in asides:
            cleared += each.cleared_s
            if each.gather is not None:
                taken_s = requests.collective(place, each.gather).there_s
                there[each.axis] = max(there.get(each.axis, 0.0), cleared) + taken_s
        found.append(max((there[each.axis] for each in asides if each.gather is not None), default=0.0))
    return found
