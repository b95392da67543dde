"""What a plan's layers and its step's end do on one rank, as tapes of which only the times of their requests are left open.

A layer's pass is generated as the step's is, and takes at least the longest way through it; of computations that follow one
another on one rank each takes as long as the device says. Left out is what may run beside: gradients of FSDP, and what an
overlapping stack asks for meanwhile.
"""

from collections import Counter
from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from emu.collective.operation import ROOTED
from emu.model.generate.expert_gradients import ExpertGradients
from emu.model.generate.gradients import WholeGradients, gradient_work, run
from emu.model.generate.item import Ask, Gradient, RepeatedWork, WeightGradientWork
from emu.model.generate.megatron.buffers import Buffer, Tensor
from emu.model.generate.megatron.chunk import leave_gradient
from emu.model.generate.megatron.megatron_layer import MegatronLayer
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
from emu.model.stack.stack import Stack
from emu.study.planning.bound.rates import Requests, ranks_of
from emu.trace.device.device import Device
from emu.trace.event_order import computes, queue_order
from emu.trace.matching.role_requests import MESSAGE
from emu.trace.trace import Events, Kind

_LATER = 2  # the number of a pass that is neither the first nor the last


@dataclass(frozen=True, eq=False)
class Way:
    """The events of a tape."""

    takes_s: Sequence[float]  # the least of each; of requests nothing
    asks: Sequence[tuple[int, Ask]]  # the requests that count
    sends: Container[int]  # those of which the rank waits only until a message has left it
    ordered: Sequence[bool]  # whether it waits for the one before it on its stream
    stream: Sequence[int]
    waits: Sequence[Sequence[int]]
    known: dict[Hashable, float] = field(default_factory=dict)

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Of its requests."""
        return tuple(dict.fromkeys(ask.axis for _, ask in self.asks))

    def seconds(self, requests: Requests, place: int) -> float:
        """The longest way to its end, on a rank at a place of its pipeline."""
        of = requests.of(place, self.axes)
        if of in self.known:
            return self.known[of]
        took = [(i, requests.collective(place, ask)) for i, ask in self.asks]
        longest_s = self._longest_s({i: each.left_s if i in self.sends else each.there_s for i, each in took})
        if all(each.is_told for _, each in took):
            self.known[of] = longest_s
        return longest_s

    def _longest_s(self, took: Mapping[int, float]) -> float:
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


class Turns(NamedTuple):
    """What the passes of a layer do."""

    forward: Way
    first: Way  # backward
    later: Way  # ... of another microbatch, which adds to the gradients of the first

    def seconds(self, requests: Requests, place: int) -> tuple[float, ...]:
        """What each takes at least."""
        forward, first = self.forward.seconds(requests, place), self.first.seconds(requests, place)
        return forward, first, first if self.later is self.first else self.later.seconds(requests, place)


class Ends(NamedTuple):
    """What a rank does of a step besides its passes."""

    before: Way
    after: Way
    update: Way  # of that, what nothing of its passes is beside


@dataclass(eq=False)
class Ways:
    """Of the plans of one model by one software on one device; the device as the software has it, over all NPUs."""

    model: Model
    stack: Stack
    device: Device
    _turns: dict[object, Turns] = field(default_factory=dict)
    _ends: dict[object, Ends] = field(default_factory=dict)
    _arrivals: dict[object, Mapping[str, Way]] = field(default_factory=dict)
    _held: dict[object, Mapping[str, int]] = field(default_factory=dict)
    _reductions: dict[object, Way] = field(default_factory=dict)

    def of_layer(self, plan: Plan, name: str) -> Turns:
        """The passes of a part of the model."""
        key = self.key(plan, name)
        if key not in self._turns:
            self._turns[key] = self._of_megatron(plan, name) if self.is_megatron else self._of_pytorch(plan, name)
        return self._turns[key]

    def of_ends(self, plan: Plan, parts: Mapping[str, int]) -> Ends:
        """What a rank with so many of each part does before its first pass and after its last."""
        elements = Counter[str]()
        for name, n in parts.items():
            elements.update({axis: n * size for axis, size in self.elements(plan, name).items()})
        sizes = plan.sizes
        held = tuple((axis, ranks_of(sizes, axis), size) for axis, size in elements.items())
        key = (held, plan.sharding, plan.sharded, plan.clip > 0, plan.tp)
        if key not in self._ends:
            tapes = (self._ends_of_megatron if self.is_megatron else self._ends_of_pytorch)(plan, held)
            before, after = (self._way(tape, beside=self.stack.overlaps_gradients) for tape in tapes)
            alone = self.is_megatron and self.stack.overlaps_gradients
            self._ends[key] = Ends(before, after, self._way(self._update(plan, held)) if alone else after)
        return self._ends[key]

    def key(self, plan: Plan, name: str) -> tuple[object, ...]:
        """Equal for plans whose parts of that name do the same."""
        again = "none" if name in (EMBEDDING, HEAD) else plan.recompute
        own = () if self.is_megatron else (plan.sharding == "fsdp", plan.splits, plan.passes == 1)
        ends = (plan.pp == 1, plan.ends_meet) if self.model.tied else ()
        return (name, *_cut(plan), again, *ends, *own)

    @property
    def is_megatron(self) -> bool:
        """Which list of requests."""
        return self.stack.software == "megatron"

    def _of_megatron(self, plan: Plan, name: str) -> Turns:
        layer = MegatronLayer(Part(self.model, plan, self.stack, name))
        forward, backward = Tape(self.dtype), Tape(self.dtype)
        layer.forward(forward)
        layer.backward(backward, leave_gradient)
        later = self._way(backward)
        return Turns(self._way(forward), later, later)

    def _of_pytorch(self, plan: Plan, name: str) -> Turns:
        [(_, routed), *_] = classes(plan, self.model, 0, None)
        rows = routed(self.model.kinds.index(name), 0) if name in self.model.kinds else None
        part, tapes = Part(self.model, plan, self.stack, name, rows), [Tape(self.dtype) for _ in range(3)]
        for tape, pass_ in zip(tapes, (0, 0, 1), strict=True):
            experts = ExpertGradients(tape, plan, 0)
            experts.last = _LATER
            gradients, n = _Nowhere() if plan.sharding == "fsdp" else WholeGradients(), _LATER + 1
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
                        if not isinstance(item, WeightGradientWork | RepeatedWork | Gradient | Moment)
                    ),
                )
                run(tape, (item for item in part.backward if isinstance(item, WeightGradientWork)))
            else:
                passes.once_backward(pass_ if plan.sharding != "fsdp" else 0)
        return Turns(*map(self._way, tapes))

    def of_reductions(self, plan: Plan, place: int, *, last: bool) -> Way:
        """What PyTorch's ranks at a place ask for beside their passes, one after another in each of their groups.

        Args:
            plan: Theirs.
            place: In their pipelines.
            last: Gradients alone, of which none is there before the last backward; else weights that are gathered, too.

        Raises:
            InputError: it cannot be generated.
        """
        numbers = plan.stages_of(place * plan.stage_ranks)
        parts = tuple(part_names(plan, self.model, number) for number in numbers)
        copies = (plan.sharding, plan.holders, plan.sharded < plan.dp, plan.dp * plan.cp > 1, plan.sizes["edp"])
        key = (last, parts, _cut(plan)[1:], copies, plan.splits, plan.ends_meet, plan.pp > 1, numbers[0] == 0)
        if key not in self._reductions:
            [(_, routed), *_] = classes(plan, self.model, place, None)
            tape = Tape(self.dtype)
            for number in numbers:
                asks = reduced_by(ModelParts(self.model, plan, self.stack, routed), number)
                tape.join(*(tape.ask(ask) for ask in asks if not last or ask.operation != "all_gather"))
            self._reductions[key] = self._way(tape)
        return self._reductions[key]

    def of_arrivals(self, plan: Plan, name: str) -> Mapping[str, Way]:
        """The last backward of a part by Megatron-LM, until all gradients of an axis are there; by their axes."""
        key = (*self.key(plan, name), plan.dp > 1)
        if key not in self._arrivals:
            layer, tape, came = MegatronLayer(Part(self.model, plan, self.stack, name)), Tape(self.dtype), dict[str, Tape]()
            layer.backward(tape, lambda kernel: came.update({layer.axis(kernel): tape.copy()}))
            self._arrivals[key] = {axis: self._way(each) for axis, each in came.items()}
        return self._arrivals[key]

    def moved_s(self, elements: int) -> float:
        """What memory traffic of so many gradients takes."""
        tape = Tape(self.dtype)
        tape.compute(gradient_work(self.stack.precision, elements))
        return float(self.device.seconds(tape.events(), "float32").sum())

    def elements(self, plan: Plan, name: str) -> Mapping[str, int]:
        """Parameters that a rank has of a layer, by the axis of the ranks that have copies."""
        key = (name, *_cut(plan)[1:], plan.dp > 1, plan.pp > 1, plan.ends_meet)
        if key not in self._held:
            layer = MegatronLayer(Part(self.model, plan, self.stack, name))
            found = Counter[str]()
            for kernel, size in layer.parameters() if self.is_megatron else ():
                found[layer.axis(kernel)] += size
            self._held[key] = found or Counter(dp=sum(operator.parameters for operator in layer.part.operators))
        return self._held[key]

    def _ends_of_megatron(self, plan: Plan, held: Sequence[tuple[str, int, int]]) -> tuple[Tape, Tape]:
        """Gradients set to 0; reduced, scaled, the optimizer, weights gathered: the least of `megatron.finish`."""
        begun, tape = Tape(self.dtype), Tape(self.dtype)
        buffers = self.buffers(tape, plan, held)
        for buffer in buffers:
            replace(buffer, tape=begun).cleared()
            buffer.reduce()
        self._updated(tape, plan, buffers)
        for buffer in buffers:
            buffer.gather()
        return begun, tape

    def _update(self, plan: Plan, held: Sequence[tuple[str, int, int]]) -> Tape:
        """Of that, what comes after all gradients are reduced, where weights are gathered later."""
        tape = Tape(self.dtype)
        self._updated(tape, plan, self.buffers(tape, plan, held))
        return tape

    def buffers(self, tape: Tape, plan: Plan, held: Sequence[tuple[str, int, int]]) -> list[Buffer]:
        """By axis, its ranks, and how many parameters there are, in one bucket each."""
        scattered = plan.sharding == "zero1"
        precision, narrow = self.stack.precision, self.stack.narrow_gather  # as if all were, where some weights are
        return [Buffer(tape, precision, axis, n, scattered, (Tensor(size),), gathers=narrow) for axis, n, size in held]

    def _updated(self, tape: Tape, plan: Plan, buffers: Sequence[Buffer]) -> None:
        owned = sum(buffer.owned for buffer in buffers)
        tape.compute(gradient_work(self.stack.precision, 2 * owned * (plan.clip > 0)))
        tape.compute(adamw(tape, Part(self.model, plan, self.stack, HEAD), owned))

    def _ends_of_pytorch(self, plan: Plan, held: Sequence[tuple[str, int, int]]) -> tuple[Tape, Tape]:
        """The optimizer, of an even share; where states are sharded by parameters a rank may have the most by little."""
        tape, shared = Tape(self.dtype), plan.sharded
        own = sum(size for _, _, size in held) // shared
        if plan.clip and plan.sharding == "fsdp":
            tape.compute(gradient_work(self.stack.precision, 2 * own))
        tape.compute(adamw(tape, Part(self.model, plan, self.stack, HEAD), own))
        return Tape(self.dtype), tape

    @property
    def dtype(self) -> str:
        """Of what is computed."""
        return self.stack.precision.activation

    def _way(self, tape: Tape, *, beside: bool = False) -> Way:
        """The events of a tape; with `beside` requests take no time, as they may have begun long before."""
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
        return Way(
            self.device.seconds(events, "float32").tolist(),
            list(zip(asked, asks, strict=True)),
            {i for i in asked if events.kind[i] == Kind.SEND},
            computes(events).tolist(),
            events.stream.tolist(),
            _waits(events),
        )


class _Nowhere(WholeGradients):
    """Gradients of FSDP go ways of their own, beside what is computed: nothing is counted of them."""

    def there(self, tape: Tape, gradient: Gradient, part: Part, pass_: int) -> None:
        """One of them is there."""


def _waits(events: Events) -> list[list[int]]:
    """[E] what each waits for: as the tape says, and the request before it in its queue, if ranks leave that together."""
    found = [own.tolist() for own in np.split(events.wait, events.wait_start[1:-1])]
    for event, before in zip(*(each.tolist() for each in queue_order(events)), strict=True):
        found[event] += [before] * (events.name[before] not in ROOTED)
    return found


def _cut(plan: Plan) -> Sequence[object]:
    """What a rank has of a layer in one pass, its sequences first."""
    return (plan.pass_batch, plan.tp, plan.cp, plan.cp_comm, plan.sp, plan.ep, plan.etp, plan.capacity)
