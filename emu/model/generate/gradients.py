"""The handling of a rank's gradients: they are accumulated over the passes of a step, then reduced over data parallelism.

Gradients of experts to which token rows are sent are reduced over the ranks that have copies of these experts (`edp`), block by
block. `emu.model.parallel.expert_parallel.ExpertGradientSum` does this when the step is executed.
"""

from collections.abc import Hashable, Iterable
from functools import cached_property
from typing import Any

from emu.dtypes import item_bytes
from emu.model.generate.item import Action, Ask, Computation, Gradient, moving
from emu.model.generate.part import Part
from emu.model.generate.tape import Tape
from emu.model.memory.pass_memory import Moment
from emu.model.memory.step_memory import BUCKET
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
    """Return the computation that reads or writes a number of elements of gradients."""
    return moving("gradients", precision.activation, (elements, precision.gradient))


class WholeGradients:
    """The handling of a stage whose weights and gradients are whole on each rank, and are not reduced.

    Its methods are called as the passes of the stage go on. Most of them do nothing here; the handlings of other kinds of data
    parallelism override them, and may keep events of the tape from one call to the next.
    """

    def state(self, at: int) -> Hashable:
        """Return what a handling must remember between two passes, with events counted from event `at`; here nothing."""
        return ()

    def restore(self, state: Any, at: int) -> None:
        """Set the state that the method `state` has returned, with events counted from event `at`."""

    def gather(self) -> None:
        """Do nothing before the next turns of the stage; subclasses gather sharded weights for them here."""

    def arrive(self) -> None:
        """Do nothing as a turn of the stage begins; subclasses wait for gathered weights here."""

    def drop(self) -> None:
        """Do nothing when no turn of the stage follows soon; subclasses free gathered weights here."""

    def reduce(self) -> None:
        """Do nothing after the last backward of a pipeline's stage; subclasses reduce gradients here."""

    def begin(self) -> None:
        """Do nothing as the forward of a pass begins; subclasses gather weights here."""

    def enter(self, place: int) -> None:
        """Do nothing as the forward of the part with number `place` begins; subclasses gather its weights here."""

    def leave(self, place: int) -> None:
        """Do nothing as the forward of the part with number `place` ends; subclasses free its weights here."""

    def enter_backward(self, place: int) -> None:
        """Do nothing as the backward of the part with number `place` begins; subclasses gather its weights here."""

    def leave_backward(self, place: int, pass_: int) -> None:
        """Do nothing as the backward of the part with number `place` ends; subclasses reduce its gradients here."""

    def reach(self, moment: Moment, place: int, pass_: int) -> None:
        """Do nothing at a moment within a part: a block of experts begins or ends, or the loss has its gradient."""

    def handle(self, tape: Tape, gradient: Gradient, part: Part, pass_: int) -> None:
        """Add the computed gradient of a parameter to its gradients of the passes before."""
        run(tape, gradient.before)
        if pass_:
            tape.compute(gradient_work(part.stack.precision, 3 * gradient.elements))

    def end(self, tape: Tape, pass_: int) -> None:
        """Do nothing after the backward of pass `pass_` (from 0); subclasses end the reduction of gradients here."""


class GradientBuckets(WholeGradients):
    """The handling of gradients by DDP, which averages them in buckets, in the order in which the first backward computes them.

    A bucket ends with the gradient that brings it to its limit. It is reduced once all its gradients are computed. All requests
    are awaited at the end of the last backward. Source: PyTorch, torch/csrc/distributed/c10d/reducer.cpp.
    """

    def __init__(self, axis: str, parts: tuple[Part, ...]) -> None:
        self.axis, self.last, self.parts = axis, parts[0].plan.passes - 1, parts
        self.filled, self.buckets, self.total = 0, 0, 0
        self.requests: list[int] = []
        self.part: Part | None = None

    @cached_property
    def elements(self) -> int:
        """The elements of all gradients that DDP averages: all except those of experts to which token rows are sent."""
        return sum(o.parameters for part in self.parts for o in part.operators if not part.travels(o))

    def handle(self, tape: Tape, gradient: Gradient, part: Part, pass_: int) -> None:
        """Add a gradient to the gradient that earlier passes have summed.

        In the last pass, also add it to its bucket, and reduce a full bucket.
        """
        super().handle(tape, gradient, part, pass_)
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
        """After the last backward, wait for the reduced gradients and copy them out; after others, do nothing.

        Args:
            tape: The tape of the rank.
            pass_: The number of the pass whose backward has ended, from 0 on.
        """
        if self.part is None:  # only gradients of the last pass are put into buckets
            return
        tape.join(*self.requests)
        tape.compute(gradient_work(self.part.stack.precision, 2 * self.total))

    def _reduce(self, tape: Tape, part: Part) -> None:
        self.requests.append(tape.ask(Ask(self.axis, "all_reduce", self.filled, part.stack.precision.gradient)))
        self.total, self.buckets, self.filled = self.total + self.filled, self.buckets + 1, 0


class AveragedGradients(WholeGradients):
    """The handling of gradients that are averaged in buckets after the last backward of a stage.

    It is used where backwards are split, because autograd's hooks are not called there. Each gradient is first cut to the
    rank's own part. Source: emu.model.parallel.data_parallel.average.
    """

    def __init__(self, tape: Tape, axis: str, ranks: int, parts: tuple[Part, ...]) -> None:
        self.tape, self.axis, self.ranks, self.parts = tape, axis, ranks, parts

    @cached_property
    def gradients(self) -> list[tuple[Gradient, Part]]:
        """The gradients that are averaged over data parallelism, each with the part of the model that it belongs to.

        They are in the order of the model. The gradients of experts that have token rows sent to them, and of weights that two
        stages share, are not among them.
        """
        of_parts = ((item, part) for part in self.parts for item in reversed(part.backward))
        found = ((item, part) for item, part in of_parts if isinstance(item, Gradient))
        return [(item, part) for item, part in found if not (item.travels or item.shared)]

    def handle(self, tape: Tape, gradient: Gradient, part: Part, pass_: int) -> None:
        """Add a gradient to the sum of earlier passes, before it is cut to the share of this rank."""
        super().handle(tape, gradient._replace(before=(), elements=gradient.times * gradient.elements), part, pass_)

    def end(self, tape: Tape, pass_: int) -> None:
        """Count the memory at the end of the last backward, where gradients are summed and copied into buckets."""
        layers = [part.memory for part in self.parts]
        if pass_ < layers[0].plan.passes - 1:
            return
        for layer, operator in ((each, o) for each in layers for o in each.operators if each.partial(o)):
            tape.ledger.change(gradients=layer.made_bytes(operator), activations=-layer.waits(operator))
        averaged = sum(layer.averaged for layer in layers) if self.ranks > 1 else 0
        tape.ledger.rise(activations=min(averaged, BUCKET))

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
        """Yield the number of elements of each bucket, and a part of the model in it, whose precision the bucket has.

        Buckets are filled from the end of the model, each up to `BUCKET` bytes or a little more.
        """
        filled = 0
        for number, (gradient, part) in enumerate(reversed(self.gradients), 1):
            filled += gradient.elements
            if filled * item_bytes(part.stack.precision.gradient) >= BUCKET or number == len(self.gradients):
                yield filled, part
                filled = 0


class ExpertGradients:
    """The computations and requests that reduce the gradients of one stage's experts to which token rows are sent.

    The gradients of a block of experts are reduced as soon as all of them are computed in the last pass. With split backwards,
    autograd does not tell when this is; then all blocks are reduced at the end of the step.
    """

    def __init__(self, tape: Tape, plan: Plan, stage: int) -> None:
        self.tape, self.last, self.copies = tape, plan.passes - 1, plan.sizes["edp"]
        self.noticed = stage == 0 or not plan.splits  # of tokens no gradient is wanted, so that theirs is one backward
        self.came: dict[int, int] = {}  # by place, the elements that the last pass has given
        self.blocks: dict[int, tuple[Part, int]] = {}  # by place, those of which all have come, with their elements
        self.asked: dict[int, tuple[int, ...]] = {}  # by place, the request that adds them up, if another rank has a copy

    def handle(self, gradient: Gradient, part: Part, place: int, pass_: int) -> None:
        """Add a gradient to the gradient that earlier passes have summed.

        In the last pass, its block of experts is reduced once all gradients of the block are computed.

        Args:
            gradient: The gradient.
            part: The part of the model that it belongs to.
            place: The number of the part in the stage.
            pass_: The number of the pass.
        """
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
        """Request the all_reduce of the gradients of a part's experts over the ranks that have copies, if others have any.

        Args:
            place: The number of the part in the stage.
        """
        part, elements = self.blocks[place]
        self.tape.compute(gradient_work(part.stack.precision, 4 * elements))  # put together, then divided
        ask = Ask("edp", "all_reduce", elements, part.stack.precision.gradient)
        self.asked[place] = (self.tape.ask(ask),) if self.copies > 1 else ()

    def settle(self) -> None:
        """Wait for the reduced gradients after the last backward, and copy them out of their buckets."""
        for place, (part, elements) in sorted(self.blocks.items()):
            if not self.noticed:
                self._ask(place)
            self.tape.join(*self.asked[place])
            self.tape.compute(gradient_work(part.stack.precision, 2 * elements))
