"""A time that no step of a plan beats, without generating the step.

A step is a graph: what begins after others ended. Here times are left out or made shorter, never longer, and waits are left
out. So the longest way through what is left ends no later than the step does, whatever else shares links or waits: by induction
in the order of time, each task ends no earlier than the longest way to it. Kept are:

- On one rank computations follow one another, each as long as the device says. A layer's pass is generated as the step's is,
  and takes at least the longest way through it. A stage's pass takes those of its layers, one after another.
- A collective that is waited for takes a rank what the rank itself sends and receives of it, over all links of an NPU: no
  message leaves before both its ends have entered, and a rank leaves once all that it sends and gets is through. Each rank
  gives every slot of others that it adds to, and gets every slot of others that it wants, once at least.
- The rank at place p of a pipeline begins when the stages before it have passed one microbatch on; then it takes all its
  passes. Where backwards are whole, its last one is followed by those of the stages before it, and at place 0 by the end.

The bound is the same for every placement; `emu.study.training.least` has one of each. S stages, P places.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import numpy as np

from emu.dtypes import item_bytes
from emu.model.fits import part_names
from emu.model.generate.expert_gradients import ExpertGradients
from emu.model.generate.gradients import Whole, moved, run
from emu.model.generate.item import Alone, Gradient, Work
from emu.model.generate.megatron.buffers import Buffer
from emu.model.generate.megatron.chunk import nowhere
from emu.model.generate.megatron.layer import Layer
from emu.model.generate.megatron.rank import overlaps_messages
from emu.model.generate.optimizer import adamw
from emu.model.generate.part import Part
from emu.model.generate.passes import Passes
from emu.model.generate.routed import classes
from emu.model.generate.tape import Tape
from emu.model.model import HEAD, Model
from emu.model.plan import Plan
from emu.model.stack import OVERLAPPED, Stack
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.trace import Events, Kind
from emu.units import seconds

_ROUNDED = 1e-9  # of a bound, more than all its ticks are rounded by
_LATER = 2  # the number of a pass that is neither the first nor the last


class Rates(NamedTuple):
    """What no NPU of a topology sends or receives faster, bytes per second; and what each message takes besides, seconds."""

    out: float
    into: float
    alpha_s: float = 0.0

    @staticmethod
    def of(topology: Topology) -> "Rates":
        """All links of the NPU that has most, and the least latency of a way out of an NPU and into one."""
        links = topology.links
        out, into = (np.bincount(node, links.bandwidth_Bps, topology.n_nodes) for node in (links.src, links.dst))
        leaves, comes = links.src < topology.n_npus, links.dst < topology.n_npus
        direct, up, down = leaves & comes, leaves & ~comes, comes & ~leaves
        ways = [sum(int(links.latency_fs[of].min()) for of in way) for way in ((direct,), (up, down)) if way[0].any()]
        alpha_s = seconds(min(ways, default=0) + topology.message_fs)
        return Rates(float(out[: topology.n_npus].max()), float(into[: topology.n_npus].max()), alpha_s)

    def least_s(self, operation: str, elements: int, item: int, ranks: int) -> float:
        """What a rank takes at least to leave an operation of the whole size that so many ranks share evenly."""
        size, own = elements * item, -(-elements // ranks) * item
        moved = {"all_gather": size - own, "reduce_scatter": size - own, "all_reduce": size}.get(operation, 0)
        return self.alpha_s + moved / max(self.out, self.into) if moved and ranks > 1 else 0.0

    def message_s(self, size: int) -> float:
        """What a message takes at least from its being asked for to its being there."""
        return self.alpha_s + size / min(self.out, self.into)


class Spans(NamedTuple):
    """What a layer's passes take at least, seconds."""

    forward: float
    first: float  # backward
    later: float  # ... of another microbatch, which adds to the gradients of the first


@dataclass(eq=False)
class Bounds:
    """Of the plans of one model by one software on one fabric; the device and the topology as the software has them."""

    model: Model
    stack: Stack
    device: Device
    rates: Rates
    _layers: dict[object, Spans] = field(default_factory=dict)
    _ends: dict[object, float] = field(default_factory=dict)
    _held: dict[object, Mapping[str, int]] = field(default_factory=dict)
    _counts: dict[object, list[Mapping[str, int]]] = field(default_factory=dict)

    def seconds(self, plan: Plan) -> float:
        """No step of the plan takes less.

        Raises:
            InputError: the plan cannot be generated.
        """
        stages = [self._stage(plan, parts) for parts in self._parts(plan)]
        sent, size = self._sent(plan), self._message_bytes(plan)
        message = self.rates.message_s(size)
        drains = not plan.splits
        least, fill, drain = 0.0, 0.0, self._end_s(plan)
        for place in range(plan.pp):
            own = [stages[number] for number in plan.stages_of(place * plan.stage_ranks)]
            works = sum(plan.passes * s.forward + s.first + (plan.passes - 1) * s.later for s in own)
            works += sent(place) * size / self.rates.out
            least = max(least, fill + works + (drain if drains or not place else 0.0))
            fill += stages[place].forward + message
            drain += min(stages[place].first, stages[place].later) + message
        return least * (1 - _ROUNDED)

    def _parts(self, plan: Plan) -> list[Mapping[str, int]]:
        """[S] how often each stage has each part."""
        key = (plan.layers, plan.stages)
        if key not in self._counts:
            self._counts[key] = [Counter(part_names(plan, self.model, stage)) for stage in range(plan.stages)]
        return self._counts[key]

    def _stage(self, plan: Plan, parts: Mapping[str, int]) -> Spans:
        spans = [(n, self._layer(plan, name)) for name, n in parts.items()]
        return Spans(*(sum(n * span[i] for n, span in spans) for i in range(len(Spans._fields))))

    def _layer(self, plan: Plan, name: str) -> Spans:
        key = (name, *_cut(plan), plan.recompute, plan.sharding == "fsdp", plan.splits, plan.passes == 1, plan.pp == 1)
        if key not in self._layers:
            self._layers[key] = self._of_megatron(plan, name) if self._is_megatron else self._of_pytorch(plan, name)
        return self._layers[key]

    @property
    def _is_megatron(self) -> bool:
        return self.stack.software == "megatron"

    def _of_megatron(self, plan: Plan, name: str) -> Spans:
        layer = Layer(Part(self.model, plan, self.stack, name))
        forward, backward = Tape(self._dtype), Tape(self._dtype)
        layer.forward(forward)
        layer.backward(backward, nowhere)
        later = self._span_s(backward, plan)
        return Spans(self._span_s(forward, plan), later, later)

    def _of_pytorch(self, plan: Plan, name: str) -> Spans:
        [(_, routed), *_] = classes(plan, self.model, 0, None)
        rows = routed(self.model.kinds.index(name), 0) if name in self.model.kinds else None
        part, tapes = Part(self.model, plan, self.stack, name, rows), [Tape(self._dtype) for _ in range(3)]
        for tape, pass_ in zip(tapes, (0, 0, 1), strict=True):
            experts = ExpertGradients(tape, plan, 0)
            experts.last = _LATER
            passes = Passes(tape, 0, ((part,),) * (_LATER + 1), _Nowhere() if plan.sharding == "fsdp" else Whole(), experts)
            if tape is tapes[0]:
                passes.once_forward(0)
            elif plan.splits:  # gradients of weights come later, each by itself, where other things are waited for
                run(tape, (item for item in part.backward if isinstance(item, Work) and not isinstance(item, Alone)))
            else:
                passes.once_backward(pass_ if plan.sharding != "fsdp" else 0)
        return Spans(*(self._span_s(tape, plan) for tape in tapes))

    def _message_bytes(self, plan: Plan) -> int:
        """What passes between two stages."""
        tokens = plan.pass_batch * plan.rank_seq // (plan.tp if plan.sp else 1)
        return tokens * self.model.hidden * item_bytes(self._dtype)

    def _sent(self, plan: Plan) -> "_Sent":
        return _Sent(plan, self._is_megatron and not overlaps_messages(plan, self.stack))

    def _end_s(self, plan: Plan) -> float:
        """What place 0 does before its first pass and after its last, but for what may run beside its passes."""
        elements = Counter[str]()
        for number in plan.stages_of(0):
            for name, n in self._parts(plan)[number].items():
                elements.update({axis: n * size for axis, size in self._elements(plan, name).items()})
        held = tuple((axis, _ranks(plan, axis), size) for axis, size in elements.items())
        key = (held, plan.sharding, plan.sharded, plan.clip > 0, plan.tp)
        if key not in self._ends:
            end = self._end_of_megatron if self._is_megatron else self._end_of_pytorch
            self._ends[key] = self._span_s(end(plan, held), plan, beside=self.stack.dp == OVERLAPPED)
        return self._ends[key]

    def _elements(self, plan: Plan, name: str) -> Mapping[str, int]:
        """Parameters that a rank has of a layer, by the axis of the ranks that have copies."""
        key = (name, *_cut(plan)[1:], plan.dp > 1, plan.pp > 1)
        if key not in self._held:
            layer = Layer(Part(self.model, plan, self.stack, name))
            found = Counter[str]()
            for kernel, size in layer.parameters() if self._is_megatron else ():
                found[layer.axis(kernel)] += size
            self._held[key] = found or Counter(dp=sum(operator.parameters for operator in layer.part.operators))
        return self._held[key]

    def _end_of_megatron(self, plan: Plan, held: Sequence[tuple[str, int, int]]) -> Tape:
        """Gradients set to 0; reduced, scaled, the optimizer, weights gathered: the least of `megatron.finish`."""
        tape, precision, scattered = Tape(self._dtype), self.stack.precision, plan.sharding == "zero1"
        buffers = [Buffer(tape, precision, axis, n, scattered, ((size, 0),), False) for axis, n, size in held]
        for buffer in buffers:
            buffer.cleared()
        for buffer in buffers:
            buffer.reduce()
        owned = sum(buffer.owned for buffer in buffers)
        tape.compute(moved(precision, 2 * owned * (plan.clip > 0)))
        tape.compute(adamw(tape, Part(self.model, plan, self.stack, HEAD), owned))
        for buffer in buffers:
            buffer.gather()
        return tape

    def _end_of_pytorch(self, plan: Plan, held: Sequence[tuple[str, int, int]]) -> Tape:
        """The optimizer, of an even share; where states are sharded by parameters a rank may have the most by little."""
        tape, shared = Tape(self._dtype), plan.sharded
        own = sum(size for _, _, size in held) // shared
        if plan.clip and plan.sharding == "fsdp":
            tape.compute(moved(self.stack.precision, 2 * own))
        tape.compute(adamw(tape, Part(self.model, plan, self.stack, HEAD), own))
        return tape

    @property
    def _dtype(self) -> str:
        return self.stack.precision.activation

    def _span_s(self, tape: Tape, plan: Plan, *, beside: bool = False) -> float:
        """The longest way to the end of a tape; with `beside` requests take no time, as they may have begun long before."""
        events, last = tape.events(), dict[int, float]()
        ends: list[float] = []
        takes = self._takes(events, [_ranks(plan, axis) for axis in tape.axes], beside=beside)
        starts, waits = events.wait_start.tolist(), events.wait.tolist()
        in_order = ((events.kind == Kind.COMPUTE) | (events.kind == Kind.MARK)).tolist()
        for i, (ordered, stream) in enumerate(zip(in_order, events.stream.tolist(), strict=True)):
            begin = max((ends[w] for w in waits[starts[i] : starts[i + 1]]), default=0.0)
            ends.append(max(begin, last.get(stream, 0.0) * ordered) + takes[i])
            if ordered:
                last[stream] = ends[-1]
        return ends[-1]

    def _takes(self, events: Events, ranks: Sequence[int], *, beside: bool) -> list[float]:
        """[E] the least that each takes; nothing for messages, which may have been sent long before."""
        takes: list[float] = self.device.seconds(events, "float32").tolist()
        for i in [] if beside else np.flatnonzero(events.kind == Kind.COLLECTIVE).tolist():
            size, elements = int(events.bytes[i]), int(events.count[i])
            takes[i] = self.rates.least_s(events.name[i], elements, size // max(1, elements), ranks[int(events.group[i])])
        return takes


class _Nowhere(Whole):
    """Gradients of FSDP go ways of their own, beside what is computed: nothing is counted of them."""

    def there(self, tape: Tape, gradient: Gradient, part: Part, pass_: int) -> None:
        """One of them is there."""


class _Sent(NamedTuple):
    """How many messages a rank waits for until they have left, but the last."""

    plan: Plan
    waits: bool

    def __call__(self, place: int) -> int:
        if not self.waits:
            return 0
        stages = self.plan.stages_of(place * self.plan.stage_ranks)
        return self.plan.passes * sum((n > 0) + (n < self.plan.stages - 1) for n in stages) - 1


def _cut(plan: Plan) -> Sequence[object]:
    """What a rank has of a layer in one pass, its sequences first."""
    return (plan.pass_batch, plan.tp, plan.cp, plan.cp_comm, plan.sp, plan.ep, plan.etp, plan.capacity)


def _ranks(plan: Plan, axis: str) -> int:
    """Of a group of an axis; 1 of others than a plan's own, of which nothing is counted."""
    names = axis.split("+")
    return prod(plan.sizes[name] for name in names) if set(names) <= set(plan.sizes) else 1
