"""The chart of a pipeline: a lower bound of a step by the order of its turns, where `outline` counts sums.

The bound is the earliest end of the pipeline by the times of its passes and messages. A turn begins when the
turn before it at its place has ended, and its messages have come. A message leaves when both its ends have reached it in their
turns. A stack may reduce gradients beside the last backward, and gather weights beside the first forward. Then the first
forward of a stage waits for its weights, and the end of the step for the gradients. Charts are for software that keeps
gradients in buffers. Of the requests that overlap with passes only the first weights and the last gradients of each stage are
counted, as the others come earlier.

P places, V stages of each, A kinds of copies.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.errors import InputError
from emu.fabric.build import Builder
from emu.fabric.graph import Graph
from emu.fabric.run import run_graph
from emu.model.pipeline_order import BACKWARD, FORWARD, RECEIVE, SEND, Turn, all_turns, message_for, stages_of
from emu.model.plan.plan import Plan
from emu.study.planning.bound.outline import ROUNDED, Outline
from emu.study.planning.request_times.least_times import LeastTimes
from emu.study.planning.step_paths.megatron_paths import MegatronPaths, OverlappedRequests
from emu.units import TICKS_PER_S, seconds

COPY_KINDS = 2  # A: copies of what all tokens see, and copies of experts
MOST_TURNS = 2**18  # of a pipeline whose chart is computed
_LONGEST = float(np.nextafter(2.0**63, 0))  # ticks of one time of a chart: all that the clock counts


class PipelineTimes(NamedTuple):
    """The seconds that ranks of each place of a pipeline need for each kind of turn and message."""

    begin: F64  # [P] before the first pass
    forward: F64  # [P, V] of each forward
    backward: F64  # [P, V] of each backward but the last
    last: F64  # [P, V] of the backward of the last microbatch
    left: F64  # [2, P] until a message to the place after, or before, has left
    delivered: F64  # [2, P] from then until it is delivered
    weights: F64  # [P, V] since the step began, until those that a stage uses first are gathered
    arrive: F64  # [P, V, A] from the beginning of the last backward until gradients are to be reduced
    reduce: F64  # [P, V, A] of each reduction of gradients
    end: F64  # [P] after all passes and reductions, for the optimizer


def pipeline_end_s(times: PipelineTimes, order: str, microbatches: int, *, waits: bool) -> float:
    """Return the earliest end of a pipeline in seconds; if `waits` is true, a rank waits until its message has left."""
    graph, code = _chart_graph(order, *times.forward.shape, microbatches, waits)
    exact = np.concatenate([each.ravel() for each in times]) * TICKS_PER_S
    ticks = np.floor(np.minimum(exact, _LONGEST)).astype(np.int64)
    return seconds(int(run_graph(replace(graph, alpha_fs=ticks[code])).end_fs.max()))


@lru_cache(maxsize=32)
def _chart_graph(order: str, places: int, virtual: int, microbatches: int, waits: bool) -> tuple[Graph, I64]:
    """Return the task graph of a pipeline, and the index of each task's time in the columns of `PipelineTimes`."""
    laying = _ChartBuilder([stages_of(place, places, virtual, order) for place in range(places)], microbatches, waits)
    for place, own in enumerate(all_turns(order, places, virtual, microbatches)):
        laying.place(place, own)
    return laying.graph()


@dataclass(slots=True)
class _ChartBuilder:
    """The builder of the task graph of a pipeline, from which the least time of a step follows.

    Each message is two tasks: its sending and its delivery.
    """

    stages: Sequence[tuple[int, ...]]  # [P] stages of each place
    microbatches: int
    waits: bool
    code: list[int] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)  # a task and one that it waits for
    messages: dict[Turn, int] = field(default_factory=dict)  # the first task of each, by the turn that receives it
    first: dict[str, int] = field(init=False)  # of the times of each kind

    def __post_init__(self) -> None:
        of_place, of_stage = len(self.stages), sum(map(len, self.stages))
        sizes = (of_place, *[of_stage] * 3, *[2 * of_place] * 2, of_stage, *[of_stage * COPY_KINDS] * 2, of_place)
        self.first = dict(zip(PipelineTimes._fields, np.cumsum([0, *sizes]).tolist()[:-1], strict=True))

    def place(self, place: int, own: Sequence[Turn]) -> None:
        """Add the turns of one place, in their order."""
        last, held, sent, reduces = self._task("begin", place), list[int](), list[int](), [list[int]()] * COPY_KINDS
        for turn in own:
            if turn.what.startswith(SEND):
                message = self._sent(turn)
                self.edges.append((message, last))
                (held if self.waits else sent).append(message)
            elif turn.what.startswith(RECEIVE):
                self.edges.append((self._message(turn), last))
            elif turn.what in (FORWARD, BACKWARD):
                at, before = place * len(self.stages[place]) + self.stages[place].index(turn.stage), last
                last = self._turn(turn, at, before, held)
                if turn.what == BACKWARD and turn.microbatch == self.microbatches - 1:
                    reduces = self._reduced(turn, at, before, reduces)
                held = []
        self._task("end", place, last, *chain.from_iterable(reduces), *held, *sent)

    def _turn(self, turn: Turn, at: int, before: int, held: Sequence[int]) -> int:
        """Add a forward or backward, and return its task.

        Args:
            turn: The turn.
            at: The index of its stage among the stages of all places.
            before: The task of the turn before it at this place.
            held: The tasks of messages that must have left first.
        """
        last = turn.what == BACKWARD and turn.microbatch == self.microbatches - 1
        kind = "last" if last else "forward" if turn.what == FORWARD else "backward"
        task = self._task(kind, at, before, *held, *self._needed(turn))
        if not turn.microbatch:  # its backward waits for its forward anyway
            self.edges.append((task, self._task("weights", at)))
        return task

    def _reduced(self, turn: Turn, at: int, before: int, reduces: Sequence[Sequence[int]]) -> list[list[int]]:
        """Add the reductions of a stage's gradients, one for each axis, and return a list of the task of each.

        Args:
            turn: The last backward of the stage.
            at: The index of the stage among the stages of all places.
            before: The task of the turn before that backward at this place.
            reduces: By axis, a list of the earlier reduction that each waits for; an empty list: there is none.
        """
        found = []
        for axis, earlier in enumerate(reduces):
            arrived = self._task("arrive", at * COPY_KINDS + axis, before, *self._needed(turn))
            found.append([self._task("reduce", at * COPY_KINDS + axis, arrived, *earlier)])
        return found

    def _needed(self, turn: Turn) -> list[int]:
        """Return the task that delivers the message which a turn needs, as a list; empty if it needs none."""
        first = self.messages.get(message_for(turn))
        return [] if first is None else [first + 1]

    def _sent(self, turn: Turn) -> int:
        """Return the first of the two tasks of the message that a turn sends."""
        kind = turn.what.removeprefix(SEND)
        return self._message(Turn(turn.stage + (1 if kind == FORWARD else -1), RECEIVE + kind, turn.microbatch))

    def _message(self, received: Turn) -> int:
        """Return the first of the two tasks of the message that a turn receives; add both tasks if they are missing."""
        if received not in self.messages:
            back = not received.what.endswith(FORWARD)
            sender = received.stage + (1 if back else -1)
            src = next(place for place, own in enumerate(self.stages) if sender in own)
            self.messages[received] = self._task("left", back * len(self.stages) + src)
            self._task("delivered", back * len(self.stages) + src, self.messages[received])
        return self.messages[received]

    def _task(self, kind: str, at: int, *after: int) -> int:
        """Add a task that waits for others, and return its number.

        Args:
            kind: A field of `PipelineTimes`, which has its time.
            at: The index of its time in that field.
            after: The tasks that it waits for.
        """
        self.code.append(self.first[kind] + at)
        self.edges += [(len(self.code) - 1, each) for each in after]
        return len(self.code) - 1

    def graph(self) -> tuple[Graph, I64]:
        """Return the graph of all tasks, and the index of each task's time."""
        builder, edges = Builder(np.ones(1)), np.array(self.edges, np.int64)
        builder.tasks(np.zeros(len(self.code), np.int64))
        builder.wait(edges[:, 0], edges[:, 1])
        return builder.graph(), np.array(self.code)


def chart_s(paths: MegatronPaths, outline: Outline, least: LeastTimes) -> float:
    """Return the lower bound of a step from its pipeline graph, in seconds; 0 if the graph is too large."""
    plan = outline.plan
    if 2 * plan.stages * plan.passes > MOST_TURNS:
        return 0.0
    try:
        times = _pipeline_times(paths, outline, least)
        return pipeline_end_s(times, plan.pipeline, plan.passes, waits=outline.waits) * (1 - ROUNDED)
    except InputError:  # longer than the clock counts
        return 0.0


def _pipeline_times(paths: MegatronPaths, outline: Outline, least: LeastTimes) -> PipelineTimes:
    """Return the times of a plan's chart."""
    spans, plan = outline.spans(least), outline.plan
    ends = np.array(outline.ends_s(least))
    ways = np.zeros((2, plan.pp, 2)) if plan.pp == 1 else outline.messages(least)
    shape = (plan.pp, plan.vp)
    weights, moved, arrive, reduce = (np.zeros((*shape, *more)) for more in ((), (), (COPY_KINDS,), (COPY_KINDS,)))
    if paths.stack.overlaps_gradients:
        for place in range(plan.pp):
            of = [paths.overlapped(plan, int(stage)) for stage in outline.cut.stages[place]]
            weights[place] = _gathered(of, least, place)
            moved[place] = [sum(each.moved_s for each in asides) for asides in of]
            for v, asides in enumerate(of):
                for a, each in enumerate(asides):
                    arrive[place, v, a] = _arrives_s(paths, plan, each, least, place)
                    reduce[place, v, a] = 0.0 if each.reduce is None else least.collective(place, each.reduce).delivered_s
    passes = spans[..., 0], spans[..., 2], spans[..., 2] + moved
    left, delivered = ways[..., 0], np.maximum(0.0, ways[..., 1] - ways[..., 0])
    return PipelineTimes(ends[:, 0], *passes, left, delivered, weights, arrive, reduce, ends[:, 2])


def _arrives_s(paths: MegatronPaths, plan: Plan, aside: OverlappedRequests, least: LeastTimes, place: int) -> float:
    """Return the time from the beginning of the last backward until the last gradients may be reduced, in seconds."""
    first, *after = aside.names
    passed = sum(paths.of_layer(plan, name)[2].seconds(least, place) for name in after)
    return passed + paths.of_arrivals(plan, first)[aside.axis].seconds(least, place) + aside.moved_s


def _gathered(of_stages: Sequence[Sequence[OverlappedRequests]], least: LeastTimes, place: int) -> list[float]:
    """Return [V] the seconds from the beginning of the step until each stage has its first weights."""
    cleared, there, found = 0.0, dict[str, float](), list[float]()
    for asides in of_stages:
        for each in asides:
            cleared += each.cleared_s
            if each.gather is not None:
                taken_s = least.collective(place, each.gather).delivered_s
                there[each.axis] = max(there.get(each.axis, 0.0), cleared) + taken_s
        found.append(max((there[each.axis] for each in asides if each.gather is not None), default=0.0))
    return found
