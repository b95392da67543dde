"""The passes of one stage on one rank: forward and backward of a microbatch, and where its gradients go."""

from collections.abc import Hashable, Iterable
from functools import partial
from typing import NamedTuple

from emu.model.generate.expert_gradients import ExpertGradients
from emu.model.generate.gradients import Whole, run
from emu.model.generate.item import ENTERS, Alone, Ask, Gradient, Inner, OfWeight, Step, Turn, Work
from emu.model.generate.part import Part
from emu.model.generate.tape import Tape
from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.pipeline.turn import BACKWARD, FORWARD, INPUT, WEIGHT
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import stage_layers
from emu.model.routed import Routed, RoutedOf
from emu.model.stack.stack import Stack


def stage_parts(
    model: Model, plan: Plan, stack: Stack, stage: int, routed: RoutedOf, at: int = 0
) -> tuple[tuple[Part, ...], ...]:
    """By pass, the parts of the model that a stage has, in the order of the model; `at` is the rank's place in cp."""
    sizes = stage_layers(plan, model)
    first = sum(sizes[:stage])
    layers = range(first, first + sizes[stage])
    made: dict[tuple[str, Routed | None], Part] = {}

    def part(name: str, rows: Routed | None = None) -> Part:
        return made.setdefault((name, rows), Part(model, plan, stack, name, rows, at))

    return tuple(
        (
            *([part(EMBEDDING)] if stage == 0 else []),
            *(part(model.kinds[layer], routed(layer, pass_)) for layer in layers),
            *([part(HEAD)] if stage == plan.stages - 1 else []),
        )
        for pass_ in range(plan.passes)
    )


def elements_of(parts: Iterable[Part]) -> int:
    """Parameters of a rank that has these."""
    return sum(operator.parameters for part in parts for operator in part.operators)


def travelling_elements(parts: Iterable[Part]) -> int:
    """Of them those of experts that tokens travel to."""
    return sum(operator.parameters for part in parts for operator in part.operators if part.travels(operator))


class Passes(NamedTuple):
    """Forward and backward of a stage."""

    tape: Tape
    stage: int
    parts: tuple[tuple[Part, ...], ...]  # by pass
    gradients: Whole
    experts: ExpertGradients

    def forward(self, pass_: int) -> None:
        """Of one microbatch."""
        self.tape.again((self.stage, FORWARD, self._routed(pass_)), partial(self.once_forward, pass_), self.gradients)

    def backward(self, pass_: int) -> None:
        """Of one microbatch: gradients are there first, then added up, and at last reduced."""
        if 0 < pass_ < self.last:
            self.tape.again((self.stage, BACKWARD, self._routed(pass_)), partial(self.once_backward, pass_), self.gradients)
        else:
            self.once_backward(pass_)

    def backward_input(self, pass_: int) -> None:
        """Of one microbatch: gradients of what came in. Of tokens there are none."""
        if self.stage:
            self.tape.again((self.stage, INPUT, self._routed(pass_)), partial(self._backward_input, pass_), self.gradients)

    def backward_weight(self, pass_: int) -> None:
        """Of one microbatch: what is left of its backward."""
        if not self.stage:
            self.backward(pass_)
        elif 0 < pass_ < self.last:
            self.tape.again((self.stage, WEIGHT, self._routed(pass_)), partial(self._backward_weight, pass_), self.gradients)
        else:
            self._backward_weight(pass_)

    @property
    def last(self) -> int:
        """The last pass of the step."""
        return len(self.parts) - 1

    def _routed(self, pass_: int) -> Hashable:
        return tuple(part.routed for part in self.parts[pass_])

    def _backward_input(self, pass_: int) -> None:
        for place, part in reversed(list(enumerate(self.parts[pass_]))):
            items = (item for item in part.backward if not isinstance(item, OfWeight | Alone | Gradient | Turn))
            self._run(items, place, pass_)

    def _backward_weight(self, pass_: int) -> None:
        """Each weight by itself, as the model has them; what is not kept is worked out again for each."""
        for place, part in enumerate(self.parts[pass_]):
            for items in reversed(_by_weight(part)):
                self._run(part.again, place, pass_)
                for item in items:
                    if isinstance(item, Gradient) and item.travels:
                        self.experts.there(item, part, place, pass_)
                    elif isinstance(item, Gradient):
                        self.gradients.there(self.tape, item, part, pass_)
                    else:
                        run(self.tape, (item,))

    def _run(self, items: Iterable[Step], place: int, pass_: int) -> None:
        """One thing of a part after another."""
        for item in items:
            if isinstance(item, Inner):
                self.gradients.inner(item.moment, place, pass_)
            else:
                run(self.tape, (item,))

    def once_forward(self, pass_: int) -> None:
        """The same, told in full though an equal one came before."""
        self.gradients.begin()
        for place, part in enumerate(self.parts[pass_]):
            self.gradients.enter(place)
            # What a part ends with is waited for where the next one reads it.
            last = part.forward[-1]
            items = *part.forward[:-1], last._replace(held=ENTERS) if isinstance(last, Ask) else last
            self._run(items, place, pass_)
            self.gradients.leave(place)

    def once_backward(self, pass_: int) -> None:
        """The same, told in full; what autograd comes back to late last."""
        late: list[tuple[Part, Gradient]] = []
        for place, part in reversed(list(enumerate(self.parts[pass_]))):
            self.gradients.enter_backward(place)
            for item in part.backward:
                if isinstance(item, Turn):
                    self.gradients.turn()
                elif isinstance(item, Gradient) and item.travels:
                    self.experts.there(item, part, place, pass_)
                elif isinstance(item, Gradient) and item.late:
                    late.append((part, item))
                elif isinstance(item, Gradient):
                    self.gradients.there(self.tape, item, part, pass_)
                elif not isinstance(item, Alone):
                    self._run((item,), place, pass_)
            self.gradients.leave_backward(place, pass_)
        for part, item in late:
            self.gradients.there(self.tape, item, part, pass_)
        self.gradients.end(self.tape, pass_)


def _by_weight(part: Part) -> list[list[Work | Gradient]]:
    """Of a backward, what belongs to each weight, and to the bias that comes with it."""
    found: dict[str, list[Work | Gradient]] = {}
    works: list[Work] = []
    for item in part.backward:
        if isinstance(item, OfWeight | Alone):
            works.append(item)
        elif isinstance(item, Gradient):
            found.setdefault(item.name.removesuffix(".bias"), []).extend([*works, item])
            works = []
    return list(found.values())
