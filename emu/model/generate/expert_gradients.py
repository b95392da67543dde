"""Gradients of experts that tokens travel to: added up over the ranks that have copies of them (`edp`), block by block.

Source: `emu.model.parallel.experts.Reduced`, which runs them.
"""

from typing import NamedTuple

from emu.model.generate.gradients import moved
from emu.model.generate.item import Ask, Gradient
from emu.model.generate.part import Part
from emu.model.generate.tape import Tape
from emu.model.plan import Plan


class _Block(NamedTuple):
    part: Part
    elements: int
    request: int | None  # that adds them up; None: no other rank has a copy


class ExpertGradients:
    """Of one stage on one rank."""

    def __init__(self, tape: Tape, plan: Plan) -> None:
        self.tape, self.last, self.copies = tape, plan.passes - 1, plan.sizes["edp"]
        self.came: dict[int, int] = {}  # by place, the elements that the last pass has given
        self.asked: dict[int, _Block] = {}

    def there(self, gradient: Gradient, part: Part, place: int, pass_: int) -> None:
        """One of them is there; those of a block are added up over the ranks once all are."""
        if pass_:
            self.tape.compute(moved(part.stack.precision, 3 * gradient.elements))
        if pass_ < self.last:
            return
        self.came[place] = self.came.get(place, 0) + gradient.elements
        whole = sum(operator.parameters for operator in part.operators if part.travels(operator))
        if self.came[place] == whole:
            self.asked[place] = _Block(part, whole, self._ask(part, whole))

    def _ask(self, part: Part, elements: int) -> int | None:
        self.tape.compute(moved(part.stack.precision, 4 * elements))  # put together, then divided
        if self.copies == 1:
            return None
        return self.tape.ask(Ask("edp", "all_reduce", elements, part.stack.precision.gradient))

    def settle(self) -> None:
        """The backward passes have ended: what was reduced is waited for, and copied out."""
        for _, block in sorted(self.asked.items()):
            self.tape.join(*(() if block.request is None else (block.request,)))
            self.tape.compute(moved(block.part.stack.precision, 2 * block.elements))
