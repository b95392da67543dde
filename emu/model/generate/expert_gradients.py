"""Gradients of experts that tokens travel to: added up over the ranks that have copies of them (`edp`), block by block.

Source: `emu.model.parallel.expert_parallel.ExpertGradientSum`, which runs them.
"""

from typing import NamedTuple

from emu.model.generate.gradients import gradient_work
from emu.model.generate.item import Ask, Gradient
from emu.model.generate.part import Part
from emu.model.generate.tape import Tape
from emu.model.plan.plan import Plan


class _Block(NamedTuple):
    """A block of experts with the elements of its gradients."""

    part: Part
    elements: int


class ExpertGradients:
    """The expert gradients of one stage on one rank.

    Autograd gives no notice of gradients of a split backward: they are reduced at the end.
    """

    def __init__(self, tape: Tape, plan: Plan, stage: int) -> None:
        self.tape, self.last, self.copies = tape, plan.passes - 1, plan.sizes["edp"]
        self.noticed = stage == 0 or not plan.splits  # of tokens no gradient is wanted, so that theirs is one backward
        self.came: dict[int, int] = {}  # by place, the elements that the last pass has given
        self.blocks: dict[int, _Block] = {}  # by place, those of which all have come
        self.asked: dict[int, tuple[int, ...]] = {}  # by place, the request that adds them up, if another rank has a copy

    def there(self, gradient: Gradient, part: Part, place: int, pass_: int) -> None:
        """Record that a gradient is there; once all of a block are, they are added up over the ranks."""
        if pass_:
            self.tape.compute(gradient_work(part.stack.precision, 3 * gradient.elements))
        if pass_ < self.last:
            return
        self.came[place] = self.came.get(place, 0) + gradient.elements
        whole = sum(operator.parameters for operator in part.operators if part.travels(operator))
        if self.came[place] == whole:
            self.blocks[place] = _Block(part, whole)
            if self.noticed:
                self._ask(place)

    def _ask(self, place: int) -> None:
        """Request the sum of a block's gradients over the ranks that have copies."""
        part, elements = self.blocks[place]
        self.tape.compute(gradient_work(part.stack.precision, 4 * elements))  # put together, then divided
        ask = Ask("edp", "all_reduce", elements, part.stack.precision.gradient)
        self.asked[place] = (self.tape.ask(ask),) if self.copies > 1 else ()

    def settle(self) -> None:
        """Wait, after the last backward, for the reduced gradients, and copy them out."""
        for place, (part, elements) in sorted(self.blocks.items()):
            if not self.noticed:
                self._ask(place)
            self.tape.join(*self.asked[place])
            self.tape.compute(gradient_work(part.stack.precision, 2 * elements))
