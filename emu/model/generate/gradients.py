"""What becomes of the gradients of a rank: added up over its passes, and reduced as the plan's data parallelism does."""

from collections.abc import Iterable
from functools import cached_property

from emu.dtypes import item_bytes
from emu.model.generate.item import Ask, Doing, Gradient, Wait, Work
from emu.model.generate.part import Part
from emu.model.generate.tape import Keeper, Tape
from emu.model.memory.rank import BUCKET
from emu.model.moment import Moment
from emu.model.stack.stack import Precision

_FIRST_BUCKET = 1 << 20  # bytes, as BUCKET


def run(tape: Tape, items: Iterable[Doing]) -> None:
    """Do one thing after another."""
    for item in items:
        if isinstance(item, Work):
            tape.compute(item)
        elif isinstance(item, Wait):
            tape.join(*tape.held.pop(item.what, ()))
        elif item.held:
            tape.held[item.held] = (*tape.held.get(item.held, ()), tape.ask(item))
        else:
            tape.join(tape.ask(item))


def moved(precision: Precision, elements: int) -> Work:
    """So many elements of gradients read or written."""
    same = elements if precision.gradient == precision.activation else 0
    return Work("gradients", 0, elements * item_bytes(precision.gradient), same)


def cast(name: str, elements: int, read: str, written: str, activation: str, filled: int = 0) -> Work:
    """Return the copy of so many elements of one dtype to as many of another, or to as many as are `filled` up."""
    sides = (elements, read), (filled or elements, written)
    return Work(name, 0, sum(n * item_bytes(dtype) for n, dtype in sides), sum(n for n, dtype in sides if dtype == activation))


class Whole(Keeper):
    """Weights and gradients whole on each rank; gradients are added up over the passes, and no more.

    Those of other kinds do more at some of these moments, and may know events of the tape meanwhile.
    """

    def gather(self) -> None:
        """Turns of the stage come soon."""

    def arrive(self) -> None:
        """One is there."""

    def drop(self) -> None:
        """None comes soon."""

    def reduce(self) -> None:
        """The stage of a pipeline has had its last backward."""

    def begin(self) -> None:
        """A forward begins."""

    def enter(self, place: int) -> None:
        """The forward of a part begins, the first in the model at place 0."""

    def leave(self, place: int) -> None:
        """It has ended."""

    def enter_backward(self, place: int) -> None:
        """The backward of a part begins."""

    def leave_backward(self, place: int, pass_: int) -> None:
        """It has ended."""

    def reach(self, moment: Moment, place: int, pass_: int) -> None:
        """Take notice that a block of experts in a part begins or ends, or that the loss's gradient is there."""

    def there(self, tape: Tape, gradient: Gradient, part: Part, pass_: int) -> None:
        """The gradient of a parameter is there."""
        run(tape, gradient.before)
        if pass_:
            tape.compute(moved(part.stack.precision, 3 * gradient.elements))

    def end(self, tape: Tape, pass_: int) -> None:
        """A backward has ended."""


class Buckets(Whole):
    """Averaged by DDP, bucket by bucket, in the order in which the gradients of the first step came.

    A bucket ends with the gradient that makes it as large as its limit; it is reduced once all its gradients are there. What
    autograd waits for is waited for at the end of the backward. Source: PyTorch, torch/csrc/distributed/c10d/reducer.cpp.
    """

    def __init__(self, axis: str, parts: tuple[Part, ...]) -> None:
        self.axis, self.last, self.parts = axis, parts[0].plan.passes - 1, parts
        self.filled, self.buckets, self.total = 0, 0, 0
        self.requests: list[int] = []
        self.part: Part | None = None

    @cached_property
    def elements(self) -> int:
        """Elements of all gradients that are averaged; those of experts that tokens travel to are not among them."""
        return sum(o.parameters for part in self.parts for o in part.operators if not part.travels(o))

    def there(self, tape: Tape, gradient: Gradient, part: Part, pass_: int) -> None:
        """One of them is there."""
        super().there(tape, gradient, part, pass_)
        if pass_ < self.last:
            return
        tape.compute(moved(part.stack.precision, 2 * gradient.elements))  # into its bucket, divided by the number of ranks
        self.filled, self.part = self.filled + gradient.elements, part
        limit = BUCKET if self.buckets else _FIRST_BUCKET
        full = self.filled * item_bytes(part.stack.precision.gradient) >= limit
        if full or self.total + self.filled == self.elements:
            self._reduce(tape, part)

    def end(self, tape: Tape, pass_: int) -> None:
        """A backward has ended: what was reduced is waited for, and copied out."""
        if pass_ < self.last or self.part is None:
            return
        tape.join(*self.requests)
        tape.compute(moved(self.part.stack.precision, 2 * self.total))

    def _reduce(self, tape: Tape, part: Part) -> None:
        self.requests.append(tape.ask(Ask(self.axis, "all_reduce", self.filled, part.stack.precision.gradient)))
        self.total, self.buckets, self.filled = self.total + self.filled, self.buckets + 1, 0


class Averaged(Whole):
    """Averaged bucket by bucket when the stage has had its last backward, where autograd's hooks do not see backwards in two.

    Each is made the rank's own part first. Source: emu.model.parallel.data_parallel.average.
    """

    def __init__(self, tape: Tape, axis: str, ranks: int, parts: tuple[Part, ...]) -> None:
        self.tape, self.axis, self.ranks, self.parts = tape, axis, ranks, parts

    @cached_property
    def gradients(self) -> list[tuple[Gradient, Part]]:
        """The gradients that are averaged, each with its part, as the model has them."""
        of_parts = ((item, part) for part in self.parts for item in reversed(part.backward))
        found = ((item, part) for item, part in of_parts if isinstance(item, Gradient))
        return [(item, part) for item, part in found if not (item.travels or item.shared)]

    def there(self, tape: Tape, gradient: Gradient, part: Part, pass_: int) -> None:
        """One of them is there."""
        super().there(tape, gradient._replace(before=(), elements=gradient.times * gradient.elements), part, pass_)

    def end(self, tape: Tape, pass_: int) -> None:
        """A backward has ended; after the last one gradients are added up and put together in buckets, to be averaged."""
        layers = [part.memory for part in self.parts]
        if pass_ < layers[0].plan.passes - 1:
            return
        for layer, operator in ((each, o) for each in layers for o in each.operators if each.partial(o)):
            tape.memory.change(gradients=layer.made_bytes(operator), activations=-layer.waits(operator))
        averaged = sum(layer.averaged for layer in layers) if self.ranks > 1 else 0
        tape.memory.rise(activations=min(averaged, BUCKET))

    def reduce(self) -> None:
        """The stage has had its last backward."""
        if self.tape.silent:
            return
        for gradient, _ in self.gradients:
            run(self.tape, gradient.before)
        for elements, part in self._buckets() if self.ranks > 1 else ():
            self.tape.compute(moved(part.stack.precision, 4 * elements))  # put together, divided
            run(self.tape, (Ask(self.axis, "all_reduce", elements, part.stack.precision.gradient),))
            self.tape.compute(moved(part.stack.precision, 2 * elements))

    def _buckets(self) -> Iterable[tuple[int, Part]]:
        filled = 0
        for number, (gradient, part) in enumerate(reversed(self.gradients), 1):
            filled += gradient.elements
            if filled * item_bytes(part.stack.precision.gradient) >= BUCKET or number == len(self.gradients):
                yield filled, part
                filled = 0
