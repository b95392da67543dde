"""The bounds of Megatron-LM's plans by the chart of their turns, with the requests that overlap with passes.

Only the first weights and the last gradients of each stage are counted, as the others come earlier.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from emu.errors import InputError
from emu.model.generate.item import Ask
from emu.model.generate.megatron.buffers import Buffer
from emu.model.generate.megatron.chunk import buffers_of, layers_of, parts_of
from emu.model.generate.tape import Tape
from emu.model.model import HEAD
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import part_names
from emu.study.planning.bound.bound import ROUNDED, Outline
from emu.study.planning.bound.chart import AXES, MOST, PipelineChart, PipelineTimes
from emu.study.planning.bound.rates import Requests, ranks_of
from emu.study.planning.bound.tape_paths import MegatronPaths


class OverlappedRequests(NamedTuple):
    """The requests that overlap with passes, of the ranks of one axis that have copies of a stage's parameters."""

    axis: str
    cleared_s: float  # gradients are set to 0
    gather: Ask | None  # weights that are used first
    reduce: Ask | None  # gradients that come last
    moved_s: float  # to scale all of its gradients
    names: tuple[str, ...]  # parts from that on whose gradients come last


@dataclass(eq=False)
class Charts:
    """The charts of the plans of one model by one software."""

    ways: MegatronPaths
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
        if self.ways.stack.overlaps_gradients:
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
        passed = sum(self.ways.of_layer(plan, name).later.seconds(requests, place) for name in after)
        return passed + self.ways.of_arrivals(plan, first)[aside.axis].seconds(requests, place) + aside.moved_s

    def _of(self, plan: Plan, number: int) -> tuple[OverlappedRequests, ...]:
        """Return the overlapped requests of a stage."""
        names = part_names(plan, self.ways.model, number)
        key = (*plan.layer_settings, plan.dp, plan.sharding, plan.pp > 1, names, number == 0)
        if key not in self._asides:
            shares = HEAD in names and self.ways.model.tied and plan.pp > 1  # a bucket of their own
            buffers = self._bucketed(plan, number) if number == 0 or shares else self._whole(plan, names)
            self._asides[key] = tuple(self._aside(plan, buffer, names) for buffer in buffers)
        return self._asides[key]

    def _bucketed(self, plan: Plan, number: int) -> list[Buffer]:
        """Return the buffers of a stage, divided into buckets."""
        layers = layers_of(parts_of(self.ways.model, plan, self.ways.stack), number)
        return list(buffers_of(Tape(self.ways.dtype), layers, number).values())

    def _whole(self, plan: Plan, names: Sequence[str]) -> list[Buffer]:
        """Return the buffers of parts, each in one bucket."""
        found = dict[str, int]()
        for name in names:
            for axis, size in self.ways.elements(plan, name).items():
                found[axis] = found.get(axis, 0) + size
        sizes = plan.sizes
        return self.ways.buffers(Tape(self.ways.dtype), plan, [(axis, ranks_of(sizes, axis), n) for axis, n in found.items()])

    def _aside(self, plan: Plan, buffer: Buffer, names: tuple[str, ...]) -> OverlappedRequests:
        """Return the overlapped requests of a buffer."""
        first = next(i for i, name in enumerate(names) if self.ways.elements(plan, name).get(buffer.axis))
        asks, scattered, precision = buffer.ranks > 1, buffer.scattered, buffer.precision
        last = Ask(buffer.axis, "reduce_scatter" if scattered else "all_reduce", buffer.buckets[-1], precision.gradient)
        gather = buffer.weights(buffer.buckets[-1])
        moved_s = self.ways.moved_s(2 * buffer.elements) if asks else 0.0
        cleared_s = self.ways.moved_s(buffer.elements)
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
