"""The passes of one stage on one rank: forward and backward of a microbatch, and the way of its gradients."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from operator import ne
from typing import NamedTuple, TypeGuard

from emu.model.generate.gradients import ExpertGradients, WholeGradients, run
from emu.model.generate.item import Gradient, Item
from emu.model.generate.part import Part, held_last
from emu.model.generate.tape import Tape
from emu.model.memory.layer_memory import LayerMemory
from emu.model.memory.stage_memory import Pass, StageMemory
from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.moment import Moment
from emu.model.pipeline.pipeline_order import BACKWARD, FORWARD, INPUT, WEIGHT
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import stage_layers
from emu.model.routed_rows import RoutedOf, RoutedRows
from emu.model.stack.stack import Stack


@dataclass(frozen=True)
class ModelParts:
    """The embedding, layers and head of a model on the ranks of one plan. Equal ones are made once."""

    model: Model
    plan: Plan
    stack: Stack
    routed: RoutedOf
    at: int = 0  # the place of the ranks in their group of context parallelism
    made: dict[tuple[str, RoutedRows | None], Part] = field(default_factory=dict)

    def of_stage(self, stage: int) -> tuple[tuple[Part, ...], ...]:
        """Return the parts of a stage in each pass, in the order of the model."""
        sizes, kinds = stage_layers(self.plan, self.model), self.model.kinds
        first = sum(sizes[:stage])
        layers = range(first, first + sizes[stage])
        return tuple(
            (
                *([self._part(EMBEDDING)] if stage == 0 else []),
                *(self._part(kinds[layer], self.routed(layer, pass_)) for layer in layers),
                *([self._part(HEAD)] if stage == self.plan.stages - 1 else []),
            )
            for pass_ in range(self.plan.passes)
        )

    def _part(self, name: str, routed: RoutedRows | None = None) -> Part:
        if (name, routed) not in self.made:
            self.made[name, routed] = Part(self.model, self.plan, self.stack, name, routed, self.at)
        return self.made[name, routed]


def memory_of(parts: Iterable[Part]) -> tuple[LayerMemory, ...]:
    """Return the memory of each part."""
    return tuple(part.memory for part in parts)


class StagePasses(NamedTuple):
    """The forwards and backwards of a stage on one rank, written on its tape."""

    tape: Tape
    stage: int
    parts: tuple[tuple[Part, ...], ...]  # by pass
    memory: tuple[StageMemory, ...]  # by pass
    gradients: WholeGradients
    experts: ExpertGradients

    def forward(self, pass_: int) -> None:
        """Run the forward of one microbatch."""
        self._copy_or_write(FORWARD, pass_, self.once_forward)

    def backward(self, pass_: int) -> None:
        """Run the backward of one microbatch: gradients are made first, then added up, and at last reduced."""
        self._copy_or_write(BACKWARD, pass_, self.once_backward)

    def backward_input(self, pass_: int) -> None:
        """Make the input gradients of one microbatch. The first stage makes none: tokens have no gradients."""
        if self.stage:
            self._copy_or_write(INPUT, pass_, self._backward_input)

    def backward_weight(self, pass_: int) -> None:
        """Run what is left of the backward of one microbatch."""
        if self.stage:
            self._copy_or_write(WEIGHT, pass_, self._backward_weight)
        else:
            self.backward(pass_)

    def _copy_or_write(self, what: str, pass_: int, write: Callable[[int], None]) -> None:
        """Write a pass, or copy an equal one; the first and the last backward handle their gradients as no other does."""
        if what in (FORWARD, INPUT) or 0 < pass_ < self.last or self.tape.silent:
            self.tape.again(self._key(what, pass_), partial(write, pass_), self.gradients)
        else:
            write(pass_)

    @property
    def last(self) -> int:
        """The last pass of the step."""
        return len(self.parts) - 1

    def _key(self, what: str, pass_: int) -> Hashable:
        """Return a key, equal for passes that do the same from equal states; events name their stage, memory does not."""
        of = self._pass(pass_) if what in (BACKWARD, WEIGHT) else None
        if self.tape.silent:
            return what, of, self.memory[pass_].key
        return self.stage, what, of, tuple(part.routed for part in self.parts[pass_])

    def _pass(self, pass_: int) -> Pass:
        return Pass(pass_ == 0, pass_ == self.last)

    def _backward_input(self, pass_: int) -> None:
        """Write the input gradients of one microbatch; those of weights are left for later."""
        for place, part in reversed(list(enumerate(self.parts[pass_] if not self.tape.silent else ()))):
            self._run(part.backward_input, place, pass_)
        self.memory[pass_].backward_input(self.tape.memory)

    def _backward_weight(self, pass_: int) -> None:
        """Make the gradient of each weight by itself, as the model has them; what is not kept is recomputed for each."""
        for place, part in enumerate(self.parts[pass_] if not self.tape.silent else ()):
            for items in reversed(part.backward_weights):
                self._run(part.again, place, pass_)
                self._run(items, place, pass_)
        self.memory[pass_].backward_weight(self.tape.memory, self._pass(pass_))
        self.gradients.end(self.tape, pass_)

    def _run(self, items: Iterable[Item], place: int, pass_: int) -> None:
        """Write the items of a part one after another."""
        for item in items:
            if isinstance(item, Gradient):
                self._there(item, place, pass_)
                continue
            run(self.tape, (item,))
            if isinstance(item, Moment):
                self.gradients.reach(item, place, pass_)

    def _there(self, gradient: Gradient, place: int, pass_: int) -> None:
        """Hand on the gradient of a parameter, which is there."""
        part = self.parts[pass_][place]
        if gradient.travels:
            self.experts.there(gradient, part, place, pass_)
        else:
            self.gradients.there(self.tape, gradient, part, pass_)

    def _walk(self, moments: Iterable[Moment], items: Iterable[Item], place: int, pass_: int) -> None:
        """Run a part in its memory and its events together: at each moment both have come equally far."""
        left = iter(items)
        for moment in moments:
            self._run(takewhile(partial(ne, moment), left), place, pass_)
            self.gradients.reach(moment, place, pass_)
        self._run(left, place, pass_)

    def once_forward(self, pass_: int) -> None:
        """Write the forward of one microbatch down in full, though an equal one came before."""
        memory = self.memory[pass_]
        self.gradients.begin()
        for place, part in enumerate(self.parts[pass_]):
            self.gradients.enter(place)
            items = () if self.tape.silent else held_last(part.forward)  # the next part reads what its last request gives
            self._walk(memory.forward(place, self.tape.memory), items, place, pass_)
            self.gradients.leave(place)
        memory.end_forward(self.tape.memory)

    def once_backward(self, pass_: int) -> None:
        """Write the backward of one microbatch down in full; what autograd comes back to late comes last."""
        late: list[tuple[int, Gradient]] = []
        memory = self.memory[pass_].backward(self.tape.memory, self._pass(pass_))
        for place, part in reversed(list(enumerate(self.parts[pass_]))):
            self.gradients.enter_backward(place)
            items = () if self.tape.silent else part.backward
            late += [(place, item) for item in items if _is_late(item)]
            self._walk(memory.layer(place), (item for item in items if not _is_late(item)), place, pass_)
            self.gradients.leave_backward(place, pass_)
        for place, item in late:
            self._there(item, place, pass_)
        memory.end()
        self.gradients.end(self.tape, pass_)


def _is_late(item: Item) -> TypeGuard[Gradient]:
    """Return whether autograd comes to a gradient only after all that computes."""
    return isinstance(item, Gradient) and item.late and not item.travels
