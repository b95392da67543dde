"""The handling of weights that FSDP2 shards: weights are gathered for each layer, and gradients are scattered after it.

Gathers and scatters run on streams of their own. In the forward, a layer is gathered while the layer before it is computed; in
the backward, while the layer after it is computed. The embedding and the head are one group, the *root*, whose weights stay
whole from the forward to the end of the backward. Source: PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from emu.dtypes import FP8, item_bytes
from emu.model.generate.gradients import WholeGradients, gradient_work, run
from emu.model.generate.item import Action, Ask, Computation, Gradient, moving
from emu.model.generate.part import Part
from emu.model.generate.states import ROOT, WeightGroup, padded_elements, sharing_axis
from emu.model.generate.tape import Tape, shifted
from emu.model.memory.layer_memory import GATHERS, REDUCES
from emu.model.memory.pass_memory import ENTER, ENTER_AGAIN, ENTER_BACKWARD, LEAVE, LEAVE_AGAIN, LEAVE_BACKWARD, LOSS_GRADIENT
from emu.model.model import EMBEDDING, HEAD
from emu.model.operator import ModelOperator
from emu.model.plan.plan import REPLICATE, Plan

_STREAMS = _COPY_IN, _GATHER, _SCATTER, _REDUCE = 1, 2, 3, 4  # of one stage, beside the default one


@dataclass
class ShardedStates(WholeGradients):
    """The handling of one stage's weights and gradients under FSDP2, on one rank that has a shard of them.

    In a stage of a pipeline, the weights of a layer stay whole from its backward to its next forward, and gradients are
    scattered after the last backward of the stage.
    """

    tape: Tape
    plan: Plan
    parts: tuple[Part, ...]
    stage: int = 0
    whole: set[WeightGroup] = field(default_factory=set)  # groups whose weights are there
    coming: dict[WeightGroup, tuple[int, ...]] = field(default_factory=dict)  # ... or were asked for, and when they are
    before: tuple[int, ...] = ()  # when the weights gathered last in a forward were in their place
    buffered: int = 0  # bytes of the buffer that these were gathered into
    scattered: tuple[int, ...] = ()  # when the gradients scattered last were
    copied: int = 0  # bytes of the copy that these were scattered from
    reduced: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by stream, when those last worked on there are done
    partial: dict[WeightGroup, list[tuple[Action, ...]]] = field(
        default_factory=dict
    )  # by group, what is done before they are scattered
    current: list[WeightGroup] = field(default_factory=lambda: [ROOT])  # the groups whose backward goes on, the innermost last

    def state(self, at: int) -> Hashable:
        """Return the state between two passes, with its events counted from event `at`."""
        named = (tuple((name, shifted(events, -at)) for name, events in of.items()) for of in (self.coming, self.reduced))
        after = shifted(self.before, -at), shifted(self.scattered, -at)
        return frozenset(self.whole), *named, *after, self.buffered, self.copied

    def restore(self, state: Any, at: int) -> None:
        """Set the state that the method `state` has returned, with events counted from event `at`."""
        whole, coming, reduced, before, scattered, self.buffered, self.copied = state
        self.whole = set(whole)
        self.coming, self.reduced = ({name: shifted(events, at) for name, events in of} for of in (coming, reduced))
        self.before, self.scattered = shifted(before, at), shifted(scattered, at)

    def gather(self) -> None:
        """Request the weights of all groups, on the default stream."""
        for group in self._groups:
            self._open_buffer(group)
            self._copy_in(group)
            self.coming[group] = (self._ask(group),) if self._ranks(group) > 1 else ()

    def arrive(self) -> None:
        """Wait for all weights whose gathers have started."""
        for group in tuple(self.coming):
            self._arrive_early(group)

    def drop(self) -> None:
        """Free all gathered weights of the stage."""
        for group in sorted(self.whole):
            self._drop(group)

    def begin(self) -> None:
        """Begin a forward: hold back gathers until the optimizer of the last step has ended, then gather the root's weights."""
        self._hold_back(self.tape.now())
        self._forward(ROOT)

    def enter(self, place: int) -> None:
        """Begin the forward of the part with number `place`: gather its weights."""
        if self._group(place) != ROOT:
            self._forward(self._group(place))

    def leave(self, place: int) -> None:
        """End the forward of the part with number `place`: free its weights."""
        if self._group(place) != ROOT:
            self._drop(self._group(place))
        if place == len(self.parts) - 1:
            self._free()

    def enter_backward(self, place: int) -> None:
        """Begin the backward of the part with number `place`: gather its weights."""
        self.current = [self._group(place)]
        self._backward(self._group(place))

    def leave_backward(self, place: int, pass_: int) -> None:
        """End the backward of the part with number `place`: free its weights, and after the last one scatter its gradients.

        Do nothing in a pipeline, or if the part is in the root's group.
        """
        if self._group(place) != ROOT:
            self._leave(self._group(place), pass_)

    def reach(self, moment: str, place: int, pass_: int) -> None:
        """Begin or end the experts of a layer, which are a weight group, or record that the loss has its gradient."""
        group = WeightGroup(place, experts=True)
        if moment == LOSS_GRADIENT:
            self._next(ROOT)
        elif moment == ENTER:
            self._forward(group)
        elif moment == LEAVE:
            self._drop(group)
        elif moment == ENTER_AGAIN:
            self._hold_back(self.tape.now())
            self._forward(group)
            self._close_buffer()
        elif moment == LEAVE_AGAIN:
            self._free()
        elif moment == ENTER_BACKWARD:
            self.current.append(group)
            self._backward(group)
        elif moment == LEAVE_BACKWARD:
            self.current.remove(group)
            self._leave(group, pass_)

    def handle(self, tape: Tape, gradient: Gradient, part: Part, pass_: int) -> None:
        """Add a gradient to the sum of earlier passes; after the last pass, the sum is cut to the share of this rank."""
        super().handle(tape, gradient._replace(before=(), elements=gradient.times * gradient.elements), part, pass_)
        if pass_ == self.plan.passes - 1:
            self.partial.setdefault(self.current[-1], []).append(gradient.before)

    def end(self, tape: Tape, pass_: int) -> None:
        """End a backward: scatter the root's gradients, and wait for all gradients that are scattered (none in a pipeline)."""
        self._leave(ROOT, pass_)
        self._settle()

    def reduce(self) -> None:
        """Scatter all gradients after the last backward of a pipeline's stage."""
        if self.plan.pp > 1:
            for group in self._groups:
                self._scatter(group)
            self._settle()

    def _leave(self, group: WeightGroup, pass_: int) -> None:
        """Free a group's weights after its backward, and scatter its gradients after the last; in a pipeline, do nothing."""
        if self.plan.pp > 1:
            return
        self._drop(group)
        if pass_ == self.plan.passes - 1:
            self._scatter(group)

    def _settle(self) -> None:
        """Wait for the scatters of all gradients, and free the copies from which they were sent."""
        self.tape.ledger.change(activations=-self.copied)
        self.copied = 0
        for events in self.reduced.values():
            self.tape.join(*events)
        self.reduced = {}

    def _number(self, stream: int) -> int:
        return len(_STREAMS) * self.stage + stream

    @cached_property
    def _groups(self) -> list[WeightGroup]:
        """The weight groups of the stage: the root, if it has weights, then each layer followed by its experts."""
        return sorted(self._weights)

    @cached_property
    def _ended(self) -> list[WeightGroup]:
        """The weight groups in the order in which their forwards end."""
        return sorted(self._weights, key=lambda each: (each == ROOT, each.place, not each.experts))

    @cached_property
    def _weights(self) -> dict[WeightGroup, list[tuple[Part, ModelOperator]]]:
        """The operators of each weight group of the stage, each with its part."""
        found: dict[WeightGroup, list[tuple[Part, ModelOperator]]] = {}
        for place, part in enumerate(self.parts):
            for operator in part.operators:
                group = WeightGroup(place, experts=True) if part.travels(operator) else self._group(place)
                found.setdefault(group, []).append((part, operator))
        return found

    @cached_property
    def _elements(self) -> dict[WeightGroup, int]:
        """The number of parameters of each weight group."""
        return {group: sum(operator.parameters for _, operator in own) for group, own in self._weights.items()}

    @cached_property
    def _padded(self) -> dict[WeightGroup, int]:
        """The number of parameters of each weight group, if each rank had as many as the first rank."""
        return {
            group: sum(padded_elements(part, operator, self._ranks(group)) for part, operator in own if operator.parameters)
            for group, own in self._weights.items()
        }

    def least(self) -> Iterator[Ask]:
        """Yield the requests that every step makes for the stage's weights and gradients."""
        precision = self.parts[0].stack.precision
        for group in self._groups:
            axis, ranks, size = self._axis(group), self._ranks(group), self._padded[group]
            if ranks > 1:
                yield Ask(axis, "all_gather", size, self._dtype(group))
                yield Ask(axis, "reduce_scatter", size, precision.gradient)
            if self.plan.shard_ranks < self.plan.dp and not group.experts:
                yield Ask(REPLICATE, "all_reduce", size // ranks, precision.gradient)

    def _ranks(self, group: WeightGroup) -> int:
        return self.plan.sharers(travels=group.experts)

    def _axis(self, group: WeightGroup) -> str:
        return sharing_axis(self.plan, travels=group.experts)

    def _group(self, place: int) -> WeightGroup:
        return ROOT if self.parts[place].name in (EMBEDDING, HEAD) else WeightGroup(place)

    def _forward(self, group: WeightGroup) -> None:
        """Gather the weights of a group for its forward, unless they are gathered already."""
        if group in self.whole or group not in self._weights:
            return
        self._gather(group)
        self._free()
        self._arrive(group)
        self.before, self.buffered = self.tape.now(), self._buffer(group)
        if self._ranks(group) == 1:
            self._free()

    def _backward(self, group: WeightGroup) -> None:
        """Wait for the weights of a group in the backward, and request those of the next group."""
        self._gather(group)
        if group in self.coming:
            self._arrive_early(group)
        if group != ROOT:
            self._next(group)

    def _free(self) -> None:
        """Free the buffer of the last gather after the weights are copied out of it."""
        self._close_buffer()
        self._hold_back(self.before)
        self.before = ()

    def _hold_back(self, events: tuple[int, ...]) -> None:
        """Make the next gather wait for the given events."""
        for stream in (_COPY_IN, _GATHER):
            self.tape.join(*events, stream=self._number(stream))

    def _next(self, group: WeightGroup) -> None:
        """Request the weights of the group that comes before `group` in the forward, which the backward needs next."""
        at = self._ended.index(group) if group in self._ended else len(self._ended)
        if at:
            self._gather(self._ended[at - 1])

    def _gather(self, group: WeightGroup) -> None:
        """Request the weights of a group, unless they are whole or requested already."""
        if group in self.whole or group in self.coming:
            return
        self._open_buffer(group)
        tape, copies, gathers = self.tape, self._number(_COPY_IN), self._number(_GATHER)
        if self._ranks(group) == 1:
            self.coming[group] = ()
            return
        self._copy_in(group, copies)
        tape.join(*tape.now(copies), stream=gathers)
        tape.follow(self._ask(group, gathers), gathers)
        self.coming[group] = tape.now(gathers)

    def _copy_in(self, group: WeightGroup, stream: int = 0) -> None:
        """Copy the rank's own weights of a group into the buffer that is gathered."""
        if self._ranks(group) > 1:
            own, part = self._padded[group] // self._ranks(group), self.parts[0]
            read, written = part.stack.precision.weight, self._dtype(group)
            if written == FP8:  # the largest element gives the scale
                self.tape.compute(moving("largest", self.tape.dtype, (own, read)), stream)
            self.tape.compute(moving("copied in", self.tape.dtype, (own, read), (own, written)), stream)

    def _ask(self, group: WeightGroup, stream: int = 0) -> int:
        """Gather the weights of a group from the ranks that hold shares of them, and return the number of the event."""
        return self.tape.ask(Ask(self._axis(group), "all_gather", self._padded[group], self._dtype(group)), stream)

    def _dtype(self, group: WeightGroup) -> str:
        """Return the dtype in which the weights of a group are gathered; only layers are gathered in FP8."""
        narrow = group != ROOT and not group.experts and self.parts[0].stack.narrow_gather
        return narrow or self.parts[0].stack.gathered

    def _arrive(self, group: WeightGroup) -> None:
        """Wait for the weights of a group, and copy them from the gathered buffer into the parameters."""
        self.tape.join(*self.coming.pop(group))
        self.tape.compute(moving("copied out", self.tape.dtype, (2 * self._padded[group], self._dtype(group))))
        self.tape.ledger.change(weights=self._bytes(group))
        self.whole.add(group)

    def _arrive_early(self, group: WeightGroup) -> None:
        """Wait for the weights of a group in a backward or ahead of a turn, and free their buffer at once."""
        self._arrive(group)
        self.tape.ledger.change(activations=-self._buffer(group), pool=GATHERS)
        self._hold_back(self.tape.now())

    def _drop(self, group: WeightGroup) -> None:
        """Free the gathered weights of a group, if they are whole."""
        if group in self.whole:
            self.tape.ledger.change(weights=-self._bytes(group))
            self.whole.remove(group)

    def _bytes(self, group: WeightGroup) -> int:
        """Return the bytes of the whole weights of a group."""
        return self._elements[group] * item_bytes(self._dtype(group))

    def _buffer(self, group: WeightGroup) -> int:
        """Return the bytes of the buffer into which a group is gathered; 0 if the rank shares the group with no other."""
        return self._bytes(group) if self._ranks(group) > 1 else 0

    def _open_buffer(self, group: WeightGroup) -> None:
        """Count the bytes of the buffer into which a group is about to be gathered."""
        if group not in self.whole and group not in self.coming:
            self.tape.ledger.change(activations=self._buffer(group), pool=GATHERS)

    def _close_buffer(self) -> None:
        """Free the buffer of the weights that were gathered last in a forward."""
        self.tape.ledger.change(activations=-self.buffered, pool=GATHERS)
        self.buffered = 0

    def _scatter(self, group: WeightGroup) -> None:
        """Scatter the gradients of a group, on streams of their own, and free the whole gradients."""
        self._drop(group)
        self._copy_gradients(group)
        tape, padded, ranks = self.tape, self._padded[group], self._ranks(group)
        scatters = self._number(_SCATTER)
        for doing in reversed(self.partial.pop(group, [])):  # parameters in the order of the model
            run(tape, doing)
        tape.join(*self.scattered)
        part = self.parts[0]
        cast = (self._elements[group], part.gradient_dtype), (padded, part.stack.precision.gradient)
        tape.compute(moving("gradients", tape.dtype, *cast))
        tape.join(*tape.now(), stream=scatters)
        if ranks > 1:
            self._request("reduce_scatter", self._axis(group), padded, scatters)
            self.scattered = tape.now(scatters)
        self._divide(group, scatters)
        if ranks == 1:
            self.scattered = tape.now(scatters)
        self.reduced[scatters] = tape.now(scatters)
        if self.plan.shard_ranks < self.plan.dp and not group.experts:
            self._reduce(padded // ranks)

    def _copy_gradients(self, group: WeightGroup) -> None:
        """Copy the gradients of a group into the buffer from which they are scattered.

        The buffer lives until the gradients of the next group are copied.
        """
        made, memory = sum(part.memory.gradient(o) for part, o in self._weights[group]), self.tape.ledger
        lived = sum(part.memory.waits(o) for part, o in self._weights[group] if o.parameters)
        memory.change(activations=-self.copied)
        memory.change(activations=made)
        own = made // self._ranks(group)
        divided = own if group.experts else 0  # added up, they are divided into another tensor
        if own == made:  # nothing is sent: what was copied lives until the copy is divided
            memory.rise(gradients=own, activations=divided)
        memory.change(activations=-lived)
        memory.change(gradients=own, pool=REDUCES)
        memory.rise(activations=divided)
        self.copied = made

    def _divide(self, group: WeightGroup, stream: int) -> None:
        """Divide the summed gradients of experts, and copy gradients that no other rank shares."""
        own, alone = self._padded[group] // self._ranks(group), self._ranks(group) == 1
        if group.experts and (alone or self.plan.copies > 1):
            self.tape.compute(self._moved(2 * own), stream)
        if alone:
            self.tape.compute(self._moved(2 * own), stream)

    def _reduce(self, elements: int) -> None:
        """Write the sum of scattered gradients over the ranks with copies of the same shard."""
        reduces = self._number(_REDUCE)
        self.tape.join(*self.tape.now(self._number(_SCATTER)), stream=reduces)
        self._request("all_reduce", REPLICATE, elements, reduces)
        self.reduced[reduces] = self.tape.now(reduces)

    def _request(self, operation: str, axis: str, elements: int, stream: int) -> None:
        ask = Ask(axis, operation, elements, self.parts[0].stack.precision.gradient)
        self.tape.follow(self.tape.ask(ask, stream), stream)

    def _moved(self, elements: int) -> Computation:
        return gradient_work(self.parts[0].stack.precision, elements)
