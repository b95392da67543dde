"""The gradients of a rank: added up over its passes, and reduced as the plan's data parallelism does.

Those of experts that tokens travel to are added up over the ranks that have copies of them (`edp`), block by block, as
`emu.model.parallel.expert_parallel.ExpertGradientSum` does, which runs them.
"""

from collections.abc import Hashable, Iterable
from functools import cached_property
from typing import Any

from emu.dtypes import item_bytes
from emu.model.generate.item import Action, Ask, Computation, Gradient, moving
from emu.model.generate.part import Part
from emu.model.generate.tape import Tape
from emu.model.memory.step_memory import BUCKET, Moment
from emu.model.plan.plan import Plan
from emu.model.stack.stack import Precision

_FIRST_BUCKET = 1 << 20  # bytes, as BUCKET


def run(tape: Tape, items: Iterable[Action]) -> None:
    """Add computations and requests to a tape, one after another."""
    for item in items:
        if isinstance(item, Computation):
            tape.compute(item)
        elif isinstance(item, Moment):
            tape.join(*tape.held.pop(item, ()))
        elif item.held:
            tape.held[item.held] = (*tape.held.get(item.held, ()), tape.ask(item))
        else:
            tape.join(tape.ask(item))


def gradient_work(precision: Precision, elements: int) -> Computation:
    """Return the work of reading or writing a number of elements of gradients."""
    return moving("gradients", precision.activation, (elements, precision.gradient))


class WholeGradients:
    """Weights and gradients whole on each rank; gradients are added up over the passes, and not reduced.

    Other kinds do more at some of these moments, and may hold events of the tape in between.
    """

    def state(self, at: int) -> Hashable:
        """Return the state with events counted from `at`; here it is empty."""
        return ()

    def restore(self, state: Any, at: int) -> None:
        """Set the state from one with events counted from `at`."""

    def gather(self) -> None:
        """Take notice that turns of the stage come soon."""

    def arrive(self) -> None:
        """Take notice that a turn of the stage is there."""

    def drop(self) -> None:
        """Take notice that no turn of the stage comes soon."""

    def reduce(self) -> None:
        """Take notice that the stage of a pipeline has had its last backward."""

    def begin(self) -> None:
        """Take notice that a forward begins."""

    def enter(self, place: int) -> None:
        """Take notice that the forward of a part begins; the part at place 0 is the first of the stage."""

    def leave(self, place: int) -> None:
        """Take notice that the forward of a part has ended."""

    def enter_backward(self, place: int) -> None:
        """Take notice that the backward of a part begins."""

    def leave_backward(self, place: int, pass_: int) -> None:
        """Take notice that the backward of a part has ended."""

    def reach(self, moment: Moment, place: int, pass_: int) -> None:
        """Take notice that a block of experts in a part begins or ends, or that the loss's gradient is there."""

    def there(self, tape: Tape, gradient: Gradient, part: Part, pass_: int) -> None:
        """Add the gradient of a parameter to those of the passes before."""
        run(tape, gradient.before)
        if pass_:
            tape.compute(gradient_work(part.stack.precision, 3 * gradient.elements))

    def end(self, tape: Tape, pass_: int) -> None:
        """Take notice that a backward has ended."""


class GradientBuckets(WholeGradients):
    """Gradients that DDP averages bucket by bucket, in the order in which the gradients of the first step came.

    A bucket ends with the gradient that makes it as large as its limit; it is reduced once all its gradients are there. All
    requests are awaited at the end of the backward. Source: PyTorch, torch/csrc/distributed/c10d/reducer.cpp.
    """

    def __init__(self, axis: str, parts: tuple[Part, ...]) -> None:
        self.axis, self.last, self.parts = axis, parts[0].plan.passes - 1, parts
        self.filled, self.buckets, self.total = 0, 0, 0
        self.requests: list[int] = []
        self.part: Part | None = None

    @cached_property
    def elements(self) -> int:
        """The elements of all gradients that are averaged, without those of experts that tokens travel to."""
        return sum(o.parameters for part in self.parts for o in part.operators if not part.travels(o))

    def there(self, tape: Tape, gradient: Gradient, part: Part, pass_: int) -> None:
        """Add a gradient to its bucket; reduce the bucket once it is full."""
        super().there(tape, gradient, part, pass_)
        if pass_ < self.last:
            return
        # Into its bucket, divided by the number of ranks.
        tape.compute(gradient_work(part.stack.precision, 2 * gradient.elements))
        self.filled, self.part = self.filled + gradient.elements, part
        limit = BUCKET if self.buckets else _FIRST_BUCKET
        full = self.filled * item_bytes(part.stack.precision.gradient) >= limit
        if full or self.total + self.filled == self.elements:
            self._reduce(tape, part)

    def end(self, tape: Tape, pass_: int) -> None:
        """Wait, at the end of the last backward, for the reduced gradients, and copy them out."""
        if pass_ < self.last or self.part is None:
            return
        tape.join(*self.requests)
        tape.compute(gradient_work(self.part.stack.precision, 2 * self.total))

    def _reduce(self, tape: Tape, part: Part) -> None:
        self.requests.append(tape.ask(Ask(self.axis, "all_reduce", self.filled, part.stack.precision.gradient)))
        self.total, self.buckets, self.filled = self.total + self.filled, self.buckets + 1, 0


class AveragedGradients(WholeGradients):
    """Gradients averaged bucket by bucket after the last backward of the stage, because autograd's hooks miss split backwards.

    Each gradient is first cut to the rank's own part. Source: emu.model.parallel.data_parallel.average.
    """

    def __init__(self, tape: Tape, axis: str, ranks: int, parts: tuple[Part, ...]) -> None:
        self.tape, self.axis, self.ranks, self.parts = tape, axis, ranks, parts

    @cached_property
    def gradients(self) -> list[tuple[Gradient, Part]]:
        """The gradients that are averaged, each with its part, in the order of the model."""
        of_parts = ((item, part) for part in self.parts for item in reversed(part.backward))
        found = ((item, part) for item, part in of_parts if isinstance(item, Gradient))
        return [(item, part) for item, part in found if not (item.travels or item.shared)]

    def there(self, tape: Tape, gradient: Gradient, part: Part, pass_: int) -> None:
        """Add a gradient, as it is, to those of the passes before."""
        super().there(tape, gradient._replace(before=(), elements=gradient.times * gradient.elements), part, pass_)

    def end(self, tape: Tape, pass_: int) -> None:
        """Count the memory of the last backward's end: gradients are summed and put together in buckets, to be averaged."""
        layers = [part.memory for part in self.parts]
        if pass_ < layers[0].plan.passes - 1:
            return
        for layer, operator in ((each, o) for each in layers for o in each.operators if each.partial(o)):
            tape.memory.change(gradients=layer.made_bytes(operator), activations=-layer.waits(operator))
        averaged = sum(layer.averaged for layer in layers) if self.ranks > 1 else 0
        tape.memory.rise(activations=min(averaged, BUCKET))

    def reduce(self) -> None:
        """Average all gradients, bucket by bucket."""
        if self.tape.silent:
            return
        for gradient, _ in self.gradients:
            run(self.tape, gradient.before)
        for elements, part in self._buckets() if self.ranks > 1 else ():
            self.tape.compute(gradient_work(part.stack.precision, 4 * elements))  # put together, divided
            run(self.tape, (Ask(self.axis, "all_reduce", elements, part.stack.precision.gradient),))
            self.tape.compute(gradient_work(part.stack.precision, 2 * elements))

    def _buckets(self) -> Iterable[tuple[int, Part]]:
        """Yield the elements of each bucket, and a part for its precision."""
        filled = 0
        for number, (gradient, part) in enumerate(reversed(self.gradients), 1):
            filled += gradient.elements
            if filled * item_bytes(part.stack.precision.gradient) >= BUCKET or number == len(self.gradients):
                yield filled, part
                filled = 0


class ExpertGradients:
    """The expert gradients of one stage on one rank.

    Autograd gives no notice of gradients of a split backward: they are reduced at the end.
    """

    def __init__(self, tape: Tape, plan: Plan, stage: int) -> None:
        self.tape, self.last, self.copies = tape, plan.passes - 1, plan.sizes["edp"]
        self.noticed = stage == 0 or not plan.splits  # of tokens no gradient is wanted, so that theirs is one backward
        self.came: dict[int, int] = {}  # by place, the elements that the last pass has given
        self.blocks: dict[int, tuple[Part, int]] = {}  # by place, those of which all have come, with their elements
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
            self.blocks[place] = part, whole
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
