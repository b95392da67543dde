"""Weights sharded by FSDP2: gathered before a layer needs them, on streams of their own, and gradients scattered after it.

A layer is gathered before its forward while the one before is computed, and in the backward while the one after is; the
embedding and the head are one group, the root, which stays whole from the forward to the end of the backward.
Source: PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from emu.errors import must_be
from emu.model.generate.gradients import Whole, moved, run
from emu.model.generate.item import Ask, Doing, Gradient, Work
from emu.model.generate.part import Part
from emu.model.generate.states import shard_axis
from emu.model.generate.tape import Tape, shifted
from emu.model.model import EMBEDDING, HEAD
from emu.model.operator import LOOKUP, Amount
from emu.model.plan import Plan
from emu.model.ranks import REPLICATE

_STREAMS = _COPY_IN, _GATHER, _SCATTER, _REDUCE = 1, 2, 3, 4  # of one stage, beside the default one
_ROOT = -1


@dataclass
class Sharded(Whole):
    """The weights and gradients that one rank has of a stage.

    Of a stage of a pipeline a layer stays whole from its backward to its next forward, and gradients are scattered when the
    stage has had its last.
    """

    tape: Tape
    plan: Plan
    parts: tuple[Part, ...]
    stage: int = 0
    whole: set[int] = field(default_factory=set)  # groups whose weights are there: a layer's place, or the root
    coming: dict[int, tuple[int, ...]] = field(default_factory=dict)  # ... or were asked for, and when they are
    before: tuple[int, ...] = ()  # when the weights gathered last in a forward were in their place
    scattered: tuple[int, ...] = ()  # when the gradients scattered last were
    reduced: tuple[int, ...] = ()
    partial: dict[int, list[tuple[Doing, ...]]] = field(
        default_factory=dict
    )  # by group, what is done before they are scattered
    current: int = _ROOT  # the group whose backward goes on

    def __post_init__(self) -> None:
        for part in self.parts:
            check_rows(part, self.plan)

    def state(self, at: int) -> Hashable:
        """What is known between passes, events counted from this one."""
        coming = tuple((group, shifted(events, -at)) for group, events in self.coming.items())
        return frozenset(self.whole), coming, *(shifted(e, -at) for e in (self.before, self.scattered, self.reduced))

    def restore(self, state: Any, at: int) -> None:
        """Know that, there."""
        whole, coming, *others = state
        self.whole, self.coming = set(whole), {group: shifted(events, at) for group, events in coming}
        self.before, self.scattered, self.reduced = (shifted(events, at) for events in others)

    def gather(self) -> None:
        """All weights are asked for, on the default stream."""
        for group in self._groups():
            self._copy_in(group)
            self.coming[group] = (self._ask(group),)

    def arrive(self) -> None:
        """Those are waited for."""
        for group in tuple(self.coming):
            self._arrive_early(group)

    def drop(self) -> None:
        """They are dropped."""
        self.whole.clear()

    def begin(self) -> None:
        """A forward begins: nothing is gathered before the optimizer has ended."""
        for stream in (_COPY_IN, _GATHER):
            self.tape.join(*self.tape.now(), stream=self._number(stream))
        self._forward(_ROOT)

    def enter(self, place: int) -> None:
        """A part's forward begins."""
        if self._group(place) != _ROOT:
            self._forward(self._group(place))

    def leave(self, place: int) -> None:
        """A part's forward has ended."""
        self.whole -= {self._group(place)} - {_ROOT}
        if place == len(self.parts) - 1:
            self._free()

    def turn(self) -> None:
        """The gradient of what the model gave is there."""
        self._next(len(self.parts) - 1)

    def enter_backward(self, place: int) -> None:
        """A part's backward begins."""
        group = self.current = self._group(place)
        if group not in self.whole and group not in self.coming:
            self._gather(group)
        if group in self.coming:
            self._arrive_early(group)
        if group != _ROOT:
            self._next(place)

    def leave_backward(self, place: int, pass_: int) -> None:
        """A part's backward has ended."""
        group = self._group(place)
        if group != _ROOT and self.plan.pp == 1:
            self._leave(group, pass_)

    def there(self, tape: Tape, gradient: Gradient, part: Part, pass_: int) -> None:
        """The gradient of a parameter is there: over the passes it is added up as it is, and made the rank's own once."""
        super().there(tape, gradient._replace(before=(), elements=gradient.times * gradient.elements), part, pass_)
        if pass_ == self.plan.passes - 1:
            self.partial.setdefault(self.current, []).append(gradient.before)

    def end(self, tape: Tape, pass_: int) -> None:
        """A backward has ended."""
        if self.plan.pp == 1:
            self._leave(_ROOT, pass_)
            self._settle()

    def reduce(self) -> None:
        """The stage has had its last backward."""
        if self.plan.pp > 1:
            for group in self._groups():
                self._scatter(group)
            self._settle()

    def _leave(self, group: int, pass_: int) -> None:
        self.whole.discard(group)
        if pass_ == self.plan.passes - 1:
            self._scatter(group)

    def _settle(self) -> None:
        """All gradients are waited for."""
        self.tape.join(*self.reduced)
        self.reduced = ()

    def _number(self, stream: int) -> int:
        return len(_STREAMS) * self.stage + stream

    def _groups(self) -> list[int]:
        """The root, if it has weights of its own, then the layers."""
        return list(dict.fromkeys(sorted(map(self._group, range(len(self.parts))))))

    def _group(self, place: int) -> int:
        return _ROOT if self.parts[place].name in (EMBEDDING, HEAD) else place

    def _of(self, group: int) -> list[Part]:
        return [self.parts[group]] if group != _ROOT else [p for p in self.parts if p.name in (EMBEDDING, HEAD)]

    def _elements(self, group: int) -> int:
        return sum(operator.parameters for part in self._of(group) for operator in part.operators)

    def _forward(self, group: int) -> None:
        if group in self.whole or not self._of(group):
            return
        self._gather(group)
        self._free()
        self._arrive(group)
        self.before = self.tape.now()

    def _free(self) -> None:
        """What was gathered before is in its place, and its buffer may be used again."""
        for stream in (_COPY_IN, _GATHER):
            self.tape.join(*self.before, stream=self._number(stream))
        self.before = ()

    def _next(self, place: int) -> None:
        """Ask for the weights of the layer before."""
        if place and self._group(place - 1) not in self.whole:
            self._gather(self._group(place - 1))

    def _gather(self, group: int) -> None:
        tape, copies, gathers = self.tape, self._number(_COPY_IN), self._number(_GATHER)
        self._copy_in(group, copies)
        tape.join(*tape.now(copies), stream=gathers)
        tape.join(self._ask(group, gathers), stream=gathers)
        self.coming[group] = tape.now(gathers)

    def _copy_in(self, group: int, stream: int = 0) -> None:
        self.tape.compute(self._weights("copied in", 2 * self._elements(group) // self.plan.holders), stream)

    def _ask(self, group: int, stream: int = 0) -> int:
        weight = self.parts[0].stack.precision.weight
        return self.tape.ask(Ask(shard_axis(self.plan), "all_gather", self._elements(group), weight), stream)

    def _arrive(self, group: int) -> None:
        self.tape.join(*self.coming.pop(group))
        self.tape.compute(self._weights("copied out", 2 * self._elements(group)))
        self.whole.add(group)

    def _arrive_early(self, group: int) -> None:
        """In a backward, or ahead of a turn: the buffer is free at once."""
        self._arrive(group)
        self.before = self.tape.now()
        self._free()

    def _weights(self, name: str, elements: int) -> Work:
        part = self.parts[0]
        return part.work(name, Amount(parameters=elements), part.stack.precision.weight)

    def _scatter(self, group: int) -> None:
        self.whole.discard(group)
        tape, elements, gradient = self.tape, self._elements(group), self.parts[0].stack.precision.gradient
        scatters, reduces = self._number(_SCATTER), self._number(_REDUCE)
        for doing in reversed(self.partial.pop(group, [])):  # parameters in the order of the model
            run(tape, doing)
        tape.join(*self.scattered)
        tape.compute(moved(self.parts[0].stack.precision, 2 * elements))
        tape.join(*tape.now(), stream=scatters)
        tape.join(tape.ask(Ask(shard_axis(self.plan), "reduce_scatter", elements, gradient), scatters), stream=scatters)
        self.scattered = self.reduced = tape.now(scatters)
        if self.plan.sharded < self.plan.dp:
            tape.join(*self.scattered, stream=reduces)
            all_reduce = Ask(REPLICATE, "all_reduce", elements // self.plan.holders, gradient)
            tape.join(tape.ask(all_reduce, reduces), stream=reduces)
            self.reduced = tape.now(reduces)


def check_rows(part: Part, plan: Plan) -> None:
    """Refuse parameters whose rows the ranks cannot share evenly.

    Raises:
        InputError: the first such parameter.
    """
    for operator in part.operators:
        if operator.shape:
            rows = operator.shape[1]
        else:
            rows = operator.parameters // part.model.hidden if operator.kind == LOOKUP else operator.parameters
        if operator.parameters and rows % plan.holders:
            what = f"a divisor of the {rows} rows of {operator.name} that a rank has"
            raise must_be("generate", "dp or shard", what, plan.holders, "uneven shards cannot be generated yet")
