"""The longest paths through the tapes of a plan's layers, and of the ends of its step, on one rank.

The passes of a layer are generated like those of the step, and take at least the longest path. Computations follow one another
on a rank, and each takes the time of the device. Events that may overlap are left out: gradients of FSDP, and the requests of
a stack that overlaps them.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from emu.collective.operation import ROOTED
from emu.model.generate.gradients import ExpertGradients, WholeGradients, gradient_work, run
from emu.model.generate.item import Ask, Gradient, RepeatedComputation, WeightGradientComputation
from emu.model.generate.megatron.buffers import Buffer, Tensor
from emu.model.generate.megatron.chunk import leave_gradient
from emu.model.generate.megatron.megatron_layer import MegatronLayer
from emu.model.generate.megatron.megatron_step import overlaps_messages
from emu.model.generate.optimizer import adamw
from emu.model.generate.part import Part
from emu.model.generate.rank_step import reduced_by
from emu.model.generate.stage_passes import ModelParts, StagePasses
from emu.model.generate.tape import Tape
from emu.model.memory.stage_memory import StageEnds, StageMemory
from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.moment import Moment
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import part_names
from emu.model.routed_rows import classes
from emu.model.stack.megatron import MEGATRON
from emu.model.stack.pytorch import PYTORCH
from emu.model.stack.software import Software
from emu.model.stack.stack import Stack
from emu.study.planning.bound.rates import Requests, ranks_of
from emu.trace.device.device import Device
from emu.trace.event_order import computes, queue_order
from emu.trace.matching.role_requests import MESSAGE
from emu.trace.trace import Events, Kind

_LATER = 2  # the number of a pass that is neither the first nor the last


@dataclass(frozen=True, eq=False)
class TapePath:
    """The events of a tape, through which a longest path is computed."""

    takes_s: Sequence[float]  # the least of each; of requests nothing
    asks: Sequence[tuple[int, Ask]]  # the requests that count
    sends: Container[int]  # those of which the rank waits only until a message has left it
    ordered: Sequence[bool]  # whether it waits for the one before it on its stream
    stream: Sequence[int]
    waits: Sequence[Sequence[int]]
    known: dict[Hashable, float] = field(default_factory=dict)

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Axes of the requests."""
        return tuple(dict.fromkeys(ask.axis for _, ask in self.asks))

    def seconds(self, requests: Requests, place: int) -> float:
        """Return the time of the longest path to the last event, on a rank at a place of its pipeline, in seconds."""
        of = requests.axes_key(place, self.axes)
        if of in self.known:
            return self.known[of]
        took = [(i, requests.collective(place, ask)) for i, ask in self.asks]
        longest_s = self._longest_s({i: each.left_s if i in self.sends else each.there_s for i, each in took})
        if all(each.is_told for _, each in took):
            self.known[of] = longest_s
        return longest_s

    def _longest_s(self, took: Mapping[int, float]) -> float:
        """Return the time of the longest path by the times of requests."""
        last, ends = dict[int, float](), list[float]()
        takes = [took.get(i, own) for i, own in enumerate(self.takes_s)]
        for ordered, stream, waits, own in zip(self.ordered, self.stream, self.waits, takes, strict=True):
            begin = max([ends[w] for w in waits], default=0.0)
            if ordered:
                last[stream] = begin = max(begin, last.get(stream, 0.0)) + own
                ends.append(begin)
            else:
                ends.append(begin + own)
        return ends[-1]


class LayerPaths(NamedTuple):
    """The paths through the passes of a layer."""

    forward: TapePath
    first: TapePath  # backward
    later: TapePath  # ... of another microbatch, which adds to the gradients of the first

    def seconds(self, requests: Requests, place: int) -> tuple[float, ...]:
        """Return the least times of the forward, the first backward and a later backward, in seconds."""
        forward, first = self.forward.seconds(requests, place), self.first.seconds(requests, place)
        return forward, first, first if self.later is self.first else self.later.seconds(requests, place)


# The paths through the events of a step before a rank's passes, after them, and of these what nothing of its passes is beside.
EndPaths = tuple[TapePath, TapePath, TapePath]
HeldElements = tuple[str, int, int]  # an axis, the ranks of its groups, and the parameters of which they have copies


@dataclass(eq=False)
class TapePaths(ABC):
    """The paths of the plans of one model by one software on one device, with the software's costs, over all NPUs.

    A subclass has the tapes of one software.
    """

    reduces: ClassVar[bool] = False  # gradients beside passes, by the requests of `reductions`
    model: Model
    stack: Stack
    device: Device
    _turns: dict[object, LayerPaths] = field(default_factory=dict)
    _ends: dict[object, EndPaths] = field(default_factory=dict)
    _held: dict[object, Mapping[str, int]] = field(default_factory=dict)

    def of_layer(self, plan: Plan, name: str) -> LayerPaths:
        """Return the paths of the passes of a part of the model."""
        key = self.key(plan, name)
        if key not in self._turns:
            self._turns[key] = self._layer_paths(plan, name)
        return self._turns[key]

    def of_ends(self, plan: Plan, parts: Mapping[str, int]) -> EndPaths:
        """Return the paths of a rank with this number of each part before its first pass and after its last."""
        held = self.held(plan, parts)
        key = (held, plan.sharding, plan.sharded, plan.clip > 0, plan.tp)
        if key not in self._ends:
            self._ends[key] = self._end_paths(plan, held)
        return self._ends[key]

    def held(self, plan: Plan, parts: Mapping[str, int]) -> tuple[HeldElements, ...]:
        """Return the parameters on a rank with this number of each part, by the axis of the ranks that have copies."""
        found, sizes = Counter[str](), plan.sizes
        for name, n in parts.items():
            found.update({axis: n * size for axis, size in self.elements(plan, name).items()})
        return tuple((axis, ranks_of(sizes, axis), size) for axis, size in found.items())

    def key(self, plan: Plan, name: str) -> tuple[object, ...]:
        """Return a key that is equal for plans whose parts of that name have equal passes."""
        again = "none" if name in (EMBEDDING, HEAD) else plan.recompute
        ends = (plan.pp == 1, plan.ends_meet) if self.model.tied else ()
        return (name, plan.pass_batch, *plan.layer_settings, again, *ends, *self.pass_settings(plan))

    def elements(self, plan: Plan, name: str) -> Mapping[str, int]:
        """Return the parameters of a layer on a rank, by the axis of the ranks that have copies."""
        key = (name, *plan.layer_settings, plan.dp > 1, plan.pp > 1, plan.ends_meet)
        if key not in self._held:
            self._held[key] = self._elements(plan, name)
        return self._held[key]

    def pass_settings(self, plan: Plan) -> tuple[bool, ...]:
        """Return further settings on which the passes of a layer depend; (): one pass stands for plans of all microbatches."""
        return ()

    def waits(self, plan: Plan) -> bool:
        """Return whether a rank waits until a message has left it."""
        return False

    def reductions(self, plan: Plan, *, last: bool) -> tuple[TapePath, ...]:
        """Return [P] the paths of the requests beside the passes of each place; () where `of_ends` has them all.

        Args:
            plan: The plan of the ranks.
            last: Only reductions of gradients, which need the last backward; else also the gathering of weights.

        Raises:
            InputError: the plan cannot be generated.
        """
        return ()

    @abstractmethod
    def _layer_paths(self, plan: Plan, name: str) -> LayerPaths:
        """Return the paths of a part's passes."""

    @abstractmethod
    def _end_paths(self, plan: Plan, held: Sequence[HeldElements]) -> EndPaths:
        """Return the paths of a rank before and after its passes."""

    @abstractmethod
    def _elements(self, plan: Plan, name: str) -> Mapping[str, int]:
        """Return the parameters of a layer on a rank, by axis."""

    def moved_s(self, elements: int) -> float:
        """Return the time of the memory traffic of this number of gradients, in seconds."""
        tape = Tape(self.dtype)
        tape.compute(gradient_work(self.stack.precision, elements))
        return float(self.device.seconds(tape.events(), "float32").sum())

    @property
    def dtype(self) -> str:
        """The dtype of computations."""
        return self.stack.precision.activation

    def _way(self, tape: Tape, *, beside: bool = False) -> TapePath:
        """Return the path of a tape; with `beside` requests take no time, as they may have begun long before."""
        events, axes = tape.events(), list(tape.axes)
        asked = [] if beside else np.flatnonzero(np.isin(events.kind, [Kind.COLLECTIVE, Kind.SEND, Kind.RECV])).tolist()
        asks = [
            Ask(
                axes[events.group[i]],
                events.name[i] if events.kind[i] == Kind.COLLECTIVE else MESSAGE,
                int(events.count[i]),
                events.dtype[i],
                splits=tuple(events.split[events.split_start[i] : events.split_start[i + 1]].tolist()),
            )
            for i in asked
        ]
        return TapePath(
            self.device.seconds(events, "float32").tolist(),
            list(zip(asked, asks, strict=True)),
            {i for i in asked if events.kind[i] == Kind.SEND},
            computes(events).tolist(),
            events.stream.tolist(),
            _waits(events),
        )

    def _update(self, tape: Tape, plan: Plan, scaled: int, owned: int) -> None:
        """Add the scaling of gradients and the optimizer to a tape.

        Args:
            tape: The tape.
            plan: The plan.
            scaled: The number of gradients that the rank scales.
            owned: The number of parameters that the rank updates.
        """
        tape.compute(gradient_work(self.stack.precision, 2 * scaled))
        tape.compute(adamw(tape, Part(self.model, plan, self.stack, HEAD), owned))


@dataclass(eq=False)
class MegatronPaths(TapePaths):
    """The paths of plans by Megatron-LM."""

    _arrivals: dict[object, Mapping[str, TapePath]] = field(default_factory=dict)

    def _layer_paths(self, plan: Plan, name: str) -> LayerPaths:
        """Return the paths of a part's passes; all backwards are alike."""
        layer = MegatronLayer(Part(self.model, plan, self.stack, name))
        forward, backward = Tape(self.dtype), Tape(self.dtype)
        layer.forward(forward)
        layer.backward(backward, leave_gradient)
        later = self._way(backward)
        return LayerPaths(self._way(forward), later, later)

    def of_arrivals(self, plan: Plan, name: str) -> Mapping[str, TapePath]:
        """Return by axis the path of the last backward of a part, until all gradients of the axis are there."""
        key = (*self.key(plan, name), plan.dp > 1)
        if key not in self._arrivals:
            layer, tape, came = MegatronLayer(Part(self.model, plan, self.stack, name)), Tape(self.dtype), dict[str, Tape]()
            layer.backward(tape, lambda kernel: came.update({layer.axis(kernel): tape.copy()}))
            self._arrivals[key] = {axis: self._way(each) for axis, each in came.items()}
        return self._arrivals[key]

    def waits(self, plan: Plan) -> bool:
        """Return whether a rank waits until a message has left it."""
        return not overlaps_messages(plan, self.stack)

    def _elements(self, plan: Plan, name: str) -> Mapping[str, int]:
        """Return the parameters of a layer on a rank, by axis."""
        layer, found = MegatronLayer(Part(self.model, plan, self.stack, name)), Counter[str]()
        for kernel, size in layer.parameters():
            found[layer.axis(kernel)] += size
        return found or Counter(dp=sum(operator.parameters for operator in layer.part.operators))

    def _end_paths(self, plan: Plan, held: Sequence[HeldElements]) -> EndPaths:
        """Return the paths of a rank that sets gradients to 0, and at last reduces, scales, updates and gathers."""
        begun, tape, update = (Tape(self.dtype) for _ in range(3))
        buffers = self.buffers(tape, plan, held)
        owned = sum(buffer.owned for buffer in buffers)
        for buffer in buffers:
            replace(buffer, tape=begun).cleared()
            buffer.reduce()
        for each in (tape, update):
            self._update(each, plan, owned * (plan.clip > 0), owned)
        for buffer in buffers:
            buffer.gather()
        beside = self.stack.overlaps_gradients
        before, after = (self._way(each, beside=beside) for each in (begun, tape))
        return before, after, self._way(update) if beside else after

    def buffers(self, tape: Tape, plan: Plan, held: Sequence[tuple[str, int, int]]) -> list[Buffer]:
        """Return a buffer for each axis, with its ranks and its number of parameters, in one bucket."""
        scattered = plan.sharding == "zero1"
        precision, narrow = self.stack.precision, self.stack.narrow_gather  # as if all were, where some weights are
        return [Buffer(tape, precision, axis, n, scattered, (Tensor(size),), gathers=narrow) for axis, n, size in held]


@dataclass(eq=False)
class PytorchPaths(TapePaths):
    """The paths of plans by PyTorch's own pieces."""

    reduces: ClassVar[bool] = True
    _reductions: dict[object, TapePath] = field(default_factory=dict)

    def pass_settings(self, plan: Plan) -> tuple[bool, ...]:
        """Return further settings on which the passes of a layer depend."""
        return plan.sharding == "fsdp", plan.splits, plan.passes == 1

    def _layer_paths(self, plan: Plan, name: str) -> LayerPaths:
        """Return the paths of a part's passes."""
        [(_, routed), *_] = classes(plan, self.model, 0, None)
        rows = routed(self.model.kinds.index(name), 0) if name in self.model.kinds else None
        part, tapes = Part(self.model, plan, self.stack, name, rows), [Tape(self.dtype) for _ in range(3)]
        for tape, pass_ in zip(tapes, (0, 0, 1), strict=True):
            experts = ExpertGradients(tape, plan, 0)
            experts.last = _LATER
            gradients, n = _UncountedGradients() if plan.sharding == "fsdp" else WholeGradients(), _LATER + 1
            passes = StagePasses(
                tape, 0, ((part,),) * n, (StageMemory((part.memory,), StageEnds(0, 0, 0)),) * n, gradients, experts
            )
            if tape is tapes[0]:
                passes.once_forward(0)
            elif plan.splits:  # gradients of weights come later, each by itself
                run(
                    tape,
                    (
                        item
                        for item in part.backward
                        if not isinstance(item, WeightGradientComputation | RepeatedComputation | Gradient | Moment)
                    ),
                )
                run(tape, (item for item in part.backward if isinstance(item, WeightGradientComputation)))
            else:
                passes.once_backward(pass_ if plan.sharding != "fsdp" else 0)
        return LayerPaths(*map(self._way, tapes))

    def reductions(self, plan: Plan, *, last: bool) -> tuple[TapePath, ...]:
        """Return [P] the paths of the requests beside the passes of each place, one after another in each group."""
        return tuple(self._of_place(plan, place, last=last) for place in range(plan.pp))

    def _of_place(self, plan: Plan, place: int, *, last: bool) -> TapePath:
        """Return the path of the requests of one place of the pipelines."""
        numbers = plan.stages_of(place * plan.stage_ranks)
        parts = tuple(part_names(plan, self.model, number) for number in numbers)
        copies = (plan.sharding, plan.holders, plan.sharded < plan.dp, plan.copies > 1, plan.sizes["edp"])
        key = (last, parts, plan.layer_settings, copies, plan.splits, plan.ends_meet, plan.pp > 1, numbers[0] == 0)
        if key not in self._reductions:
            [(_, routed), *_] = classes(plan, self.model, place, None)
            tape = Tape(self.dtype)
            for number in numbers:
                asks = reduced_by(ModelParts(self.model, plan, self.stack, routed), number)
                tape.join(*(tape.ask(ask) for ask in asks if not last or ask.operation != "all_gather"))
            self._reductions[key] = self._way(tape)
        return self._reductions[key]

    def _elements(self, plan: Plan, name: str) -> Mapping[str, int]:
        """Return the parameters of a layer on a rank, all of dp."""
        return Counter(dp=sum(operator.parameters for operator in Part(self.model, plan, self.stack, name).operators))

    def _end_paths(self, plan: Plan, held: Sequence[HeldElements]) -> EndPaths:
        """Return the paths before and after the passes; the optimizer updates an even share of the parameters."""
        tape, own = Tape(self.dtype), sum(size for _, _, size in held) // plan.sharded
        self._update(tape, plan, own * (plan.clip > 0 and plan.sharding == "fsdp"), own)
        before, after = (self._way(each, beside=self.stack.overlaps_gradients) for each in (Tape(self.dtype), tape))
        return before, after, after


class _UncountedGradients(WholeGradients):
    """Gradients of FSDP that are not counted, as they are reduced beside the computation."""

    def there(self, tape: Tape, gradient: Gradient, part: Part, pass_: int) -> None:
        """Do nothing for a gradient that is computed: its reduction runs beside the passes, and their paths leave it out."""


def _waits(events: Events) -> list[list[int]]:
    """Return [E] the events for which each event waits: those of its tape, and the request before it in its queue."""
    found = [own.tolist() for own in np.split(events.wait, events.wait_start[1:-1])]
    for event, before in zip(*(each.tolist() for each in queue_order(events)), strict=True):
        found[event] += [before] * (events.name[before] not in ROOTED)
    return found


# A software that is added has its paths here.
PATHS: Mapping[Software, type[TapePaths]] = {PYTORCH: PytorchPaths, MEGATRON: MegatronPaths}
